//! `linear`: <https://linear.app/developers/webhooks>.
//!
//! `Linear-Signature`: hex of HMAC-SHA256 under the secret over the body, whose `webhookTimestamp`
//! (milliseconds) says when it was sent. The header `Linear-Timestamp` counts where the body has
//! none, as in Linear's SDK. `Linear-Delivery` identifies the delivery and is not signed.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection, tolerance};

const SCHEME: Single = Single { header: "linear-signature", prefix: "", spelling: Spelling::Hex };

/// See the module.
#[derive(Debug)]
pub(super) struct Linear;

impl Provider for Linear {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "linear", ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        SCHEME.verify(request, context, &[request.body])?;
        let body = Object::parse(request.body);
        let signed = body.as_ref().and_then(|body| body.scalar("webhookTimestamp"));
        let unsigned = || request.described("linear-timestamp");
        let sent = signed.as_deref().or_else(unsigned).and_then(tolerance::milliseconds);
        if let Some(at) = sent {
            tolerance::check(at, context)?;
        }
        Ok(Genuine { signed_timestamp: signed.map(Into::into), signed: None })
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let sent = context.now.as_millis().to_string();
        let made = draft.object(context.now, &[("webhookTimestamp", &sent)]);
        let made = made.with("linear-delivery", draft.id);
        Some(SCHEME.sign(made, draft, context, ["", ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let found = Found::by_members(request.body, "", "type");
        let delivery = request.described("linear-delivery");
        let key = delivery.into_iter().map(Into::into).collect();
        vec![Found { key, key_is_signed: false, ..found }]
    }
}
