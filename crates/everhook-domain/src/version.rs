//! Which of two states of an object is the newer one: the order of arrival says nothing.
//!
//! A publisher gives each state of an object a [`Version`]; of the state that was applied last the
//! receiver holds version and [`Content`]. [`decide`] compares. A deletion is a state like any
//! other, so that what arrives late makes no deleted object again.

use sha2::{Digest, Sha256};

use crate::digest::Parts;
use crate::time::Timestamp;

/// How long the state of a deleted object is held by default: as long as our own events are kept,
/// so that no replay of them makes it again.
pub const TOMBSTONES_KEPT: std::time::Duration = std::time::Duration::from_secs(90 * 24 * 60 * 60);

/// The place of a state in the history of its object, as the publisher gives it: a number that
/// rises, or the time of the change.
///
/// The two are not to be mixed within one object. The time is the one of the change, never that of
/// a signature or an arrival, which differ from try to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

impl From<Timestamp> for Version {
    fn from(changed_at: Timestamp) -> Self {
        Self(changed_at.as_millis())
    }
}

/// What an object is in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// The SHA-256 of what it holds.
    Of([u8; 32]),
    /// It is deleted.
    Deleted,
}

impl Content {
    /// Of these bytes. Two spellings of one content are two contents: hash what you apply, in one
    /// spelling, wherever it came from.
    pub fn of(bytes: &[u8]) -> Self {
        Self::Of(Sha256::digest(bytes).into())
    }
}

/// An object at one point of its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Its place in the history.
    pub version: Version,
    /// What the object is there.
    pub content: Content,
}

/// Which object: its name in any number of parts, such as `["crm", "contact", "17"]`, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(pub [u8; 16]);

impl ObjectKey {
    /// Of these parts; `["a", "bc"]` is another object than `["ab", "c"]`.
    pub fn new<P: AsRef<[u8]>>(parts: &[P]) -> Self {
        let mut digest = Parts::default();
        digest.part(b"object");
        parts.iter().for_each(|part| digest.part(part.as_ref()));
        let mut head = [0; 16];
        head.copy_from_slice(&digest.finish()[..16]);
        Self(head)
    }
}

/// What a state that arrives is to the one that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only a fresh state may be applied"]
pub enum Verdict {
    /// Newer: to be applied.
    Fresh,
    /// Older: not applied.
    Stale,
    /// The same: not applied again.
    Duplicate,
    /// Of the same version with another content: neither is known to be right, so it is not
    /// applied. The object is to be fetched from its publisher, and what that says settles it.
    Conflict {
        /// The state that is held.
        held: State,
    },
}

/// What `incoming` is to the state that is held, if any.
///
/// `settles` is for a state that was fetched because of a conflict: the state that was held then.
/// If it still is, another content of the same version is fresh.
pub fn decide(held: Option<&State>, incoming: &State, settles: Option<&State>) -> Verdict {
    use std::cmp::Ordering;
    let Some(held) = held else { return Verdict::Fresh };
    match incoming.version.cmp(&held.version) {
        Ordering::Greater => Verdict::Fresh,
        Ordering::Less => Verdict::Stale,
        Ordering::Equal if incoming.content == held.content => Verdict::Duplicate,
        Ordering::Equal if settles == Some(held) => Verdict::Fresh,
        Ordering::Equal => Verdict::Conflict { held: *held },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn state(version: i64, content: Option<u8>) -> State {
        let content = match content {
            Some(byte) => Content::Of([byte; 32]),
            None => Content::Deleted,
        };
        State { version: Version(version), content }
    }

    #[test]
    fn versions_decide_and_content_tells_equal_ones_apart() {
        use Verdict::{Conflict, Duplicate, Fresh, Stale};
        let held = state(5, Some(1));
        for (incoming, expected) in [
            (state(6, Some(2)), Fresh),
            (state(6, Some(1)), Fresh),
            (state(6, None), Fresh),
            (state(4, Some(1)), Stale),
            (state(4, None), Stale),
            (state(-1, Some(1)), Stale),
            (held, Duplicate),
            (state(5, Some(2)), Conflict { held }),
            (state(5, None), Conflict { held }),
        ] {
            assert_eq!(decide(Some(&held), &incoming, None), expected, "{incoming:?}");
            assert_eq!(decide(None, &incoming, None), Fresh);
        }
    }

    #[test]
    fn case_063_a_deleted_object_is_not_made_again_by_what_is_late() {
        let held = state(3, None);
        assert_eq!(decide(Some(&held), &state(2, Some(1)), None), Verdict::Stale);
        assert_eq!(decide(Some(&held), &held, None), Verdict::Duplicate);
        assert_eq!(decide(Some(&held), &state(4, Some(1)), None), Verdict::Fresh);
    }

    #[test]
    fn what_was_fetched_settles_only_the_conflict_that_it_was_fetched_for() {
        let (a, b, c) = (state(5, Some(1)), state(5, Some(2)), state(5, Some(3)));
        assert_eq!(decide(Some(&a), &b, Some(&a)), Verdict::Fresh);
        // Another one has settled it meanwhile.
        assert_eq!(decide(Some(&c), &b, Some(&a)), Verdict::Conflict { held: c });
        assert_eq!(decide(Some(&b), &b, Some(&a)), Verdict::Duplicate);
        assert_eq!(decide(Some(&state(6, Some(3))), &b, Some(&a)), Verdict::Stale);
    }

    #[test]
    fn parts_are_told_apart() {
        assert_ne!(ObjectKey::new(&["a", "bc"]), ObjectKey::new(&["ab", "c"]));
        assert_ne!(ObjectKey::new(&["a"]), ObjectKey::new(&["a", ""]));
        assert_eq!(ObjectKey::new(&["a"]), ObjectKey::new(&[b"a"]));
    }

    proptest! {
        #[test]
        fn any_order_and_repetition_of_a_history_ends_at_its_last_state(
            arrivals in prop::collection::vec((0_i64..9, prop::option::of(0_u8..3)), 1..40),
        ) {
            // A version has one content: the first that was drawn for it.
            let mut history = std::collections::BTreeMap::new();
            let mut held = None;
            for (version, content) in arrivals {
                let incoming = *history.entry(version).or_insert_with(|| state(version, content));
                if decide(held.as_ref(), &incoming, None) == Verdict::Fresh {
                    prop_assert!(held.is_none_or(|held| held.version < incoming.version));
                    held = Some(incoming);
                }
            }
            prop_assert_eq!(held, history.into_values().next_back());
        }
    }
}
