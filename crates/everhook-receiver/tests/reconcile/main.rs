//! Reconciling with an API whose rows change while it is paged through.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod stores;
mod sweep;
mod world;
