//! `shopify`: <https://shopify.dev/docs/apps/build/webhooks/subscribe/https>.
//!
//! `X-Shopify-Hmac-Sha256`: base64 of HMAC-SHA256 under the app's client secret over the body. No
//! timestamp is signed, so the ID is the only protection against replays, and a `Triggered-At` of
//! long ago is a retry, not an attack. Newer deliveries have the same headers without `X-`.
//!
//! `Webhook-Id` is the delivery's, `Event-Id` that of the merchant's action, which several topics
//! may share; `options.dedupe_by: event` takes the latter with the topic. IDs are a shop's own.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL, check_usual};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mac::Spelling;
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};

const SCHEME: Single =
    Single { header: "x-shopify-hmac-sha256", prefix: "", spelling: Spelling::Base64 };
const SCHEME_OF_EVENTS: Single = Single { header: "shopify-hmac-sha256", ..SCHEME };

#[derive(Clone, Copy)]
enum DedupeBy {
    Delivery,
    Event,
}

fn dedupe_by(options: &SourceOptions, faults: &mut Vec<InvalidSource>) -> DedupeBy {
    let words = [("delivery", DedupeBy::Delivery), ("event", DedupeBy::Event)];
    options.own_word("dedupe_by", &words, DedupeBy::Delivery, faults)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shopify;

impl Provider for Shopify {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "shopify", options: &["dedupe_by"], ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        dedupe_by(&settings.options, faults);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let newer = !request.headers.contains_key(SCHEME.header)
            && request.headers.contains_key(SCHEME_OF_EVENTS.header);
        let scheme = if newer { SCHEME_OF_EVENTS } else { SCHEME };
        scheme.verify(request, context, &[request.body])?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let made = draft.object(context.now, &[]).with("x-shopify-webhook-id", draft.id);
        let made = made.with("x-shopify-event-id", draft.id);
        let made = made.with("x-shopify-topic", draft.event_type);
        Some(SCHEME.sign(made, draft, context, ["", ""]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        let of = |old, new| request.described(old).or_else(|| request.described(new));
        let shop = of("x-shopify-shop-domain", "shopify-shop-domain").unwrap_or_default();
        let topic = of("x-shopify-topic", "shopify-topic");
        let action = request.described("shopify-action");
        let event_type: Option<Cow<'a, str>> = match (topic, action) {
            // What one family says in one word, the other says in two.
            (Some(topic), Some(action)) if !topic.contains('/') => {
                Some(Cow::Owned(format!("{topic}/{action}")))
            }
            (topic, _) => topic.map(Into::into),
        };
        let key = match dedupe_by(&context.source.options, &mut Vec::new()) {
            DedupeBy::Event => of("x-shopify-event-id", "shopify-event-id").map(|event| {
                vec![shop.into(), event.into(), event_type.clone().unwrap_or_default()]
            }),
            DedupeBy::Delivery => of("x-shopify-webhook-id", "shopify-webhook-id")
                .map(|delivery| vec![shop.into(), delivery.into()]),
        };
        vec![Found { key: key.unwrap_or_default(), event_type, ..Found::default() }]
    }
}
