//! `telnyx`: <https://developers.telnyx.com/docs/messaging/messages/receiving-webhooks>.
//!
//! Ed25519 over `timestamp|body`, in base64. The event's id is `data.id`, the same in every
//! attempt, at the first URL and at the one for failures; `meta.attempt` grows.

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::ed25519;
use crate::inbound::json::Object;
use crate::inbound::{Context, InboundRequest, Rejection, mac, tolerance};
use crate::source::{InvalidSource, SourceSettings};

const SIGNATURE: &str = "telnyx-signature-ed25519";
const TIMESTAMP: &str = "telnyx-timestamp";

/// See the module.
#[derive(Debug)]
pub(super) struct Telnyx;

impl Provider for Telnyx {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "telnyx", window_h: 24, ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, |text| {
            let key = mac::from_base64(text).filter(|key| key.len() == ed25519::KEY_BYTES);
            let detail = "must be the public key that Telnyx shows: 32 bytes in base64";
            key.is_none().then_some(detail)
        });
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let signature = mac::from_base64(request.required(SIGNATURE)?)
            .ok_or_else(|| Rejection::header(SIGNATURE, "is not base64"))?;
        let timestamp = request.required(TIMESTAMP)?;
        let at = tolerance::seconds(timestamp)
            .ok_or_else(|| Rejection::header(TIMESTAMP, "is not seconds"))?;
        let signed = [timestamp.as_bytes(), b"|", request.body].concat();
        let secrets = context.source.secrets.iter();
        let mut keys = secrets.filter_map(|secret| mac::from_base64(secret.expose()));
        if !keys.any(|key| ed25519::fits(&key, &signed, &signature)) {
            return Err(Rejection::mismatch());
        }
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(body) = Object::parse(request.body) else {
            return vec![Found::unreadable("the body is not a JSON object")];
        };
        let data = body.object("data");
        let found = Found {
            key: data.as_ref().and_then(|data| data.scalar("id")).into_iter().collect(),
            key_is_signed: true,
            event_type: data.as_ref().and_then(|data| data.scalar("event_type")),
            ..Found::default()
        };
        vec![found]
    }
}
