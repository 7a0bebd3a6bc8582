//! `none`: anybody who knows the URL. The source's own word is that this is enough.
//!
//! The key is the sender's `Idempotency-Key`. Where there is none, equal bodies are one event,
//! unless the header that `options.timestamp_header` names tells them apart.

use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::inbound::{Context, InboundRequest, Rejection};
use crate::source::{InvalidSource, SourceSettings};

/// See the module.
#[derive(Debug)]
pub(super) struct None;

impl Provider for None {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "none",
            needs_secret: false,
            sender_chooses_key: true,
            options: &["timestamp_header"],
            ..USUAL
        }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        settings.options.own_header("timestamp_header", faults);
        if !settings.secrets.is_empty() {
            let detail = "this kind verifies nothing, so a secret would protect nothing: leave it \
                          out, or choose a kind that uses one, such as hmac";
            faults.push(InvalidSource::new("/secrets", detail));
        }
    }

    fn verify(&self, _: &InboundRequest<'_>, _: &Context<'_>) -> Result<Genuine, Rejection> {
        Ok(Genuine::default())
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![by_idempotency_key(request)]
    }
}

/// The event of a sender who chooses the key, in a header that is not signed.
pub(super) fn by_idempotency_key<'a>(request: &InboundRequest<'a>) -> Found<'a> {
    let key = request.described("idempotency-key");
    Found { key: key.into_iter().map(Into::into).collect(), ..Found::default() }
}
