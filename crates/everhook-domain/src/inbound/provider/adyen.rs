//! `adyen`: <https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures/>.
//!
//! Each item of `notificationItems` has its signature in itself: base64 HMAC-SHA256 under a key
//! that is shown in hexadecimal, over eight of its fields, joined by colons. What else is in an
//! item is not signed. Webhooks for platforms are one object, signed as a whole in the header
//! `HmacSignature`.
//!
//! A request of which any item is not genuine is refused as a whole: nobody knows whose word such
//! an item is, so it must neither be stored nor be answered 2xx, and Adyen comes again with all.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::{self, Object};
use crate::inbound::judgement::Answer;
use crate::inbound::mac::Spelling;
use crate::inbound::{Context, InboundRequest, Rejection, array, mac};
use crate::source::{InvalidSource, SourceSettings};

const HEADER: &str = "hmacsignature";
const ITEM: &str = "NotificationRequestItem";

/// See the module.
#[derive(Debug)]
pub(super) struct Adyen;

impl Provider for Adyen {
    fn facts(&self) -> &'static Facts {
        // Kept in a queue and tried for days.
        &Facts { word: "adyen", window_h: 7 * 24, ..USUAL }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, |text| {
            let detail = "must be the HMAC key that Adyen shows, in hexadecimal";
            mac::from_hex(text).is_none().then_some(detail)
        });
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        if let Some(signature) = request.optional(HEADER)? {
            let fault = || Rejection::header(HEADER, "is not base64");
            let signature = mac::from_base64(signature).ok_or_else(fault)?;
            mac::verify(&[signature], keys(context).map(|key| mac::sha256(&key, &[request.body])))?;
            return Ok(Genuine::default());
        }
        let items = items(request.body).ok_or_else(|| {
            let detail = "the body is not a JSON object with notificationItems, each signed";
            Rejection::Signature(detail.to_owned())
        })?;
        if items.is_empty() {
            return Err(Rejection::Signature(
                "notificationItems is empty: nothing is signed".into(),
            ));
        }
        for (number, item) in (1..).zip(&items) {
            let item = Object::parse(item.get().as_bytes());
            if !item.is_some_and(|item| is_genuine(&item, context)) {
                let of = items.len();
                let detail = format!("the hmacSignature of item {number} of {of} fits no key");
                return Err(Rejection::Signature(detail));
            }
        }
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let key = keys(context).next()?;
        let made = draft.object(context.now, &[]);
        let mac = |made: &Imitation| Spelling::Base64.write(&mac::sha256(&key, &[&made.body]));
        Some(made.signed(draft, HEADER, mac))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        let Some(body) = Object::parse(request.body) else {
            return vec![Found::unreadable("the body is not a JSON object")];
        };
        let Some(items) = items(request.body) else {
            let event_type = body.scalar("type");
            return vec![Found { event_type, key_is_signed: true, ..Found::default() }];
        };
        let live = body.raw("live").map(|live| format!("\"live\":{live},")).unwrap_or_default();
        let before = format!("{{{live}\"notificationItems\":[");
        array::split(&items, (before.as_bytes(), b"]}"), &context.source.options, event)
    }

    fn answer(&self, _duplicate: bool) -> Option<Answer> {
        Some(Answer {
            status: 200,
            headers: vec![("content-type", "text/plain".to_owned())],
            body: b"[accepted]".to_vec(),
        })
    }
}

fn keys(context: &Context<'_>) -> impl Iterator<Item = Vec<u8>> {
    context.source.secrets.iter().filter_map(|secret| mac::from_hex(secret.expose()))
}

fn items(body: &[u8]) -> Option<Vec<&RawValue>> {
    json::items(Object::parse(body)?.raw("notificationItems")?.get().as_bytes())
}

/// Whether the item has the signature of its eight fields.
fn is_genuine(item: &Object<'_>, context: &Context<'_>) -> bool {
    let Some(item) = item.object(ITEM) else { return false };
    let additional = item.object("additionalData");
    let signature = additional.and_then(|data| mac::from_base64(&data.scalar("hmacSignature")?));
    let Some(signature) = signature else { return false };
    let amount = item.object("amount");
    let of_amount = |name| amount.as_ref().and_then(|amount| amount.scalar(name));
    let fields = [
        item.scalar("pspReference"),
        item.scalar("originalReference"),
        item.scalar("merchantAccountCode"),
        item.scalar("merchantReference"),
        of_amount("value"),
        of_amount("currency"),
        item.scalar("eventCode"),
        item.scalar("success"),
    ];
    let signed = fields.map(Option::unwrap_or_default).join(":");
    let expected = keys(context).map(|key| mac::sha256(&key, &[signed.as_bytes()]));
    mac::verify(&[signature], expected).is_ok()
}

/// Several things that happen to a payment have its reference; what happened belongs to the key.
fn event<'a>(item: &Object<'a>) -> Found<'a> {
    let Some(item) = item.object(ITEM) else {
        return Found::unreadable("the item has no NotificationRequestItem");
    };
    let names = ["merchantAccountCode", "pspReference", "eventCode", "success"];
    let key: Vec<Cow<'a, str>> =
        names.iter().map(|name| item.scalar(name).unwrap_or_default()).collect();
    let identified = !key[1].is_empty();
    Found {
        key: if identified { key } else { Vec::new() },
        key_is_signed: true,
        event_type: item.scalar("eventCode"),
        ..Found::default()
    }
}
