//! Virtual time: tokio's paused clock is the monotonic one, and the wall clock is a distance from
//! it that a fault may change.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use everhook_domain::time::{Clock, Timestamp, millis};
use tokio::time::Instant;

/// 2026-01-01T00:00:00Z.
const BASE_MS: i64 = 1_767_225_600_000;

/// The world's time.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    start: Instant,
    base_ms: i64,
    offset_ms: AtomicI64,
    readings: AtomicU64,
}

impl VirtualTime {
    /// Begins now, somewhere within a second.
    #[expect(clippy::disallowed_methods, reason = "this is where the tests' clock is read")]
    pub(crate) fn start(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            base_ms: BASE_MS + i64::try_from(seed % 1_000).unwrap_or(0),
            offset_ms: AtomicI64::new(0),
            readings: AtomicU64::new(0),
        })
    }

    /// Milliseconds since the world began; never steps.
    pub(crate) fn now_ms(&self) -> i64 {
        millis(self.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the tests' clock is read")]
    fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }

    /// How often a process has looked at the time.
    pub(crate) fn readings(&self) -> u64 {
        self.readings.load(SeqCst)
    }

    /// The wall clock, looked at by nobody in the world.
    pub(crate) fn wall_now(&self) -> Timestamp {
        Timestamp::from_millis(self.base_ms + self.offset_ms.load(SeqCst) + self.now_ms())
    }

    /// The time by everybody else's clocks, which nobody sets.
    pub(crate) fn world_now(&self) -> Timestamp {
        Timestamp::from_millis(self.base_ms + self.now_ms())
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn step(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, SeqCst);
    }
}

impl Clock for VirtualTime {
    fn wall(&self) -> Timestamp {
        self.wall_now()
    }

    fn monotonic(&self) -> Duration {
        self.readings.fetch_add(1, SeqCst);
        self.elapsed()
    }
}
