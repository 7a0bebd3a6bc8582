//! The real binary, as it is used: what it prints, how it ends, and that a running server behaves.
//!
//! | module | what it covers |
//! | --- | --- |
//! | `help` | golden help texts |
//! | `config` | `config check` and `config default` |
//! | `serve` | start, refusal, restart, stop |
//! | `secrets` | secrets at rest, and that nothing shows them |
//! | `send` | publishing to a running server |
//! | `receive` | webhooks in, by the real program |
//! | `receivers` | what becomes of a delivery when its receiver misbehaves |
//! | `reconcile` | a handler catches up with our conversations after an outage |
//! | `check` | trying a receiver: ten flawed ones and right ones |
//! | `proxy` | idempotency in front of a service, through crashes |
//! | `demo` | the demo shows what it promises |

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests may panic, measure time and read the environment, helpers of tests too"
)]

mod access;
mod check;
mod config;
mod demo;
mod health;
mod help;
mod listen;
mod manual;
mod process;
mod proxy;
mod receive;
mod receivers;
mod reconcile;
mod replay;
mod secrets;
mod send;
mod serve;
