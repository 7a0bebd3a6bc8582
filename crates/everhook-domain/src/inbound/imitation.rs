//! A webhook as a provider would send it, made to try a receiver from outside.
//!
//! It is signed as the kind's own `verify` demands, which is what the tests compare it with. Only a
//! kind whose signature a shared secret makes can be imitated: a public key signs nothing.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::Context;
use super::mac::Spelling;
use crate::time::Timestamp;

/// What is to be said.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// What identifies the event, wherever the kind has that.
    pub id: &'a str,
    /// What happened, where the kind says that.
    pub event_type: &'a str,
    /// The rest, which is JSON.
    pub data: &'a str,
    /// Path and query, which some kinds sign with the source's `public_url`.
    pub target: &'a str,
    /// Whether it has its signature.
    pub signed: bool,
}

/// A webhook, ready to be POSTed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imitation {
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
}

/// The webhook of a kind's provider for this draft, signed with the source's first secret at
/// `context.now`; `None` for a kind that signs nothing, or with what only the provider has.
pub fn imitate(draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
    context.source.kind.0.imitate(draft, context)
}

impl Draft<'_> {
    /// As a JSON object with these members beside the usual ones.
    pub(super) fn object(&self, now: Timestamp, members: &[(&str, &str)]) -> Imitation {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut body = String::from("{");
        for (name, value) in members.iter().chain(&[("id", self.id), ("type", self.event_type)]) {
            body.push_str(&format!("{}:{},", quoted(name), quoted(value)));
        }
        body.push_str(&format!("\"timestamp\":\"{now}\",\"data\":{}}}", self.data));
        Imitation::new("application/json", body.into_bytes())
    }

    /// As a form with these fields.
    pub(super) fn form(fields: &[(&str, &str)]) -> Imitation {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        Imitation::new("application/x-www-form-urlencoded", body.into_bytes())
    }
}

impl Imitation {
    fn new(content_type: &str, body: Vec<u8>) -> Self {
        Self { headers: HeaderMap::new(), body }.with("content-type", content_type)
    }

    /// With one more header; what cannot stand in one is left out.
    #[must_use]
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            self.headers.insert(name, value);
        }
        self
    }

    /// With its signature, if the draft has one.
    #[must_use]
    pub(super) fn signed(
        self,
        draft: &Draft<'_>,
        name: &str,
        signature: impl FnOnce(&Self) -> String,
    ) -> Self {
        if !draft.signed {
            return self;
        }
        let signature = signature(&self);
        self.with(name, &signature)
    }
}

impl Spelling {
    /// The text of bytes.
    pub(super) fn write(self, bytes: &[u8]) -> String {
        use base64::Engine as _;
        match self {
            Self::Hex => crate::digest::hex(bytes),
            Self::Base64 => crate::secret::BASE64.encode(bytes),
        }
    }
}

impl<'a> Context<'a> {
    /// The text of the secret that signs; empty without one.
    pub(super) fn signing_key(&self) -> &'a [u8] {
        self.text_keys().next().unwrap_or_default()
    }
}
