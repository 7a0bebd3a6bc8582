//! `github`: <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>.
//!
//! `X-Hub-Signature-256: sha256=<hex>`, HMAC-SHA256 under the secret over the body, be it JSON or
//! a form; the older header with SHA-1 is no proof. No timestamp is signed. `X-GitHub-Delivery` is
//! the same when a delivery is sent again by hand, and it is not signed.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection};

const SCHEME: Single =
    Single { header: "x-hub-signature-256", prefix: "sha256=", spelling: Spelling::Hex };

/// See the module.
#[derive(Debug)]
pub(super) struct GitHub;

impl Provider for GitHub {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "github", ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        SCHEME.verify(request, context, &[request.body])?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let made = draft.object(context.now, &[]).with("x-github-delivery", draft.id);
        let made = made.with("x-github-event", draft.event_type);
        Some(SCHEME.sign(made, draft, context, ["", ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let delivery = request.described("x-github-delivery");
        vec![Found {
            key: delivery.into_iter().map(Into::into).collect(),
            event_type: request.described("x-github-event").map(Into::into),
            ..Found::default()
        }]
    }
}
