//! The samples of the claim API: the script, as the page shows it, and a worker in each language
//! that is killed amid its work.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{EXAMPLES, said};
use crate::install;
use crate::job::{Job, Service};
use crate::server::Server;
use crate::test::Outcome;
use crate::workspace;

/// What claims a key, and the page that shows it.
const CLAIMS: (&str, &str) = ("examples/claims.sh", "docs/idempotency.md");
/// How long a dead worker is waited for.
const LEASE_MS: &str = "1000";
/// How long the work of a living one takes: longer than its lease.
const WORK_SECONDS: &str = "3";

/// Runs them; each is one test.
pub(super) fn try_all(server: &Server, log: &Path) -> Outcome {
    let mut outcome = one(CLAIMS.0, try_script(server, log));
    for (program, package, receiver) in EXAMPLES {
        let file = receiver.replace("receiver", "claims");
        let tried = install::need(program, &[package], log)
            .and_then(|_| try_worker(server, program, &file, log));
        outcome = outcome.and(one(&file, tried));
    }
    outcome
}

fn one(file: &str, tried: Result<()>) -> Outcome {
    match tried {
        Ok(()) => Outcome::passed(1),
        Err(error) => Outcome::default().with_trouble(format!("{file}: {error:#}")),
    }
}

fn try_script(server: &Server, log: &Path) -> Result<()> {
    super::shown(CLAIMS)?;
    install::need("curl", &["curl"], log)?;
    let job = Job::new("sh").args([workspace::root().join(CLAIMS.0)]);
    let said = to(server, job).demand(&log.with_extension("claims.log"))?;
    let words: Vec<&str> = said.lines().filter(|line| line.starts_with('{')).collect();
    let expected = [
        r#""outcome":"new""#,
        r#""outcome":"in_progress""#,
        r#""state":"in_progress""#,
        r#""result":{"sent": true}"#,
        r#""outcome":"completed","result":{"sent": true}"#,
    ];
    ensure!(words.len() == expected.len(), "it printed: {said}");
    for (line, part) in words.iter().zip(expected) {
        ensure!(line.contains(part), "it printed `{line}`, without {part}");
    }
    Ok(())
}

/// One worker begins and is killed, the next waits for its lease and works longer than its own, and
/// a third one, which comes meanwhile, gets its result.
fn try_worker(server: &Server, program: &str, file: &str, log: &Path) -> Result<()> {
    let key = format!("{program}-1");
    let job = |seconds: &str| {
        let job = Job::new(program)
            .args([workspace::root().join("examples").join(file).into_os_string(), (&key).into()])
            .env("LEASE_MS", LEASE_MS)
            .env("WORK_SECONDS", seconds);
        to(server, job)
    };
    // A log of each one's own: what two programs write at once would be on one line.
    let log_of = |number: u32| log.with_extension(format!("{file}.{number}.log"));
    let start = |number, seconds: &str| -> Result<Service> { job(seconds).start(&log_of(number)) };
    let mut first = start(1, "600")?;
    said(&mut first, "working new")?;
    let mut second = start(2, WORK_SECONDS)?;
    said(&mut second, "waiting")?;
    first.kill()?;
    said(&mut second, "working reclaimed")?;
    let third = job("0").demand(&log_of(3))?;
    let result = third.lines().rfind(|line| line.starts_with("done before "));
    let result = result.with_context(|| format!("the third one printed: {third}"))?;
    ensure!(result.contains(&key) && !third.contains("working"), "it printed: {third}");
    Ok(())
}

/// A job that knows the server.
fn to(server: &Server, job: Job) -> Job {
    job.env("EVERHOOK_SERVER", format!("http://{}", server.address()))
        .env("EVERHOOK_TOKEN", Server::token())
}
