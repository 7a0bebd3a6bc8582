//! Reconciling with an API whose rows change while it is paged through.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads what the test command hands over"
)]

mod changes;
mod stores;
mod sweep;
mod world;
