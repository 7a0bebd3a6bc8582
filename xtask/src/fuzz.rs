//! The fuzz targets of `fuzz/`, each for a bounded time, on the stable compiler.
//!
//! The coverage counters are an LLVM pass that the stable compiler runs when asked by name, and
//! libFuzzer itself comes with its crate; so neither a nightly compiler nor another tool is needed.
//! Inputs that reached new code are kept in `target/xtask/fuzz/corpus` for the next run. An input
//! that crashed is kept in `target/xtask/fuzz/artifacts`; once it is understood it belongs into
//! `fuzz/seeds/<target>`, which every run replays first.
//!
//! The target `planted` holds a fault on purpose. A run that does not find it has failed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::job::{Job, tail};
use crate::test::{Outcome, Run};
use crate::workspace;

/// The target whose fault has to be found.
const PLANTED: &str = "planted";
/// How long finding it may take; a second is typical.
const PLANTED_LIMIT: Duration = Duration::from_secs(120);
/// An input that takes longer than this is a fault.
const INPUT_LIMIT_S: u64 = 10;
/// More memory than this is a fault.
const MEMORY_MIB: u64 = 1024;
/// Longer inputs are not tried: the size limits before the parsers are tested elsewhere.
const INPUT_BYTES_MAX: u64 = 4096;
/// With fewer inputs than this a target has not run.
const INPUTS_MIN: u64 = 1000;

/// What makes the compiler count covered edges and compared values.
const FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Comparisons that are folded into one branch would hide progress.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Ccodegen-units=1",
];

/// Builds all targets and runs each of them.
///
/// # Errors
/// They do not build, or cannot be started.
pub fn part(run: &mut Run) -> Result<Outcome> {
    let programs = build(&run.log)?;
    let names = names()?;
    let scratch = workspace::scratch("fuzz")?;
    let (queue, outcome) = (Mutex::new(names.iter()), Mutex::new(Outcome::default()));
    let next = || queue.lock().ok()?.next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = next() {
                    let found = Target { name, programs: &programs, scratch: &scratch }
                        .run(run.fuzz)
                        .unwrap_or_else(|error| {
                            Outcome::default().with_trouble(format!("{name}: {error:#}"))
                        });
                    if let Ok(mut outcome) = outcome.lock() {
                        *outcome = std::mem::take(&mut *outcome).and(found);
                    }
                }
            });
        }
    });
    outcome.into_inner().context("a thread died while it ran a fuzz target")
}

/// Gives the targets the versions of the product, so that what is fuzzed is what is shipped; cargo
/// adds to the copy what only the targets need.
///
/// # Errors
/// The lock file cannot be copied.
pub fn take_versions() -> Result<()> {
    let root = workspace::root();
    std::fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"))
        .context("cannot copy Cargo.lock into fuzz")?;
    Ok(())
}

/// Builds the targets into a folder of their own. The folder with the programs.
fn build(log: &Path) -> Result<PathBuf> {
    take_versions()?;
    let folder = workspace::target().join("fuzz");
    let host = host()?;
    Job::cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"])
        // A named target keeps the flags away from build scripts and procedural macros.
        .args(["--target", &host, "--target-dir"])
        .args([&folder])
        .env("RUSTFLAGS", FLAGS.join(" "))
        .demand(log)?;
    Ok(folder.join(host).join("release"))
}

fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it builds for")?.to_owned())
}

/// The targets are the files of their folder, so that none can be forgotten here.
fn names() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(workspace::root().join("fuzz/fuzz_targets"))? {
        let path = entry?.path();
        let name = path.file_stem().context("a target without a name")?;
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

struct Target<'a> {
    name: &'a str,
    programs: &'a Path,
    scratch: &'a Path,
}

impl Target<'_> {
    fn run(&self, time: Duration) -> Result<Outcome> {
        let name = self.name;
        let planted = name == PLANTED;
        let corpus = self.scratch.join("corpus").join(name);
        let artifacts = self.scratch.join("artifacts").join(name);
        if planted {
            // It has to be found anew each time.
            for folder in [&corpus, &artifacts].into_iter().filter(|folder| folder.exists()) {
                std::fs::remove_dir_all(folder)?;
            }
        }
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&artifacts)?;
        let time = if planted { PLANTED_LIMIT } else { time };
        let seeds = workspace::root().join("fuzz/seeds").join(name);
        let log = self.scratch.join(format!("{name}.log"));
        std::fs::write(&log, "")?;
        let finished = Job::new(self.programs.join(name))
            .args([Some(&corpus), seeds.exists().then_some(&seeds)].into_iter().flatten())
            .args([format!("-artifact_prefix={}/", artifacts.display())])
            .args([format!("-max_total_time={}", time.as_secs())])
            .args([format!("-timeout={INPUT_LIMIT_S}"), format!("-rss_limit_mb={MEMORY_MIB}")])
            .args([format!("-max_len={INPUT_BYTES_MAX}")])
            .args(["-print_final_stats=1"])
            // The panic says enough; its stack is the fuzzer's.
            .env("RUST_BACKTRACE", "0")
            .limit(time + Duration::from_secs(60))
            .run(&log)?;
        if planted {
            return Ok(judge_planted(finished.success, std::fs::read_dir(&artifacts)?.count()));
        }
        let inputs = inputs(&finished.output);
        println!("   {name}: {inputs} inputs");
        Ok(judge(name, finished.success, inputs, &finished.output, &artifacts))
    }
}

fn judge(name: &str, success: bool, inputs: u64, output: &str, artifacts: &Path) -> Outcome {
    if success && inputs >= INPUTS_MIN {
        return Outcome::passed(1);
    }
    let why = if success { "it ran too few inputs" } else { "an input broke it" };
    let end = tail(output, 30);
    let kept = artifacts.display();
    Outcome::default().with_trouble(format!("{name}: {why}; inputs are kept in {kept}\n{end}"))
}

fn judge_planted(success: bool, kept: usize) -> Outcome {
    if !success && kept > 0 {
        return Outcome::passed(1);
    }
    Outcome::default().with_trouble(
        "the planted fault was not found, so the other targets prove nothing".to_owned(),
    )
}

/// How many inputs libFuzzer says it ran.
fn inputs(output: &str) -> u64 {
    let count = output
        .lines()
        .find_map(|line| line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok());
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_seeded_folders_have_a_target() {
        let names = names().unwrap();
        let manifest = std::fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        for name in &names {
            assert!(manifest.contains(&format!("name = \"{name}\"\npath")), "{name}");
        }
        for entry in std::fs::read_dir(workspace::root().join("fuzz/seeds")).unwrap() {
            let seeded = entry.unwrap().file_name().into_string().unwrap();
            assert!(names.contains(&seeded), "{seeded}");
        }
    }

    #[test]
    fn what_libfuzzer_says_is_judged() {
        let output = "Done 5000 runs\nstat::number_of_executed_units: 5000\nstat::x: 1\n";
        assert_eq!(inputs(output), 5000);
        let artifacts = Path::new("kept");
        assert_eq!(judge("a", true, 5000, output, artifacts).failed, 0);
        assert_eq!(judge("a", true, 5, output, artifacts).failed, 1);
        assert_eq!(judge("a", false, 5000, output, artifacts).failed, 1);
        assert_eq!(judge_planted(false, 1).failed, 0);
        assert_eq!(judge_planted(true, 0).failed, 1);
        assert_eq!(judge_planted(false, 0).failed, 1);
    }
}
