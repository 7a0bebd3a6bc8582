//! The proxy on a real socket, in front of a service that each test plays.

#![expect(clippy::expect_used, reason = "helpers of tests fail as tests do")]

mod keyed;
mod passing;
mod stage;
