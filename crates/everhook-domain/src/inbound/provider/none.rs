//! `none`: anybody who knows the URL. The source's own word is that this is enough.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::{Context, InboundRequest, Rejection};

/// See the module.
#[derive(Debug)]
pub(super) struct None;

impl Provider for None {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "none", needs_secret: false, sender_chooses_key: true, ..USUAL }
    }

    fn verify(&self, _: &InboundRequest<'_>, _: &Context<'_>) -> Result<Genuine, Rejection> {
        Ok(Genuine::default())
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let key = request.described("idempotency-key").filter(|key| !key.is_empty());
        vec![Found { key: key.into_iter().map(Into::into).collect(), ..Found::default() }]
    }
}
