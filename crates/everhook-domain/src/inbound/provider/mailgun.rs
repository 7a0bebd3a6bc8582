//! `mailgun`: what became of mail that was sent,
//! <https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/webhooks>.
//!
//! `{"signature": {timestamp, token, signature}, "event-data": {…}}`, where the signature is the
//! hexadecimal HMAC-SHA256 of timestamp and token under the webhook signing key. The event is not
//! signed, so whoever has seen one request could put its signature on any body: the same signed
//! pair under another key is flagged. The id of an event is unique within a day only, so the day
//! and the message (or the domain) belong to the key.

use std::borrow::Cow;

use serde_json::json;

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::digest;
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::{Context, InboundRequest, Rejection, mac, tolerance};
use crate::time::Timestamp;

/// See the module.
#[derive(Debug)]
pub(super) struct Mailgun;

impl Provider for Mailgun {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "mailgun", window_h: 24, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let body = Object::parse(request.body);
        let signature = body.and_then(|body| body.object("signature")).ok_or_else(|| {
            Rejection::Signature("the body is not a JSON object with a signature".to_owned())
        })?;
        let member = |name| signature.scalar(name);
        verify([member("timestamp"), member("token"), member("signature")], context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let event = draft.object(context.now, &[("event", draft.event_type)]);
        let mut signature = String::new();
        if draft.signed {
            let [timestamp, token, mac] = sign(draft, context);
            signature =
                json!({ "timestamp": timestamp, "token": token, "signature": mac }).to_string();
            signature = format!("\"signature\":{signature},");
        }
        let before = format!(r#"{{{signature}"event-data":"#);
        let body = [before.as_bytes(), &event.body, b"}"].concat();
        Some(Imitation { body, ..event })
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let event = Object::parse(request.body).and_then(|body| body.object("event-data"));
        let Some(event) = event else {
            return vec![Found::unreadable("the body has no event-data")];
        };
        let headers = event.object("message").and_then(|message| message.object("headers"));
        let message = headers.and_then(|headers| headers.scalar("message-id"));
        let domain = || event.object("domain")?.scalar("name");
        let scope = message.or_else(domain).unwrap_or_default();
        let key = event.scalar("id").map(|id| vec![scope, day(&event), id]);
        let event_type = event.scalar("event");
        vec![Found { key: key.unwrap_or_default(), event_type, ..Found::default() }]
    }
}

/// The day of the event, in UTC, as Mailgun's timestamp in seconds with a fraction says; empty
/// without one.
fn day<'a>(event: &Object<'a>) -> Cow<'a, str> {
    let seconds = event.scalar("timestamp").unwrap_or_default();
    let seconds = seconds.split('.').next().and_then(tolerance::seconds);
    let text = seconds.as_ref().map(Timestamp::to_string).unwrap_or_default();
    Cow::Owned(text.split('T').next().unwrap_or_default().to_owned())
}

/// Timestamp, token and signature of a draft.
pub(super) fn sign(draft: &Draft<'_>, context: &Context<'_>) -> [String; 3] {
    let timestamp = context.now.as_secs().to_string();
    let token = digest::hex(&digest::of_parts(&[draft.id]));
    let parts = [timestamp.as_bytes(), token.as_bytes()];
    let mac = digest::hex(&mac::sha256(context.signing_key(), &parts));
    [timestamp, token, mac]
}

/// Verifies timestamp, token and signature.
///
/// # Errors
/// [`Rejection`].
pub(super) fn verify(
    signed: [Option<Cow<'_, str>>; 3],
    context: &Context<'_>,
) -> Result<Genuine, Rejection> {
    let [Some(timestamp), Some(token), Some(signature)] = signed else {
        let detail = "the body has no timestamp, token and signature";
        return Err(Rejection::Signature(detail.to_owned()));
    };
    let at = tolerance::seconds(&timestamp).ok_or_else(|| {
        Rejection::Signature("the timestamp in the body is not seconds".to_owned())
    })?;
    let signature = mac::from_hex(&signature).ok_or_else(|| {
        Rejection::Signature("the signature in the body is not hexadecimal".to_owned())
    })?;
    let parts = [timestamp.as_bytes(), token.as_bytes()];
    mac::verify(&[signature], context.text_keys().map(|key| mac::sha256(key, &parts)))?;
    tolerance::check(at, context)?;
    let signed = Some(parts.concat());
    Ok(Genuine { signed_timestamp: Some(timestamp.into_owned()), signed })
}
