//! How fast webhooks come in: verified, deduplicated and on the disk before they are answered.
//!
//! The generator is a provider with many connections, each of which brings its next webhook when
//! the last was answered. Nothing is forwarded: what a delivery costs is what `send` measures.
//! Three rows: everything new; everything a duplicate; everything new again, on a store that
//! remembers millions of receipts, which is to cost little more. A row is void unless every answer
//! was the right one, and the newest receipts are those that were answered.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::rig::{self, Load, Rig, commit};
use super::summary::per;
use super::{machine, now_us};
use crate::job::Job;
use crate::workspace;

/// The source, and what signs what comes to it.
const SOURCE: &str = "bench";
const SECRET: &str = "whsec_of-the-bench";
/// How long full load warms the server up before anything is counted.
const WARM_UP_SECONDS: u64 = 2;
/// Receipts that are looked at.
const RECEIPTS_READ: usize = 250;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long each row lasts.
    pub seconds: u64,
    /// Keep-alive connections that bring webhooks at once.
    pub connections: usize,
    /// Bytes of each webhook's `data`.
    pub payload: usize,
    /// Receipts that the store remembers in the last row.
    pub receipts: u64,
}

/// Runs it, prints the table and writes the report. Whether every row holds.
///
/// # Errors
/// Something could not be built, started, asked or written.
pub fn run(options: Options) -> Result<bool> {
    let folder = workspace::scratch("bench")?;
    let log = folder.join("receive.log");
    std::fs::write(&log, "")?;
    rig::build(&log)?;
    let machine = machine::describe(&folder)?;
    let mut rows = Vec::new();
    let mut rig = Rig::start(options.payload, &folder, &log)?;
    let settings = json!({"name": SOURCE, "kind": "stripe", "secrets": [SECRET]});
    rig.call("POST", "/sources", Some(&settings), 201)?;
    warm_up(&mut rig, options)?;
    println!("all new");
    let (new, load) = row("all new", &mut rig, options, 0)?;
    rows.push(new);
    println!("all duplicates");
    // Numbers from 0 on have been brought, the last of them just now.
    let distinct = load.summary["next"].as_u64().context("a summary without `next`")?;
    rows.push(row("all duplicates", &mut rig, options, distinct)?.0);
    rig.stop()?;
    println!("remembering {} receipts", options.receipts);
    let data = rig::data()?;
    remember(&data, options.receipts, &log)?;
    let mut rig = Rig::start_on(&data, options.payload, &folder, &log)?;
    warm_up(&mut rig, options)?;
    println!("all new, beside them");
    rows.push(row("all new, beside the remembered", &mut rig, options, 0)?.0);
    rig.stop()?;
    let holds = rows.iter().all(|row| row["void"].as_array().is_some_and(Vec::is_empty));
    let run = json!({
        "unix_s": now_us() / 1_000_000,
        "commit": commit(),
        "machine": machine,
        "options": {
            "seconds": options.seconds, "connections": options.connections,
            "payload_bytes": options.payload, "receipts": options.receipts,
        },
        "rows": rows,
    });
    let path = folder.join(format!("receive-{}.json", run["unix_s"]));
    std::fs::write(&path, format!("{run:#}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("\n{}\n{}", table(&rows), path.display());
    Ok(holds)
}

/// Makes a store with the source and so many receipts.
fn remember(data: &Path, receipts: u64, log: &Path) -> Result<()> {
    let job = Job::cargo(&["run", "--release", "--locked", "-q", "-p", "everhook-store"]);
    job.args(["--example", "receipts", "--"])
        .args([data])
        .args([SOURCE, SECRET, &receipts.to_string()])
        .demand(log)?;
    Ok(())
}

fn warm_up(rig: &mut Rig<'_>, options: Options) -> Result<()> {
    bring(rig, Options { seconds: WARM_UP_SECONDS, ..options }, 0)?;
    Ok(())
}

fn bring(rig: &mut Rig<'_>, options: Options, distinct: u64) -> Result<Load> {
    let [seconds, connections, distinct] =
        [options.seconds, options.connections as u64, distinct].map(|number| number.to_string());
    let args = ["--source", SOURCE, "--seconds", &seconds, "--connections", &connections];
    rig.generate_with(SECRET, &[&args[..], &["--distinct", &distinct]].concat())
}

/// Measures one row; with `distinct`, ids repeat after so many, and all of them are known.
fn row(name: &str, rig: &mut Rig<'_>, options: Options, distinct: u64) -> Result<(Value, Load)> {
    let server = rig.server.pid();
    let (cpu, written) = (machine::cpu_us(server)?, machine::field(server, "io", "write_bytes")?);
    let load = bring(rig, options, distinct)?;
    let cpu = machine::cpu_us(server)? - cpu;
    let written = machine::field(server, "io", "write_bytes")? - written;
    let answered = load.accepted.len();
    let began = load.summary["began_us"].as_u64().context("a summary without `began_us`")?;
    let ended = load.accepted.iter().map(|(_, _, answered)| *answered).max().unwrap_or(began);
    let generator = load.summary["cpu_us"].as_u64().unwrap_or(0);
    let newest = (distinct == 0).then(|| newest(rig)).transpose()?;
    let void = reasons(&load, distinct > 0, newest.as_deref());
    let row = json!({
        "name": name,
        "answered": answered,
        "per_s": per(answered as u64 * 1_000_000, ended - began),
        "server_cpu_us": per(cpu, answered as u64),
        "generator_cpu_us": per(generator, answered as u64),
        "server_bytes": per(written, answered as u64),
        "memory_kib": rig.memory("VmRSS")?,
        "void": void,
    });
    Ok((row, load))
}

/// The keys of the newest receipts.
fn newest(rig: &Rig<'_>) -> Result<Vec<String>> {
    let list = format!("/receipts?source={SOURCE}&limit={RECEIPTS_READ}");
    let page = rig.call("GET", &list, None, 200)?;
    let receipts = page["data"].as_array().context("a list without `data`")?;
    Ok(receipts.iter().filter_map(|receipt| Some(receipt["key"].as_str()?.to_owned())).collect())
}

/// Why a row does not hold. `newest` are the newest receipts, where all webhooks were new.
fn reasons(load: &Load, all_known: bool, newest: Option<&[String]>) -> Vec<String> {
    let number = |name: &str| load.summary[name].as_u64().unwrap_or(0);
    let answered = load.accepted.len() as u64;
    let mut reasons = Vec::new();
    if answered == 0 {
        reasons.push("nothing was answered".to_owned());
    }
    if number("refused") + number("errors") > 0 {
        let (refused, errors) = (&load.summary["refused_by_status"], &load.summary["first_errors"]);
        reasons.push(format!("not all was taken: {refused} {errors}"));
    }
    let expected = if all_known { answered } else { 0 };
    if number("duplicates") != expected {
        let found = number("duplicates");
        reasons.push(format!("{found} duplicates were answered, {expected} are right"));
    }
    if let Some(newest) = newest {
        let sent: HashSet<&str> = load.accepted.iter().map(|(id, _, _)| id.as_str()).collect();
        let strange = newest.iter().filter(|key| !sent.contains(key.as_str())).count();
        if strange > 0 || newest.len() < RECEIPTS_READ.min(load.accepted.len()) {
            let seen = newest.len();
            reasons.push(format!("{strange} of the {seen} newest receipts are of nothing sent"));
        }
    }
    reasons
}

fn table(rows: &[Value]) -> String {
    let mut text = format!(
        "{:<32} {:>10} {:>7} {:>12} {:>15} {:>10} {:>9}\n",
        "webhooks", "per s", "ratio", "server, µs", "generator, µs", "bytes", "MiB"
    );
    let first = rows.first().and_then(|row| row["per_s"].as_f64()).unwrap_or_default();
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_default();
        text.push_str(&format!(
            "{:<32} {:>10.0} {:>7.2} {:>12.1} {:>15.1} {:>10.0} {:>9.0}\n",
            row["name"].as_str().unwrap_or_default(),
            number("per_s"),
            number("per_s") / first,
            number("server_cpu_us"),
            number("generator_cpu_us"),
            number("server_bytes"),
            number("memory_kib") / 1_024.0,
        ));
        for reason in row["void"].as_array().map_or(&[][..], Vec::as_slice) {
            text.push_str(&format!("VOID: {}\n", reason.as_str().unwrap_or_default()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(ids: &[&str], duplicates: u64, refused: u64) -> Load {
        let accepted = ids.iter().map(|id| ((*id).to_owned(), 0, 1)).collect();
        let summary = json!({"duplicates": duplicates, "refused": refused, "errors": 0});
        Load { accepted, summary }
    }

    /// How many reasons there are against a row with these webhooks.
    fn check(load: &Load, all_known: bool, newest: Option<&[&str]>, expected: usize) {
        let newest: Option<Vec<String>> =
            newest.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
        let found = reasons(load, all_known, newest.as_deref());
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn a_row_holds_only_if_every_answer_was_right() {
        check(&load(&["a", "b"], 0, 0), false, Some(&["b", "a"]), 0);
        check(&load(&["a", "a"], 2, 0), true, None, 0);
        check(&load(&["a", "b"], 1, 0), false, Some(&["b", "a"]), 1);
        check(&load(&["a", "a"], 1, 0), true, None, 1);
        check(&load(&["a", "b"], 0, 3), false, Some(&["b", "a"]), 1);
        check(&load(&["a", "b"], 0, 0), false, Some(&["b", "x"]), 1);
        check(&load(&["a", "b"], 0, 0), false, Some(&["b"]), 1);
        check(&load(&[], 0, 0), true, None, 1);
    }

    #[test]
    fn rows_are_compared_with_the_first() {
        let row = |per_s: f64, void: &[&str]| json!({"name": "x", "per_s": per_s, "void": void});
        let table = table(&[row(20_000.0, &[]), row(16_000.0, &["why"])]);
        let cells: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(cells[..3], ["x", "16000", "0.80"]);
        assert!(table.ends_with("VOID: why\n"), "{table}");
    }
}
