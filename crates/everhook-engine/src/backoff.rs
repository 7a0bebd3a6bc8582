//! Waiting longer and longer for a store that fails.

use std::time::Duration;

use everhook_domain::time::Timestamp;

/// The wait after the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5);

/// Doubles from 100 ms to 5 s with every failure in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    wait: Option<Duration>,
    until: Option<Timestamp>,
}

impl Backoff {
    /// Notes a failure; nothing is to be tried before the instant that is returned.
    pub(crate) fn failed(&mut self, now: Timestamp) -> Timestamp {
        let wait = self.wait.map_or(FIRST, |wait| (wait * 2).min(LONGEST));
        let until = now + wait;
        *self = Self { wait: Some(wait), until: Some(until) };
        until
    }

    /// Notes a success.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Until when nothing is to be tried; `None` if it may be tried at `now`.
    pub(crate) fn blocked(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_five_seconds_and_starts_anew() {
        let now = Timestamp::from_millis(0);
        let mut backoff = Backoff::default();
        assert_eq!(backoff.blocked(now), None);
        let waits: Vec<_> = (0..8).map(|_| backoff.failed(now).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(backoff.blocked(now), Some(Timestamp::from_millis(5_000)));
        assert_eq!(backoff.blocked(Timestamp::from_millis(5_000)), None);
        backoff.succeeded();
        assert_eq!(backoff.failed(now).as_millis(), 100);
    }
}
