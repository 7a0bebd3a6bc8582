//! The suite: what it says of a store is the trait's definition, and what it says of the layer and
//! the inbox holds on every store.
//!
//! Every case is listed once, in its module's `cases`, and runs on each kind of store that this
//! build has; `cargo xtask test --only receiver` runs all of them. A case that is not listed is
//! dead code, which the lints refuse.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and reads what the test command hands over"
)]

mod backend;
mod build;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod child;
mod claims;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod crash;
mod examples;
mod hooked;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod inbox;
mod layer;
mod once;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod transaction;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use backend::{Kind, kinds};

/// One property.
struct Case {
    /// Its path: `claims::one_of_many_gets_an_event`.
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
    if let Some(code) = child::run_if_asked() {
        return code;
    }
    let arguments = Arguments::from_args();
    let modules = [claims::cases, once::cases, layer::cases];
    let without_store: [(&str, fn()); 2] = [
        ("build::a_small_build_stays_small", build::a_small_build_stays_small),
        (
            "layer::a_slow_handler_is_told_of_in_the_log",
            layer::a_slow_handler_is_told_of_in_the_log,
        ),
    ];
    let mut trials = Vec::new();
    for (name, run) in without_store {
        trials.push(Trial::test(name, move || {
            run();
            Ok(())
        }));
    }
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
