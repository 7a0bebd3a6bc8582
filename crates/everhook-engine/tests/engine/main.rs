//! The engine on the real store in memory, with a made-up network and a clock that jumps.
//!
//! Time is tokio's paused time: it moves on only when every task waits, straight to the next thing
//! that is due. A day passes in milliseconds, and every run is the same.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod bulk;
mod certificates;
mod delivery;
mod isolation;
mod neighbours;
mod outage;
mod pacing;
mod readiness;
mod receiving;
mod states;
mod stopping;
mod store;
mod suspects;
mod system;
mod weights;
mod world;
