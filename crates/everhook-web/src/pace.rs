//! Lines of the log that anybody can cause: so many a second, and how many were left out.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use everhook_domain::time::Timestamp;

/// The time between two lines.
const LOG_INTERVAL_MS: i64 = 1_000;

/// Lets one line a second pass, so that an outage or an attack does not fill the disk.
#[derive(Debug, Default)]
pub(crate) struct LogPace {
    logged_at_ms: AtomicI64,
    left_out: AtomicU64,
}

impl LogPace {
    /// Whether to log now, and how many were left out since the last time.
    pub(crate) fn due(&self, now: Timestamp) -> Option<u64> {
        let now = now.as_millis();
        let last = self.logged_at_ms.load(Ordering::Relaxed);
        let taken = now.saturating_sub(last) >= LOG_INTERVAL_MS
            && self
                .logged_at_ms
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if taken {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_003_an_outage_does_not_fill_the_log() {
        let pace = LogPace::default();
        let at = Timestamp::from_millis;
        for (ms, expected) in [
            (10_000, Some(0)),
            (10_000, None),
            (10_999, None),
            (11_000, Some(2)),
            (11_001, None),
            (60_000, Some(1)),
        ] {
            assert_eq!(pace.due(at(ms)), expected, "{ms}");
        }
    }
}
