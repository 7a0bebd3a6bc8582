//! The API against the real store in memory, through the router that the server runs.

mod deliveries;
mod endpoints;
mod events;
mod harness;
mod health;
mod idempotency;
mod problems;
mod refusals;
mod server;
