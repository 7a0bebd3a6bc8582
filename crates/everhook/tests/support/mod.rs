//! What the crash suite and the power-cut suite share: a receiver, a load and a running server,
//! and the judge of what the receiver saw.
//!
//! Everything is real: the binary, its sockets, its files and its death. A [`World`] starts a
//! server, presses events into it, lets it die, starts it again and, once nothing is left to send,
//! has [`check`] compare four sources: what was answered 2xx, what arrived, what the API tells, and
//! when the process died. A check reports [`Violation`](check::Violation)s instead of panicking, so
//! that a suite can also show that a planted fault is found.

pub(crate) mod api;
pub(crate) mod chance;
pub(crate) mod check;
pub(crate) mod folder;
pub(crate) mod http;
pub(crate) mod intake;
pub(crate) mod load;
pub(crate) mod orders;
pub(crate) mod receiver;
pub(crate) mod server;
pub(crate) mod world;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use world::World;

/// The instant on the machine's clock: these suites measure a real process.
#[expect(clippy::disallowed_methods, reason = "a real process runs on the machine's clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets time pass: the behaviour of a client or an outage takes time, whatever else happens.
pub(crate) fn pause(moment: Duration) {
    let end = now() + moment;
    while now() < end {
        std::thread::park_timeout(end.saturating_duration_since(now()));
    }
}

/// Holds the machine: the tests of a suite measure times, so they run one after the other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells what a suite has done, past the capture of the test harness.
pub(crate) fn tell(line: &str) {
    use std::io::Write as _;
    let _nobody_reads = writeln!(std::io::stderr(), "    {line}");
}
