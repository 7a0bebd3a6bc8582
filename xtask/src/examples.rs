//! What is in `examples/`, run as its first lines say, against the real program.
//!
//! Each receiver must process an event, know its replay as a duplicate, and refuse a forgery. The
//! script that sends a webhook as a provider would must be answered as it says, and what it sends
//! must arrive at such a receiver. The one that posts a message must make one message and one
//! webhook, though its answers get lost. Those that remember in Redis go through a storm
//! ([`storm`]), and the one that orders through the proxy must make one order.

mod claims;
mod proxy;
mod storm;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::dropping::{Fault, dropping};
use crate::http::{self, Connection};
use crate::install;
use crate::job::{Job, Service};
use crate::postgres::free_port;
use crate::server::{Api, Server, release_program};
use crate::test::{Outcome, Run};
use crate::workspace;

/// Program, Debian's package of it, and file.
const EXAMPLES: [(&str, &str, &str); 2] =
    [("python3", "python3", "receiver.py"), ("node", "nodejs", "receiver.mjs")];
/// What sends a webhook, and the page that shows it.
const RECEIVE: (&str, &str) = ("examples/receive.sh", "docs/receiving.md");
/// What posts a message once, and the page that shows it.
const MESSAGE: (&str, &str) = ("examples/message.sh", "docs/idempotency.md");
/// How long anything that is waited for may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs every example; each is one test.
///
/// # Errors
/// The program under test could not be had or started.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let log = run.log.clone();
    Job::cargo(&["build", "--release", "--locked", "-p", "everhook"]).demand(&log)?;
    let data = workspace::empty_scratch("examples-data")?;
    let server = Server::start(&release_program(), &data, &log)?;
    let runtime = http::runtime()?;
    let mut outcome = Outcome::default();
    for (program, package, file) in EXAMPLES {
        let tried = install::need(program, &[package], &log)
            .and_then(|_| runtime.block_on(try_receiver(&server, program, file, &log)));
        outcome = outcome.and(match tried {
            Ok(()) => Outcome::passed(1),
            Err(error) => Outcome::default().with_trouble(format!("{file}: {error:#}")),
        });
    }
    outcome = outcome.and(claims::try_all(&server, &log));
    for (script, tried) in [
        (RECEIVE.0, runtime.block_on(try_receiving(&server, &log))),
        (MESSAGE.0, runtime.block_on(try_message(&server, &log))),
        (proxy::SCRIPT, proxy::try_ordering(&log)),
    ] {
        outcome = outcome.and(match tried {
            Ok(()) => Outcome::passed(1),
            Err(error) => Outcome::default().with_trouble(format!("{script}: {error:#}")),
        });
    }
    Ok(outcome.and(storm::part(run)?))
}

/// Demands that the page shows the script as it is.
fn shown((script, page): (&str, &str)) -> Result<()> {
    let text = std::fs::read_to_string(workspace::root().join(script))?;
    let (_, commands) = text.split_once("set -eu\n").context("it does not end at an error")?;
    let shown = std::fs::read_to_string(workspace::root().join(page))?;
    ensure!(shown.contains(commands), "{page} shows other commands");
    Ok(())
}

/// Runs a script against the server at this address; what it printed.
fn run_script(script: &str, address: SocketAddr, log: &Path) -> Result<String> {
    // A log of its own: what two programs write at once would be on one line.
    Job::new("sh")
        .args([workspace::root().join(script)])
        .env("EVERHOOK_SERVER", format!("http://{address}"))
        .env("EVERHOOK_TOKEN", Server::token())
        .demand(&log.with_extension("script.log"))
}

/// Runs the script, as the page shows it, over a connection that loses its request and its answers:
/// there must be one message, and one webhook that tells of it.
async fn try_message(server: &Server, log: &Path) -> Result<()> {
    shown(MESSAGE)?;
    install::need("curl", &["curl"], log)?;
    let (program, package, file) = EXAMPLES[0];
    install::need(program, &[package], log)?;
    let wants = json!({ "event_types": ["message.*", "last.*"] });
    let (mut receiver, _) = start_receiver(server, wants, (program, file), log).await?;
    let faults = [Fault::RequestLost, Fault::AnswerLost, Fault::AnswerCut, Fault::AnswerLost];
    let (said_by_script, left) = dropping(server.address(), "/messages", &faults, |proxy| {
        run_script(MESSAGE.0, proxy, log)
    })?;
    let said_by_script = said_by_script?;
    ensure!(left.is_empty(), "it did not meet {left:?}");
    let messages = said_by_script.matches(r#""id":"msg_"#).count();
    ensure!(messages == 2, "the message and a list of one were expected: {said_by_script}");

    let mut api = server.api().await?;
    let told = api.call("GET", "/deliveries?type=message.created", None, 200).await?;
    let told = told["data"].as_array().context("a list without data")?;
    let [delivery] = told.as_slice() else { bail!("{} deliveries", told.len()) };
    let event = delivery["event_id"].as_str().context("a delivery without event")?;
    let processed = format!("processed {event} message.created");
    said(&mut receiver, &processed)?;
    // What comes after it has come: there was no other.
    let last = json!({"type": "last.one", "data": null});
    let last = api.call("POST", "/events", Some(&last), 202).await?;
    let last = last["id"].as_str().context("an event without id")?;
    said(&mut receiver, &format!("processed {last} last.one"))?;
    let lines = receiver.output()?;
    let told = lines.lines().filter(|line| line.ends_with("message.created")).count();
    ensure!(told == 1, "the receiver was told {told} times: {lines}");
    Ok(())
}

/// Runs the script, as the page shows it, and waits for what it sends to arrive.
async fn try_receiving(server: &Server, log: &Path) -> Result<()> {
    shown(RECEIVE)?;
    for (program, package) in [("curl", "curl"), ("openssl", "openssl")] {
        install::need(program, &[package], log)?;
    }
    let (program, package, file) = EXAMPLES[0];
    install::need(program, &[package], log)?;
    let wants = json!({ "event_types": [], "sources": ["shop"] });
    let (mut receiver, _) = start_receiver(server, wants, (program, file), log).await?;
    let said_by_script = run_script(RECEIVE.0, server.address(), log)?;
    for part in [r#"{"status":"accepted"}"#, r#"{"status":"duplicate"}"#, r#""key":"evt_1""#] {
        ensure!(said_by_script.contains(part), "it did not print {part}: {said_by_script}");
    }
    said(&mut receiver, "processed evt_1 invoice.paid")
}

async fn try_receiver(server: &Server, program: &str, file: &str, log: &Path) -> Result<()> {
    let wants = json!({ "event_types": [format!("{program}.*")] });
    let (mut receiver, port) = start_receiver(server, wants, (program, file), log).await?;
    let mut api = server.api().await?;

    let kind = format!("{program}.example");
    let event = json!({"type": kind, "data": {"text": "ä€😀"}});
    let event = api.call("POST", "/events", Some(&event), 202).await?;
    let id = event["id"].as_str().context("an event without id")?;
    said(&mut receiver, &format!("processed {id} {kind}"))?;
    replay(&mut api, id).await?;
    said(&mut receiver, &format!("duplicate {id}"))?;
    refuses_a_forgery(port).await
}

/// Starts a receiver for what an endpoint wants; it, and its port.
async fn start_receiver(
    server: &Server,
    mut endpoint: Value,
    (program, file): (&str, &str),
    log: &Path,
) -> Result<(Service, u16)> {
    let port = free_port()?;
    endpoint["url"] = Value::from(format!("http://127.0.0.1:{port}/"));
    let mut api = server.api().await?;
    let endpoint = api.call("POST", "/endpoints", Some(&endpoint), 201).await?;
    let secret = endpoint["secret"].as_str().context("an endpoint without secret")?;
    let mut receiver = Job::new(program)
        .args([workspace::root().join("examples").join(file)])
        .env("PORT", port.to_string())
        .env("EVERHOOK_SECRET", secret)
        .start(log)?;
    said(&mut receiver, "listening")?;
    Ok((receiver, port))
}

async fn replay(api: &mut Api, event: &str) -> Result<()> {
    api.call("POST", &format!("/events/{event}/replay"), None, 202).await?;
    Ok(())
}

async fn refuses_a_forgery(port: u16) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let request = http::request("POST", "/", "", Some(b"{}"));
    let status = Connection::open(address).await?.exchange(&request).await?.status;
    ensure!(status == 401, "an unsigned request was answered with {status}");
    Ok(())
}

/// Waits until the receiver has printed this line.
fn said(receiver: &mut Service, line: &str) -> Result<()> {
    receiver
        .wait_until(LIMIT, |receiver| {
            receiver.output().ok()?.lines().any(|said| said == line).then_some(())
        })
        .with_context(|| format!("it did not print `{line}`"))
}
