//! What endpoints in trouble cost the others: arrival at healthy endpoints, alone and beside them.
//!
//! Each scenario has a fresh server. Events for its healthy endpoints leave by a plan, open loop;
//! their times count from the planned instant to the arrival. A row is void unless every event
//! arrived at every healthy endpoint.
//!
//! *Alone* and *beside* differ in one thing: whether the endpoints in trouble are paused. Paused,
//! their deliveries are made and wait, and nothing is sent to them. So accepting events costs the
//! same both times, by number and by what is written for each, where a server without the trouble
//! would accept less; and the tables are as full. What is left is what sending to them costs.
//!
//! A machine that others use as well is slow now and then. So both are measured in turns, several
//! times, and each pair gives a ratio: the row shows their median, and how far they lie apart.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::payload::EVENT_TYPE;
use super::rig::{self, Rig, commit};
use super::summary::Summary;
use super::{machine, now_us};
use crate::server::Server;
use crate::workspace;

/// Bytes of each event's `data`.
const PAYLOAD: usize = 1_024;
/// The type of the events for endpoints in trouble.
const TROUBLE: &str = "trouble.event";
/// How many events one request publishes.
const BATCH: usize = 1_000;
/// Events a second for an endpoint that is down, while the others are measured.
const DOWN_RATE: usize = 1_000;
/// How long the last arrivals may take.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// Within this time after a pause, nothing is on the wire any more to an endpoint that hangs: the
/// timeout of an attempt, and some more.
const HUNG_UP: Duration = Duration::from_secs(11);
/// The same for one that answers, or refuses.
const ANSWERED: Duration = Duration::from_millis(500);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each measurement lasts.
    pub seconds: u64,
    /// How often alone and beside take turns.
    pub rounds: usize,
    /// Events a second for the healthy endpoints.
    pub rate: u64,
    /// Deliveries that wait for the endpoint that is down.
    pub backlog: usize,
}

/// Who is healthy, and what is wrong with the others.
struct Scenario {
    name: &'static str,
    healthy: usize,
    trouble: Trouble,
}

enum Trouble {
    /// So many take requests and never answer, 500 deliveries waiting for each.
    Hang(usize),
    /// One takes 50 a second, and 5,000 are due at once.
    Fifty,
    /// One refuses connections; a backlog waits for it, and more comes in all the time.
    Down,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "one of two hangs", healthy: 1, trouble: Trouble::Hang(1) },
    Scenario { name: "five of twenty hang", healthy: 15, trouble: Trouble::Hang(5) },
    Scenario { name: "5,000 due at once for 50/s", healthy: 1, trouble: Trouble::Fifty },
    Scenario { name: "down, with a backlog and 1,000/s", healthy: 1, trouble: Trouble::Down },
];

/// Runs it, prints the table and writes the report. Whether every row holds.
///
/// # Errors
/// Something could not be built, started, asked or written.
pub fn run(options: Options) -> Result<bool> {
    anyhow::ensure!(options.rounds > 0, "there is nothing to measure in 0 rounds");
    let folder = workspace::scratch("bench")?;
    let log = folder.join("isolation.log");
    std::fs::write(&log, "")?;
    rig::build(&log)?;
    let machine = machine::describe(&folder)?;
    let mut rows = Vec::new();
    for scenario in &SCENARIOS {
        println!("{}", scenario.name);
        rows.push(measure(scenario, options, &folder, &log)?);
    }
    let holds = rows.iter().all(|row| row["missing"] == 0);
    let run = json!({
        "unix_s": now_us() / 1_000_000,
        "commit": commit(),
        "machine": machine,
        "options": {
            "seconds": options.seconds, "rounds": options.rounds, "rate": options.rate,
            "backlog": options.backlog,
        },
        "rows": rows,
    });
    let path = folder.join(format!("isolation-{}.json", run["unix_s"]));
    std::fs::write(&path, format!("{run:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("\n{}\n{}", table(&rows), path.display());
    Ok(holds)
}

fn measure(scenario: &Scenario, options: Options, folder: &Path, log: &Path) -> Result<Value> {
    let mut rig = Rig::start(PAYLOAD, folder, log)?;
    for _ in 0..scenario.healthy {
        let body = json!({"url": rig.url("/hook"), "event_types": [EVENT_TYPE]});
        rig.call("POST", "/endpoints", Some(&body), 201)?;
    }
    let in_trouble = scenario.trouble.prepare(&rig, options)?;
    // Warm: connections are open, and what is done once has been done.
    arrivals(&mut rig, scenario, Options { seconds: 2, ..options })?;
    let (mut rounds, mut missing) = (Vec::new(), 0);
    for _ in 0..options.rounds {
        let alone = under_load(&mut rig, scenario, options)?;
        act(&rig, &in_trouble, "resume")?;
        let beside = under_load(&mut rig, scenario, options)?;
        act(&rig, &in_trouble, "pause")?;
        std::thread::sleep(scenario.trouble.calm_after());
        missing += alone.1 + beside.1;
        rounds.push(json!({"alone_ms": alone.0.json(), "beside_ms": beside.0.json()}));
    }
    let peak = rig.memory("VmHWM")?;
    rig.stop()?;
    Ok(json!({
        "name": scenario.name,
        "rounds": rounds,
        "missing": missing,
        "memory_peak_kib": peak,
    }))
}

impl Trouble {
    /// Makes the endpoints in trouble, paused, with what waits for them. Their ids.
    fn prepare(&self, rig: &Rig<'_>, options: Options) -> Result<Vec<String>> {
        let (settings, waiting) = match self {
            Self::Hang(count) => (vec![json!({"url": rig.url("/hang")}); *count], 500),
            Self::Fifty => {
                (vec![json!({"url": rig.url("/fifty"), "requests_per_second": 50})], 5_000)
            }
            Self::Down => {
                // Nobody listens on the port of a listener that is gone.
                let port = crate::postgres::free_port()?;
                (vec![json!({"url": format!("http://127.0.0.1:{port}/")})], options.backlog)
            }
        };
        let made = settings.into_iter().map(|settings| endpoint(rig, settings));
        let ids = made.collect::<Result<Vec<_>>>()?;
        act(rig, &ids, "pause")?;
        publish(rig, waiting)?;
        Ok(ids)
    }

    /// How long after a pause nothing is on the wire to them.
    const fn calm_after(&self) -> Duration {
        match self {
            Self::Hang(_) => HUNG_UP,
            Self::Fifty | Self::Down => ANSWERED,
        }
    }
}

/// Measures while whatever the scenario demands is accepted besides.
fn under_load(
    rig: &mut Rig<'_>,
    scenario: &Scenario,
    options: Options,
) -> Result<(Summary, usize)> {
    match scenario.trouble {
        Trouble::Hang(_) | Trouble::Fifty => arrivals(rig, scenario, options),
        Trouble::Down => while_publishing(rig, |rig| arrivals(rig, scenario, options)),
    }
}

/// Pauses or resumes these endpoints.
fn act(rig: &Rig<'_>, endpoints: &[String], verb: &str) -> Result<()> {
    for id in endpoints {
        rig.call("POST", &format!("/endpoints/{id}/{verb}"), None, 200)?;
    }
    Ok(())
}

/// The times from plan to arrival at the healthy endpoints, and how many never arrived.
fn arrivals(rig: &mut Rig<'_>, scenario: &Scenario, options: Options) -> Result<(Summary, usize)> {
    let (rate, seconds) = (options.rate.to_string(), options.seconds.to_string());
    let load = rig.generate(&["--rate", &rate, "--seconds", &seconds])?;
    let planned: HashMap<&str, u64> =
        load.accepted.iter().map(|(id, planned, _)| (id.as_str(), *planned)).collect();
    let wanted = usize::try_from(options.rate * options.seconds)? * scenario.healthy;
    let began = Instant::now();
    loop {
        let (_, arrived) = rig.arrivals("/_times")?;
        let times: Vec<u64> = arrived
            .iter()
            .filter_map(|(id, at)| Some(at.saturating_sub(*planned.get(id.as_str())?)))
            .collect();
        if times.len() >= wanted || began.elapsed() > SETTLE_LIMIT {
            let missing = wanted.saturating_sub(times.len());
            return Ok((Summary::of(times), missing));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes an endpoint for the events of [`TROUBLE`]. Its id.
fn endpoint(rig: &Rig<'_>, mut body: Value) -> Result<String> {
    body["event_types"] = json!([TROUBLE]);
    let made = rig.call("POST", "/endpoints", Some(&body), 201)?;
    Ok(made["id"].as_str().context("an endpoint without an id")?.to_owned())
}

/// Publishes so many events of [`TROUBLE`].
fn publish(rig: &Rig<'_>, count: usize) -> Result<()> {
    for begin in (0..count).step_by(BATCH) {
        rig.call("POST", "/events/batch", Some(&batch(BATCH.min(count - begin))), 202)?;
    }
    Ok(())
}

fn batch(count: usize) -> Value {
    let event = json!({"type": TROUBLE, "data": {"text": "x".repeat(PAYLOAD)}});
    json!({"events": vec![event; count]})
}

/// Does `work` while a thread publishes [`DOWN_RATE`] events of [`TROUBLE`] a second.
fn while_publishing<T>(
    rig: &mut Rig<'_>,
    work: impl FnOnce(&mut Rig<'_>) -> Result<T>,
) -> Result<T> {
    let (server, done) = (rig.server.address(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let publisher = scope.spawn(|| -> Result<()> {
            let body = batch(DOWN_RATE / 20).to_string();
            let request = crate::http::request(
                "POST",
                "/api/v1/events/batch",
                Server::token(),
                Some(body.as_bytes()),
            );
            crate::http::runtime()?.block_on(async {
                let mut connection = crate::http::Connection::open(server).await?;
                let mut ticks = tokio::time::interval(Duration::from_millis(50));
                while !done.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let status = connection.exchange(&request).await?.status;
                    anyhow::ensure!(status == 202, "a batch for the dead endpoint got {status}");
                }
                Ok(())
            })
        });
        let result = work(rig);
        done.store(true, Ordering::Relaxed);
        let published = publisher.join().map_err(|_| anyhow::anyhow!("the publisher panicked"))?;
        published.and(result)
    })
}

fn table(rows: &[Value]) -> String {
    let mut text = format!(
        "{:<34} {:>10} {:>11} {:>7} {:>13} {:>11}\n",
        "arrival p99, ms", "alone", "beside", "ratio", "from to", "peak, MiB"
    );
    for row in rows {
        let rounds = row["rounds"].as_array().map_or(&[][..], Vec::as_slice);
        let p99 = |round: &Value, name: &str| round[name]["p99"].as_f64().unwrap_or_default();
        let alone = sorted(rounds.iter().map(|round| p99(round, "alone_ms")));
        let beside = sorted(rounds.iter().map(|round| p99(round, "beside_ms")));
        let ratios =
            sorted(rounds.iter().map(|round| p99(round, "beside_ms") / p99(round, "alone_ms")));
        let name = row["name"].as_str().unwrap_or_default();
        let peak = row["memory_peak_kib"].as_u64().unwrap_or_default() / 1_024;
        let spread = ratios.first().zip(ratios.last());
        let spread = spread.map_or_else(String::new, |(from, to)| format!("{from:.2}-{to:.2}"));
        text.push_str(&format!(
            "{name:<34} {:>10.2} {:>11.2} {:>7.2} {spread:>13} {peak:>11}\n",
            median(&alone),
            median(&beside),
            median(&ratios),
        ));
        if row["missing"] != 0 {
            text.push_str(&format!("VOID: {} deliveries did not arrive\n", row["missing"]));
        }
    }
    text
}

fn sorted(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The one in the middle, of two the lower; of none 0.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_ratios_their_spread_and_missing_arrivals_are_shown() {
        let p99 = |ms: f64| json!({"p99": ms});
        let round = |alone, beside| json!({"alone_ms": p99(alone), "beside_ms": p99(beside)});
        // The machine was slow in the second round, for both.
        let rounds = [round(2.0, 2.2), round(20.0, 19.0), round(2.0, 2.6)];
        let row = json!({
            "name": "one of two hangs", "rounds": rounds, "missing": 0,
            "memory_peak_kib": 20_480,
        });
        let void = json!({"name": "other", "missing": 7});
        let table = table(&[row, void]);
        let line: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line[4..], ["2.00", "2.60", "1.10", "0.95-1.30", "20"], "{table}");
        assert!(table.ends_with("VOID: 7 deliveries did not arrive\n"), "{table}");
    }
}
