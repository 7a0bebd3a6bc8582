//! One run of the bench: latency on a fresh server, then throughput, then the proof.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::proof::{self, Evidence, Stored};
use super::summary::Summary;
use super::{Options, machine, now_us, report};
use crate::http::{self, Connection};
use crate::job::{Job, Service};
use crate::server::{Server, release_program};
use crate::workspace;

/// The folder of the server's data.
const DATA: &str = "bench-data";
/// How long an idle server is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(2);
/// How long full load warms the server up before anything is counted.
const WARM_UP_SECONDS: u64 = 2;
/// How long the last deliveries may take after the last event was accepted.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How many deliveries are read one by one.
const DELIVERIES_READ: usize = 200;

/// Runs it. Whether the throughput row holds.
///
/// # Errors
/// Something could not be built, started, asked or written.
pub fn run(options: &Options) -> Result<bool> {
    let folder = workspace::scratch("bench")?;
    let former = report::former(&folder, options.compare.as_deref())?;
    let log = folder.join("send.log");
    std::fs::write(&log, "")?;
    println!("building the release");
    // One after the other: together, the product would get the features that this tool asks for.
    for package in ["everhook", "xtask"] {
        Job::cargo(&["build", "--release", "--locked", "-p", package]).demand(&log)?;
    }
    let machine = machine::describe(&folder)?;
    let mut rig = Rig::start(options, &folder, &log)?;
    std::thread::sleep(IDLE);
    let idle = rig.memory("VmRSS")?;
    println!("latency at {} events/s", options.rate);
    let latency = rig.latency()?;
    println!("throughput with {} connections", options.connections);
    let throughput = rig.throughput()?;
    let memory = json!({"idle": idle, "peak": rig.memory("VmHWM")?, "after": rig.memory("VmRSS")?});
    println!("checking every id");
    let (proof, void) = proof::judge(&rig.evidence()?);
    rig.server.stop()?;
    std::fs::remove_dir_all(workspace::empty_scratch(DATA)?)?;
    let run = json!({
        "unix_s": now_us() / 1_000_000,
        "commit": commit(),
        "machine": machine,
        "options": {
            "seconds": options.seconds, "count": options.count,
            "connections": options.connections, "payload_bytes": options.payload,
            "rate": options.rate, "latency_seconds": options.latency_seconds,
        },
        "throughput": throughput,
        "latency": latency,
        "memory_kib": memory,
        "proof": proof,
        "void": void,
    });
    let path = report::write(&folder, &run)?;
    println!("\n{}\n{}", report::table(&run, former.as_ref()), path.display());
    Ok(void.is_empty())
}

/// The commit that is checked out, with a plus if files differ from it.
fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty=+"])
        .current_dir(workspace::root())
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// One load: what the generator got accepted, and its own words.
#[derive(Debug)]
struct Load {
    accepted: Vec<(String, u64, u64)>,
    summary: Value,
}

/// What the receiver knows.
#[derive(Debug)]
struct Arrivals {
    /// When each id came first.
    first_us: HashMap<String, u64>,
    /// How often each id came.
    times: HashMap<String, u64>,
    /// What its checks of sampled requests say.
    report: Value,
}

/// Server and receiver, and what has been sent so far.
struct Rig<'a> {
    options: &'a Options,
    folder: &'a Path,
    log: &'a Path,
    runtime: tokio::runtime::Runtime,
    server: Server,
    receiver: Service,
    receiver_address: SocketAddr,
    accepted: Vec<String>,
    next: u64,
    errors: u64,
}

impl<'a> Rig<'a> {
    fn start(options: &'a Options, folder: &'a Path, log: &'a Path) -> Result<Self> {
        let runtime = http::runtime()?;
        let mut receiver = Job::new(own_release())
            .args(["bench", "receiver", "--payload", &options.payload.to_string()])
            .start(log)?;
        let port = receiver.wait_until(Duration::from_secs(10), |receiver| {
            let output = receiver.output().ok()?;
            output.lines().find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok())
        })?;
        let receiver_address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Below the target folder, because a temporary folder may be memory, which has no syncs.
        let data = workspace::empty_scratch(DATA)?;
        let server = Server::start(&release_program(), &data, log)?;
        let rig = Self {
            options,
            folder,
            log,
            runtime,
            server,
            receiver,
            receiver_address,
            accepted: Vec::new(),
            next: 0,
            errors: 0,
        };
        rig.runtime.block_on(async {
            let mut api = rig.server.api().await?;
            let url = format!("http://127.0.0.1:{port}/hook");
            let endpoint = api.call("POST", "/endpoints", Some(&json!({"url": url})), 201).await?;
            let secret = endpoint["secret"].as_str().context("no secret in the answer")?;
            rig.ask_receiver("/_secret", Some(secret.as_bytes())).await
        })?;
        Ok(rig)
    }

    fn memory(&self, name: &str) -> Result<u64> {
        machine::field(self.server.pid(), "status", name)
    }

    async fn ask_receiver(&self, path: &str, body: Option<&[u8]>) -> Result<String> {
        let mut connection = Connection::open(self.receiver_address).await?;
        let request = http::request("POST", path, "", body);
        let response = connection.exchange(&request).await?;
        let text = String::from_utf8_lossy(response.body).into_owned();
        anyhow::ensure!(response.status == 200, "the receiver: {text}");
        Ok(text)
    }

    /// Runs the generator, then waits until every delivery has ended.
    fn load(&mut self, args: &[&str]) -> Result<Load> {
        let out = self.folder.join("accepted");
        let job = Job::new(own_release())
            .args(["bench", "generator", "--server", &self.server.address().to_string()])
            .args(["--payload", &self.options.payload.to_string()])
            .args(["--first", &self.next.to_string(), "--out"])
            .args([&out])
            .args(args)
            .env("XTASK_TOKEN", Server::token());
        let output = job.demand(self.log)?;
        let summary = output.lines().rev().find(|line| line.starts_with('{'));
        let summary: Value =
            serde_json::from_str(summary.context("the generator printed no summary")?)?;
        self.next = summary["next"].as_u64().context("a summary without `next`")?;
        self.errors += summary["errors"].as_u64().unwrap_or(0);
        let accepted: Vec<(String, u64, u64)> = std::fs::read_to_string(&out)?
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let id = words.next()?.to_owned();
                Some((id, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
        self.accepted.extend(accepted.iter().map(|(id, _, _)| id.clone()));
        self.settle()?;
        Ok(Load { accepted, summary })
    }

    /// Waits until everything accepted so far has arrived and no delivery is due or leased.
    fn settle(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < SETTLE_LIMIT {
            let count = self.runtime.block_on(self.ask_receiver("/_count", None))?;
            if count.parse::<usize>()? >= self.accepted.len() && self.nothing_open()? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("not settled after {} s; the proof will say why", SETTLE_LIMIT.as_secs());
        Ok(())
    }

    fn nothing_open(&self) -> Result<bool> {
        self.runtime.block_on(async {
            let mut api = self.server.api().await?;
            for status in ["leased", "due"] {
                let list = format!("/deliveries?status={status}&limit=1");
                let page = api.call("GET", &list, None, 200).await?;
                if page["data"].as_array().is_none_or(|data| !data.is_empty()) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    fn latency(&mut self) -> Result<Value> {
        let options = self.options;
        let seconds = options.latency_seconds.to_string();
        let load = self.load(&["--rate", &options.rate.to_string(), "--seconds", &seconds])?;
        let arrived = self.arrivals()?.first_us;
        let post = load.accepted.iter().map(|(_, planned, answered)| answered - planned).collect();
        let arrival = load
            .accepted
            .iter()
            .filter_map(|(id, planned, _)| Some(arrived.get(id)?.saturating_sub(*planned)))
            .collect();
        Ok(json!({
            "rate": options.rate,
            "refused": load.summary["refused"],
            "errors": load.summary["first_errors"],
            "post_ms": Summary::of(post).json(),
            "arrival_ms": Summary::of(arrival).json(),
        }))
    }

    fn throughput(&mut self) -> Result<Value> {
        let options = self.options;
        let connections = options.connections.to_string();
        let warm_up = WARM_UP_SECONDS.to_string();
        self.load(&["--connections", &connections, "--seconds", &warm_up])?;
        let (server, receiver) = (self.server.pid(), self.receiver.pid());
        let before = (machine::cpu_us(server)?, machine::cpu_us(receiver)?);
        let written = machine::field(server, "io", "write_bytes")?;
        let (seconds, count) = (options.seconds.to_string(), options.count.to_string());
        let args = ["--connections", &connections, "--seconds", &seconds, "--count", &count];
        let load = self.load(&args)?;
        let after = (machine::cpu_us(server)?, machine::cpu_us(receiver)?);
        let written = machine::field(server, "io", "write_bytes")? - written;
        let arrived = self.arrivals()?.first_us;
        let events = load.accepted.len();
        let began = load.summary["began_us"].as_u64().context("a summary without `began_us`")?;
        let last_answer = load.accepted.iter().map(|(_, _, answered)| *answered).max();
        let last_arrival = load.accepted.iter().filter_map(|(id, _, _)| arrived.get(id)).max();
        let delivered = load.accepted.iter().filter(|(id, _, _)| arrived.contains_key(id)).count();
        let generator = load.summary["cpu_us"].as_u64().unwrap_or(0);
        let post = load.accepted.iter().map(|(_, planned, answered)| answered - planned).collect();
        Ok(json!({
            "accepted": events,
            "accepted_per_s": per_second(events, began, last_answer),
            "delivered_per_s": per_second(delivered, began, last_arrival.copied()),
            "refused": load.summary["refused"],
            "refused_by_status": load.summary["refused_by_status"],
            "errors": load.summary["first_errors"],
            "server_cpu_us_per_event": each(after.0 - before.0, events),
            "receiver_cpu_us_per_event": each(after.1 - before.1, events),
            "generator_cpu_us_per_event": each(generator, events),
            "server_bytes_per_event": each(written, events),
            "post_ms": Summary::of(post).json(),
        }))
    }

    fn arrivals(&self) -> Result<Arrivals> {
        let file = self.folder.join("arrived");
        let path = format!("/_report{}", file.display());
        let report = self.runtime.block_on(self.ask_receiver(&path, None))?;
        let text = std::fs::read_to_string(&file)?;
        let mut first = HashMap::new();
        for (id, at) in text.lines().filter_map(|line| line.split_once(' ')) {
            first.entry(id.to_owned()).or_insert(at.parse()?);
        }
        let times = proof::count(text.lines().filter_map(|line| Some(line.split_once(' ')?.0)));
        Ok(Arrivals { first_us: first, times, report: serde_json::from_str(&report)? })
    }

    /// Everything that the proof needs.
    fn evidence(&mut self) -> Result<Evidence> {
        let Arrivals { times: arrived, report, .. } = self.arrivals()?;
        let mut stored: HashMap<String, Vec<Stored>> = HashMap::new();
        let (mut read, mut misread) = (0, 0);
        self.runtime.block_on(async {
            let mut api = self.server.api().await?;
            api.walk("/deliveries?limit=250", |item| {
                let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
                stored.entry(text("event_id")).or_default().push(Stored {
                    id: text("id"),
                    status: text("status"),
                    attempts: item["attempt_count"].as_u64().unwrap_or(0),
                });
            })
            .await?;
            let step = (stored.len() / DELIVERIES_READ).max(1);
            let all = stored.values().flatten().step_by(step);
            for delivery in all.take(DELIVERIES_READ) {
                let path = format!("/deliveries/{}", delivery.id);
                let full = api.call("GET", &path, None, 200).await?;
                read += 1;
                misread += u64::from(!proof::one_success(&full));
            }
            anyhow::Ok(())
        })?;
        if report["wrong"] != 0 {
            println!("wrong requests: {}", report["first_wrong"]);
        }
        Ok(Evidence {
            accepted: std::mem::take(&mut self.accepted),
            arrived,
            stored,
            sampled: report["sampled"].as_u64().unwrap_or(0),
            wrong: report["wrong"].as_u64().unwrap_or(0),
            read,
            misread,
            errors: self.errors,
        })
    }
}

/// This program, built for release.
fn own_release() -> PathBuf {
    workspace::target().join("release/xtask")
}

#[expect(clippy::cast_precision_loss, reason = "counts of a bench are far below 2^52")]
fn each(total: u64, events: usize) -> f64 {
    total as f64 / events.max(1) as f64
}

fn per_second(events: usize, began_us: u64, ended_us: Option<u64>) -> f64 {
    let took_us = ended_us.map_or(0, |ended| ended.saturating_sub(began_us));
    if took_us == 0 { 0.0 } else { 1e6 / each(took_us, events) }
}
