//! The checks that need no running program.
//!
//! [`tidy`] and [`edges`] are functions from data to a list of violations, each with its place and
//! what to do; the same functions run in `cargo xtask check` and as ordinary tests of this crate.

pub mod deny;
pub mod edges;
pub mod tidy;

use anyhow::Result;

use crate::test::Outcome;

/// Turns violations into the outcome of one test.
pub fn outcome(violations: &[String]) -> Outcome {
    if violations.is_empty() {
        return Outcome::passed(1);
    }
    Outcome::default().with_trouble(violations.join("\n"))
}

/// Checks every file that git knows.
///
/// # Errors
/// git or a file cannot be read.
pub fn tree() -> Result<Vec<String>> {
    let root = crate::workspace::root();
    let mut violations = tidy::manifests(root)?;
    violations.extend(tidy::files(root)?);
    Ok(violations)
}
