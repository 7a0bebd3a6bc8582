//! `stripe`: <https://docs.stripe.com/webhooks/signature>.
//!
//! `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=…][,v0=…]`, HMAC-SHA256 under the whole text of the
//! secret (with its `whsec_`) over `t.body`. Several `v1` while a secret is rolled; `v0` and unknown
//! schemes are passed over. The event's `id` is the same in every attempt and resend.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::json::Object;
use crate::inbound::mac::{self, SIGNATURES_MAX};
use crate::inbound::{Context, InboundRequest, Rejection, tolerance};

const HEADER: &str = "stripe-signature";

/// See the module.
#[derive(Debug)]
pub(super) struct Stripe;

impl Provider for Stripe {
    fn facts(&self) -> &'static Facts {
        // Retried for three days.
        &Facts { word: "stripe", window_h: 96, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let header = request.required(HEADER)?;
        let (mut timestamp, mut signatures) = (None, Vec::new());
        for (name, value) in header.split(',').filter_map(|entry| entry.trim().split_once('=')) {
            match name {
                "t" if timestamp.is_none() => timestamp = Some(value),
                "t" => return Err(Rejection::header(HEADER, "has two timestamps")),
                "v1" if signatures.len() < SIGNATURES_MAX => {
                    signatures.extend(mac::from_hex(value));
                }
                _ => {}
            }
        }
        let timestamp = timestamp.ok_or_else(|| Rejection::header(HEADER, "has no timestamp t"))?;
        let at = tolerance::seconds(timestamp)
            .ok_or_else(|| Rejection::header(HEADER, "has a timestamp that is not seconds"))?;
        if signatures.is_empty() {
            return Err(Rejection::header(HEADER, "has no readable v1 signature"));
        }
        let signed = [timestamp.as_bytes(), b".", request.body];
        mac::verify(&signatures, context.text_keys().map(|key| mac::sha256(key, &signed)))?;
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(event) = Object::parse(request.body) else {
            return vec![Found::unreadable("the body is not a JSON object")];
        };
        let found = Found {
            key: event.scalar("id").into_iter().collect(),
            key_is_signed: true,
            event_type: event.scalar("type"),
            ..Found::default()
        };
        vec![found]
    }
}
