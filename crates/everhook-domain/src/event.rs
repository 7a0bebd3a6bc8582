//! What may be published, and the bytes that are sent for it.
//!
//! An event is serialised once, into its [`Envelope`]; those bytes are stored and sent on every
//! attempt. The store gives the id in commit order, so the envelope is composed with a hole of
//! fixed place and length for it, which [`Envelope::seal`] fills.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::id::{EventId, Id, Kind};
use crate::time::Timestamp;

/// Longest event type, in bytes.
pub const TYPE_BYTES_MAX: usize = 128;
/// Longest source event ID, in bytes.
pub const SOURCE_EVENT_ID_BYTES_MAX: usize = 255;
/// Types that begin with this are the product's own. A received event's type begins with the name
/// of its source, so no source may be called `everhook`.
pub const SYSTEM_PREFIX: &str = "everhook.";
/// The type of an endpoint's test event.
pub const TEST_TYPE: &str = "everhook.test";

/// Where an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A call of our API.
    Published,
    /// A source.
    Received,
    /// Everhook itself.
    System,
}

impl Origin {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Received => "received",
            Self::System => "system",
        }
    }
}

/// What an event is to the rules of its deliveries. Its type says so, because nobody else's type
/// begins with [`SYSTEM_PREFIX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nature {
    /// Somebody's: what becomes of it is worth a system event.
    Ordinary,
    /// A system event: it goes out as any other, and causes none.
    System,
    /// A test: sent once for every time it is asked for, outside schedule and warning.
    Test,
}

impl Nature {
    /// The nature of an event of this type.
    pub fn of(event_type: &str) -> Self {
        if event_type == TEST_TYPE {
            Self::Test
        } else if event_type.starts_with(SYSTEM_PREFIX) {
            Self::System
        } else {
            Self::Ordinary
        }
    }

    /// Whether its attempts are counted in the endpoint's health and its death is told of.
    pub const fn is_told_of(self) -> bool {
        matches!(self, Self::Ordinary)
    }
}

/// An event's type: 1 to 128 characters of `A-Z a-z 0-9 _ . -`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

/// The text is not a type that may be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEventType {
    /// A character or the length is wrong.
    #[error("must be 1 to {TYPE_BYTES_MAX} characters of A-Z, a-z, 0-9, '_', '.' and '-'")]
    Form,
    /// Reserved.
    #[error("types that begin with '{SYSTEM_PREFIX}' are reserved for Everhook's own events")]
    Reserved,
}

impl EventType {
    /// A type that a publisher may use.
    ///
    /// # Errors
    /// [`InvalidEventType`] names the rule that is broken.
    pub fn published(text: &str) -> Result<Self, InvalidEventType> {
        let event_type = Self::any(text)?;
        if text.starts_with(SYSTEM_PREFIX) {
            return Err(InvalidEventType::Reserved);
        }
        Ok(event_type)
    }

    /// Any well-formed type, the product's own among them.
    ///
    /// # Errors
    /// [`InvalidEventType::Form`].
    pub fn any(text: &str) -> Result<Self, InvalidEventType> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if (1..=TYPE_BYTES_MAX).contains(&text.len()) && text.bytes().all(legal) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(InvalidEventType::Form)
        }
    }

    /// A type of our own, which is well formed.
    pub(crate) fn own(text: &'static str) -> Self {
        Self(Arc::from(text))
    }

    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The publisher's own ID of what happened: 1 to 255 bytes of any text without NUL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct SourceEventId(Box<str>);

/// The text is not a source event ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {SOURCE_EVENT_ID_BYTES_MAX} bytes of text without NUL characters")]
pub struct InvalidSourceEventId;

impl SourceEventId {
    /// A source event ID, taken as it is: no case folding, no trimming.
    ///
    /// # Errors
    /// [`InvalidSourceEventId`] when it is empty, too long or holds a NUL character.
    pub fn parse(text: &str) -> Result<Self, InvalidSourceEventId> {
        if (1..=SOURCE_EVENT_ID_BYTES_MAX).contains(&text.len()) && !text.contains('\0') {
            Ok(Self(Box::from(text)))
        } else {
            Err(InvalidSourceEventId)
        }
    }

    /// The ID of what made something of ours this version.
    pub(crate) fn of_version<K: Kind>(id: &Id<K>, version: u64) -> Self {
        Self(format!("{id}:v{version}").into_boxed_str())
    }

    /// The ID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An event that is ready to be accepted: nothing invalid gets this far.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// Its type.
    pub event_type: EventType,
    /// Where it comes from.
    pub origin: Origin,
    /// The outgoing dedupe key, if there is one.
    pub source_event_id: Option<SourceEventId>,
    /// When it happened.
    pub timestamp: Timestamp,
    /// What is sent for it.
    pub envelope: Envelope,
}

/// The bytes `{"id":"evt_…","type":…,"timestamp":…,"data":…}` with a hole for the id.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    bytes: Vec<u8>,
    data_at: usize,
}

/// What stands before the id.
const BEFORE_ID: &[u8] = b"{\"id\":\"";
const BEFORE_TYPE: &[u8] = b"\",\"type\":\"";
const BEFORE_TIMESTAMP: &[u8] = b"\",\"timestamp\":\"";
const BEFORE_DATA: &[u8] = b"\",\"data\":";
const AFTER_DATA: &[u8] = b"}";
/// Length of [`Timestamp`]'s text form.
const TIMESTAMP_LEN: usize = 24;

impl Envelope {
    /// Composes the envelope. `data` goes in byte for byte: key order, number spelling, escapes
    /// and white space inside it stay as the publisher wrote them.
    pub fn compose(event_type: &EventType, timestamp: Timestamp, data: &RawValue) -> Self {
        let data = data.get().as_bytes();
        let data_at = data_offset(event_type);
        let mut bytes = Vec::with_capacity(data_at + data.len() + AFTER_DATA.len());
        bytes.extend_from_slice(BEFORE_ID);
        bytes.resize(BEFORE_ID.len() + EventId::TEXT_LEN, b'_');
        bytes.extend_from_slice(BEFORE_TYPE);
        bytes.extend_from_slice(event_type.as_str().as_bytes());
        bytes.extend_from_slice(BEFORE_TIMESTAMP);
        bytes.extend_from_slice(timestamp.to_string().as_bytes());
        bytes.extend_from_slice(BEFORE_DATA);
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(AFTER_DATA);
        Self { bytes, data_at }
    }

    /// The publisher's bytes of `data`.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.data_at..self.bytes.len() - AFTER_DATA.len()]
    }

    /// Length in bytes; the id does not change it.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Never: an envelope always has its members.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Fills in the id: the final bytes, which are stored and sent.
    pub fn seal(mut self, id: EventId) -> Vec<u8> {
        let prefix_at = BEFORE_ID.len();
        let digits_at = prefix_at + EventId::TEXT_LEN - id.digits().len();
        self.bytes[prefix_at..digits_at].copy_from_slice(b"evt_");
        let end = prefix_at + EventId::TEXT_LEN;
        self.bytes[digits_at..end].copy_from_slice(&id.digits());
        self.bytes
    }
}

impl fmt::Debug for Envelope {
    /// The size only: payloads stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envelope({} bytes)", self.bytes.len())
    }
}

/// Where `data` begins in an envelope of this type.
const fn data_offset_for(type_len: usize) -> usize {
    BEFORE_ID.len()
        + EventId::TEXT_LEN
        + BEFORE_TYPE.len()
        + type_len
        + BEFORE_TIMESTAMP.len()
        + TIMESTAMP_LEN
        + BEFORE_DATA.len()
}

fn data_offset(event_type: &EventType) -> usize {
    data_offset_for(event_type.as_str().len())
}

/// The `data` of a stored envelope whose event has this type; `None` if the bytes are no envelope.
pub fn data_of_stored<'a>(event_type: &EventType, sealed: &'a [u8]) -> Option<&'a [u8]> {
    sealed.get(data_offset(event_type)..sealed.len().checked_sub(AFTER_DATA.len())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope(event_type: &str, data: &str) -> (EventType, Envelope) {
        let event_type = EventType::any(event_type).expect("legal");
        let data = RawValue::from_string(data.to_owned()).expect("JSON");
        let at = Timestamp::from_millis(1_700_000_000_000);
        let envelope = Envelope::compose(&event_type, at, &data);
        (event_type, envelope)
    }

    #[test]
    fn types() {
        use InvalidEventType::{Form, Reserved};
        for (text, expected) in [
            ("invoice.paid", Ok(())),
            ("A-z_0.9", Ok(())),
            ("everhook", Ok(())),
            ("everhook.x", Err(Reserved)),
            ("", Err(Form)),
            ("a b", Err(Form)),
            ("ä", Err(Form)),
            ("a*", Err(Form)),
            (&"x".repeat(128), Ok(())),
            (&"x".repeat(129), Err(Form)),
        ] {
            assert_eq!(EventType::published(text).map(drop), expected, "{text}");
        }
    }

    #[test]
    fn natures() {
        for (text, expected) in [
            ("invoice.paid", Nature::Ordinary),
            ("everhook", Nature::Ordinary),
            ("x.everhook.test", Nature::Ordinary),
            ("everhook.endpoint.failing", Nature::System),
            ("everhook.testing", Nature::System),
            ("everhook.test", Nature::Test),
        ] {
            assert_eq!(Nature::of(text), expected, "{text}");
        }
    }

    #[test]
    fn source_event_ids() {
        for good in ["a", " ", "Ä", &"x".repeat(255)] {
            assert!(SourceEventId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a\0b", &"x".repeat(256), &"ä".repeat(128)] {
            assert!(SourceEventId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_data_keeps_its_spelling() {
        let data = r#"{"b":1.0, "a":1e2,"c":"\u00e4\ud83d","b":0}"#;
        let (event_type, envelope) = envelope("t", data);
        let id = EventId::from_parts(1, 2, 3, 0);
        assert_eq!(envelope.data(), data.as_bytes());
        let length = envelope.len();
        let sealed = envelope.seal(id);
        assert_eq!(sealed.len(), length);
        let text = String::from_utf8(sealed.clone()).expect("UTF-8");
        let head = format!(r#"{{"id":"{id}","type":"t","timestamp":"2023-11-14T22:13:20.000Z","#);
        assert_eq!(text, format!(r#"{head}"data":{data}}}"#));
        assert_eq!(data_of_stored(&event_type, &sealed), Some(data.as_bytes()));
        assert_eq!(data_of_stored(&event_type, b"{}"), None);
    }

    proptest! {
        #[test]
        fn a_sealed_envelope_is_json_with_the_same_data(text in ".*", bits: u128) {
            let data = serde_json::to_string(&text).expect("a string is JSON");
            let (_, envelope) = envelope("order.created", &data);
            let id = EventId::from_bits(bits);
            let value: serde_json::Value =
                serde_json::from_slice(&envelope.seal(id)).expect("JSON");
            prop_assert_eq!(value["data"].as_str(), Some(text.as_str()));
            let id = id.to_string();
            prop_assert_eq!(value["id"].as_str(), Some(id.as_str()));
        }
    }
}
