//! Which events an endpoint wants.
//!
//! | origin | must match |
//! | --- | --- |
//! | published | one of the `event_types` |
//! | system | one of the `event_types` that begins with `everhook.`; `*` does not count |
//! | received | one of the `sources`, by name |
//!
//! Whatever the origin, all `conditions` must hold as well: each compares the part of the event's
//! data that a JSON pointer (RFC 6901) names with a value. Data that is no JSON fulfils none.
//!
//! A [`Subscription`] that exists is legal; its stored form is the form the API shows.

use std::cell::OnceCell;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::{Origin, TEST_TYPE, TYPE_BYTES_MAX};
use crate::source::SourceName;

use json::Json;

mod json;

/// The most patterns of event types.
pub const EVENT_TYPES_MAX: usize = 100;
/// The most names of sources.
pub const SOURCES_MAX: usize = 100;
/// The most conditions.
pub const CONDITIONS_MAX: usize = 20;
/// The longest JSON pointer, in bytes.
pub const POINTER_BYTES_MAX: usize = 512;
/// The longest value that a condition compares with, in bytes of JSON.
pub const EQUALS_BYTES_MAX: usize = 4_096;

/// One type, all types under a prefix, or all types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventPattern(Pattern);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pattern {
    Exact(String),
    /// Holds the prefix with its full stop.
    Under(String),
    All,
}

/// Why a text is not a pattern of event types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventPattern {
    /// Nothing.
    #[error("must not be empty: write a type such as invoice.paid, invoice.* or *")]
    Empty,
    /// Longer than any type.
    #[error("must have at most {TYPE_BYTES_MAX} characters before '*'")]
    Length,
    /// A star elsewhere than at the end after a full stop.
    #[error("'*' may only stand alone or at the end after a full stop, as in invoice.*")]
    Star,
    /// A full stop and a star, and nothing before them.
    #[error("must have something before '.*': write * for all types")]
    Prefix,
    /// A character that no type has.
    #[error("must consist of A-Z, a-z, 0-9, '_', '.' and '-'")]
    Character,
}

impl EventPattern {
    /// Every published type.
    pub const ALL: Self = Self(Pattern::All);

    /// Whether it covers a published type.
    fn covers(&self, event_type: &str) -> bool {
        matches!(self.0, Pattern::All) || self.names(event_type)
    }

    /// Whether it covers the type other than by meaning all of them. A pattern that names a system
    /// type begins with `everhook.` itself, because types do.
    fn names(&self, event_type: &str) -> bool {
        match &self.0 {
            Pattern::Exact(exact) => exact == event_type,
            Pattern::Under(prefix) => {
                event_type.strip_prefix(prefix.as_str()).is_some_and(|rest| !rest.is_empty())
            }
            Pattern::All => false,
        }
    }
}

impl FromStr for EventPattern {
    type Err = InvalidEventPattern;

    fn from_str(text: &str) -> Result<Self, InvalidEventPattern> {
        if text.is_empty() {
            return Err(InvalidEventPattern::Empty);
        }
        if text == "*" {
            return Ok(Self::ALL);
        }
        if text == ".*" {
            return Err(InvalidEventPattern::Prefix);
        }
        let (name, under) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if name.contains('*') || (under && !name.ends_with('.')) {
            return Err(InvalidEventPattern::Star);
        }
        if name.len() > TYPE_BYTES_MAX {
            return Err(InvalidEventPattern::Length);
        }
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if !name.bytes().all(legal) {
            return Err(InvalidEventPattern::Character);
        }
        let name = name.to_owned();
        Ok(Self(if under { Pattern::Under(name) } else { Pattern::Exact(name) }))
    }
}

impl fmt::Display for EventPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Pattern::Exact(exact) => f.write_str(exact),
            Pattern::Under(prefix) => write!(f, "{prefix}*"),
            Pattern::All => f.write_str("*"),
        }
    }
}

impl Serialize for EventPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Names a part of a JSON value (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JsonPointer {
    text: String,
    /// The reference tokens, unescaped.
    tokens: Vec<String>,
}

/// Why a text is not a JSON pointer (RFC 6901 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJsonPointer {
    /// Neither empty nor beginning with a slash.
    #[error("a JSON pointer begins with '/', as in /customer/id (or is empty, for all of data)")]
    Slash,
    /// A tilde that escapes nothing.
    #[error("in a JSON pointer '~' is written ~0, and '/' inside a name ~1")]
    Tilde,
    /// Too long.
    #[error("a JSON pointer has at most {POINTER_BYTES_MAX} bytes")]
    Length,
}

impl JsonPointer {
    /// The pointer as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The reference tokens, unescaped.
    pub(crate) fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// The part of the value that it names, if there is one.
    fn find<'v, 'a>(&self, value: &'v Json<'a>) -> Option<&'v Json<'a>> {
        self.tokens.iter().try_fold(value, |value, token| match value {
            Json::Object(members) => members.get(token.as_bytes()),
            Json::Array(items) => items.get(array_index(token)?),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) | Json::Deep => None,
        })
    }
}

/// An array index (RFC 6901 §4): digits without a leading zero. `-` is the place after the last
/// item, where nothing is.
pub(crate) fn array_index(token: &str) -> Option<usize> {
    let plain = token.bytes().all(|b| b.is_ascii_digit());
    let canonical = token == "0" || !token.starts_with('0');
    if plain && canonical { token.parse().ok() } else { None }
}

impl FromStr for JsonPointer {
    type Err = InvalidJsonPointer;

    fn from_str(text: &str) -> Result<Self, InvalidJsonPointer> {
        if text.len() > POINTER_BYTES_MAX {
            return Err(InvalidJsonPointer::Length);
        }
        let mut tokens = Vec::new();
        if !text.is_empty() {
            for token in text.strip_prefix('/').ok_or(InvalidJsonPointer::Slash)?.split('/') {
                let escapes = |part: &str| part.starts_with('0') || part.starts_with('1');
                if !token.split('~').skip(1).all(escapes) {
                    return Err(InvalidJsonPointer::Tilde);
                }
                // In this order: `~01` is `~1`, not `/`.
                tokens.push(token.replace("~1", "/").replace("~0", "~"));
            }
        }
        Ok(Self { text: text.to_owned(), tokens })
    }
}

impl Serialize for JsonPointer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A part of the data must be equal to a value: numbers by value, strings by characters, objects
/// whatever the order of their members.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    pointer: JsonPointer,
    equals: Box<RawValue>,
}

/// Why a value cannot be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must have at most {EQUALS_BYTES_MAX} bytes of JSON and {} levels", json::DEPTH_MAX)]
pub struct InvalidEquals;

impl Condition {
    /// The part of the data that `pointer` names must be equal to `equals`. The value is kept as it
    /// is written, so that numbers of any size are compared exactly.
    ///
    /// # Errors
    /// [`InvalidEquals`] when the value is too long or nested too deep.
    pub fn new(pointer: JsonPointer, equals: Box<RawValue>) -> Result<Self, InvalidEquals> {
        let text = equals.get();
        let read = json::parse(text.as_bytes()).ok_or(InvalidEquals)?;
        if text.len() > EQUALS_BYTES_MAX || read.is_deep() {
            return Err(InvalidEquals);
        }
        Ok(Self { pointer, equals })
    }

    /// Which part of the data is compared.
    pub const fn pointer(&self) -> &JsonPointer {
        &self.pointer
    }

    /// What it is compared with, as it was written.
    pub const fn equals(&self) -> &RawValue {
        &self.equals
    }

    fn holds(&self, facts: &Facts<'_>) -> bool {
        let part = facts.json().and_then(|data| self.pointer.find(data));
        part.is_some_and(|part| {
            json::parse(self.equals.get().as_bytes()).is_some_and(|equals| *part == equals)
        })
    }
}

/// By what is written, not by what it means.
impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.pointer == other.pointer && self.equals.get() == other.equals.get()
    }
}

/// What a subscription depends on in an event. Lives for one event; asked by every subscription.
#[derive(Debug)]
pub struct Facts<'a> {
    origin: Origin,
    event_type: &'a str,
    source: Option<&'a str>,
    data: &'a [u8],
    json: OnceCell<Option<Json<'a>>>,
}

impl<'a> Facts<'a> {
    /// An event's facts: `source` is the name of the source it was received from, `data` its data
    /// as JSON. The data is read when a condition first asks for it, and then never again.
    pub const fn new(
        origin: Origin,
        event_type: &'a str,
        source: Option<&'a str>,
        data: &'a [u8],
    ) -> Self {
        Self { origin, event_type, source, data, json: OnceCell::new() }
    }

    fn json(&self) -> Option<&Json<'a>> {
        self.json.get_or_init(|| json::parse(self.data)).as_ref()
    }
}

/// Which events an endpoint wants. The default is every published one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "SubscriptionInput")]
pub struct Subscription {
    /// Types of published and system events; any one is enough.
    pub event_types: Vec<EventPattern>,
    /// Names of the sources of received events; any one is enough.
    pub sources: Vec<String>,
    /// What must hold besides; all of them.
    pub conditions: Vec<Condition>,
}

impl Default for Subscription {
    fn default() -> Self {
        Self { event_types: vec![EventPattern::ALL], sources: Vec::new(), conditions: Vec::new() }
    }
}

/// A subscription as it is asked for; nothing is checked but its shape. What is left out takes its
/// value from [`Subscription::default`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionInput {
    /// See [`Subscription::event_types`].
    #[serde(default = "all_types")]
    pub event_types: Vec<String>,
    /// See [`Subscription::sources`].
    #[serde(default)]
    pub sources: Vec<String>,
    /// See [`Subscription::conditions`].
    #[serde(default)]
    pub conditions: Vec<ConditionInput>,
}

/// A condition as it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionInput {
    /// See [`Condition::pointer`].
    pub pointer: String,
    /// See [`Condition::equals`].
    pub equals: Box<RawValue>,
}

fn all_types() -> Vec<String> {
    vec!["*".to_owned()]
}

/// One thing that is wrong with a subscription.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct InvalidSubscription {
    /// Where: a JSON pointer into the subscription.
    pub pointer: String,
    /// What is wrong, and what to do.
    pub detail: String,
}

impl Subscription {
    /// A subscription that keeps to the rules.
    ///
    /// # Errors
    /// Everything that is wrong, at once; of a list that is too long only that.
    pub fn parse(input: SubscriptionInput) -> Result<Self, Vec<InvalidSubscription>> {
        let mut problems = Vec::new();
        let event_types =
            parse_list("/event_types", input.event_types, EVENT_TYPES_MAX, &mut problems, |text| {
                text.parse().map_err(|error: InvalidEventPattern| ("", error.to_string()))
            });
        let sources =
            parse_list("/sources", input.sources, SOURCES_MAX, &mut problems, parse_source);
        let conditions = parse_list(
            "/conditions",
            input.conditions,
            CONDITIONS_MAX,
            &mut problems,
            |condition| {
                let pointer = condition.pointer.parse();
                let pointer =
                    pointer.map_err(|error: InvalidJsonPointer| ("/pointer", error.to_string()))?;
                Condition::new(pointer, condition.equals)
                    .map_err(|error| ("/equals", error.to_string()))
            },
        );
        if problems.is_empty() {
            Ok(Self { event_types, sources, conditions })
        } else {
            Err(problems)
        }
    }

    /// Whether the endpoint wants this event.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        let wanted = match facts.origin {
            Origin::Published => self.event_types.iter().any(|p| p.covers(facts.event_type)),
            // A test is for the endpoint that it tests, whoever names its type.
            Origin::System if facts.event_type == TEST_TYPE => false,
            Origin::System => self.event_types.iter().any(|p| p.names(facts.event_type)),
            Origin::Received => {
                facts.source.is_some_and(|source| self.sources.iter().any(|name| name == source))
            }
        };
        wanted && self.conditions.iter().all(|condition| condition.holds(facts))
    }
}

/// Parses every item of a list; notes what is wrong, and where.
fn parse_list<Item, Parsed>(
    at: &str,
    items: Vec<Item>,
    most: usize,
    problems: &mut Vec<InvalidSubscription>,
    parse: impl Fn(Item) -> Result<Parsed, (&'static str, String)>,
) -> Vec<Parsed> {
    if items.len() > most {
        let detail = format!("may have at most {most} entries");
        problems.push(InvalidSubscription { pointer: at.to_owned(), detail });
        return Vec::new();
    }
    let mut list = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        match parse(item) {
            Ok(parsed) => list.push(parsed),
            Err((below, detail)) => problems
                .push(InvalidSubscription { pointer: format!("{at}/{index}{below}"), detail }),
        }
    }
    list
}

fn parse_source(name: String) -> Result<String, (&'static str, String)> {
    match SourceName::from_str(&name) {
        Ok(_) => Ok(name),
        Err(error) => Err(("", error.to_string())),
    }
}

impl TryFrom<SubscriptionInput> for Subscription {
    type Error = String;

    fn try_from(input: SubscriptionInput) -> Result<Self, String> {
        Self::parse(input).map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        })
    }
}

#[cfg(test)]
mod tests;
