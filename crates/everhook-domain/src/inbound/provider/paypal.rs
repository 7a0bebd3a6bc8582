//! `paypal`: <https://developer.paypal.com/api/rest/webhooks/rest/>.
//!
//! RSA with SHA-256 over `transmission id|time|webhook id|CRC-32 of the body`; the webhook's id is
//! the option `webhook_id`. The key is in the certificate at `PAYPAL-CERT-URL`, which must be under
//! `paypal.com`, vouched for by a public authority, and for a host there; whether it was revoked is
//! not asked. A source may instead pin certificates as its secrets.
//!
//! Anybody can make another body with the same CRC-32, so the event's id is as good as unsigned:
//! the same signature with another id is flagged.

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::certificate::{self, Signers};
use crate::inbound::json::Object;
use crate::inbound::public_key::{self, RsaHash};
use crate::inbound::{Context, InboundRequest, Rejection, mac, tolerance};
use crate::source::{InvalidSource, SourceSettings};
use crate::time::Timestamp;

const ID: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";
const DOMAIN: &str = "paypal.com";
const WEBHOOK_ID: &str = "webhook_id";

/// See the module.
#[derive(Debug)]
pub(super) struct Paypal;

impl Provider for Paypal {
    fn facts(&self) -> &'static Facts {
        // Tried for three days.
        &Facts {
            word: "paypal",
            window_h: 96,
            needs_secret: false,
            options: &[WEBHOOK_ID],
            ..USUAL
        }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, certificate::fault);
        let id = settings.options.own_short(WEBHOOK_ID, faults).unwrap_or_default();
        if id.is_empty() {
            let detail = "is needed: the webhook's id, which PayPal shows beside its URL";
            faults.push(InvalidSource::new("/options/webhook_id", detail));
        }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        if request.required(ALGORITHM)? != "SHA256withRSA" {
            return Err(Rejection::header(ALGORITHM, "is not SHA256withRSA"));
        }
        let time = request.required(TIME)?;
        let at = Timestamp::parse(time)
            .map_err(|_| Rejection::header(TIME, "is not an RFC 3339 time"))?;
        let signature = mac::from_base64(request.required(SIGNATURE)?)
            .ok_or_else(|| Rejection::header(SIGNATURE, "is not base64"))?;
        let is_allowed = |host: &str| public_key::is_under(host, DOMAIN);
        let (url, _) = certificate::url(request.required(CERTIFICATE)?, is_allowed)
            .ok_or_else(|| Rejection::header(CERTIFICATE, "is not https under paypal.com"))?;
        let webhook = context.source.options.own_text(WEBHOOK_ID).ok_or_else(|| {
            Rejection::Misconfigured("the source has no options.webhook_id".to_owned())
        })?;
        let mut crc = flate2::Crc::new();
        crc.update(request.body);
        let signed = format!("{}|{time}|{webhook}|{}", request.required(ID)?, crc.sum());
        let signers = match certificate::signers(context, url)? {
            Signers::Pinned(chains) => chains,
            Signers::Fetched(chain) => {
                let roots = webpki_roots::TLS_SERVER_ROOTS;
                if !public_key::is_vouched_for(&chain, DOMAIN, roots, context.now) {
                    let fault = "names a certificate that no public authority vouches for, now and \
                                 for a host under paypal.com";
                    return Err(Rejection::header(CERTIFICATE, fault));
                }
                vec![chain]
            }
        };
        let bytes = signed.as_bytes();
        let fits = |chain: &Vec<_>| {
            let first = chain.first();
            first.is_some_and(|it| public_key::rsa_fits(it, RsaHash::Sha256, bytes, &signature))
        };
        if !signers.iter().any(fits) {
            return Err(Rejection::mismatch());
        }
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(time.to_owned()), signed: Some(signed.into_bytes()) })
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(event) = Object::parse(request.body) else {
            return vec![Found::unreadable("the body is not a JSON object")];
        };
        vec![Found {
            key: event.scalar("id").into_iter().collect(),
            event_type: event.scalar("event_type"),
            ..Found::default()
        }]
    }
}
