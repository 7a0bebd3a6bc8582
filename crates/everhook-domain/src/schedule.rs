//! When the attempts of a round are due.
//!
//! A [`Schedule`] is a list of offsets from the round's first attempt. Lateness of our own making
//! (down, paused, paced) over [`LATENESS_TOLERATED`] moves the rest of the round by as much, so
//! that the gaps between attempts stay: being down never turns a delivery dead.

use std::time::Duration;

use crate::time::Timestamp;

/// The most steps a schedule may have.
pub const STEPS_MAX: usize = 20;
/// Lateness up to this much does not move the rest of the round.
pub const LATENESS_TOLERATED: Duration = Duration::from_secs(60);
/// Two attempts of a round start at least this far apart, or as far as their offsets are.
pub const GAP_MIN: Duration = Duration::from_secs(60);

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// The offsets of a round's attempts from its first one: `[0, …]`, strictly rising.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

/// Why a list of offsets is not a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// No offset, or more than [`STEPS_MAX`].
    #[error("a schedule has 1 to {STEPS_MAX} offsets, this one has {0}")]
    Length(usize),
    /// The first offset is not zero.
    #[error("the first offset must be 0s: the first attempt starts at once")]
    First,
    /// An offset is not above the one before it; the position counts from one.
    #[error("offset {0} must be greater than the one before it")]
    NotRising(usize),
}

impl Default for Schedule {
    /// The promise: 0, +1 min, +5 min, +30 min, +2 h, +6 h, +24 h.
    fn default() -> Self {
        Self(vec![Duration::ZERO, MINUTE, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 6 * HOUR, 24 * HOUR])
    }
}

impl Schedule {
    /// A schedule from its offsets.
    ///
    /// # Errors
    /// [`InvalidSchedule`] says which rule is broken, and where.
    pub fn new(offsets: Vec<Duration>) -> Result<Self, InvalidSchedule> {
        if offsets.is_empty() || offsets.len() > STEPS_MAX {
            return Err(InvalidSchedule::Length(offsets.len()));
        }
        if !offsets[0].is_zero() {
            return Err(InvalidSchedule::First);
        }
        match offsets.windows(2).position(|pair| pair[1] <= pair[0]) {
            Some(before) => Err(InvalidSchedule::NotRising(before + 2)),
            None => Ok(Self(offsets)),
        }
    }

    /// The offsets, first to last.
    pub fn offsets(&self) -> &[Duration] {
        &self.0
    }

    /// How many attempts a round has.
    pub fn steps(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The longest time between two attempts of a round.
    pub fn longest_gap(&self) -> Duration {
        self.0.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(Duration::ZERO)
    }

    /// When attempt `step` (counted from zero) of a round is due, or `None` past the last.
    ///
    /// `anchor` is the start of the round's first attempt, `shift` the lateness of our making so
    /// far, `last_start` the start of the attempt before. Never before the promised offset.
    pub fn due(
        &self,
        step: u32,
        anchor: Timestamp,
        shift: Duration,
        last_start: Timestamp,
    ) -> Option<Timestamp> {
        let step = step as usize;
        let offset = *self.0.get(step)?;
        let gap = step.checked_sub(1).map_or(Duration::ZERO, |before| offset - self.0[before]);
        Some((anchor + shift + offset).max(last_start + gap.min(GAP_MIN)))
    }
}

/// How much of the lateness of a start moves the rest of the round.
pub fn shift_for(due: Timestamp, started: Timestamp) -> Duration {
    let late = started.since(due);
    if late > LATENESS_TOLERATED { late } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(list: &[u64]) -> Vec<Duration> {
        list.iter().map(|s| Duration::from_secs(*s)).collect()
    }

    #[test]
    fn what_is_a_schedule() {
        use InvalidSchedule::{First, Length, NotRising};
        for (offsets, expected) in [
            (secs(&[0]), Ok(())),
            (secs(&[0, 1, 2]), Ok(())),
            (secs(&[]), Err(Length(0))),
            (secs(&[1, 2]), Err(First)),
            (secs(&[0, 5, 5]), Err(NotRising(3))),
            (secs(&[0, 5, 4]), Err(NotRising(3))),
            ((0..20).map(Duration::from_secs).collect(), Ok(())),
            ((0..21).map(Duration::from_secs).collect(), Err(Length(21))),
        ] {
            assert_eq!(Schedule::new(offsets).map(drop), expected);
        }
    }

    #[test]
    fn the_promised_offsets() {
        let schedule = Schedule::default();
        let anchor = Timestamp::from_millis(1_000_000);
        let mut last = anchor;
        let mut offsets = Vec::new();
        for step in 1.. {
            let Some(due) = schedule.due(step, anchor, Duration::ZERO, last) else { break };
            offsets.push(due.since(anchor).as_secs());
            last = due;
        }
        assert_eq!(offsets, [60, 300, 1_800, 7_200, 21_600, 86_400]);
        assert_eq!(schedule.longest_gap(), 18 * HOUR);
    }

    #[test]
    fn a_late_start_keeps_a_gap() {
        let schedule = Schedule::default();
        let anchor = Timestamp::from_millis(0);
        let late = anchor + 59 * MINUTE;
        let due = schedule.due(3, anchor, Duration::ZERO, late);
        assert_eq!(due, Some(late + MINUTE), "at least a minute after the attempt before");
        let short = Schedule::new(secs(&[0, 2, 3])).expect("legal");
        let due = short.due(2, anchor, Duration::ZERO, late);
        assert_eq!(due, Some(late + Duration::from_secs(1)), "or the gap, if that is shorter");
    }

    #[test]
    fn lateness_shifts_beyond_a_minute() {
        let due = Timestamp::from_millis(0);
        assert_eq!(shift_for(due, due + MINUTE), Duration::ZERO);
        let late = MINUTE + Duration::from_millis(1);
        assert_eq!(shift_for(due, due + late), late);
        assert_eq!(shift_for(due + HOUR, due), Duration::ZERO, "early is not late");
    }
}
