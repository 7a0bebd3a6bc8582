//! The HTTP client against scripted servers on the loopback interface.
//!
//! The servers do what real ones do wrong. Nothing here waits by guessing: a test ends when the
//! outcome is there, and time-outs are short ones of the client itself.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod answers;
mod endings;
mod names;
mod reuse;
mod server;
mod tls;
