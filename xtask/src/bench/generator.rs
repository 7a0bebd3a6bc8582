//! The process that publishes, that posts messages, or that is a provider and brings webhooks to a
//! source: closed loop for throughput, open loop for latency.
//!
//! Closed: each connection sends its next event when the last was answered. Open: events leave by
//! a plan, whatever became of the ones before, and their latency counts from the planned instant,
//! so that a stalled server cannot slow its own questioner down. It writes one line per accepted
//! event into a file (`id planned_us answered_us`) and a JSON summary to its output. The id of a
//! webhook is the provider's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use tokio::task::{JoinSet, LocalSet};

use super::payload::{self, Payloads};
use super::{machine, now_us};
use crate::args::Args;
use crate::http::{self, Connection};

/// The most errors whose text is kept.
const ERRORS_KEPT: usize = 5;

/// One event that was accepted.
#[derive(Debug)]
struct Accepted {
    id: String,
    planned_us: u64,
    answered_us: u64,
}

/// What is sent.
#[derive(Debug)]
enum What {
    /// Events, with this token.
    Publish { token: String },
    /// Webhooks to a source, signed as Stripe signs them.
    Bring {
        source: String,
        secret: String,
        /// Their ids repeat after so many; 0: never.
        distinct: u64,
    },
    /// Messages in a conversation, with this token.
    Post {
        token: String,
        path: String,
        /// Whether each carries an `Idempotency-Key`.
        keyed: bool,
        /// The keys and their requests repeat after so many; 0: never.
        distinct: u64,
    },
}

/// What all connections share.
#[derive(Debug)]
struct Load {
    server: SocketAddr,
    what: What,
    payloads: Payloads,
    /// Answers to webhooks that said "duplicate".
    duplicates: RefCell<u64>,
    next: RefCell<u64>,
    accepted: RefCell<Vec<Accepted>>,
    refused: RefCell<BTreeMap<u16, u64>>,
    errors: RefCell<Vec<String>>,
}

/// `xtask bench generator`.
///
/// # Errors
/// The command line is wrong, or the file cannot be written. A refused event is no error.
pub fn command(mut args: Args) -> Result<bool> {
    let server = args.text("server")?.context("`--server` is missing")?.parse()?;
    let out: PathBuf = args.text("out")?.context("`--out` is missing")?.into();
    let connections: usize = args.value("connections", 64)?;
    let seconds: u64 = args.value("seconds", 15)?;
    let count: u64 = args.value("count", 0)?;
    let rate: u64 = args.value("rate", 0)?;
    let first: u64 = args.value("first", 0)?;
    let payload = args.value("payload", 1024)?;
    let source = args.text("source")?;
    let conversation = args.text("conversation")?;
    let keyed: u8 = args.value("keyed", 0)?;
    let distinct: u64 = args.value("distinct", 0)?;
    args.finish()?;
    let secret = std::env::var("XTASK_TOKEN").context("the variable XTASK_TOKEN is missing")?;
    let what = match (source, conversation) {
        (Some(source), _) => What::Bring { source, secret, distinct },
        (None, Some(conversation)) => {
            let path = format!("/api/v1/conversations/{conversation}/messages");
            What::Post { token: secret, path, keyed: keyed > 0, distinct }
        }
        (None, None) => What::Publish { token: secret },
    };
    let load = Rc::new(Load {
        server,
        what,
        payloads: Payloads::new(payload)?,
        duplicates: RefCell::default(),
        next: RefCell::new(first),
        accepted: RefCell::default(),
        refused: RefCell::default(),
        errors: RefCell::default(),
    });
    let last = if count == 0 { u64::MAX } else { first + count };
    let runtime = http::runtime()?;
    let began_us = now_us();
    LocalSet::new().block_on(&runtime, async {
        if rate == 0 {
            closed(&load, connections, last, began_us + seconds * 1_000_000).await;
        } else {
            open(&load, rate, seconds).await;
        }
    });
    write(&load, &out, began_us)?;
    Ok(true)
}

async fn closed(load: &Rc<Load>, connections: usize, last: u64, until_us: u64) {
    let mut running = JoinSet::new();
    for _ in 0..connections {
        let load = Rc::clone(load);
        running.spawn_local(async move {
            let mut connection = None;
            while now_us() < until_us && *load.next.borrow() < last {
                load.publish(&mut connection, now_us()).await;
            }
        });
    }
    running.join_all().await;
}

async fn open(load: &Rc<Load>, rate: u64, seconds: u64) {
    let idle = Rc::new(RefCell::new(Vec::new()));
    let mut running = JoinSet::new();
    let began = tokio::time::Instant::now();
    let began_us = now_us();
    for tick in 0..rate * seconds {
        let offset = Duration::from_micros(tick * 1_000_000 / rate);
        tokio::time::sleep_until(began + offset).await;
        let planned_us = began_us + tick * 1_000_000 / rate;
        let (load, idle) = (Rc::clone(load), Rc::clone(&idle));
        running.spawn_local(async move {
            let mut connection = idle.borrow_mut().pop();
            load.publish(&mut connection, planned_us).await;
            idle.borrow_mut().extend(connection);
        });
        while running.try_join_next().is_some() {}
    }
    running.join_all().await;
}

impl Load {
    /// Publishes the next event on this connection, or on a new one, and records what happened.
    async fn publish(&self, connection: &mut Option<Connection>, planned_us: u64) {
        let n = self.next.replace_with(|next| *next + 1);
        match self.try_publish(connection, n).await {
            Ok(Ok(id)) => {
                let answered_us = now_us();
                self.accepted.borrow_mut().push(Accepted { id, planned_us, answered_us });
            }
            Ok(Err(status)) => *self.refused.borrow_mut().entry(status).or_default() += 1,
            Err(error) => {
                *connection = None;
                self.errors.borrow_mut().push(format!("{error:#}"));
            }
        }
    }

    async fn try_publish(
        &self,
        connection: &mut Option<Connection>,
        n: u64,
    ) -> Result<Result<String, u16>> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open(self.server).await?),
        };
        match &self.what {
            What::Publish { token } => {
                let body = self.payloads.body(n);
                let request = http::request("POST", "/api/v1/events", token, Some(body.as_bytes()));
                let response = connection.exchange(&request).await?;
                if response.status != 202 {
                    return Ok(Err(response.status));
                }
                let id = id(response.body, "evt_").context("a 202 without an event id")?;
                Ok(Ok(id.to_owned()))
            }
            What::Post { token, path, keyed, distinct } => {
                let n = if *distinct == 0 { n } else { n % distinct };
                let body = self.payloads.message(n);
                let mut request = http::request("POST", path, token, Some(body.as_bytes()));
                if *keyed {
                    let key = format!("idempotency-key: bench-{n}\r\n");
                    let head = request.iter().position(|byte| *byte == b'\n').unwrap_or_default();
                    request.splice(head + 1..head + 1, key.into_bytes());
                }
                let response = connection.exchange(&request).await?;
                if response.status != 201 {
                    return Ok(Err(response.status));
                }
                let id = id(response.body, "msg_").context("a 201 without a message id")?;
                Ok(Ok(id.to_owned()))
            }
            What::Bring { source, secret, distinct } => {
                let n = if *distinct == 0 { n } else { n % distinct };
                let body = self.payloads.webhook(n);
                let request = webhook(source, secret, &body)?;
                let response = connection.exchange(&request).await?;
                if response.status != 200 {
                    return Ok(Err(response.status));
                }
                if response.body == br#"{"status":"duplicate"}"# {
                    *self.duplicates.borrow_mut() += 1;
                }
                Ok(Ok(payload::webhook_id(n)))
            }
        }
    }
}

/// A request as Stripe makes it.
fn webhook(source: &str, secret: &str, body: &str) -> Result<Vec<u8>> {
    let at = now_us() / 1_000_000;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
    mac.update(format!("{at}.").as_bytes());
    mac.update(body.as_bytes());
    let mut request = format!(
        "POST /in/{source} HTTP/1.1\r\nhost: localhost\r\nuser-agent: Stripe/1.0\r\n\
         content-type: application/json; charset=utf-8\r\nstripe-signature: t={at},v1="
    );
    for byte in mac.finalize().into_bytes() {
        write!(request, "{byte:02x}")?;
    }
    write!(request, "\r\ncontent-length: {}\r\n\r\n{body}", body.len())?;
    Ok(request.into_bytes())
}

/// The id with this prefix in an answer, without reading the rest of it.
fn id<'a>(body: &'a [u8], prefix: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(body).ok()?;
    let begin = text.find(&format!("\"{prefix}"))? + 1;
    text[begin..].split('"').next()
}

fn write(load: &Load, out: &PathBuf, began_us: u64) -> Result<()> {
    let accepted = load.accepted.borrow();
    let mut lines = String::with_capacity(accepted.len() * 80);
    for Accepted { id, planned_us, answered_us } in accepted.iter() {
        lines.push_str(&format!("{id} {planned_us} {answered_us}\n"));
    }
    std::fs::write(out, lines).with_context(|| format!("cannot write {}", out.display()))?;
    let refused = load.refused.borrow();
    let errors = load.errors.borrow();
    let summary = json!({
        "began_us": began_us,
        "next": *load.next.borrow(),
        "duplicates": *load.duplicates.borrow(),
        "refused": refused.values().sum::<u64>(),
        "refused_by_status":
            refused.iter().map(|(status, count)| format!("{status}: {count}")).collect::<Vec<_>>(),
        "errors": errors.len(),
        "first_errors": errors.iter().take(ERRORS_KEPT).collect::<Vec<_>>(),
        "cpu_us": machine::cpu_us(std::process::id())?,
    });
    println!("{summary}");
    Ok(())
}
