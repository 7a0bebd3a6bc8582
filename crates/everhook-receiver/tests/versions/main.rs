//! The version gate, on every store: what is written is never older than what was there.
//!
//! Every case runs on each store that this build has; `cargo xtask test --only receiver` runs all
//! of them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cases;
mod memory;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_receiver::version::{ObjectKey, State, Verdict};
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

/// What a user has: objects of its own, and the gate before them.
#[async_trait]
trait Objects: Send + Sync {
    /// Writes what the state stands for, if the gate finds it fresh. `settles` is the state that
    /// was held when there was a conflict.
    async fn apply(&self, object: &ObjectKey, state: &State, settles: Option<&State>) -> Verdict;

    /// As `apply`, with a write that fails; not for a store where that cannot be.
    async fn fail(&self, object: &ObjectKey, state: &State);

    /// What was written last.
    async fn written(&self, object: &ObjectKey) -> Option<State>;

    /// Waits until the deletion of an object has been forgotten.
    async fn forgotten(&self, object: &ObjectKey);
}

/// A store that the cases run on.
struct Kind {
    name: &'static str,
    /// Whether a write can fail after the verdict.
    can_fail: bool,
    /// Two users of one new database, which hold deletions for this long.
    create: fn(u32, Duration, &Runtime) -> [Arc<dyn Objects>; 2],
}

fn kinds() -> Vec<Kind> {
    vec![
        memory::KIND,
        #[cfg(feature = "sqlite")]
        sqlite::KIND,
        #[cfg(feature = "postgres")]
        postgres::KIND,
        #[cfg(feature = "redis")]
        redis::KIND,
    ]
}

fn main() -> ExitCode {
    let mut trials = Vec::new();
    let mut number = 0;
    for kind in kinds() {
        for case in cases::all().into_iter().filter(|case| kind.can_fail || !case.fails) {
            number += 1;
            let (create, number) = (kind.create, number);
            trials.push(Trial::test(format!("{}::{}", kind.name, case.name), move || {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()?;
                let nodes = create(number, case.tombstones, &runtime);
                runtime.block_on((case.run)(nodes));
                Ok(())
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
