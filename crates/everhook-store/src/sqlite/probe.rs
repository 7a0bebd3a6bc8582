//! Whether the store takes writes: one is tried, but at most once a second, because anybody may
//! ask.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::time::Clock;
use tokio::sync::Mutex;

use super::command::{Verb, VerbError};
use super::meta::{meta, set_meta};
use super::tx::Tx;

/// For so long a write that succeeded speaks for the next one.
const SUCCESS_HOLDS: Duration = Duration::from_secs(1);

/// When a write was last seen to succeed. Those who ask at once wait for one probe.
pub(super) struct Probes {
    clock: Arc<dyn Clock>,
    succeeded: Mutex<Option<Duration>>,
}

impl Probes {
    /// No write has been seen.
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, succeeded: Mutex::new(None) }
    }

    /// Whether a write succeeds, by `write` or by one that did a moment ago.
    pub(super) async fn writable(&self, write: impl Future<Output = bool>) -> bool {
        let mut succeeded = self.succeeded.lock().await;
        if succeeded.is_some_and(|at| self.clock.monotonic().saturating_sub(at) < SUCCESS_HOLDS) {
            return true;
        }
        let writable = write.await;
        *succeeded = writable.then(|| self.clock.monotonic());
        writable
    }
}

/// Writes something.
pub(super) struct ProbeVerb;

impl Verb for ProbeVerb {
    type Output = ();

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), VerbError> {
        let probes = meta(tx.connection, "probes")?.unwrap_or(0);
        Ok(set_meta(tx.connection, "probes", probes.wrapping_add(1))?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use everhook_domain::time::Timestamp;

    use super::*;

    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn wall(&self) -> Timestamp {
            Timestamp::default()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    #[tokio::test]
    async fn a_success_holds_for_a_second_and_a_failure_not_at_all() {
        let clock = Arc::new(Hand(AtomicU64::new(0)));
        let probes = Probes::new(Arc::clone(&clock) as _);
        for (at, writes, expected) in [
            (0, false, false),
            (0, true, true),
            (999, false, true),
            (1_000, false, false),
            (1_001, true, true),
        ] {
            clock.0.store(at, Ordering::Relaxed);
            assert_eq!(probes.writable(async { writes }).await, expected, "at {at} ms");
        }
    }
}
