//! The conformance suite: what it says of the store traits is their definition.
//!
//! Every case is listed once, in its module's `cases`, and runs on every store. A case that is not
//! listed is dead code, which the lints refuse. Time is an argument of the verbs, so nothing here
//! waits for a clock; a crash is a store that is thrown away and opened anew on the same data.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod act;
mod backend;
mod bulk;
mod cases;
mod catch_up;
mod changed_since;
mod claim;
mod conversations;
mod directory;
mod disabling;
mod erasure;
mod idempotency;
mod inbox;
mod jobs;
mod keys;
mod lanes;
mod lapse;
mod model;
#[cfg(feature = "postgres")]
mod nodes;
#[cfg(feature = "postgres")]
mod postgres;
mod publish;
mod quotas;
mod reading;
mod receipts;
mod receiving;
mod records;
mod sealing;
mod send_again;
mod settle;
mod sketch;
mod source_ids;
mod sources;
mod sqlite;
mod states;
mod system;
mod tenants;
mod unusable;
mod windows;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use backend::{Kind, kinds};

/// One property that every store must have.
struct Case {
    /// Its path: `publish::ids_rise`.
    name: &'static str,
    run: Box<dyn Fn(Kind) + Send + Sync>,
}

/// A case named after the function that is its body.
fn case<F: Fn(Kind) + Send + Sync + 'static>(run: F) -> Case {
    let path = std::any::type_name::<F>();
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    Case { name, run: Box::new(run) }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let modules = [
        publish::cases,
        source_ids::cases,
        claim::cases,
        settle::cases,
        lapse::cases,
        system::cases,
        disabling::cases,
        act::cases,
        send_again::cases,
        directory::cases,
        sources::cases,
        receiving::cases,
        windows::cases,
        receipts::cases,
        states::cases,
        conversations::cases,
        changed_since::cases,
        jobs::cases,
        bulk::cases,
        catch_up::cases,
        reading::cases,
        sealing::cases,
        idempotency::cases,
        keys::cases,
        quotas::cases,
        records::cases,
        tenants::cases,
        unusable::cases,
        erasure::cases,
        cases::cases,
        model::cases,
    ];
    let mut trials = Vec::new();
    for kind in kinds() {
        for case in modules.iter().flat_map(|cases| cases()).chain((kind.own)()) {
            let name = format!("{}::{}", kind.name, case.name);
            trials.push(Trial::test(name, move || {
                (case.run)(kind);
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
