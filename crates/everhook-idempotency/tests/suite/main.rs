//! The suite: what it says of a store is the trait's definition, and what it says of the layer
//! holds on every store.
//!
//! Every case is listed once, in its module's `cases`, and runs on each kind of store that this
//! build has; `cargo xtask test --only idempotency` runs all of them. A case that is not listed is
//! dead code, which the lints refuse.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads what the test command hands over"
)]

mod acceptance;
mod answers;
mod backend;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod crash;
mod examples;
mod hooked;
mod lapses;
mod leases;
mod limits;
mod model;
mod records;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod server;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod transaction;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use backend::{Kind, kinds};

/// One property.
struct Case {
    /// Its path: `records::one_of_many_takes_a_key`.
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
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
    if let Some(code) = server::serve_if_asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let modules = [
        records::cases,
        leases::cases,
        limits::cases,
        model::cases,
        answers::cases,
        lapses::cases,
        acceptance::cases,
        examples::cases,
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
