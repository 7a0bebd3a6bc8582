//! What an endpoint's last results say about it.
//!
//! Counted are attempts of all its deliveries, in the order in which they end. The change is
//! reported exactly once in each direction, so one outage makes one `failing` and one `recovered`.

use std::time::Duration;

use crate::time::Timestamp;

/// Failed attempts in a row from which on an endpoint counts as failing.
pub const FAILING_FROM: u32 = 5;

/// How an endpoint is doing. The default is one that was never tried: healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Failed attempts since the last success.
    pub consecutive_failures: u32,
}

/// What an attempt changed about an endpoint; each makes a system event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthChange {
    /// The last [`FAILING_FROM`] attempts failed.
    Failing,
    /// The first success after that.
    Recovered,
}

impl Health {
    /// Whether the last [`FAILING_FROM`] attempts, or more, failed.
    pub const fn is_failing(self) -> bool {
        self.consecutive_failures >= FAILING_FROM
    }

    /// The health after one more attempt, and what that changed.
    #[must_use]
    pub const fn observe(self, success: bool) -> (Self, Option<HealthChange>) {
        if success {
            let change = if self.is_failing() { Some(HealthChange::Recovered) } else { None };
            return (Self { consecutive_failures: 0 }, change);
        }
        let after = Self { consecutive_failures: self.consecutive_failures.saturating_add(1) };
        let change = if after.is_failing() && !self.is_failing() {
            Some(HealthChange::Failing)
        } else {
            None
        };
        (after, change)
    }
}

/// An endpoint's health with the time of its failures, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointHealth {
    /// The failures since the last success.
    pub health: Health,
    /// When the first of them started; `None` while there are none.
    pub first_failure_at: Option<Timestamp>,
}

impl EndpointHealth {
    /// The health after one more attempt, which started then, and what that changed.
    #[must_use]
    pub fn observe(self, success: bool, started_at: Timestamp) -> (Self, Option<HealthChange>) {
        let (health, change) = self.health.observe(success);
        let first_failure_at = match success {
            true => None,
            false => self.first_failure_at.or(Some(started_at)),
        };
        (Self { health, first_failure_at }, change)
    }

    /// Since when nothing has succeeded; `None` while it does not count as failing.
    pub fn failing_since(&self) -> Option<Timestamp> {
        self.first_failure_at.filter(|_| self.health.is_failing())
    }

    /// When the next failure disables the endpoint, `disable_after` from the first one; `None`
    /// while it does not count as failing, or where that is off.
    pub fn disables_at(&self, disable_after: Option<Duration>) -> Option<Timestamp> {
        Some(self.failing_since()? + disable_after?)
    }

    /// Whether the endpoint is to be disabled now, after one more failure.
    pub fn must_be_disabled(&self, disable_after: Option<Duration>, now: Timestamp) -> bool {
        self.disables_at(disable_after).is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Results (`+` success, `-` failure) and the changes they make (`F`, `R` or `.` for none).
    fn check(results: &str, expected: &str) {
        let mut health = Health::default();
        let changes: String = results
            .chars()
            .map(|result| {
                let (after, change) = health.observe(result == '+');
                health = after;
                match change {
                    Some(HealthChange::Failing) => 'F',
                    Some(HealthChange::Recovered) => 'R',
                    None => '.',
                }
            })
            .collect();
        assert_eq!(changes, expected, "{results}");
    }

    #[test]
    fn one_change_in_each_direction() {
        check("++++++", "......");
        check("----+-", "......");
        check("-----", "....F");
        check("--------+", "....F...R");
        check("-----+++", "....FR..");
        check("-----+-----+", "....FR....FR");
        check("----+----+----+", "...............");
    }

    #[test]
    fn the_count_does_not_overflow() {
        let health = Health { consecutive_failures: u32::MAX };
        assert_eq!(health.observe(false), (health, None));
    }

    #[test]
    fn an_outage_has_a_beginning() {
        let at = Timestamp::from_millis;
        let mut health = EndpointHealth::default();
        for (started, success, since) in [
            (1_000, false, None),
            (2_000, false, None),
            (3_000, true, None),
            (4_000, false, None),
            (5_000, false, None),
            (6_000, false, None),
            (7_000, false, None),
            // The fifth in a row tells of the first.
            (8_000, false, Some(4_000)),
            (9_000, false, Some(4_000)),
            (10_000, true, None),
        ] {
            (health, _) = health.observe(success, at(started));
            assert_eq!(health.failing_since(), since.map(at), "{started}");
            let day = Duration::from_secs(86_400);
            assert_eq!(health.disables_at(Some(day)), since.map(|since| at(since) + day));
            assert_eq!(health.disables_at(None), None);
            let end = at(4_000) + day;
            let must = |now| health.must_be_disabled(Some(day), now);
            assert_eq!((must(end.minus(Duration::from_millis(1))), must(end)), {
                (false, since.is_some())
            });
            assert!(!health.must_be_disabled(None, end));
        }
        assert_eq!(health, EndpointHealth::default());
    }

    proptest! {
        #[test]
        fn the_beginning_is_that_of_the_first_failure(results: Vec<bool>) {
            let mut health = EndpointHealth::default();
            let mut first = None;
            for (started, success) in (0..).map(Timestamp::from_millis).zip(results) {
                (health, _) = health.observe(success, started);
                first = if success { None } else { first.or(Some(started)) };
                prop_assert_eq!(health.first_failure_at, first);
                prop_assert_eq!(health.health.consecutive_failures == 0, first.is_none());
            }
        }

        #[test]
        fn changes_alternate_and_agree_with_the_state(results: Vec<bool>) {
            let mut health = Health::default();
            for success in results {
                let (after, change) = health.observe(success);
                let expected = match (health.is_failing(), after.is_failing()) {
                    (false, true) => Some(HealthChange::Failing),
                    (true, false) => Some(HealthChange::Recovered),
                    (false, false) | (true, true) => None,
                };
                prop_assert_eq!(change, expected);
                health = after;
            }
        }
    }
}
