//! `square`: <https://developer.squareup.com/docs/webhooks/step3validate>.
//!
//! `x-square-hmacsha256-signature`: base64 of HMAC-SHA256 under the signature key over the
//! notification URL, as it is registered, and the body. No timestamp is signed.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection};

const SCHEME: Single =
    Single { header: "x-square-hmacsha256-signature", prefix: "", spelling: Spelling::Base64 };

/// See the module.
#[derive(Debug)]
pub(super) struct Square;

impl Provider for Square {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "square", needs_url: true, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let url = context.called_url(request)?;
        SCHEME.verify(request, context, &[url.as_bytes(), request.body])?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let url = context.source.public_url.as_ref()?.called(draft.target);
        let made = draft.object(context.now, &[("event_id", draft.id)]);
        Some(SCHEME.sign(made, draft, context, [&url, ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![Found::by_members(request.body, "event_id", "type")]
    }
}
