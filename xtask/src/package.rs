//! `cargo xtask package`: the product as one static program, with its manual and completions.
//!
//! It is built for the machine that it is built on, against a C library that is linked in, so that
//! it runs on any Linux of this architecture, in an image with nothing else too. Names are resolved
//! by our own code and authorities come with the program, so nothing is looked for at run time.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::args::Args;
use crate::job::Job;
use crate::workspace;

/// As `[profile.dist]` in the workspace's manifest.
const PROFILE: &str = "dist";
/// The C library is linked in. Random bytes come from the system call, which is looked for by name
/// otherwise, and cannot be found so in a static program.
const RUSTFLAGS: &str = "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";
const SHELLS: [(&str, &str); 3] =
    [("bash", "everhook.bash"), ("zsh", "_everhook"), ("fish", "everhook.fish")];
/// What of the checkout comes along.
const FILES: [&str; 4] =
    ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "packaging/everhook.service"];
/// Where segments of an ELF file (System V ABI, chapter 5) are told of, and the one that names the
/// loader of shared libraries.
const PROGRAM_HEADERS_AT: usize = 32;
const HEADER_SIZE_AT: usize = 54;
const LOADER: u32 = 3;

/// Runs the command.
///
/// # Errors
/// It cannot be built, or is not what it should be.
pub fn command(words: impl Iterator<Item = String>) -> Result<bool> {
    Args::parse(words)?.finish()?;
    let log = workspace::scratch("package")?.join("build.log");
    println!("building; the output goes to {}", log.display());
    let package = build(&log)?;
    println!("{}\n{}", package.folder.display(), package.archive.display());
    Ok(true)
}

/// What was built.
#[derive(Debug)]
pub struct Package {
    /// The folder that holds it.
    pub folder: PathBuf,
    /// The same as one file.
    pub archive: PathBuf,
}

impl Package {
    /// The program.
    pub fn program(&self) -> PathBuf {
        self.folder.join("everhook")
    }
}

/// Builds the package.
///
/// # Errors
/// It cannot be built, or wants a loader.
pub fn build(log: &Path) -> Result<Package> {
    let host = host(log)?;
    Job::cargo(&["build", "--locked", "-p", "everhook", "--profile", PROFILE, "--target", &host])
        .env("RUSTFLAGS", RUSTFLAGS)
        .demand(log)?;
    let built = workspace::target().join(&host).join(PROFILE).join("everhook");
    ensure_static(&std::fs::read(&built)?)?;

    let packages = workspace::target().join("package");
    let folder = packages.join("everhook");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(folder.join("completions"))?;
    let program = folder.join("everhook");
    std::fs::copy(&built, &program)?;
    for file in FILES {
        let name = Path::new(file).file_name().context("a path without a name")?;
        std::fs::copy(workspace::root().join(file), folder.join(name))?;
    }
    Job::new(&program).args(["man", "--to"]).args([folder.join("man")]).demand(log)?;
    for (shell, name) in SHELLS {
        let script = Job::new(&program).args(["completions", shell]).demand(log)?;
        std::fs::write(folder.join("completions").join(name), script)?;
    }
    let version = Job::new(&program).args(["--version"]).demand(log)?;
    let version = version.split_whitespace().nth(1).context("a program without a version")?;
    let archive = packages.join(format!("everhook-{version}-{host}.tar.gz"));
    // The same bytes from the same files, whoever packs them and when.
    Job::new("tar")
        .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"])
        .args(["--mode=go-w", "--use-compress-program=gzip -n", "-cf"])
        .args([&archive])
        .args(["everhook"])
        .dir(&packages)
        .demand(log)?;
    Ok(Package { folder, archive })
}

/// What the toolchain builds for by itself.
fn host(log: &Path) -> Result<String> {
    let said = Job::new("rustc").args(["-vV"]).demand(log)?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what it builds for")?.to_owned())
}

/// Demands that a program for Linux wants nothing to be loaded with it.
fn ensure_static(program: &[u8]) -> Result<()> {
    // "\x7fELF", 64 bits, little-endian.
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "what was built is no program for Linux");
    let number = |at: usize, bytes: usize| -> Result<usize> {
        let field = program.get(at..at + bytes).context("the program ends too early")?;
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    };
    let at = number(PROGRAM_HEADERS_AT, 8)?;
    let (size, count) = (number(HEADER_SIZE_AT, 2)?, number(HEADER_SIZE_AT + 2, 2)?);
    for header in 0..count {
        let kind = number(at + header * size, 4)?;
        ensure!(kind != LOADER as usize, "the program is not static: it names a loader");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_names_a_loader_is_not_static() {
        let own = std::fs::read(std::env::current_exe().expect("running")).expect("readable");
        let error = ensure_static(&own).expect_err("built for the tests, with shared libraries");
        assert!(error.to_string().contains("names a loader"), "{error}");
        assert!(ensure_static(b"#!/bin/sh").is_err());
        assert!(ensure_static(&own[..64]).is_err());
    }
}
