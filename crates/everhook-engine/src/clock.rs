//! The engine's two clocks: steady time for what is due, wall time for what is signed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everhook_domain::time::{Clock, SteadyTime, Timestamp};

use crate::lock::lock;

/// A [`Clock`] and the steady time made from it.
pub(crate) struct SteadyClock {
    clock: Arc<dyn Clock>,
    steady: Mutex<SteadyTime>,
}

impl SteadyClock {
    /// Steady time begins at the wall time of the first reading.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, steady: Mutex::default() }
    }

    /// Never goes back: what due times and starts are measured by.
    pub(crate) fn now(&self) -> Timestamp {
        lock(&self.steady).advance(self.clock.wall(), self.clock.monotonic())
    }

    /// What a receiver's clock shows too: what signatures carry.
    pub(crate) fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    /// For measuring how long something took.
    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}
