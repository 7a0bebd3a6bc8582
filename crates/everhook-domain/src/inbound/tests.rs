//! Requests as providers send them, for the tests beside this file.

mod cases;
mod items;
mod mail;
mod rules;

use base64::Engine;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use super::*;
use crate::secret::BASE64;
use crate::source::SourceInput;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SECRET: &str = "a shared secret";

/// A source named `shop`; `more` are further settings.
pub(super) fn source(kind: &str, more: Value) -> SourceSettings {
    let mut input = json!({
        "name": "shop",
        "kind": kind,
        "secrets": if kind == "none" { vec![] } else { vec![SECRET] },
        "public_url": "https://a.test",
    });
    for (name, value) in more.as_object().expect("an object") {
        input[name] = value.clone();
    }
    let input: SourceInput = serde_json::from_value(input).expect("the shape");
    SourceSettings::parse(input).expect("legal")
}

/// A request with its headers, a name more than once if need be.
#[derive(Clone, Debug)]
pub(super) struct Sent<'a> {
    pub(super) method: &'a str,
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: &'a [u8],
}

impl<'a> Sent<'a> {
    pub(super) fn plain(body: &'a [u8]) -> Self {
        Self { method: "POST", headers: Vec::new(), body }
    }

    /// As GitHub sends it: no timestamp is signed.
    pub(super) fn github(body: &'a [u8]) -> Self {
        let mac = hex(&mac::sha256(SECRET.as_bytes(), &[body]));
        Self::plain(body).with("X-Hub-Signature-256", format!("sha256={mac}"))
    }

    /// As Stripe sends it: a timestamp is signed, and the ID is.
    pub(super) fn stripe(body: &'a [u8]) -> Self {
        Self::stripe_at("1700000000", body)
    }

    pub(super) fn stripe_at(at: &str, body: &'a [u8]) -> Self {
        let mac = hex(&mac::sha256(SECRET.as_bytes(), &[at.as_bytes(), b".", body]));
        Self::plain(body).with("Stripe-Signature", format!("t={at},v1={mac}"))
    }

    /// As Linear sends it: a timestamp is signed, and the ID is not.
    pub(super) fn linear(body: &'a [u8]) -> Self {
        let mac = hex(&mac::sha256(SECRET.as_bytes(), &[body]));
        Self::plain(body).with("Linear-Signature", mac)
    }

    /// As HubSpot sends it.
    pub(super) fn hubspot(body: &'a [u8]) -> Self {
        let at = "1700000000123";
        let signed = [b"POST", "https://a.test/in/shop".as_bytes(), body, at.as_bytes()];
        let mac = BASE64.encode(mac::sha256(SECRET.as_bytes(), &signed));
        Self::plain(body)
            .with("X-HubSpot-Signature-v3", mac)
            .with("X-HubSpot-Request-Timestamp", at)
    }

    /// As Slack sends it.
    pub(super) fn slack(body: &'a [u8]) -> Self {
        let at = "1700000000";
        let mac = hex(&mac::sha256(SECRET.as_bytes(), &[b"v0:", at.as_bytes(), b":", body]));
        Self::plain(body)
            .with("X-Slack-Request-Timestamp", at)
            .with("X-Slack-Signature", format!("v0={mac}"))
    }

    pub(super) fn with(mut self, name: &'a str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        headers
    }

    pub(super) fn judged(&self, source: &SourceSettings) -> Result<Judgement, Rejection> {
        let (method, headers) = (self.method.parse::<Method>().expect("a method"), self.headers());
        let request = InboundRequest {
            method: &method,
            target: "/in/shop",
            headers: &headers,
            body: self.body,
        };
        judge(&request, &Context { source, now: NOW, certificate: None })
    }

    pub(super) fn items(&self, source: &SourceSettings) -> Vec<ReceivedItem> {
        match self.judged(source) {
            Ok(Judgement::Store(items)) => items,
            other => panic!("{self:?}: {other:?}"),
        }
    }

    pub(super) fn item(&self, source: &SourceSettings) -> ReceivedItem {
        let mut items = self.items(source);
        assert_eq!(items.len(), 1, "{self:?}");
        items.remove(0)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a request is refused for its signature.
pub(super) fn is_refused(sent: &Sent<'_>, source: &SourceSettings) -> bool {
    matches!(sent.judged(source), Err(Rejection::Signature(_)))
}
