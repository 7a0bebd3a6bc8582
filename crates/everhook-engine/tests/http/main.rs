//! The HTTP client against labs on the loopback interface.
//!
//! They do what real servers do wrong. Nothing here waits by guessing: a test ends when the outcome
//! is there, and where the engine's own time is at stake it is tokio's, paused.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod bodies;
mod client;
mod custom_ca;
mod deadlines;
mod endings;
mod fetch;
mod forward;
mod frames;
mod framing;
mod guard;
mod http2;
mod http2_endings;
mod moments;
mod name_server;
mod names;
mod redirects;
mod retry_after;
mod reuse;
mod secure;
mod tls;
mod tls_sessions;
