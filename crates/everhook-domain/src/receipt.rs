//! Receipts: what a received event is, given what came before, and what may be decided about it.

use crate::id::ReceiptId;
use crate::inbound::OnChange;

/// What a received event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// New: it has its deliveries.
    Accepted,
    /// Seen before in the window: counted, and nothing else.
    Duplicate,
    /// Kept, and not run until it is released.
    Conflict,
    /// Kept as dead, because it cannot be read.
    Unreadable,
}

/// Where a receipt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiptStatus {
    /// Its event was given its deliveries.
    Accepted,
    /// Its event waits to be released or discarded.
    Conflict,
    /// Its event cannot be read, or was discarded: it has no deliveries.
    Dead,
}

impl ReceiptStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Accepted, Self::Conflict, Self::Dead];

    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Conflict => "conflict",
            Self::Dead => "dead",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

/// Why a receipt is a conflict, or dead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiptReason {
    /// The key was known, with other content; names the first receipt.
    OtherContent(ReceiptId),
    /// The signed bytes were known, under another key or none; names the first receipt.
    OtherKey(ReceiptId),
    /// It cannot be read: why.
    Unreadable(String),
    /// It was a conflict, and somebody has discarded it.
    Discarded,
}

/// What the window of a source remembers that bears on an event; `R` names a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known<R> {
    /// The first receipt under its key, and whether its content was the same.
    pub key: Option<(R, bool)>,
    /// The conflict under its key and with its content.
    pub conflict: Option<R>,
    /// The first receipt with its guard, whatever the key.
    pub guard: Option<R>,
}

/// What an event is by what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling<R> {
    /// Nothing like it was seen in the window.
    New,
    /// It was seen before.
    Duplicate {
        /// The receipt that it is counted in.
        of: R,
        /// Whether it came with another body.
        body_changed: bool,
    },
    /// The key was known, with other content.
    OtherContent(R),
    /// The signed bytes were known, under another key or none.
    OtherKey(R),
}

/// What an event is.
///
/// The same key and content is a duplicate, of a conflict too. A known key with other content is
/// what `on_change` says. Under a new key a known guard tells that somebody sends captured bytes.
pub fn rule<R: Copy>(on_change: OnChange, known: Known<R>) -> Ruling<R> {
    let Known { key, conflict, guard } = known;
    match (key, conflict, on_change, guard) {
        (Some((of, true)), _, _, _) | (_, Some(of), _, _) => {
            Ruling::Duplicate { of, body_changed: false }
        }
        (Some((of, false)), None, OnChange::Mark, _) => {
            Ruling::Duplicate { of, body_changed: true }
        }
        (Some((of, false)), None, OnChange::Conflict, _) => Ruling::OtherContent(of),
        (None, None, _, Some(of)) => Ruling::OtherKey(of),
        (None, None, _, None) => Ruling::New,
    }
}

/// What somebody decides about a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A conflict, or one that cannot be read, is given its deliveries.
    Release,
    /// A conflict is not wanted.
    Discard,
    /// One that was accepted runs once more: its event is sent again, as `send_again` does.
    Force,
}

/// Why something cannot be done with a receipt, or its event, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalDecision {
    /// It was accepted.
    #[error("its event was accepted and has its deliveries; it can only be forced to run again")]
    Accepted,
    /// It is a conflict.
    #[error("its event is a conflict that waits for a decision: release it or discard it")]
    Waiting,
    /// It cannot be read.
    #[error("its event could not be read and is kept as dead; it can only be released")]
    Unreadable,
    /// It was discarded.
    #[error("its event was a conflict that has been discarded; it is kept and never runs")]
    Discarded,
}

/// What a decision leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// What was asked for is so already.
    Unchanged,
    /// Its event is given its deliveries.
    Release,
    /// It is dead from now on.
    Discard,
    /// Its event is sent again.
    SendAgain,
}

/// Where a receipt stands, as far as decisions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was accepted when it came.
    Accepted,
    /// It was released.
    Released,
    /// It is a conflict.
    Waiting,
    /// It cannot be read.
    Unreadable,
    /// It was discarded.
    Discarded,
}

impl Standing {
    /// Of a receipt with this status and reason.
    pub const fn of(
        status: ReceiptStatus,
        reason: Option<&ReceiptReason>,
        is_released: bool,
    ) -> Self {
        match (status, reason) {
            (ReceiptStatus::Accepted, _) if is_released => Self::Released,
            (ReceiptStatus::Accepted, _) => Self::Accepted,
            (ReceiptStatus::Conflict, _) => Self::Waiting,
            (ReceiptStatus::Dead, Some(ReceiptReason::Discarded)) => Self::Discarded,
            (ReceiptStatus::Dead, _) => Self::Unreadable,
        }
    }

    /// What a decision leads to.
    ///
    /// # Errors
    /// [`IllegalDecision`] says why it cannot be.
    pub const fn decide(self, decision: Decision) -> Result<Consequence, IllegalDecision> {
        match (self, decision) {
            (Self::Waiting | Self::Unreadable, Decision::Release) => Ok(Consequence::Release),
            (Self::Waiting, Decision::Discard) => Ok(Consequence::Discard),
            (Self::Released, Decision::Release) | (Self::Discarded, Decision::Discard) => {
                Ok(Consequence::Unchanged)
            }
            (Self::Accepted | Self::Released, Decision::Force) => Ok(Consequence::SendAgain),
            (Self::Accepted, Decision::Release | Decision::Discard)
            | (Self::Released, Decision::Discard) => Err(IllegalDecision::Accepted),
            (Self::Waiting, Decision::Force) => Err(IllegalDecision::Waiting),
            (Self::Unreadable, Decision::Discard | Decision::Force) => {
                Err(IllegalDecision::Unreadable)
            }
            (Self::Discarded, Decision::Release | Decision::Force) => {
                Err(IllegalDecision::Discarded)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulings() {
        use OnChange::{Conflict, Mark};
        let marked = Ruling::Duplicate { of: 1, body_changed: true };
        let duplicate = |of| Ruling::Duplicate { of, body_changed: false };
        for (key, conflict, guard, on_mark, on_conflict) in [
            (None, None, None, Ruling::New, Ruling::New),
            (None, None, Some(3), Ruling::OtherKey(3), Ruling::OtherKey(3)),
            (None, Some(2), None, duplicate(2), duplicate(2)),
            (None, Some(2), Some(3), duplicate(2), duplicate(2)),
            (Some((1, true)), None, None, duplicate(1), duplicate(1)),
            (Some((1, true)), None, Some(3), duplicate(1), duplicate(1)),
            (Some((1, true)), Some(2), None, duplicate(1), duplicate(1)),
            (Some((1, false)), None, None, marked, Ruling::OtherContent(1)),
            (Some((1, false)), None, Some(3), marked, Ruling::OtherContent(1)),
            (Some((1, false)), Some(2), None, duplicate(2), duplicate(2)),
        ] {
            let known = Known { key, conflict, guard };
            assert_eq!(rule(Mark, known), on_mark, "{known:?}");
            assert_eq!(rule(Conflict, known), on_conflict, "{known:?}");
        }
    }

    #[test]
    fn decisions() {
        use Consequence::{Discard, Release, SendAgain, Unchanged};
        use ReceiptStatus::{Accepted, Conflict, Dead};
        let unreadable = ReceiptReason::Unreadable("no JSON".to_owned());
        let other = ReceiptReason::OtherContent(ReceiptId::from_bits(1));
        let discarded = ReceiptReason::Discarded;
        let accepted = Err(IllegalDecision::Accepted);
        let waiting = Err(IllegalDecision::Waiting);
        for (status, reason, is_released, expected) in [
            (Accepted, None, false, [accepted, accepted, Ok(SendAgain)]),
            (Accepted, Some(&other), true, [Ok(Unchanged), accepted, Ok(SendAgain)]),
            (Conflict, Some(&other), false, [Ok(Release), Ok(Discard), waiting]),
            (
                Dead,
                Some(&unreadable),
                false,
                [Ok(Release), Err(IllegalDecision::Unreadable), Err(IllegalDecision::Unreadable)],
            ),
            (
                Dead,
                Some(&discarded),
                false,
                [Err(IllegalDecision::Discarded), Ok(Unchanged), Err(IllegalDecision::Discarded)],
            ),
        ] {
            let standing = Standing::of(status, reason, is_released);
            let decisions = [Decision::Release, Decision::Discard, Decision::Force];
            assert_eq!(decisions.map(|one| standing.decide(one)), expected, "{standing:?}");
        }
    }
}
