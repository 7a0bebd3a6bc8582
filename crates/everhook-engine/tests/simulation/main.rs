//! The simulation: whole lives of the product, thousands of them, each made from a number.
//!
//! Real are the domain, the engine and the SQLite writer, which runs inside the call on a database
//! in memory that outlives its process. Made up are the clock, which jumps to the next thing that
//! happens, and the network, which is faked at the engine's `Sender`. A seed says what callers ask,
//! how receivers behave, where commits fail, at which step the process dies, and how far the wall
//! clock is set. The same seed is the same life, to the last request.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `profile` | everything that a seed decides |
//! | `run` | the life of one world |
//! | `process`, `front` | a process, and the store as it sees it |
//! | `network` | receivers, and what they look at in every request |
//! | `client`, `publish`, `acts`, `endpoints` | callers, and what they may rely on |
//! | `sources`, `provider`, `receive`, `decide` | webhooks in: who sends what, and its way |
//! | `book` | what was asked, answered and seen |
//! | `receipts` | what must become of what is received: a model of the rules |
//! | `check`, `delivery`, `timing`, `received` | the promises, compared with the book |
//! | `faults`, `time`, `rng`, `world` | faults, clocks, chance, and what all share |
//!
//! `EVERHOOK_SIM_SEEDS` says how many seeds are run (10,000), `EVERHOOK_SIM_SEED` names one to be
//! run alone, with everything that happens printed.

#![expect(clippy::panic, reason = "a test fails by it")]

mod acts;
mod book;
mod check;
mod client;
mod decide;
mod delivery;
mod endpoints;
mod faults;
mod front;
mod network;
mod process;
mod profile;
mod provider;
mod publish;
mod receipts;
mod receive;
mod received;
mod rng;
mod run;
mod sources;
mod system;
mod time;
mod timing;
mod world;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use everhook_domain::fault::Plant;

use crate::run::run;
use crate::world::Keep;

/// How many seeds are run unless something else is asked for.
const SEEDS: u64 = 10_000;
/// Threads that share the seeds.
const THREADS: u64 = 2;
/// Every so many seeds one is run twice.
const TWICE_EVERY: u64 = 100;

#[expect(clippy::disallowed_methods, reason = "how much to test is said by the environment")]
fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text}: {error}"),
    }
}

fn seeds() -> u64 {
    number_from("EVERHOOK_SIM_SEEDS").unwrap_or(SEEDS)
}

/// How to see a failure again.
fn report(seed: u64, violation: &str) -> String {
    let tail = run(seed, None, Keep::Tail).tail;
    format!(
        "seed {seed}: {violation}\n\n{tail}\n\nto see all of it:\n  EVERHOOK_SIM_SEED={seed} cargo \
         test -p everhook-engine --features faults --test simulation -- --nocapture one_seed\n"
    )
}

/// Runs seeds on all threads until one fails; gives the lowest that was seen to fail.
fn search(seeds: u64, plant: Option<Plant>) -> Option<(u64, String)> {
    let lowest = AtomicU64::new(u64::MAX);
    let mut failures: Vec<(u64, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|first| {
                scope.spawn({
                    let lowest = &lowest;
                    move || search_part(first, seeds, plant, lowest)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    });
    failures.sort();
    failures.into_iter().next()
}

fn search_part(
    first: u64,
    seeds: u64,
    plant: Option<Plant>,
    lowest: &AtomicU64,
) -> Option<(u64, String)> {
    for seed in (first..seeds).step_by(THREADS as usize) {
        if lowest.load(SeqCst) < seed {
            return None;
        }
        let verdict = run(seed, plant, Keep::Hash);
        let mut violation = verdict.violation;
        if violation.is_none() && plant.is_none() && seed % TWICE_EVERY < THREADS {
            let again = run(seed, None, Keep::Hash).hash;
            if again != verdict.hash {
                violation = Some("the same seed was another life the second time".to_owned());
            }
        }
        if let Some(violation) = violation {
            lowest.fetch_min(seed, SeqCst);
            return Some((seed, violation));
        }
    }
    None
}

#[test]
fn thousands_of_worlds_keep_the_promises() {
    if let Some((seed, violation)) = search(seeds(), None) {
        panic!("{}", report(seed, &violation));
    }
}

#[test]
fn one_seed() {
    let Some(seed) = number_from("EVERHOOK_SIM_SEED") else { return };
    let verdict = run(seed, None, Keep::Print);
    if let Some(violation) = verdict.violation {
        panic!("seed {seed}: {violation}");
    }
}

/// A planted fault is found, or the simulation is blind.
fn is_found(plant: Plant) {
    let seeds = seeds().max(SEEDS);
    match search(seeds, Some(plant)) {
        Some((seed, violation)) => show(&format!("{}: seed {seed}: {violation}", plant.name())),
        None => panic!("{} was not found in {seeds} seeds", plant.name()),
    }
}

#[expect(clippy::print_stdout, reason = "shown with --nocapture")]
fn show(line: &str) {
    println!("{line}");
}

#[test]
fn a_result_under_an_old_lease_is_found() {
    is_found(Plant::NoTokenCompare);
}

#[test]
fn an_answer_before_the_commit_is_found() {
    is_found(Plant::AnswerBeforeCommit);
}

#[test]
fn an_interruption_that_counts_is_found() {
    is_found(Plant::InterruptionCounts);
}

#[test]
fn a_body_that_is_written_anew_is_found() {
    is_found(Plant::BodyReserialised);
}

#[test]
fn an_early_step_is_found() {
    is_found(Plant::StepEarly);
}

#[test]
fn a_claim_that_does_not_take_is_found() {
    is_found(Plant::DuplicateClaim);
}

#[test]
fn a_key_that_is_taken_before_the_signature_is_verified_is_found() {
    is_found(Plant::DedupeBeforeVerification);
}

#[test]
fn a_webhook_that_is_remembered_before_it_is_stored_is_found() {
    is_found(Plant::MarkedBeforeStored);
}

#[test]
fn a_key_that_forgets_its_source_is_found() {
    is_found(Plant::KeyWithoutSource);
}
