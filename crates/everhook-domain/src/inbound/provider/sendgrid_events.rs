//! `sendgrid_events`: what became of mail that was sent,
//! <https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event>.
//!
//! An array of events, with line breaks between and after them that are signed too. The signature
//! is ECDSA on P-256 with SHA-256 over the timestamp of its header and the body; the key is the one
//! that the settings of the webhook show. `sg_event_id` identifies an event; users tell of events
//! that lack it, so then everything that tells one event from another is the key.

use std::borrow::Cow;

use rustls_pki_types::SubjectPublicKeyInfoDer;

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::json::Object;
use crate::inbound::{Context, InboundRequest, Rejection, array, mac, public_key, tolerance};
use crate::source::{InvalidSource, SourceSettings};

/// The header with the signature.
pub(super) const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";
const TIMESTAMP: &str = "x-twilio-email-event-webhook-timestamp";

/// What tells events without an id apart.
const INSTEAD: [&str; 5] = ["email", "event", "timestamp", "sg_message_id", "url"];

/// See the module.
#[derive(Debug)]
pub(super) struct SendgridEvents;

impl Provider for SendgridEvents {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "sendgrid_events", window_h: 24, ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, |text| {
            let detail = "must be the verification key that SendGrid shows: a public key in base64";
            public_key::p256(text).is_none().then_some(detail)
        });
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let secrets = context.source.secrets.iter();
        verify(request, context, secrets.filter_map(|secret| public_key::p256(secret.expose())))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        array::events(request.body, &context.source.options, event)
            .unwrap_or_else(|| vec![Found::unreadable("the body is not a JSON array")])
    }
}

fn event<'a>(event: &Object<'a>) -> Found<'a> {
    let key = match event.scalar("sg_event_id") {
        Some(id) => vec![id],
        None => instead(event),
    };
    Found { key, key_is_signed: true, event_type: event.scalar("event"), ..Found::default() }
}

fn instead<'a>(event: &Object<'a>) -> Vec<Cow<'a, str>> {
    let values: Vec<_> = INSTEAD.iter().map(|name| event.scalar(name)).collect();
    match values.iter().all(Option::is_none) {
        true => Vec::new(),
        false => values.into_iter().map(Option::unwrap_or_default).collect(),
    }
}

/// Verifies the signature of SendGrid, of whatever is in the body.
///
/// # Errors
/// [`Rejection`].
pub(super) fn verify(
    request: &InboundRequest<'_>,
    context: &Context<'_>,
    mut keys: impl Iterator<Item = SubjectPublicKeyInfoDer<'static>>,
) -> Result<Genuine, Rejection> {
    let signature = mac::from_base64(request.required(SIGNATURE)?)
        .ok_or_else(|| Rejection::header(SIGNATURE, "is not base64"))?;
    let timestamp = request.required(TIMESTAMP)?;
    let at = tolerance::seconds(timestamp)
        .ok_or_else(|| Rejection::header(TIMESTAMP, "is not seconds"))?;
    let signed = [timestamp.as_bytes(), request.body].concat();
    if !keys.any(|key| public_key::p256_fits(&key, &signed, &signature)) {
        return Err(Rejection::mismatch());
    }
    tolerance::check(at, context)?;
    Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
}
