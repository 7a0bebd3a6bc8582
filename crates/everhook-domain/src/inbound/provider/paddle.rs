//! `paddle`: <https://developer.paddle.com/webhooks/signature-verification>.
//!
//! `Paddle-Signature: ts=<seconds>;h1=<hex>[;h1=…]`, HMAC-SHA256 under the secret over `ts:body`;
//! several `h1` while a secret is rotated. The `event_id` is the same for every destination,
//! attempt and replay; the `notification_id` is not.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::scheme::Timed;
use crate::inbound::{Context, InboundRequest, Rejection};

const SCHEME: Timed = Timed {
    header: "paddle-signature",
    between: &[';'],
    timestamp: "ts",
    signature: "h1",
    joint: b":",
};

/// See the module.
#[derive(Debug)]
pub(super) struct Paddle;

impl Provider for Paddle {
    fn facts(&self) -> &'static Facts {
        // Retried for three days.
        &Facts { word: "paddle", window_h: 96, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        SCHEME.verify(request, context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let members = [("event_id", draft.id), ("event_type", draft.event_type)];
        Some(SCHEME.sign(draft.object(context.now, &members), draft, context))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![Found::by_members(request.body, "event_id", "event_type")]
    }
}
