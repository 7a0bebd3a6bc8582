//! Virtual time: tokio's paused clock is the monotonic one, and the wall clock is a distance from it
//! that a fault may change.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everhook_domain::time::{Clock, SteadyTime, Timestamp, millis};
use tokio::time::Instant;

use crate::world::lock;

/// 2026-01-01T00:00:00Z.
const BASE_MS: i64 = 1_767_225_600_000;

/// The world's time.
#[derive(Debug)]
pub(crate) struct VirtualTime {
    start: Instant,
    base_ms: i64,
    offset_ms: AtomicI64,
    /// The running process has read both clocks since the wall clock was last set.
    read: AtomicBool,
}

impl VirtualTime {
    /// Begins now, somewhere within a second.
    #[expect(clippy::disallowed_methods, reason = "this is where the tests' clock is read")]
    pub(crate) fn start(seed: u64) -> Self {
        let base_ms = BASE_MS + i64::try_from(seed % 1_000).unwrap_or(0);
        Self {
            start: Instant::now(),
            base_ms,
            offset_ms: AtomicI64::new(0),
            read: AtomicBool::new(true),
        }
    }

    /// Milliseconds since the world began; never steps.
    pub(crate) fn now_ms(&self) -> i64 {
        millis(self.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this is where the tests' clock is read")]
    fn elapsed(&self) -> Duration {
        Instant::now().duration_since(self.start)
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.base_ms + self.offset_ms.load(SeqCst) + self.now_ms())
    }

    /// Sets the wall clock forward or back; false if nobody has looked at it since the last time,
    /// because whether a step that is taken back was ever noticed cannot be known here.
    pub(crate) fn step(&self, by_ms: i64) -> bool {
        let seen = self.read.swap(false, SeqCst);
        if seen {
            self.offset_ms.fetch_add(by_ms, SeqCst);
        }
        seen
    }
}

/// The clock of one process, with the steady time that this process makes of it.
#[derive(Debug)]
pub(crate) struct ProcessClock {
    time: Arc<VirtualTime>,
    steady: Mutex<SteadyTime>,
}

impl ProcessClock {
    /// A clock that was never read.
    pub(crate) fn new(time: Arc<VirtualTime>) -> Self {
        Self { time, steady: Mutex::default() }
    }

    /// Steady time.
    pub(crate) fn now(&self) -> Timestamp {
        lock(&self.steady).advance(self.time.wall(), self.time.elapsed())
    }
}

impl Clock for ProcessClock {
    fn wall(&self) -> Timestamp {
        self.now();
        self.time.wall()
    }

    fn monotonic(&self) -> Duration {
        self.time.read.store(true, SeqCst);
        self.time.elapsed()
    }
}
