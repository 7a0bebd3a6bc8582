//! Our signatures, judged by the official Standard Webhooks libraries of Rust, JavaScript and
//! Python.
//!
//! Each receiver in `interop/` verifies every request with its library, once per secret it knows,
//! and offers the library forgeries of it (other body, id, timestamp, signature). The real program
//! sends: first with one secret, then, after a rotation, with two, where a receiver that knows only
//! the old one and a receiver that knows only the new one must both be content.
//!
//! And the other way round, in [`senders`]: requests that providers' official packages sign.

mod senders;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::http::{self, Connection};
use crate::install;
use crate::job::{Job, Service};
use crate::server::{Api, Server, release_program};
use crate::test::{Outcome, Run};
use crate::workspace;

/// What is published: bytes that a careless hand would change on their way.
const DATA: [&str; 7] = [
    r#"{"text":"😀 é é \ud83d\ude00 \u0000"}"#,
    r#"{"n":123456789012345678901234567890,"f":1e400,"z":-0.0,"e":1E+2,"d":0.10}"#,
    r#"{"upper":"\u001B","lower":"\u001b","not":"\\u0041","slash":"\/","lone":"\ud800"}"#,
    "{ \"b\" : 1 ,\t\"a\" : [ ] ,\r\n \"b2\" : { } }",
    r#"{"twice":1,"twice":2}"#,
    "null",
    r#""only text""#,
];
/// The length of one more text, which does not fit into one packet.
const LONG: usize = 200_000;
/// How long all deliveries of a round may take.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(30);
/// How long a receiver may take to listen.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Runs all receivers against one server; each receiver is one test a round.
///
/// # Errors
/// The program or a receiver could not be had or started.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let log = &run.log;
    Job::cargo(&["build", "--release", "--locked", "-p", "everhook"]).demand(log)?;
    let programs =
        [("rust", rust(log)?), ("javascript", javascript(log)?), ("python", python(log)?)];
    let data = workspace::empty_scratch("interop-data")?;
    let server = Server::start(&release_program(), &data, log)?;
    let runtime = http::runtime()?;
    runtime.block_on(async {
        let mut api = server.api().await?;
        let mut receivers = Vec::new();
        for (name, job) in programs {
            receivers.push(Receiver::start(name, job, log, &mut api).await?);
        }
        let mut outcome = Outcome::default();
        let mut sent = publish(&mut api).await?;
        outcome = outcome.and(judge_all(&receivers, &sent, 0, &[true]).await?);
        for receiver in &receivers {
            let path = format!("/endpoints/{}/rotate-secret", receiver.endpoint);
            let rotated = api.call("POST", &path, None, 200).await?;
            receiver.learn(&rotated).await?;
        }
        let before = sent.len();
        sent.extend(publish(&mut api).await?);
        outcome = outcome.and(judge_all(&receivers, &sent, before, &[true, true]).await?);
        Ok(outcome.and(senders::judge_all(&server, &mut api, log).await?))
    })
}

/// One published event: its id, and the data that must arrive.
type Sent = (String, String);

async fn publish(api: &mut Api) -> Result<Vec<Sent>> {
    let mut sent = Vec::new();
    let long = format!("\"{}\"", "ä€😀x".repeat(LONG / 10));
    for data in DATA.into_iter().chain([long.as_str()]) {
        let body = format!("{{\"type\":\"interop.event\",\"data\":{data}}}");
        let event = api.call_bytes("POST", "/events", Some(body.as_bytes()), 202).await?;
        let id = event["id"].as_str().context("an event without id")?;
        sent.push((id.to_owned(), data.to_owned()));
    }
    Ok(sent)
}

async fn judge_all(
    receivers: &[Receiver],
    sent: &[Sent],
    from: usize,
    verified: &[bool],
) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for receiver in receivers {
        let judged = receiver.judged(sent.len()).await?;
        let faults: Vec<String> =
            sent[from..].iter().filter_map(|sent| judge(&judged, sent, verified).err()).collect();
        outcome = outcome.and(if faults.is_empty() {
            Outcome::passed(1)
        } else {
            Outcome::default().with_trouble(format!("{}: {}", receiver.name, faults.join("\n")))
        });
    }
    Ok(outcome)
}

/// Whether a receiver got this event once, as published, verified by the secrets it knows, and
/// refused every forgery of it.
fn judge(judged: &[Value], (id, data): &Sent, verified: &[bool]) -> Result<(), String> {
    let mut same = judged.iter().filter(|judged| judged["id"] == id.as_str());
    let (Some(judged), None) = (same.next(), same.next()) else {
        return Err(format!("{id} did not arrive once"));
    };
    if judged["verified"] != json!(verified) {
        return Err(format!("{id}: verified {} instead of {verified:?}", judged["verified"]));
    }
    if judged["forgeries_verified"] != 0 {
        return Err(format!("{id}: {} forgeries were accepted", judged["forgeries_verified"]));
    }
    let body = judged["body"].as_str().unwrap_or_default();
    let whole = body.starts_with(&format!("{{\"id\":\"{id}\","))
        && body.ends_with(&format!("\"data\":{data}}}"));
    if whole { Ok(()) } else { Err(format!("{id}: the body is not as published: {body:.200}")) }
}

/// A receiver with an endpoint of its own.
struct Receiver {
    name: &'static str,
    address: SocketAddr,
    endpoint: String,
    _service: Service,
}

impl Receiver {
    async fn start(name: &'static str, job: Job, log: &Path, api: &mut Api) -> Result<Self> {
        let mut service = job.start(log)?;
        let port = service.wait_until(START_LIMIT, |service| {
            let output = service.output().ok()?;
            output.lines().find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok())
        })?;
        let body = json!({"url": format!("http://127.0.0.1:{port}/{name}")});
        let endpoint = api.call("POST", "/endpoints", Some(&body), 201).await?;
        let id = endpoint["id"].as_str().context("an endpoint without id")?.to_owned();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let receiver = Self { name, address, endpoint: id, _service: service };
        receiver.learn(&endpoint).await?;
        Ok(receiver)
    }

    /// Tells it the secret in an answer.
    async fn learn(&self, answer: &Value) -> Result<()> {
        let secret = answer["secret"].as_str().context("an answer without secret")?;
        self.ask("/_secret", secret.as_bytes()).await?;
        Ok(())
    }

    /// What it judged, once it has judged so many requests.
    async fn judged(&self, count: usize) -> Result<Vec<Value>> {
        let began = Instant::now();
        loop {
            let report: Value = serde_json::from_slice(&self.ask("/_report", b"").await?)?;
            let judged = report.as_array().context("a report that is no list")?;
            if judged.len() >= count {
                return Ok(judged.clone());
            }
            if began.elapsed() > ARRIVAL_LIMIT {
                bail!("{}: {} of {count} requests came", self.name, judged.len());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn ask(&self, path: &str, body: &[u8]) -> Result<Vec<u8>> {
        let mut connection = Connection::open(self.address).await?;
        let request = http::request("POST", path, "", Some(body));
        Ok(connection.exchange(&request).await?.body.to_vec())
    }
}

fn rust(log: &Path) -> Result<Job> {
    let target = workspace::target();
    Job::cargo(&["build", "--locked", "--manifest-path", "interop/rust/Cargo.toml"])
        .args(["--target-dir"])
        .args([&target])
        .demand(log)?;
    Ok(Job::new(target.join("debug/everhook-interop-rust")))
}

fn javascript(log: &Path) -> Result<Job> {
    node("node", "receiver.mjs", log)
}

/// A program of one of the folders of `interop`, with its packages.
fn node(part: &str, program: &str, log: &Path) -> Result<Job> {
    let files = ["package.json", "package-lock.json", program];
    let name = format!("interop-{part}");
    let folder = install::node_packages(&name, &source().join(part), &files, log)?;
    Ok(Job::new("node").args([program]).dir(&folder))
}

fn python(log: &Path) -> Result<Job> {
    let source = source().join("python");
    let folder = install::python("interop-python", &source.join("requirements.txt"), log)?;
    Ok(Job::new(folder.join("bin/python")).args([source.join("receiver.py")]))
}

fn source() -> PathBuf {
    workspace::root().join("interop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_a_receipt_is_found() {
        let sent = ("evt_1".to_owned(), "[1]".to_owned());
        let body = "{\"id\":\"evt_1\",\"type\":\"a\",\"data\":[1]}";
        let good = json!(
            {"id": "evt_1", "verified": [true, true], "forgeries_verified": 0, "body": body});
        let check = |judged: &[Value]| judge(judged, &sent, &[true, true]);
        check(std::slice::from_ref(&good)).unwrap();
        assert!(check(&[]).is_err());
        assert!(check(&[good.clone(), good.clone()]).is_err());
        for (member, value) in [
            ("verified", json!([true, false])),
            ("verified", json!([true])),
            ("forgeries_verified", json!(1)),
            ("body", json!("{\"id\":\"evt_1\",\"type\":\"a\",\"data\":[2]}")),
        ] {
            let mut bad = good.clone();
            bad[member] = value;
            assert!(check(&[bad]).is_err(), "{member}");
        }
    }
}
