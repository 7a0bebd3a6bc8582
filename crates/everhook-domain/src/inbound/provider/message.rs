//! `message`: another Everhook, or whoever sends as it does.
//!
//! The scheme of Standard Webhooks. The same id stands in `X-Message-Webhook-Id` for those who read
//! only that; it is not signed, so one that differs is refused.

use super::standard_webhooks as standard;
use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::{Context, InboundRequest, Rejection};
use crate::source::{InvalidSource, SourceSettings};

/// The id, once more.
const HEADER: &str = "x-message-webhook-id";

/// See the module.
#[derive(Debug)]
pub(super) struct Message;

impl Provider for Message {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "message", ..USUAL }
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
        let genuine = standard::verify(&standard::NAMES, request, context)?;
        let other = request.optional(HEADER)?;
        if other.is_some() && other != request.optional(standard::NAMES.id)? {
            return Err(Rejection::header(HEADER, "differs from webhook-id"));
        }
        Ok(genuine)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        standard::imitate(&standard::NAMES, draft, context)
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        standard::events(&standard::NAMES, request)
    }
}
