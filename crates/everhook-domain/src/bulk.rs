//! Work on many deliveries at once: which of them, how fast, and what becomes of each.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::{CancelReason, Dead, IllegalStep, Input, State};
use crate::time::Timestamp;

/// What is done to each delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkKind {
    /// It is sent again.
    Replay,
    /// Note is taken that it is dead.
    Acknowledge,
    /// One that an endpoint missed is made, one that its disabling cancelled is sent again.
    CatchUp,
}

impl BulkKind {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Acknowledge => "acknowledge",
            Self::CatchUp => "catch_up",
        }
    }

    /// The kind with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Replay, Self::Acknowledge, Self::CatchUp]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }

    /// What happens to each delivery.
    pub const fn input(self) -> Input {
        match self {
            Self::Replay | Self::CatchUp => Input::Replay,
            Self::Acknowledge => Input::Acknowledge,
        }
    }

    /// Whether a delivery in this state belongs to the work when it is started, if it matches the
    /// filter.
    pub const fn takes(self, state: &State) -> bool {
        match self {
            Self::Replay => true,
            Self::Acknowledge => {
                matches!(state, State::Dead(Dead { acknowledged_at: None, .. }))
            }
            Self::CatchUp => catches_up(state),
        }
    }
}

/// Whether a catch-up sends a delivery again that is there: only one that the endpoint's disabling
/// cancelled. All others were sent, are on their way, or are not wanted.
pub const fn catches_up(state: &State) -> bool {
    matches!(state, State::Cancelled(CancelReason::EndpointDisabled))
}

/// How far work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkStatus {
    /// Something is left to do.
    Running,
    /// All was done.
    Done,
    /// Somebody ended it; what was done stays.
    Cancelled,
}

impl BulkStatus {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Running, Self::Done, Self::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// Why nothing was done to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its endpoint is disabled.
    EndpointDisabled,
    /// Its endpoint is deleted.
    EndpointDeleted,
    /// An unfinished bulk replay has it.
    InBulkReplay,
    /// It is not dead any more.
    NotDead,
    /// It does not exist any more.
    Erased,
    /// Its state forbids it.
    NotAllowed,
}

impl From<IllegalStep> for SkipReason {
    fn from(illegal: IllegalStep) -> Self {
        match illegal {
            IllegalStep::EndpointGone(CancelReason::EndpointDeleted) => Self::EndpointDeleted,
            IllegalStep::EndpointGone(CancelReason::EndpointDisabled | CancelReason::Requested) => {
                Self::EndpointDisabled
            }
            IllegalStep::NotDead => Self::NotDead,
            IllegalStep::Stale | IllegalStep::NotDue | IllegalStep::Ended => Self::NotAllowed,
        }
    }
}

/// What has become of the deliveries so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// To so many it was done.
    pub done: u64,
    /// To so many it was not, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
}

impl Tally {
    /// Counts one delivery.
    pub fn count(&mut self, outcome: Result<(), SkipReason>) {
        match outcome {
            Ok(()) => self.done += 1,
            Err(reason) => *self.skipped.entry(reason).or_default() += 1,
        }
    }

    /// All that were skipped.
    pub fn skipped_total(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// Spreads work over time: the first at once, the others evenly. What could not be done in time,
/// because the process was down or busy, is not made up for beyond one second's worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkPace {
    /// At most so many a second; at least 1.
    pub rate_per_second: u32,
    /// From this instant they are counted.
    pub since: Timestamp,
    /// So many were done since then.
    pub done: u64,
}

impl BulkPace {
    /// A pace that begins now; a rate of 0 counts as 1.
    pub fn new(rate_per_second: u32, now: Timestamp) -> Self {
        Self { rate_per_second: rate_per_second.max(1), since: now, done: 0 }
    }

    /// How many may be done at `now`.
    pub fn allowed(&self, now: Timestamp) -> u64 {
        self.at(now).budget(now)
    }

    /// The pace after so many were done at `now`.
    #[must_use]
    pub fn after(&self, count: u64, now: Timestamp) -> Self {
        let pace = self.at(now);
        Self { done: pace.done + count, ..pace }
    }

    /// The instant from which on one more may be done.
    pub fn next(&self) -> Timestamp {
        let wait_ms = (self.done * 1_000).div_ceil(u64::from(self.rate_per_second));
        self.since + Duration::from_millis(wait_ms)
    }

    fn budget(&self, now: Timestamp) -> u64 {
        let elapsed_ms = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        let due = elapsed_ms.saturating_mul(u64::from(self.rate_per_second)) / 1_000 + 1;
        due.saturating_sub(self.done)
    }

    /// The same pace, without the right to make up for more than a second. It also begins anew
    /// where the next one is further off than the rate puts it: an earlier process had a clock
    /// ahead of ours.
    fn at(&self, now: Timestamp) -> Self {
        let interval_ms = 1_000_u64.div_ceil(u64::from(self.rate_per_second));
        let behind = self.budget(now) > u64::from(self.rate_per_second);
        let ahead = self.next() > now + Duration::from_millis(interval_ms);
        if behind || ahead { Self::new(self.rate_per_second, now) } else { *self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::DeadReason;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn what_each_kind_takes() {
        let dead =
            |acknowledged_at| State::Dead(Dead { reason: DeadReason::Exhausted, acknowledged_at });
        let disabled = State::Cancelled(CancelReason::EndpointDisabled);
        for (state, acknowledge, catch_up) in [
            (dead(None), true, false),
            (dead(Some(at(1))), false, false),
            (State::Delivered, false, false),
            (disabled, false, true),
            (State::Cancelled(CancelReason::Requested), false, false),
            (State::Cancelled(CancelReason::EndpointDeleted), false, false),
        ] {
            assert!(BulkKind::Replay.takes(&state), "{state:?}");
            assert_eq!(BulkKind::Acknowledge.takes(&state), acknowledge, "{state:?}");
            assert_eq!(BulkKind::CatchUp.takes(&state), catch_up, "{state:?}");
        }
    }

    #[test]
    fn words_are_read_back() {
        for kind in [BulkKind::Replay, BulkKind::Acknowledge, BulkKind::CatchUp] {
            assert_eq!(BulkKind::from_word(kind.as_str()), Some(kind));
        }
        for status in [BulkStatus::Running, BulkStatus::Done, BulkStatus::Cancelled] {
            assert_eq!(BulkStatus::from_word(status.as_str()), Some(status));
        }
        assert_eq!((BulkKind::from_word("x"), BulkStatus::from_word("x")), (None, None));
    }

    #[test]
    fn refused_steps_are_counted_by_reason() {
        let gone = IllegalStep::EndpointGone;
        let mut tally = Tally::default();
        for (illegal, reason) in [
            (gone(CancelReason::EndpointDisabled), SkipReason::EndpointDisabled),
            (gone(CancelReason::EndpointDeleted), SkipReason::EndpointDeleted),
            (IllegalStep::NotDead, SkipReason::NotDead),
            (IllegalStep::Ended, SkipReason::NotAllowed),
        ] {
            assert_eq!(SkipReason::from(illegal), reason);
            tally.count(Err(reason));
        }
        tally.count(Err(SkipReason::NotDead));
        tally.count(Ok(()));
        assert_eq!((tally.done, tally.skipped_total()), (1, 5));
        assert_eq!(tally.skipped[&SkipReason::NotDead], 2);
        let text = serde_json::to_string(&tally).expect("JSON");
        assert_eq!(serde_json::from_str::<Tally>(&text).expect("the same"), tally);
    }

    #[test]
    fn the_pace_is_even() {
        let mut pace = BulkPace::new(4, at(0));
        for (now, allowed, done) in
            [(0, 1, 1), (0, 0, 0), (249, 0, 0), (250, 1, 1), (1_000, 3, 2), (1_000, 1, 1)]
        {
            assert_eq!(pace.allowed(at(now)), allowed, "at {now}");
            pace = pace.after(done, at(now));
        }
        assert_eq!(pace.next(), at(1_250));
        assert_eq!(BulkPace::new(0, at(0)).rate_per_second, 1);
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let pace = BulkPace::new(10, at(0)).after(1, at(0));
        assert_eq!(pace.allowed(at(1_000)), 10, "one second's worth");
        assert_eq!(pace.allowed(at(60_000)), 1, "after a minute it begins anew");
        let pace = pace.after(1, at(60_000));
        assert_eq!((pace.allowed(at(60_099)), pace.next()), (0, at(60_100)));
        assert_eq!(pace.allowed(at(5_000)), 1, "a clock set back freezes nothing");
    }

    proptest! {
        #[test]
        fn no_second_holds_more_than_twice_the_rate(
            rate in 1_u32..5_000,
            looks in prop::collection::vec(0_i64..3_000, 1..60),
        ) {
            let (mut pace, mut now, mut done) = (BulkPace::new(rate, at(0)), 0, Vec::new());
            for wait in looks {
                now += wait;
                let allowed = pace.allowed(at(now));
                prop_assert_eq!(allowed > 0, pace.next() <= at(now));
                pace = pace.after(allowed, at(now));
                done.push((now, allowed));
            }
            for (from, _) in &done {
                let second = done.iter().filter(|(when, _)| (*from..from + 1_000).contains(when));
                let total: u64 = second.map(|(_, count)| count).sum();
                prop_assert!(total <= 2 * u64::from(rate), "{total} from {from}");
            }
        }
    }
}
