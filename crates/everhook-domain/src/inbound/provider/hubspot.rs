//! `hubspot`:
//! <https://developers.hubspot.com/docs/guides/apps/authentication/validating-requests>.
//!
//! - v3: `X-HubSpot-Signature-v3` is base64 of HMAC-SHA256 under the client secret over method,
//!   URL, body and the milliseconds of `X-HubSpot-Request-Timestamp` as they were sent.
//! - v2: `X-HubSpot-Signature` is hex of SHA-256 of secret, method, URL and body.
//! - v1: the same header is hex of SHA-256 of secret and body.
//!
//! `X-HubSpot-Signature-Version` tells v1 from v2. Where v3 is there, only it counts. The body is
//! an array of events, or one object of a workflow. An `eventId` is not unique by itself, and
//! `attemptNumber` changes with every attempt, so that it does not count as content.

use sha2::{Digest, Sha256};

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::json::Object;
use crate::inbound::mac::{self, Spelling};
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection, array, tolerance};

const V3: Single =
    Single { header: "x-hubspot-signature-v3", prefix: "", spelling: Spelling::Base64 };
const OLDER: Single = Single { header: "x-hubspot-signature", prefix: "", spelling: Spelling::Hex };
const VERSION: &str = "x-hubspot-signature-version";
const TIMESTAMP: &str = "x-hubspot-request-timestamp";

/// What together identifies an event.
const KEY: [&str; 7] =
    ["appId", "portalId", "subscriptionId", "eventId", "occurredAt", "objectId", "propertyName"];

/// The escapes that are undone in a URL before it is signed in v3; all others stay.
const DECODED: [(&str, char); 12] = [
    ("3A", ':'),
    ("2F", '/'),
    ("3F", '?'),
    ("40", '@'),
    ("21", '!'),
    ("24", '$'),
    ("27", '\''),
    ("28", '('),
    ("29", ')'),
    ("2A", '*'),
    ("2C", ','),
    ("3B", ';'),
];

/// See the module.
#[derive(Debug)]
pub(super) struct HubSpot;

impl Provider for HubSpot {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "hubspot", methods: &["POST", "GET"], needs_url: true, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let (url, method) = (context.called_url(request)?, request.method.as_str().as_bytes());
        if request.headers.contains_key(V3.header) {
            let timestamp = request.required(TIMESTAMP)?;
            let at = tolerance::milliseconds(timestamp)
                .ok_or_else(|| Rejection::header(TIMESTAMP, "is not a number of milliseconds"))?;
            let url = decoded(&url);
            let signed = [method, url.as_bytes(), request.body, timestamp.as_bytes()];
            V3.verify(request, context, &signed)?;
            tolerance::check(at, context)?;
            return Ok(Genuine { signed_timestamp: Some(timestamp.to_owned()), signed: None });
        }
        if !request.headers.contains_key(OLDER.header) {
            return Err(Rejection::missing(V3.header));
        }
        let signature = OLDER.signature(request)?;
        let signed = match request.required(VERSION)? {
            "v1" => vec![request.body],
            "v2" => vec![method, url.as_bytes(), request.body],
            _ => return Err(Rejection::header(VERSION, "is neither v1 nor v2")),
        };
        mac::verify(&[signature], context.text_keys().map(|key| hash(key, &signed)))?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let url = decoded(&context.source.public_url.as_ref()?.called(draft.target));
        let timestamp = context.now.as_millis().to_string();
        let members = [("eventId", draft.id), ("subscriptionType", draft.event_type)];
        let made = draft.object(context.now, &members);
        let body = [b"[", &*made.body, b"]"].concat();
        let made = Imitation { body, ..made }.with(TIMESTAMP, &timestamp);
        Some(V3.sign(made, draft, context, [&format!("POST{url}"), &timestamp]))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        if let Some(found) = array::events(request.body, &context.source.options, event) {
            return found;
        }
        match Object::parse(request.body) {
            Some(object) => vec![event(&object)],
            None if request.body.is_empty() => vec![call(request, context)],
            None => vec![Found::unreadable("the body is neither a JSON array nor a JSON object")],
        }
    }
}

/// The hash of a secret and what follows it.
fn hash(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new_with_prefix(key);
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().into()
}

fn event<'a>(event: &Object<'a>) -> Found<'a> {
    let parts = || KEY.map(|name| event.scalar(name).unwrap_or_default()).into();
    Found {
        key: event.scalar("eventId").map(|_| parts()).unwrap_or_default(),
        key_is_signed: true,
        event_type: event.scalar("subscriptionType"),
        content: Some(content(event)),
        ..Found::default()
    }
}

/// All of an event but the number of the attempt.
fn content(event: &Object<'_>) -> Vec<Vec<u8>> {
    let members = event.members().filter(|(name, _)| *name != "attemptNumber");
    members.flat_map(|(name, value)| [name.into(), value.get().into()]).collect()
}

/// A request that says all with its URL.
fn call<'a>(request: &InboundRequest<'a>, context: &Context<'_>) -> Found<'a> {
    let url = context.called_url(request).ok();
    let part = |url: String| vec![request.method.as_str().to_owned().into(), url.into()];
    Found { key: url.map(part).unwrap_or_default(), key_is_signed: true, ..Found::default() }
}

/// The URL as v3 signs it.
fn decoded(url: &str) -> String {
    let mut pieces = url.split('%');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        // Upper and lower case are one escape (RFC 3986 §2.1).
        let escape = piece.split_at_checked(2).and_then(|(escape, rest)| {
            let known = DECODED.iter().find(|(digits, _)| digits.eq_ignore_ascii_case(escape));
            known.map(|(_, char)| (*char, rest))
        });
        let (char, rest) = escape.unwrap_or(('%', piece));
        text.push(char);
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escapes_of_the_table_are_undone() {
        for (url, expected) in [
            ("https://a.test/x", "https://a.test/x"),
            ("%3A%2F%3F%40%21%24%27%28%29%2A%2C%3B", ":/?@!$'()*,;"),
            ("%3D%26%20%C3%A4%25%2B%23", "%3D%26%20%C3%A4%25%2B%23"),
            ("a%3Ab%2%ä", "a:b%2%ä"),
            // What an undone escape leaves behind is not undone again.
            ("%253A%", "%253A%"),
            ("%3a%2f", ":/"),
        ] {
            assert_eq!(decoded(url), expected, "{url}");
        }
    }
}
