//! The room that bodies have in memory, and who has how much of it.
//!
//! Bodies are read before it is known whose they are, so what anybody sends to one source must
//! leave room for the others, and large bodies must leave some for the small ones that most are.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use everhook_domain::id::SourceId;

/// A body up to this is small.
pub(super) const SMALL_BYTES: usize = 64 * 1_024;
/// The part of all room that only small bodies have.
const SMALL_PART: usize = 8;
/// The part of its room that one source may have.
const SOURCE_PART: usize = 2;

/// How much there is for bodies of all and of one source, in bytes.
#[derive(Debug)]
pub(super) struct Pool {
    all: usize,
    of_a_source: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_source: HashMap<SourceId, usize>,
}

impl Pool {
    fn new(all: usize, of_a_source: usize) -> Self {
        Self { all, of_a_source, taken: Mutex::default() }
    }

    /// Takes room, if there is so much; `source` is `None` for whoever was let in by name.
    pub(super) fn take(&self, source: Option<SourceId>, bytes: usize) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_all = taken.all.saturating_add(bytes);
        if of_all > self.all {
            return false;
        }
        if let Some(source) = source.filter(|_| bytes > 0) {
            let has = taken.by_source.get(&source).copied().unwrap_or_default();
            let of_source = has.saturating_add(bytes);
            if of_source > self.of_a_source {
                return false;
            }
            taken.by_source.insert(source, of_source);
        }
        taken.all = of_all;
        true
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&self, source: Option<SourceId>, bytes: usize) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(bytes);
        let Some(source) = source else { return };
        if let Some(has) = taken.by_source.get_mut(&source) {
            *has = has.saturating_sub(bytes);
            if *has == 0 {
                taken.by_source.remove(&source);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        let taken = self.taken.lock().unwrap();
        taken.all == 0 && taken.by_source.is_empty()
    }
}

/// All the room.
#[derive(Debug)]
pub(super) struct Room {
    /// What only small bodies have; they have the rest too.
    pub(super) small: Pool,
    /// What bodies of any size have.
    pub(super) common: Pool,
}

impl Room {
    /// For those who were let in: whoever comes first has it.
    pub(super) fn shared(bytes: usize) -> Self {
        Self { small: Pool::new(0, 0), common: Pool::new(bytes, bytes) }
    }

    /// For sources, whose largest body has `largest` bytes: one such has room, whatever the parts.
    pub(super) fn of_sources(bytes: usize, largest: usize) -> Self {
        let small = (bytes / SMALL_PART).min(bytes.saturating_sub(largest));
        let common = bytes - small;
        Self {
            small: Pool::new(small, small / SOURCE_PART),
            common: Pool::new(common, (common / SOURCE_PART).max(largest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn one_source_leaves_room_for_the_others_and_all_for_small_bodies() {
        let source = |number| Some(SourceId::from_bits(number));
        let room = Room::of_sources(128 * MIB, 25 * MIB);
        let large = |number| room.common.take(source(number), 25 * MIB);
        assert_eq!([large(1), large(1), large(1)], [true, true, false]);
        assert_eq!([large(2), large(2), large(3)], [true, true, false]);
        let small = |number| room.small.take(source(number), SMALL_BYTES);
        assert_eq!((0..1_000).filter(|_| small(1)).count(), 8 * MIB / SMALL_BYTES);
        assert!(small(2));
        room.common.give_back(source(1), 25 * MIB);
        assert_eq!([large(2), large(3)], [false, true]);
    }

    #[test]
    fn the_largest_body_has_room_whatever_the_parts() {
        for (bytes, largest) in [(25, 25), (26, 25), (128, 25), (128, 128), (1, 1)] {
            let room = Room::of_sources(bytes, largest);
            assert!(room.common.take(Some(SourceId::from_bits(1)), largest), "{bytes} {largest}");
            assert_eq!(room.small.all + room.common.all, bytes);
        }
    }
}
