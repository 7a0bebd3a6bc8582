//! `slack`: <https://docs.slack.dev/authentication/verifying-requests-from-slack>.
//!
//! `X-Slack-Signature: v0=<hex>`, HMAC-SHA256 under the signing secret over `v0:timestamp:body`,
//! with the seconds of `X-Slack-Request-Timestamp`. Events are JSON with an `event_id`; commands
//! are forms with a `trigger_id`; interactions are forms with the JSON in the field `payload`. A
//! retry has headers of its own, which prove nothing: the first try may have failed.
//!
//! The address is tried with a challenge, which is given back. All else is answered without a
//! body, because Slack shows what it gets to the user who typed a command.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Answer, Context, Handshake, InboundRequest, Rejection, form, tolerance};

const TIMESTAMP: &str = "x-slack-request-timestamp";
const SCHEME: Single =
    Single { header: "x-slack-signature", prefix: "v0=", spelling: Spelling::Hex };

/// See the module.
#[derive(Debug)]
pub(super) struct Slack;

impl Provider for Slack {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "slack", ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let timestamp = request.required(TIMESTAMP)?;
        let at = tolerance::seconds(timestamp)
            .ok_or_else(|| Rejection::header(TIMESTAMP, "is not a number of whole seconds"))?;
        let signed = [b"v0:", timestamp.as_bytes(), b":", request.body];
        SCHEME.verify(request, context, &signed)?;
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
    }

    fn handshake(&self, request: &InboundRequest<'_>, _: &Context<'_>) -> Option<Handshake> {
        let body = Object::parse(request.body)?;
        if body.scalar("type")? != "url_verification" {
            return None;
        }
        let body = serde_json::json!({ "challenge": body.scalar("challenge")? });
        Some(Handshake::Answer(Answer {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string().into_bytes(),
        }))
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let timestamp = context.now.as_secs().to_string();
        let made = draft.object(context.now, &[("event_id", draft.id)]).with(TIMESTAMP, &timestamp);
        Some(SCHEME.sign(made, draft, context, [&format!("v0:{timestamp}:"), ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        if form::is_body_of(request) {
            return vec![asked_for(request.body)];
        }
        let found = Found::by_members(request.body, "event_id", "type");
        // That it is an event is no news: what happened is inside.
        let event = Object::parse(request.body).and_then(|body| body.object("event"));
        let event_type = event.and_then(|event| event.scalar("type")).or(found.event_type);
        vec![Found { event_type, ..found }]
    }

    fn answer(&self, _: bool) -> Option<Answer> {
        Some(Answer { status: 200, ..Answer::default() })
    }
}

/// A command or an interaction.
fn asked_for(body: &[u8]) -> Found<'_> {
    let Some(payload) = form::field(body, "payload") else {
        let trigger = form::field(body, "trigger_id");
        let is_command = form::field(body, "command").is_some();
        return Found {
            key: trigger.into_iter().collect(),
            key_is_signed: true,
            // What Slack calls their envelopes in its Socket Mode.
            event_type: is_command.then_some(Cow::Borrowed("slash_commands")),
            ..Found::default()
        };
    };
    let Some(payload) = Object::parse(payload.as_bytes()) else {
        return Found::unreadable("the field payload of the form is not a JSON object");
    };
    let owned = |name| payload.scalar(name).map(|text| Cow::Owned(text.into_owned()));
    Found {
        key: owned("trigger_id").or_else(|| owned("action_ts")).into_iter().collect(),
        key_is_signed: true,
        event_type: owned("type"),
        ..Found::default()
    }
}
