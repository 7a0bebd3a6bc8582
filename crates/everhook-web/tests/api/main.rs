//! The API against the real store in memory, through the router that the server runs.

#![expect(clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod acceptance;
mod certificates;
mod claims;
mod conversations;
mod deliveries;
mod doors;
mod endpoints;
mod events;
#[cfg(feature = "faults")]
mod faults;
mod fetching;
mod harness;
mod health;
mod idempotency;
mod intake;
mod keyed_posts;
mod manual;
mod problems;
mod receipts;
mod records;
mod refusals;
mod replays;
mod server;
mod sources;
mod system;
mod targets;
mod tenants;
mod unusable;
mod wire;
