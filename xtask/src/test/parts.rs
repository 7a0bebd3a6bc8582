//! The table of parts, in the order in which they run: cheap and telling first.

use std::time::Duration;

use anyhow::Result;

use super::{Outcome, Part, Run};
use crate::check;
use crate::job::Job;
use crate::{postgres, redis};

/// The time limit of the suites that simulate or kill thousands of times.
const LONG: Duration = Duration::from_secs(40 * 60);

/// Everything that `cargo xtask test` runs.
pub const PARTS: &[Part] = &[
    part("format", "rustfmt has nothing to say", true, format),
    part("tidy", "sizes, words and module docs are as agreed", true, |_| {
        Ok(check::outcome(&check::tree()?))
    }),
    part("edges", "crates depend on each other as drawn", true, |_| {
        Ok(check::outcome(&check::edges::violations()?))
    }),
    part("deny", "licences, duplicate versions and sources are as agreed", true, check::deny::part),
    part("clippy", "no lint complains, tests and features included", true, clippy),
    part("docs", "the documentation builds, and its links lead somewhere", true, docs),
    part("services", "PostgreSQL and Redis are there", false, |run| {
        run.postgres()?;
        run.redis().map(|_| Outcome::passed(1))
    }),
    part("release", "the product builds as it is shipped", false, |run| {
        run.one(Job::cargo(&["build", "--release", "--locked", "-p", "everhook"]))
    }),
    part("workspace", "tests of every crate, as shipped", false, workspace),
    part("postgres", "the store's definition holds on PostgreSQL too", false, store_on_postgres),
    part("idempotency", "a key runs once, on every store and across kills", false, |run| {
        on_every_store(run, "everhook-idempotency")
    }),
    part("receiver", "handlers run once and never back in time, on every store", false, |run| {
        on_every_store(run, "everhook-receiver")
    }),
    part(
        "simulation",
        "thousands of simulated worlds, and planted faults are found",
        false,
        |run| {
            let suite = suite("everhook-engine", "simulation");
            run.tests(suite.env("EVERHOOK_SIM_SEEDS", run.seeds.to_string()).limit(LONG))
        },
    ),
    part("crash", "kill -9 of the real binary loses nothing", false, |run| {
        run.tests(suite("everhook", "crash").limit(LONG))
    }),
    part("power-cut", "what was not synced is gone, and nothing accepted is", false, |run| {
        run.tests(suite("everhook", "power_cut").limit(LONG))
    }),
    part("interop", "official Standard Webhooks libraries accept us", false, crate::interop::part),
    part("examples", "the receivers in examples/ do what they say", false, crate::examples::part),
    part("book", "its links lead somewhere, and its commands run", false, crate::book::part),
    part("packaging", "what is handed out is whole, and runs", false, crate::packaging::part),
    part("bench", "the benches run, and every id arrived", false, bench),
    part("fuzz", "no parser of foreign bytes falls over", false, crate::fuzz::part),
];

const fn part(
    name: &'static str,
    shows: &'static str,
    check: bool,
    run: fn(&mut Run) -> Result<Outcome>,
) -> Part {
    Part { name, shows, check, run }
}

fn format(run: &mut Run) -> Result<Outcome> {
    let check = ["--", "--check", "--color=never"];
    let mut outcome = run.one(Job::cargo(&["fmt", "--all"]).args(check))?;
    for manifest in ["fuzz/Cargo.toml", "interop/rust/Cargo.toml"] {
        let beside = Job::cargo(&["fmt", "--manifest-path", manifest]);
        outcome = outcome.and(run.one(beside.args(check))?);
    }
    Ok(outcome)
}

fn clippy(run: &mut Run) -> Result<Outcome> {
    let lint = ["clippy", "--workspace", "--all-targets"];
    let deny = ["--", "-D", "warnings"];
    let shipped = run.one(Job::cargo(&lint).args(deny))?;
    let faults = run.one(Job::cargo(&lint).args(["--all-features"]).args(deny))?;
    Ok(shipped.and(faults))
}

/// Short, for what they prove and not for what they measure.
fn bench(run: &mut Run) -> Result<Outcome> {
    let bench = |what| Job::new(crate::workspace::cargo()).args(["xtask", "bench", what]);
    let send = run.one(bench("send").args(["--seconds", "1"]))?;
    let isolation = ["--seconds", "2", "--rounds", "1", "--backlog", "20000"];
    let receive = ["--seconds", "1", "--receipts", "100000"];
    let isolation = run.one(bench("isolation").args(isolation))?;
    let receive = run.one(bench("receive").args(receive))?;
    let idempotency = ["--seconds", "1", "--keys", "20000"];
    let idempotency = run.one(bench("idempotency").args(idempotency))?;
    Ok(send.and(isolation).and(receive).and(idempotency))
}

fn docs(run: &mut Run) -> Result<Outcome> {
    let doc = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    run.one(Job::cargo(&doc).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Without features: the crash points and planted faults of the suites are not in the product.
fn workspace(run: &mut Run) -> Result<Outcome> {
    run.tests(Job::cargo(&["test", "--workspace", "--no-fail-fast"]))
}

fn store_on_postgres(run: &mut Run) -> Result<Outcome> {
    let url = run.postgres()?;
    let tests = Job::cargo(&["test", "--no-fail-fast", "-p", "everhook-store"]).args([
        "--features",
        "postgres",
        "--test",
        "conformance",
    ]);
    run.tests(tests.env(postgres::URL_VARIABLE, url))
}

/// The tests of a crate that has stores of its own.
fn on_every_store(run: &mut Run, package: &str) -> Result<Outcome> {
    let (postgres, redis) = (run.postgres()?, run.redis()?);
    let tests = Job::cargo(&["test", "--no-fail-fast", "-p", package]);
    let tests = tests.args(["--all-features"]).env(postgres::URL_VARIABLE, postgres);
    run.tests(tests.env(redis::URL_VARIABLE, redis))
}

/// A suite of its own, with the crash points and planted faults built in.
fn suite(package: &str, name: &str) -> Job {
    Job::cargo(&["test", "--release", "--no-fail-fast", "--features", "faults"])
        .args(["-p", package, "--test", name])
}
