//! How often requests to one endpoint may begin.
//!
//! Starts are spread evenly instead of let through in bursts. A start that came late, because
//! timers are coarse, lets the next one come sooner by at most [`SLACK`]; the spacing is wider by
//! as much in total, so that no window of one second ever holds more starts than the limit.

use std::time::Duration;

use everhook_domain::time::{Timestamp, millis};

/// How much lateness may be made up for.
const SLACK: Duration = Duration::from_millis(5);
const SECOND: Duration = Duration::from_secs(1);

/// A limit on starts a second, and when the next may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    per_second: u32,
    interval_us: i64,
    next_us: i64,
}

impl Pace {
    /// At most so many starts in any second; 0 counts as 1.
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = per_second.max(1);
        let window = SECOND + SLACK;
        let window_us = i64::try_from(window.as_micros()).unwrap_or(i64::MAX);
        // Rounded up: rounding must not let one more through.
        let interval_us = (window_us + i64::from(per_second) - 1) / i64::from(per_second);
        Self { per_second, interval_us, next_us: i64::MIN }
    }

    /// The same pace at another limit; what was begun stays counted.
    #[must_use]
    pub(crate) fn limited_to(self, per_second: u32) -> Self {
        Self { next_us: self.next_us, ..Self::new(per_second) }
    }

    /// The limit.
    pub(crate) const fn per_second(&self) -> u32 {
        self.per_second
    }

    /// When the next start may be, if not at `now`.
    pub(crate) fn blocked(&self, now: Timestamp) -> Option<Timestamp> {
        let wait_us = self.next_us.saturating_sub(micros(now));
        // Rounded up to whole milliseconds, so that it may be then.
        (wait_us > 0).then(|| Timestamp::from_millis(self.next_us.saturating_add(999) / 1_000))
    }

    /// Notes a start.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        let earliest = micros(now) - millis(SLACK) * 1_000;
        self.next_us = self.next_us.max(earliest) + self.interval_us;
    }

    /// How many may start within `ahead` from now on: at least one.
    pub(crate) fn budget(&self, ahead: Duration) -> u32 {
        let ahead_us = i64::try_from(ahead.as_micros()).unwrap_or(i64::MAX);
        u32::try_from(ahead_us / self.interval_us).unwrap_or(u32::MAX).max(1)
    }
}

fn micros(at: Timestamp) -> i64 {
    at.as_millis().saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts as often as allowed for ten seconds, looking at the clock every `tick_ms`; gives the
    /// most starts in any second and the number of starts.
    fn run(per_second: u32, tick_ms: i64) -> (usize, usize) {
        let mut pace = Pace::new(per_second);
        let mut starts = Vec::new();
        for at_ms in (0..10_000).step_by(usize::try_from(tick_ms).expect("positive")) {
            let now = Timestamp::from_millis(at_ms);
            while pace.blocked(now).is_none() {
                pace.begin(now);
                starts.push(at_ms);
            }
        }
        let within = |first: usize| {
            let end = starts.partition_point(|at| *at < starts[first] + 1_000);
            end - first
        };
        let most = (0..starts.len()).map(within).max();
        (most.unwrap_or(0), starts.len())
    }

    #[test]
    fn never_more_than_the_limit_in_any_second_and_hardly_less() {
        for per_second in [1, 2, 3, 7, 50, 100, 999, 1_000, 4_999, 20_000] {
            for tick_ms in [1, 2, 3, 5] {
                let (most, all) = run(per_second, tick_ms);
                let limit = per_second as usize;
                assert!(most <= limit, "{per_second}/s, tick {tick_ms} ms: {most} in a second");
                assert!(all >= limit * 98 / 10, "{per_second}/s, tick {tick_ms} ms: {all} in ten");
            }
        }
    }

    #[test]
    fn starts_are_spread_and_an_idle_time_saves_nothing_up() {
        let at = Timestamp::from_millis;
        let mut pace = Pace::new(10);
        pace.begin(at(0));
        assert_eq!(pace.blocked(at(0)), Some(at(96)));
        assert_eq!(pace.blocked(at(96)), None);
        pace.begin(at(50_000));
        pace.begin(at(50_096));
        assert!(pace.blocked(at(50_100)).is_some(), "no burst after a pause");
    }

    #[test]
    fn a_lower_limit_counts_what_was_begun() {
        let at = Timestamp::from_millis;
        let mut pace = Pace::new(1);
        pace.begin(at(0));
        let faster = pace.limited_to(1_000);
        assert!(faster.blocked(at(500)).is_some());
        assert_eq!(faster.per_second(), 1_000);
        assert_eq!(Pace::new(0).per_second(), 1);
        assert_eq!(Pace::new(50).budget(Duration::from_millis(100)), 4);
        assert_eq!(Pace::new(5).budget(Duration::from_millis(100)), 1);
    }
}
