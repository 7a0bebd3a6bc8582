//! Identifiers: a prefix and 26 characters that sort by time.
//!
//! An id is 128 bits: 48 bits of milliseconds, 48 bits of sequence, 16 bits of tag, 16 bits of
//! ordinal. The text form is the kind's prefix and the bits in Crockford's base 32 (lower case,
//! most significant first), so text sorts as the number does. A delivery has the id of its event
//! with the ordinal 1 or more; whoever holds one finds the other.
//!
//! The store chooses the parts: embedded, the sequence is the commit order and the tag is the
//! database's own, so that an id from elsewhere is not found; on PostgreSQL the sequence is random.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters after the prefix.
const DIGITS: usize = 26;
/// The largest sequence number: 48 bits.
pub const SEQUENCE_MAX: u64 = (1 << 48) - 1;

/// What an id names; fixes the prefix.
pub trait Kind {
    /// The text before the 26 characters, with its underscore.
    const PREFIX: &'static str;
    /// The word for it in messages.
    const NAME: &'static str;
}

/// An identifier of a `K`.
pub struct Id<K>(u128, PhantomData<fn() -> K>);

/// The id of an event, `evt_…`.
pub type EventId = Id<kind::Event>;
/// The id of an endpoint, `ep_…`.
pub type EndpointId = Id<kind::Endpoint>;
/// The id of a delivery, `dlv_…`.
pub type DeliveryId = Id<kind::Delivery>;
/// The id of a bulk replay, and of other work on many deliveries, `rpl_…`.
pub type ReplayId = Id<kind::Replay>;

/// The id of a source, `src_…`.
pub type SourceId = Id<kind::Source>;
/// The id of a receipt, `rcp_…`: its event's, under another prefix.
pub type ReceiptId = Id<kind::Receipt>;

/// The id of an idempotency record, `idr_…`: of a finished request, and of a claim.
pub type RecordId = Id<kind::Record>;
/// The id of a conversation, `cnv_…`.
pub type ConversationId = Id<kind::Conversation>;
/// The id of a message in a conversation, `msg_…`.
pub type MessageId = Id<kind::Message>;

/// The kinds of ids.
pub mod kind {
    use super::Kind;

    /// Events.
    #[derive(Debug)]
    pub enum Event {}
    /// Endpoints.
    #[derive(Debug)]
    pub enum Endpoint {}
    /// Deliveries.
    #[derive(Debug)]
    pub enum Delivery {}
    /// Bulk replays.
    #[derive(Debug)]
    pub enum Replay {}
    /// Sources.
    #[derive(Debug)]
    pub enum Source {}
    /// Receipts.
    #[derive(Debug)]
    pub enum Receipt {}
    /// Idempotency records.
    #[derive(Debug)]
    pub enum Record {}
    /// Conversations.
    #[derive(Debug)]
    pub enum Conversation {}
    /// Messages of conversations.
    #[derive(Debug)]
    pub enum Message {}
    /// Tenants whose makers chose no id.
    #[derive(Debug)]
    pub enum Tenant {}

    impl Kind for Event {
        const PREFIX: &'static str = "evt_";
        const NAME: &'static str = "event";
    }
    impl Kind for Endpoint {
        const PREFIX: &'static str = "ep_";
        const NAME: &'static str = "endpoint";
    }
    impl Kind for Delivery {
        const PREFIX: &'static str = "dlv_";
        const NAME: &'static str = "delivery";
    }
    impl Kind for Replay {
        const PREFIX: &'static str = "rpl_";
        const NAME: &'static str = "replay";
    }
    impl Kind for Source {
        const PREFIX: &'static str = "src_";
        const NAME: &'static str = "source";
    }
    impl Kind for Receipt {
        const PREFIX: &'static str = "rcp_";
        const NAME: &'static str = "receipt";
    }
    impl Kind for Record {
        const PREFIX: &'static str = "idr_";
        const NAME: &'static str = "idempotency record";
    }
    impl Kind for Conversation {
        const PREFIX: &'static str = "cnv_";
        const NAME: &'static str = "conversation";
    }
    impl Kind for Message {
        const PREFIX: &'static str = "msg_";
        const NAME: &'static str = "message";
    }
    impl Kind for Tenant {
        const PREFIX: &'static str = "ten_";
        const NAME: &'static str = "tenant";
    }
}

/// The text is not an id of the kind that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an {kind} id: expected {prefix} and 26 characters of 0-9 and a-z without i, l, o, u")]
pub struct InvalidId {
    kind: &'static str,
    prefix: &'static str,
}

impl<K> Id<K> {
    /// An id from its parts. `millis` and `sequence` keep their low 48 bits.
    pub const fn from_parts(millis: u64, sequence: u64, tag: u16, ordinal: u16) -> Self {
        let head = ((millis & SEQUENCE_MAX) as u128) << 80;
        let middle = ((sequence & SEQUENCE_MAX) as u128) << 32;
        Self(head | middle | (tag as u128) << 16 | ordinal as u128, PhantomData)
    }

    /// An id from its 128 bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits, PhantomData)
    }

    /// All 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// The instant of creation, milliseconds.
    pub const fn millis(self) -> u64 {
        (self.0 >> 80) as u64
    }

    /// The instant of creation.
    pub fn created_at(self) -> Timestamp {
        Timestamp::from_millis(i64::try_from(self.millis()).unwrap_or(i64::MAX))
    }

    /// The sequence part, 48 bits.
    pub const fn sequence(self) -> u64 {
        (self.0 >> 32) as u64 & SEQUENCE_MAX
    }

    /// The tag part.
    pub const fn tag(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The ordinal part: 0 for an event, 1 or more for its deliveries.
    pub const fn ordinal(self) -> u16 {
        self.0 as u16
    }
}

impl Id<kind::Event> {
    /// The id of this event's delivery number `ordinal` (1 or more).
    pub const fn delivery(self, ordinal: u16) -> DeliveryId {
        Id((self.0 & !0xffff) | ordinal as u128, PhantomData)
    }
}

impl Id<kind::Event> {
    /// The id of the receipt of this event, if it was received.
    pub const fn receipt(self) -> ReceiptId {
        Id(self.0, PhantomData)
    }
}

impl Id<kind::Receipt> {
    /// The id of the event that was received.
    pub const fn event(self) -> EventId {
        Id(self.0, PhantomData)
    }
}

impl Id<kind::Delivery> {
    /// The id of the event that this delivery carries.
    pub const fn event(self) -> EventId {
        Id(self.0 & !0xffff, PhantomData)
    }
}

impl<K: Kind> Id<K> {
    /// Length of the text form in bytes; the same for every id of the kind.
    pub const TEXT_LEN: usize = K::PREFIX.len() + DIGITS;

    /// The 26 characters after the prefix, as ASCII.
    pub fn digits(self) -> [u8; DIGITS] {
        let mut digits = [0; DIGITS];
        let mut rest = self.0;
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[(rest & 31) as usize];
            rest >>= 5;
        }
        digits
    }
}

impl<K: Kind> FromStr for Id<K> {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { kind: K::NAME, prefix: K::PREFIX };
        let digits = text.strip_prefix(K::PREFIX).ok_or_else(invalid)?.as_bytes();
        if digits.len() != DIGITS {
            return Err(invalid());
        }
        let mut bits: u128 = 0;
        for digit in digits {
            let value = ALPHABET.iter().position(|c| c == digit).ok_or_else(invalid)?;
            // 26 × 5 = 130 bits: the first digit may only hold three.
            if bits >> 123 != 0 {
                return Err(invalid());
            }
            bits = bits << 5 | value as u128;
        }
        Ok(Self(bits, PhantomData))
    }
}

impl<K: Kind> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(K::PREFIX)?;
        f.write_str(std::str::from_utf8(&self.digits()).map_err(|_| fmt::Error)?)
    }
}

impl<K: Kind> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K> Copy for Id<K> {}
impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl<K> Eq for Id<K> {}
impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}
impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<K: Kind> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parts_come_back() {
        let id = EventId::from_parts(1_700_000_000_123, 42, 7, 0);
        assert_eq!(id.millis(), 1_700_000_000_123);
        assert_eq!((id.sequence(), id.tag(), id.ordinal()), (42, 7, 0));
        assert_eq!(id.delivery(3).ordinal(), 3);
        assert_eq!(id.delivery(3).event(), id);
        assert_eq!(id.to_string().len(), EventId::TEXT_LEN);
    }

    #[test]
    fn refused_text() {
        let good = EventId::from_parts(1, 2, 3, 0).to_string();
        assert!(good.parse::<EventId>().is_ok());
        for bad in [
            "",
            "evt_",
            &good[..good.len() - 1],
            &format!("{good}0"),
            &good.replace("evt_", "dlv_"),
            &good.to_uppercase(),
            "evt_80000000000000000000000000",
            "evt_0000000000000000000000000i",
            "evt_000000000000000000000000é",
        ] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips_and_sorts_like_the_bits(a: u128, b: u128) {
            let (a, b) = (DeliveryId::from_bits(a), DeliveryId::from_bits(b));
            prop_assert_eq!(a.to_string().parse::<DeliveryId>(), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
