//! `cargo xtask test`: everything there is, in one run, and one line of counts at its end.
//!
//! Each part is a row of [`PARTS`](parts::PARTS): a name, what it shows, and a function. A part
//! that fails does not stop the others, and none is ever skipped: what cannot be had (a package, a
//! service) is a failure with its reason, and so is a test that is ignored or a suite that holds no
//! test.

mod count;
mod parts;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use count::Outcome;

use crate::args::Args;
use crate::job::{Job, tail};
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::workspace;

/// The number of simulated worlds in a run, unless `--seeds` says otherwise.
const SEEDS: u64 = 10_000;
/// How long each fuzz target runs, unless `--fuzz-seconds` says otherwise.
const FUZZ_SECONDS: u64 = 20;
/// How many lines of a failed program's output are shown; all of it is in the log.
const TAIL_LINES: usize = 80;

/// One part of the run.
#[derive(Debug)]
pub struct Part {
    /// What `--only` calls it; its log is `target/xtask/test/<name>.log`.
    pub name: &'static str,
    /// What a reader of the table learns from it.
    pub shows: &'static str,
    /// Whether it belongs to `cargo xtask check` too.
    pub check: bool,
    /// Runs it. An error is one failed test whose reason it holds.
    pub run: fn(&mut Run) -> Result<Outcome>,
}

/// What the parts of one run share.
#[derive(Debug)]
pub struct Run {
    /// The number of simulated worlds.
    pub seeds: u64,
    /// How long each fuzz target runs.
    pub fuzz: Duration,
    /// The log of the part that runs now.
    pub log: PathBuf,
    postgres: Option<Result<Postgres, String>>,
    redis: Option<Result<Redis, String>>,
}

/// A part's line in the closing table.
#[derive(Debug)]
struct Row {
    part: &'static Part,
    outcome: Outcome,
    time: Duration,
}

/// `cargo xtask test`.
///
/// # Errors
/// The command line is wrong, or the folder of the logs cannot be made.
pub fn command(mut args: Args) -> Result<bool> {
    let seeds = args.value("seeds", SEEDS)?;
    let fuzz = Duration::from_secs(args.value("fuzz-seconds", FUZZ_SECONDS)?);
    let only = args.text("only")?;
    let list = args.switch("list")?;
    args.finish()?;
    if list {
        for part in parts::PARTS {
            println!("{:<12} {}", part.name, part.shows);
        }
        return Ok(true);
    }
    let chosen = choose(only.as_deref())?;
    run(&chosen, seeds, fuzz)
}

/// `cargo xtask check`.
///
/// # Errors
/// The command line is wrong, or the folder of the logs cannot be made.
pub fn checks(args: Args) -> Result<bool> {
    args.finish()?;
    let chosen: Vec<&Part> = parts::PARTS.iter().filter(|part| part.check).collect();
    run(&chosen, SEEDS, Duration::from_secs(FUZZ_SECONDS))
}

fn choose(only: Option<&str>) -> Result<Vec<&'static Part>> {
    let Some(only) = only else { return Ok(parts::PARTS.iter().collect()) };
    let names: BTreeSet<&str> = only.split(',').map(str::trim).collect();
    for name in &names {
        if !parts::PARTS.iter().any(|part| part.name == *name) {
            let known: Vec<&str> = parts::PARTS.iter().map(|part| part.name).collect();
            bail!("there is no part `{name}`; the parts are {}", known.join(", "));
        }
    }
    Ok(parts::PARTS.iter().filter(|part| names.contains(part.name)).collect())
}

fn run(chosen: &[&'static Part], seeds: u64, fuzz: Duration) -> Result<bool> {
    let logs = workspace::scratch("test")?;
    let began = Instant::now();
    let mut run = Run { seeds, fuzz, log: logs.clone(), postgres: None, redis: None };
    let mut rows = Vec::new();
    for part in chosen {
        run.log = logs.join(format!("{}.log", part.name));
        std::fs::write(&run.log, "")?;
        println!("== {}: {}", part.name, part.shows);
        let started = Instant::now();
        let outcome = (part.run)(&mut run)
            .unwrap_or_else(|error| Outcome::default().with_trouble(format!("{error:#}")));
        let row = Row { part, outcome, time: started.elapsed() };
        report(&row, &run);
        rows.push(row);
    }
    // Before the table, so that nothing can be printed after its last line.
    drop(run);
    Ok(close(&rows, began.elapsed()))
}

fn report(row: &Row, run: &Run) {
    for trouble in &row.outcome.trouble {
        println!("{trouble}");
    }
    if row.outcome.failed > 0 {
        println!("   the whole output is in {}", run.log.display());
    }
    println!("   {}\n", row.verdict());
}

impl Row {
    fn verdict(&self) -> String {
        let Outcome { passed, failed, .. } = self.outcome;
        let word = if failed == 0 { "ok" } else { "FAILED" };
        let time = self.time.as_secs_f64();
        format!("{word:<7} {passed:>7} passed {failed:>5} failed {time:>8.1} s")
    }
}

/// Prints the table and the one line of counts. Whether all is well.
fn close(rows: &[Row], time: Duration) -> bool {
    for row in rows {
        println!("{:<12} {}", row.part.name, row.verdict());
    }
    let passed: u64 = rows.iter().map(|row| row.outcome.passed).sum();
    let failed: u64 = rows.iter().map(|row| row.outcome.failed).sum();
    println!("whole run: {:.1} min", time.as_secs_f64() / 60.0);
    println!("{passed} passed, {failed} failed");
    failed == 0
}

impl Run {
    /// The URL of the run's PostgreSQL, which is started at the first call.
    ///
    /// # Errors
    /// It could not be installed or started; every part that needs it fails with that reason.
    pub fn postgres(&mut self) -> Result<String> {
        let log = &self.log;
        let started = self
            .postgres
            .get_or_insert_with(|| Postgres::start(log).map_err(|error| format!("{error:#}")));
        match started {
            Ok(postgres) => Ok(postgres.url()),
            Err(reason) => bail!("PostgreSQL is not there: {reason}"),
        }
    }

    /// The URL of the run's Redis, which is started at the first call.
    ///
    /// # Errors
    /// It could not be installed or started; every part that needs it fails with that reason.
    pub fn redis(&mut self) -> Result<String> {
        let log = &self.log;
        let started = self
            .redis
            .get_or_insert_with(|| Redis::start(log).map_err(|error| format!("{error:#}")));
        match started {
            Ok(redis) => Ok(redis.url()),
            Err(reason) => bail!("Redis is not there: {reason}"),
        }
    }

    /// Runs a program that is one test as a whole.
    ///
    /// # Errors
    /// It could not be started.
    pub fn one(&self, job: Job) -> Result<Outcome> {
        let line = job.line();
        let finished = job.run(&self.log)?;
        if finished.success {
            return Ok(Outcome::passed(1));
        }
        let end = tail(&count::without_progress(&finished.output), TAIL_LINES);
        Ok(Outcome::default().with_trouble(format!("{end}\n`{line}`: {}", finished.ending)))
    }

    /// Runs a `cargo test` and takes its counts.
    ///
    /// # Errors
    /// It could not be started.
    pub fn tests(&self, job: Job) -> Result<Outcome> {
        let line = job.line();
        let finished = job.run(&self.log)?;
        let outcome = count::read(&finished.output, finished.success);
        if outcome.failed == 0 {
            return Ok(outcome);
        }
        let story = count::story(&finished.output, TAIL_LINES);
        Ok(outcome.with_note(format!("{story}\n`{line}`: {}", finished.ending)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_chosen_by_name_in_their_order() {
        let all = choose(None).unwrap();
        assert_eq!(all.len(), parts::PARTS.len());
        let two = choose(Some("tidy, format")).unwrap();
        let names: Vec<&str> = two.iter().map(|part| part.name).collect();
        assert_eq!(names, ["format", "tidy"]);
        assert!(choose(Some("tidyness")).is_err());
    }

    #[test]
    fn names_of_parts_are_unique() {
        let names: BTreeSet<&str> = parts::PARTS.iter().map(|part| part.name).collect();
        assert_eq!(names.len(), parts::PARTS.len());
    }
}
