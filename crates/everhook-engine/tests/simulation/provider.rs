//! Providers: how each kind spells and signs a request, and what it means by it. The meaning is
//! what the rules of the contract give, computed here without the code under test.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use everhook_domain::time::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use sha2::Sha256;

use crate::sources::{Happening, Kind, Letter, SourcePlan};

/// Headers by name, lower case, each with its values in order.
pub(crate) type Headers = BTreeMap<String, Vec<Vec<u8>>>;

/// Headers of every request; whether they go on to endpoints.
const COMMON: [(&str, &[u8], bool); 14] = [
    ("host", b"hooks.test", false),
    ("user-agent", b"Sender/1.0", true),
    ("content-type", b"application/json; charset=x", true),
    ("x-two", b"1", true),
    ("x-two", b"2", true),
    ("x-odd", b"\xff\xd8 text", true),
    // The endpoint's owner has set one of this name.
    ("x-revision", b"theirs", true),
    ("connection", b"close, x-hop", false),
    ("x-hop", b"1", false),
    ("cookie", b"a=b", false),
    ("authorization", b"Basic eDp5", false),
    ("x-forwarded-for", b"192.0.2.1", false),
    ("webhook-id", b"theirs", false),
    ("x-message-webhook-attempt", b"77", false),
];

/// A request on the wire, and what it means.
pub(crate) struct Composed {
    /// Path and query.
    pub(crate) target: String,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
    /// What it means.
    pub(crate) meaning: Meaning,
}

/// What a request means.
pub(crate) struct Meaning {
    /// The place of its source.
    pub(crate) source: usize,
    /// Each of its events.
    pub(crate) events: Vec<Meant>,
    /// The headers that go on.
    pub(crate) headers: Arc<Headers>,
}

/// What an event means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    /// What identifies it within its source.
    pub(crate) key: Vec<u8>,
    /// What tells its content from another's.
    pub(crate) content: Vec<u8>,
    /// What no other key may come with.
    pub(crate) guard: Option<Vec<u8>>,
    /// Whether it can be read.
    pub(crate) readable: bool,
    /// Its type.
    pub(crate) event_type: String,
    /// What goes on.
    pub(crate) body: Vec<u8>,
}

/// The name of a source.
pub(crate) fn name_of(source: usize) -> String {
    format!("s{source}")
}

/// The URL that a provider calls.
pub(crate) fn url_of(source: usize) -> String {
    format!("https://hooks.test/in/s{source}")
}

/// A letter as its sender signs it at this instant.
pub(crate) fn compose(plan: &SourcePlan, letter: &Letter, secret: &str, at: Timestamp) -> Composed {
    let timestamp = match plan.kind {
        Kind::HubSpot => at.as_millis().to_string(),
        Kind::Stripe | Kind::Hmac => at.as_secs().to_string(),
        Kind::GitHub | Kind::Nobody => String::new(),
    };
    let items: Vec<_> =
        letter.happenings.iter().map(|happening| item(plan.kind, *happening)).collect();
    let body = match plan.kind {
        Kind::HubSpot => [b"[ ", items.join(&b" ,\r\n"[..]).as_slice(), b"]"].concat(),
        Kind::Stripe | Kind::GitHub | Kind::Hmac | Kind::Nobody => items.concat(),
    };
    let mut own = signature(plan.kind, letter.source, secret, (&timestamp, &body));
    if let Some((name, id)) = id_header(plan.kind).zip(letter.happenings[0].id) {
        own.push((name, id_text(id)));
    }
    let several = items.len() > 1;
    let (headers, mut forwarded) = headers(&own, several);
    let parts = Parts { plan, source: letter.source, timestamp: &timestamp, body: &body };
    let happenings = letter.happenings.iter().zip(items).enumerate();
    let events = happenings
        .map(|(index, (happening, item))| parts.meant(index, *happening, (item, several)));
    let events = events.collect();
    let target = format!("/in/{}", name_of(letter.source));
    let called = match plan.kind {
        Kind::HubSpot => url_of(letter.source),
        Kind::Stripe | Kind::GitHub | Kind::Hmac | Kind::Nobody => target.clone(),
    };
    forwarded.insert("x-message-received-method".to_owned(), vec![b"POST".to_vec()]);
    forwarded.insert("x-message-received-url".to_owned(), vec![called.into_bytes()]);
    let meaning = Meaning { source: letter.source, events, headers: Arc::new(forwarded) };
    Composed { target, headers, body: Bytes::from(body), meaning }
}

fn id_text(id: u32) -> String {
    format!("evt-{id}")
}

/// Where the id is, unless it is in the body.
fn id_header(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::GitHub => Some("x-github-delivery"),
        Kind::Hmac | Kind::Nobody => Some("idempotency-key"),
        Kind::Stripe | Kind::HubSpot => None,
    }
}

/// The bytes of one event, spelled as no serialiser would.
fn item(kind: Kind, Happening { id, content }: Happening) -> Vec<u8> {
    let text = match (kind, id) {
        (Kind::Stripe, Some(id)) => {
            format!(r#"{{"v": {content} ,"id":"{}","a":1.50,"type":"charge.made"}}"#, id_text(id))
        }
        (Kind::Stripe, None) => format!(r#"{{"v":{content}, "type":"charge.made"}}"#),
        (Kind::GitHub, _) => format!(r#"{{"ref":"\u00e4\/", "v":1e{content}}}"#),
        // An eventId is not unique by itself.
        (Kind::HubSpot, Some(id)) => {
            let (event, object) = (id % 2, id / 2);
            let names = format!(r#""eventId":{event}, "objectId": {object}"#);
            format!(r#"{{{names},"subscriptionType":"deal.made","propertyValue":{content}}}"#)
        }
        (Kind::HubSpot, None) => format!("{content}.50"),
        (Kind::Hmac | Kind::Nobody, _) => format!("a=b&v={content}"),
    };
    match kind {
        Kind::Hmac | Kind::Nobody => [text.as_bytes(), b"&c=\xff\x00"].concat(),
        Kind::Stripe | Kind::GitHub | Kind::HubSpot => text.into_bytes(),
    }
}

/// The headers that sign a request.
fn signature(
    kind: Kind,
    source: usize,
    secret: &str,
    (timestamp, body): (&str, &[u8]),
) -> Vec<(&'static str, String)> {
    match kind {
        Kind::Stripe => {
            let mac = hex(&mac(secret, &[timestamp.as_bytes(), b".", body]));
            vec![("stripe-signature", format!("t={timestamp},v1={mac},v0=00"))]
        }
        Kind::GitHub => {
            let mac = format!("sha256={}", hex(&mac(secret, &[body])));
            vec![("x-hub-signature-256", mac), ("x-github-event", "push".to_owned())]
        }
        Kind::Hmac => {
            let mac = hex(&mac(secret, &[timestamp.as_bytes(), b".", body]));
            vec![("x-signature", mac), ("x-timestamp", timestamp.to_owned())]
        }
        Kind::Nobody => Vec::new(),
        Kind::HubSpot => {
            let url = url_of(source);
            let mac = mac(secret, &[b"POST", url.as_bytes(), body, timestamp.as_bytes()]);
            vec![
                ("x-hubspot-signature-v3", STANDARD.encode(mac)),
                ("x-hubspot-request-timestamp", timestamp.to_owned()),
            ]
        }
    }
}

fn mac(secret: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())
        .unwrap_or_else(|error| panic!("a key of any length: {error}"));
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text never fails.
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// All headers of a request, and those that go on with its events; of `several` none goes on that
/// is true of the whole body only.
fn headers(own: &[(&'static str, String)], several: bool) -> (HeaderMap, Headers) {
    let (mut headers, mut forwarded) = (HeaderMap::new(), Headers::new());
    let own = own.iter().map(|(name, value)| (*name, value.as_bytes(), true));
    let of_the_whole = ("content-digest", &b"sha-256=:AA==:"[..], !several);
    for (name, value, goes_on) in COMMON.into_iter().chain([of_the_whole]).chain(own) {
        let legal = HeaderValue::from_bytes(value);
        let legal = legal.unwrap_or_else(|error| panic!("{name}: {error}"));
        headers.append(HeaderName::from_static(name), legal);
        if goes_on {
            forwarded.entry(name.to_owned()).or_default().push(value.to_vec());
        }
    }
    (headers, forwarded)
}

/// What the events of a request share.
struct Parts<'a> {
    plan: &'a SourcePlan,
    source: usize,
    timestamp: &'a str,
    body: &'a [u8],
}

impl Parts<'_> {
    fn meant(&self, index: usize, happening: Happening, (item, several): (Vec<u8>, bool)) -> Meant {
        let kind = self.plan.kind;
        // Without an id: the signed timestamp and the bytes.
        let fallback = || [b"fallback ", self.timestamp.as_bytes(), b" ", &item[..]].concat();
        let key = happening.id.map_or_else(fallback, |id| id_text(id).into_bytes());
        let id_is_signed = happening.id.is_some() && id_header(kind).is_none();
        let place = index.to_string().into_bytes();
        let guard = if self.plan.strict {
            Some([b"body ", &place[..], b" ", self.body].concat())
        } else if kind.signs_timestamp() && !id_is_signed {
            Some([&place[..], b" ", self.timestamp.as_bytes(), b" ", self.body].concat())
        } else {
            None
        };
        let readable = kind != Kind::HubSpot || happening.id.is_some();
        let word = match kind {
            Kind::Stripe => "charge.made",
            Kind::GitHub => "push",
            Kind::HubSpot if readable => "deal.made",
            Kind::HubSpot | Kind::Hmac | Kind::Nobody => "received",
        };
        Meant {
            key,
            guard,
            readable,
            event_type: format!("{}.{word}", name_of(self.source)),
            body: match several {
                true => [b"[", &item[..], b"]"].concat(),
                false => self.body.to_vec(),
            },
            content: item,
        }
    }
}
