//! `svix`: <https://docs.svix.com/receiving/verifying-payloads/how-manual>. Many services send
//! through it.
//!
//! The scheme of Standard Webhooks under `svix-id`, `svix-timestamp` and `svix-signature`; where
//! not all of these are there, under the names of Standard Webhooks, as in Svix's own libraries.

use super::standard_webhooks::{self as standard, Names};
use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::{Context, InboundRequest, Rejection};
use crate::source::{InvalidSource, SourceSettings};

const NAMES: Names =
    Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

fn names(request: &InboundRequest<'_>) -> &'static Names {
    let plain = standard::NAMES.are_in(request) && !NAMES.are_in(request);
    if plain { &standard::NAMES } else { &NAMES }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Svix;

impl Provider for Svix {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "svix", ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        standard::check_secrets(settings, faults);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        standard::verify(names(request), request, context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        standard::imitate(&NAMES, draft, context)
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        standard::events(names(request), request)
    }
}
