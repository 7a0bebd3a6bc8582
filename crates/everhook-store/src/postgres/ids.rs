//! Ids that rise on one node: time first, then a random start that counts on within a millisecond.
//!
//! Two nodes may mix within a millisecond; they meet on one id once in 2^47 such milliseconds, and
//! then the primary key refuses the second.

use std::sync::{Mutex, PoisonError};

use everhook_domain::id::{
    ConversationId, EndpointId, EventId, Id, MessageId, RecordId, ReplayId, SourceId,
};
use everhook_domain::time::Timestamp;

/// Random starts leave the top bit free, so that counting on never overflows.
const RANDOM_MASK: u64 = (1 << 47) - 1;

/// The node's source of ids.
#[derive(Debug)]
pub(super) struct Ids {
    tag: u16,
    state: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    millis: u64,
    sequence: u64,
    random: u64,
}

impl Ids {
    /// A source that goes on after the newest id in the database. `seed` must be random.
    pub(super) fn new(tag: u16, newest: Option<EventId>, seed: u64) -> Self {
        let millis = newest.map_or(0, EventId::millis);
        let sequence = newest.map_or(0, EventId::sequence);
        Self { tag, state: Mutex::new(Last { millis, sequence, random: seed }) }
    }

    /// An event's id, above every earlier one of this node.
    pub(super) fn event(&self, now: Timestamp) -> EventId {
        self.id(now)
    }

    /// An endpoint's id.
    pub(super) fn endpoint(&self, now: Timestamp) -> EndpointId {
        self.id(now)
    }

    /// A source's id.
    pub(super) fn source(&self, now: Timestamp) -> SourceId {
        self.id(now)
    }

    /// The id of work on many deliveries.
    pub(super) fn replay(&self, now: Timestamp) -> ReplayId {
        self.id(now)
    }

    /// A conversation's id.
    pub(super) fn conversation(&self, now: Timestamp) -> ConversationId {
        self.id(now)
    }

    /// A message's id.
    pub(super) fn message(&self, now: Timestamp) -> MessageId {
        self.id(now)
    }

    /// The id of an idempotency record.
    pub(super) fn record(&self, now: Timestamp) -> RecordId {
        self.id(now)
    }

    fn id<K>(&self, now: Timestamp) -> Id<K> {
        let (millis, sequence) = self.next(now);
        Id::from_parts(millis, sequence, self.tag, 0)
    }

    fn next(&self, now: Timestamp) -> (u64, u64) {
        let now = u64::try_from(now.as_millis()).unwrap_or(0);
        let mut last = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now > last.millis {
            last.millis = now;
            last.random = mixed(last.random);
            last.sequence = last.random & RANDOM_MASK;
        } else {
            last.sequence += 1;
        }
        (last.millis, last.sequence)
    }
}

/// The next number of a sequence that looks random: xorshift64* of G. Marsaglia and S. Vigna.
const fn mixed(state: u64) -> u64 {
    let mut next = if state == 0 { 1 } else { state };
    next ^= next >> 12;
    next ^= next << 25;
    next ^= next >> 27;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_though_the_clock_does_not() {
        let ids = Ids::new(7, None, 42);
        let at = Timestamp::from_millis;
        let times = [1_000, 1_000, 1_001, 900, 1_001, 5_000, 0, -5];
        let made: Vec<EventId> = times.iter().map(|millis| ids.event(at(*millis))).collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
        let millis: Vec<u64> = made.iter().map(|id| id.millis()).collect();
        assert_eq!(millis, [1_000, 1_000, 1_001, 1_001, 1_001, 5_000, 5_000, 5_000]);
        let next = Ids::new(7, made.last().copied(), 43);
        assert!(next.event(at(4_000)) > made[7]);
    }
}
