//! Which headers a customer may add to the requests of an endpoint.
//!
//! [`CustomHeaders`] cannot hold a header that breaks the request apart (a line break, a character
//! outside ASCII), that describes the message or the connection in our place, or that takes the
//! name of one of ours. What a header says is the customer's and may be a credential: values are
//! never part of a message or of debug output.

use std::fmt;
use std::str::FromStr;

use http::{HeaderName, HeaderValue};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most custom headers of an endpoint.
pub const HEADERS_MAX: usize = 32;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 4_096;
/// The most bytes of all names and values together.
pub const TOTAL_BYTES_MAX: usize = 16_384;
/// The longest prefix of our own headers, in bytes.
pub const PREFIX_BYTES_MAX: usize = 64;

/// As much of a wrong name as a message repeats, in characters.
const NAME_SHOWN_MAX: usize = 64;

/// Names that we set ourselves, or that describe the body which we write.
const OURS: [&str; 7] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "user-agent",
    "expect",
];
/// Names that belong to one connection, not to the request (RFC 9110 §7.6.1, RFC 7540 §3.2.1).
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"];
/// As [`HOP_BY_HOP`]: everything that begins with this.
const PROXY: &str = "proxy-";
/// The headers of the Standard Webhooks specification begin with this.
const STANDARD_WEBHOOKS: &str = "webhook-";

/// What the names of our own headers begin with, and those names, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderPrefix {
    text: String,
    webhook_id: HeaderName,
    attempt: HeaderName,
    received_method: HeaderName,
    received_url: HeaderName,
}

/// Why a text cannot be the prefix of our headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeaderPrefix {
    /// Not a token (RFC 9110 §5.6.2) that ends in a hyphen, or too long.
    #[error(
        "must be 2 to {PREFIX_BYTES_MAX} characters that are legal in a header name, the last of \
         them '-', such as X-Message-"
    )]
    Form,
    /// Names that begin with it have a meaning of their own.
    #[error("must not begin with 'webhook-' or 'proxy-': such headers have a fixed meaning")]
    Reserved,
}

impl HeaderPrefix {
    /// `<prefix>Webhook-Id`, which carries the event's id.
    pub const fn webhook_id(&self) -> &HeaderName {
        &self.webhook_id
    }

    /// `<prefix>Webhook-Attempt`, which carries the attempt's number.
    pub const fn attempt(&self) -> &HeaderName {
        &self.attempt
    }

    /// `<prefix>Received-Method`, which carries the method that a received event came by.
    pub const fn received_method(&self) -> &HeaderName {
        &self.received_method
    }

    /// `<prefix>Received-Url`, which carries the URL that was called for a received event.
    pub const fn received_url(&self) -> &HeaderName {
        &self.received_url
    }

    /// The prefix as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn covers(&self, name: &HeaderName) -> bool {
        let head = name.as_str().as_bytes().get(..self.text.len());
        head.is_some_and(|head| head.eq_ignore_ascii_case(self.text.as_bytes()))
    }
}

/// `X-Message-`.
impl Default for HeaderPrefix {
    fn default() -> Self {
        Self {
            text: "X-Message-".to_owned(),
            webhook_id: HeaderName::from_static("x-message-webhook-id"),
            attempt: HeaderName::from_static("x-message-webhook-attempt"),
            received_method: HeaderName::from_static("x-message-received-method"),
            received_url: HeaderName::from_static("x-message-received-url"),
        }
    }
}

impl FromStr for HeaderPrefix {
    type Err = InvalidHeaderPrefix;

    fn from_str(text: &str) -> Result<Self, InvalidHeaderPrefix> {
        if !text.ends_with('-') || !(2..=PREFIX_BYTES_MAX).contains(&text.len()) {
            return Err(InvalidHeaderPrefix::Form);
        }
        let lower = text.to_ascii_lowercase();
        if lower.starts_with(STANDARD_WEBHOOKS) || lower.starts_with(PROXY) {
            return Err(InvalidHeaderPrefix::Reserved);
        }
        let name = |rest: &str| {
            let name = format!("{text}{rest}");
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| InvalidHeaderPrefix::Form)
        };
        Ok(Self {
            text: text.to_owned(),
            webhook_id: name("Webhook-Id")?,
            attempt: name("Webhook-Attempt")?,
            received_method: name("Received-Method")?,
            received_url: name("Received-Url")?,
        })
    }
}

impl fmt::Display for HeaderPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One broken rule, and the header that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHeader {
    /// The header's name as it was given; `None` where the headers together break the rule.
    pub name: Option<String>,
    /// The rule.
    pub rule: HeaderRule,
}

/// What custom headers must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HeaderRule {
    /// The number of headers.
    #[error("there may be at most {HEADERS_MAX} headers")]
    Count,
    /// The size of all of them.
    #[error("all names and values together may have at most {TOTAL_BYTES_MAX} bytes")]
    TotalSize,
    /// The length of a name.
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes")]
    NameSize,
    /// The characters of a name: a token (RFC 9110 §5.6.2).
    #[error("a name consists of letters, digits and !#$%&'*+-.^_`|~, without spaces")]
    NameCharacters,
    /// Everhook sets it.
    #[error("the name is reserved: Everhook sets it itself")]
    Ours,
    /// It belongs to the connection.
    #[error("the name is reserved: it is about the connection, not the request")]
    HopByHop,
    /// The same name twice, letter case aside.
    #[error("the name occurs more than once")]
    Twice,
    /// Nothing in it.
    #[error("a value must not be empty")]
    ValueEmpty,
    /// The length of a value.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes")]
    ValueSize,
    /// CR, LF, NUL or another control character.
    #[error("a value must not hold line breaks or control characters")]
    ValueControl,
    /// Outside ASCII.
    #[error("a value consists of ASCII characters: encode others")]
    ValueAscii,
    /// White space around it.
    #[error("a value must not begin or end with white space")]
    ValueEnds,
}

impl fmt::Display for InvalidHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(name) = &self.name else {
            return write!(f, "{}", self.rule);
        };
        let escaped = name.escape_default();
        let shown: String = escaped.clone().take(NAME_SHOWN_MAX).collect();
        let cut = if escaped.count() > NAME_SHOWN_MAX { "…" } else { "" };
        write!(f, "header '{shown}{cut}': {}", self.rule)
    }
}

impl std::error::Error for InvalidHeader {}

/// Headers that a customer adds to every request of an endpoint; in the order given.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders(Vec<(HeaderName, HeaderValue)>);

impl CustomHeaders {
    /// Headers from names and values.
    ///
    /// # Errors
    /// Every problem at once; beyond [`HEADERS_MAX`] headers only that there are too many.
    pub fn parse(
        pairs: impl IntoIterator<Item = (String, String)>,
        prefix: &HeaderPrefix,
    ) -> Result<Self, Vec<InvalidHeader>> {
        let mut problems = Vec::new();
        let mut headers = Vec::new();
        let mut total = 0;
        for (index, (name, value)) in pairs.into_iter().enumerate() {
            if index == HEADERS_MAX {
                problems.push(InvalidHeader { name: None, rule: HeaderRule::Count });
                break;
            }
            total += name.len() + value.len();
            let parsed_name = parse_name(&name).and_then(|parsed| {
                let twice = headers.iter().any(|(other, _)| *other == parsed);
                let broken = reserved(&parsed, prefix).or(twice.then_some(HeaderRule::Twice));
                broken.map_or(Ok(parsed), Err)
            });
            match (parsed_name, parse_value(&value)) {
                (Ok(parsed), Ok(value)) => headers.push((parsed, value)),
                (parsed, value) => {
                    let broken = [parsed.err(), value.err()].into_iter().flatten();
                    let problem = |rule| InvalidHeader { name: Some(name.clone()), rule };
                    problems.extend(broken.map(problem));
                }
            }
        }
        if total > TOTAL_BYTES_MAX {
            problems.push(InvalidHeader { name: None, rule: HeaderRule::TotalSize });
        }
        if problems.is_empty() { Ok(Self(headers)) } else { Err(problems) }
    }

    /// Reads the stored form, which serialising writes. Names and values must be legal, and no name
    /// one that is always reserved; the prefix is not asked, because it may have been changed.
    ///
    /// # Errors
    /// The first broken rule with the header's name, for a person; never a value.
    pub fn from_stored(json: &str) -> Result<Self, String> {
        let StoredHeaders(pairs) = serde_json::from_str(json)
            .map_err(|_| "the stored value is not a map of header names and values".to_owned())?;
        let mut headers = Vec::new();
        for (name, value) in pairs {
            let broken = |rule| InvalidHeader { name: Some(name.clone()), rule }.to_string();
            let parsed = parse_name(&name).map_err(broken)?;
            let twice = headers.iter().any(|(other, _)| *other == parsed);
            if let Some(rule) = always_reserved(&parsed).or(twice.then_some(HeaderRule::Twice)) {
                return Err(broken(rule));
            }
            headers.push((parsed, parse_value(&value).map_err(broken)?));
        }
        Ok(Self(headers))
    }

    /// The headers, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

fn parse_name(name: &str) -> Result<HeaderName, HeaderRule> {
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Err(HeaderRule::NameSize);
    }
    HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderRule::NameCharacters)
}

/// Why the name is not the customer's to set, if so.
fn reserved(name: &HeaderName, prefix: &HeaderPrefix) -> Option<HeaderRule> {
    always_reserved(name).or(prefix.covers(name).then_some(HeaderRule::Ours))
}

/// Whether it is about one connection, not the request.
pub(crate) fn belongs_to_a_connection(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str()) || name.as_str().starts_with(PROXY)
}

/// Whether a header of this name says something of the webhook that only we say.
pub(crate) fn is_ours(name: &HeaderName, prefix: &HeaderPrefix) -> bool {
    name.as_str().starts_with(STANDARD_WEBHOOKS) || prefix.covers(name)
}

/// The same, whatever the prefix is.
fn always_reserved(name: &HeaderName) -> Option<HeaderRule> {
    let text = name.as_str();
    if belongs_to_a_connection(name) {
        Some(HeaderRule::HopByHop)
    } else if OURS.contains(&text) || text.starts_with(STANDARD_WEBHOOKS) {
        Some(HeaderRule::Ours)
    } else {
        None
    }
}

fn parse_value(value: &str) -> Result<HeaderValue, HeaderRule> {
    let space = |c| c == ' ' || c == '\t';
    if value.is_empty() {
        return Err(HeaderRule::ValueEmpty);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(HeaderRule::ValueSize);
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(HeaderRule::ValueControl);
    }
    if !value.is_ascii() {
        return Err(HeaderRule::ValueAscii);
    }
    if value.starts_with(space) || value.ends_with(space) {
        return Err(HeaderRule::ValueEnds);
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| HeaderRule::ValueControl)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Names only.
impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name.as_str())).finish()
    }
}

/// The stored form, a map with the values in it: for the store, never for a screen.
impl Serialize for CustomHeaders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        serializer.collect_map(self.0.iter().map(|(name, value)| (name.as_str(), text(value))))
    }
}

/// Names and values as they are stored, in order.
struct StoredHeaders(Vec<(String, String)>);

impl<'de> Deserialize<'de> for StoredHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = StoredHeaders;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of header names and values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StoredHeaders, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(StoredHeaders(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests;
