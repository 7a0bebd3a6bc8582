//! `cargo xtask bench …`: the whole product under load, with everything in its own process.
//! `send` measures throughput and latency, `isolation` what endpoints in trouble cost the others,
//! `receive` how fast webhooks come in, `idempotency` what a key costs.
//!
//! The server is a release build of `everhook serve` with its defaults: every accepted event is
//! synced to the disk. The generator and the receiver are this program again, built for release.
//! A throughput row is **void**, and the command fails, unless every accepted id arrived, sampled
//! signatures are right, and one attempt per delivery is stored. The server's CPU is read from the
//! kernel, so what generator and receiver cost is shown apart and never hides in its number.

mod generator;
mod idempotency;
mod isolation;
mod machine;
mod payload;
mod proof;
mod receive;
mod receiver;
mod report;
mod rig;
mod send;
mod summary;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::args::Args;

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the throughput part lasts.
    pub seconds: u64,
    /// It ends earlier after this many events; 0 means no such end.
    pub count: u64,
    /// Keep-alive connections that publish at once.
    pub connections: usize,
    /// Bytes of each event's `data`.
    pub payload: usize,
    /// Events per second in the latency part.
    pub rate: u64,
    /// How long the latency part lasts.
    pub latency_seconds: u64,
    /// A former run to compare with, instead of the last one.
    pub compare: Option<PathBuf>,
}

/// `cargo xtask bench …`, and the two processes it starts.
///
/// # Errors
/// The command line is wrong, or something could not be built, started or measured.
pub fn command(mut words: impl Iterator<Item = String>) -> Result<bool> {
    let what = words.next().unwrap_or_default();
    let mut args = Args::parse(words)?;
    match what.as_str() {
        "send" => {
            let options = Options {
                seconds: args.value("seconds", 15)?,
                count: args.value("count", 0)?,
                connections: args.value("connections", 64)?,
                payload: args.value("payload", 1024)?,
                rate: args.value("rate", 200)?,
                latency_seconds: args.value("latency-seconds", 15)?,
                compare: args.text("compare")?.map(PathBuf::from),
            };
            args.finish()?;
            send::run(&options)
        }
        "isolation" => {
            let options = isolation::Options {
                seconds: args.value("seconds", 10)?,
                rounds: args.value("rounds", 3)?,
                rate: args.value("rate", 200)?,
                backlog: args.value("backlog", 200_000)?,
            };
            args.finish()?;
            isolation::run(options)
        }
        "receive" => {
            let options = receive::Options {
                seconds: args.value("seconds", 15)?,
                connections: args.value("connections", 64)?,
                payload: args.value("payload", 1024)?,
                receipts: args.value("receipts", 10_000_000)?,
            };
            args.finish()?;
            receive::run(options)
        }
        "idempotency" => {
            let options = idempotency::Options {
                seconds: args.value("seconds", 10)?,
                connections: args.value("connections", 64)?,
                payload: args.value("payload", 1024)?,
                keys: args.value("keys", 1_000_000)?,
            };
            args.finish()?;
            idempotency::run(options)
        }
        "generator" => generator::command(args),
        "receiver" => receiver::command(args),
        _ => bail!(
            "`{what}` cannot be measured; there are `send`, `isolation`, `receive`, `idempotency`"
        ),
    }
}

/// Microseconds since 1970. Generator and receiver compare instants, so both read the clock that
/// all processes of one machine share.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
