//! `postmark`: mail that came in, and what became of mail that was sent,
//! <https://postmarkapp.com/developer/webhooks/webhooks-overview>.
//!
//! Nothing is signed; the secret is the `user:password` in the URL of the webhook. `MessageID` is
//! Postmark's own id of the copy that one mailbox got. Of mail that was sent it is shared by every
//! event about it, so these are told apart by what happened, to whom, and when; bounces and
//! complaints have an id of their own, a number of 64 bits.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::json::Object;
use crate::inbound::{Context, InboundRequest, Rejection, basic};
use crate::source::{InvalidSource, SourceSettings};

/// When it happened, by what happened.
const TIMES: [&str; 4] = ["DeliveredAt", "BouncedAt", "ReceivedAt", "ChangedAt"];

/// See the module.
#[derive(Debug)]
pub(super) struct Postmark;

impl Provider for Postmark {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "postmark", window_h: 24, ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, basic::fault);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        basic::verify(request, context.text_keys())?;
        Ok(Genuine::default())
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(event) = Object::parse(request.body) else {
            return vec![Found::unreadable("the body is not a JSON object")];
        };
        let record = event.scalar("RecordType").filter(|record| record != "Inbound");
        let record = record.unwrap_or(Cow::Borrowed("inbound"));
        let key = key(&event, &record).unwrap_or_default();
        vec![Found { key, event_type: Some(record), ..Found::default() }]
    }
}

fn key<'a>(event: &Object<'a>, record: &Cow<'a, str>) -> Option<Vec<Cow<'a, str>>> {
    if record == "inbound" {
        return Some(vec![record.clone(), event.scalar("MessageID")?]);
    }
    if let Some(id) = event.scalar("ID") {
        return Some(vec![record.clone(), id]);
    }
    let recipient = event.scalar("Recipient").or_else(|| event.scalar("Email"));
    let time = TIMES.iter().find_map(|name| event.scalar(name));
    let message = event.scalar("MessageID")?;
    Some(vec![record.clone(), message, recipient.unwrap_or_default(), time.unwrap_or_default()])
}
