//! `zendesk`: <https://developer.zendesk.com/documentation/webhooks/verifying/>.
//!
//! `X-Zendesk-Webhook-Signature`: base64 of HMAC-SHA256 under the secret, as text, over the text
//! of `X-Zendesk-Webhook-Signature-Timestamp` (ISO 8601) and the body, which may be empty.
//!
//! Webhooks that are subscribed to events have an `id` in their body; what triggers and
//! automations send is their author's, so an `id` there may be anything, and the invocation, which
//! is not signed, identifies them.

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection, tolerance};
use crate::source::{InvalidSource, SourceSettings};
use crate::time::Timestamp;

const TIMESTAMP: &str = "x-zendesk-webhook-signature-timestamp";
const SCHEME: Single =
    Single { header: "x-zendesk-webhook-signature", prefix: "", spelling: Spelling::Base64 };

/// What signs the tests of a webhook that has not been created yet: the same for everybody, and in
/// the documentation.
const PUBLIC_SECRET: &str = "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==";
/// What the types of events begin with.
const EVENT: &str = "zen:event-type:";

/// See the module.
#[derive(Debug)]
pub(super) struct Zendesk;

impl Provider for Zendesk {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "zendesk", methods: &["POST", "GET", "PUT", "DELETE"], ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, |text| {
            (text.trim() == PUBLIC_SECRET).then_some(
                "is the secret that everybody's tests are signed with: create the webhook, and \
                 take the secret that is shown then",
            )
        });
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let timestamp = request.required(TIMESTAMP)?;
        let at = Timestamp::parse(timestamp)
            .ok()
            .or_else(|| tolerance::seconds(timestamp))
            .ok_or_else(|| Rejection::header(TIMESTAMP, "is not an ISO 8601 time"))?;
        SCHEME.verify(request, context, &[timestamp.as_bytes(), request.body])?;
        tolerance::check(at, context)?;
        Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None })
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let timestamp = context.now.to_string();
        let made = draft.object(context.now, &[]).with(TIMESTAMP, &timestamp);
        let made = made.with("x-zendesk-webhook-invocation-id", draft.id);
        Some(SCHEME.sign(made, draft, context, [&timestamp, ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let body = Object::parse(request.body);
        let member = |name| body.as_ref().and_then(|body| body.scalar(name));
        let event_type = member("type").filter(|word| word.starts_with(EVENT));
        let id = event_type.as_ref().and_then(|_| member("id"));
        let key_is_signed = id.is_some();
        let invocation = || request.described("x-zendesk-webhook-invocation-id").map(Into::into);
        vec![Found {
            key: id.or_else(invocation).into_iter().collect(),
            key_is_signed,
            event_type,
            ..Found::default()
        }]
    }
}
