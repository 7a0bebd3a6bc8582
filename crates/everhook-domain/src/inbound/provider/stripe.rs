//! `stripe`: <https://docs.stripe.com/webhooks/signature>.
//!
//! `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=…][,v0=…]`, HMAC-SHA256 under the whole text of the
//! secret (with its `whsec_`) over `t.body`. Several `v1` while a secret is rolled; `v0` and
//! unknown schemes are passed over. The event's `id` is the same in every attempt and resend.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::scheme::Timed;
use crate::inbound::{Context, InboundRequest, Rejection};

const SCHEME: Timed = Timed {
    header: "stripe-signature",
    between: &[','],
    timestamp: "t",
    signature: "v1",
    joint: b".",
};

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
        SCHEME.verify(request, context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        Some(SCHEME.sign(draft.object(context.now, &[]), draft, context))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![Found::by_members(request.body, "id", "type")]
    }
}
