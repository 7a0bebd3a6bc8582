//! One run of the bench: latency on a fresh server, then throughput, then the proof.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::proof::{self, Evidence, Stored};
use super::rig::{self, Load, Rig, commit};
use super::summary::{Summary, per};
use super::{Options, machine, now_us, report};
use crate::workspace;

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
    rig::build(&log)?;
    let machine = machine::describe(&folder)?;
    let mut bench = Bench::start(options, &folder, &log)?;
    std::thread::sleep(IDLE);
    let idle = bench.rig.memory("VmRSS")?;
    println!("latency at {} events/s", options.rate);
    let latency = bench.latency()?;
    println!("throughput with {} connections", options.connections);
    let throughput = bench.throughput()?;
    let (peak, after) = (bench.rig.memory("VmHWM")?, bench.rig.memory("VmRSS")?);
    let memory = json!({"idle": idle, "peak": peak, "after": after});
    println!("checking every id");
    let (proof, void) = proof::judge(&bench.evidence()?);
    bench.rig.stop()?;
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

/// The run, and what has been sent so far.
struct Bench<'a> {
    options: &'a Options,
    rig: Rig<'a>,
    accepted: Vec<String>,
    errors: u64,
}

impl<'a> Bench<'a> {
    fn start(options: &'a Options, folder: &'a Path, log: &'a Path) -> Result<Self> {
        let rig = Rig::start(options.payload, folder, log)?;
        let body = json!({"url": rig.url("/hook")});
        let endpoint = rig.call("POST", "/endpoints", Some(&body), 201)?;
        let secret = endpoint["secret"].as_str().context("no secret in the answer")?;
        rig.runtime.block_on(rig.ask_receiver("/_secret", Some(secret.as_bytes())))?;
        Ok(Self { options, rig, accepted: Vec::new(), errors: 0 })
    }

    /// Runs the generator, then waits until every delivery has ended.
    fn load(&mut self, args: &[&str]) -> Result<Load> {
        let load = self.rig.generate(args)?;
        self.errors += load.summary["errors"].as_u64().unwrap_or(0);
        self.accepted.extend(load.accepted.iter().map(|(id, _, _)| id.clone()));
        self.settle()?;
        Ok(load)
    }

    /// Waits until everything accepted so far has arrived and no delivery is due or leased.
    fn settle(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < SETTLE_LIMIT {
            let rig = &self.rig;
            let count = rig.runtime.block_on(rig.ask_receiver("/_count", None))?;
            if count.parse::<usize>()? >= self.accepted.len() && self.nothing_open()? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("not settled after {} s; the proof will say why", SETTLE_LIMIT.as_secs());
        Ok(())
    }

    fn nothing_open(&self) -> Result<bool> {
        for status in ["leased", "due"] {
            let list = format!("/deliveries?status={status}&limit=1");
            let page = self.rig.call("GET", &list, None, 200)?;
            if page["data"].as_array().is_none_or(|data| !data.is_empty()) {
                return Ok(false);
            }
        }
        Ok(true)
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
        let (server, receiver) = (self.rig.server.pid(), self.rig.receiver.pid());
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
        let (report, arrived) = self.rig.arrivals("/_report")?;
        let times = proof::count(arrived.iter().map(|(id, _)| id.as_str()));
        let mut first = HashMap::new();
        for (id, at) in arrived {
            first.entry(id).or_insert(at);
        }
        Ok(Arrivals { first_us: first, times, report: serde_json::from_str(&report)? })
    }

    /// Everything that the proof needs.
    fn evidence(&mut self) -> Result<Evidence> {
        let Arrivals { times: arrived, report, .. } = self.arrivals()?;
        let mut stored: HashMap<String, Vec<Stored>> = HashMap::new();
        let (mut read, mut misread) = (0, 0);
        self.rig.runtime.block_on(async {
            let mut api = self.rig.server.api().await?;
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

fn each(total: u64, events: usize) -> f64 {
    per(total, events as u64)
}

fn per_second(events: usize, began_us: u64, ended_us: Option<u64>) -> f64 {
    let took_us = ended_us.map_or(0, |ended| ended.saturating_sub(began_us));
    if took_us == 0 { 0.0 } else { 1e6 / each(took_us, events) }
}
