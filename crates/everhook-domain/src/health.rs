//! What an endpoint's last results say about it.
//!
//! Counted are attempts of all its deliveries, in the order in which they end. The change is
//! reported exactly once in each direction, so one outage makes one `failing` and one `recovered`.

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

    proptest! {
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
