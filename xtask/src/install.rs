//! Programs of the operating system that a part needs: found, or installed, or a failure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::job::Job;

/// How long the package manager may take.
const APT_LIMIT: Duration = Duration::from_secs(10 * 60);

/// The first program of this name on the path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The program of this name; if it is missing, these packages are installed first.
///
/// # Errors
/// It is not there, and could not be installed.
pub fn need(program: &str, packages: &[&str], log: &Path) -> Result<PathBuf> {
    if let Some(found) = find(program) {
        return Ok(found);
    }
    packages_of_debian(packages, log)
        .with_context(|| format!("`{program}` is missing and could not be installed"))?;
    find(program).with_context(|| {
        format!("`{program}` is still missing after installing {}", packages.join(" "))
    })
}

/// Installs packages with apt, without asking and without starting their services.
///
/// # Errors
/// There is no apt, it needs another user, or it failed.
pub fn packages_of_debian(packages: &[&str], log: &Path) -> Result<()> {
    let wanted = packages.join(" ");
    if find("apt-get").is_none() {
        bail!("there is no apt-get here; install {wanted} by hand");
    }
    let apt = |args: &[&str]| {
        Job::new("apt-get")
            .args(args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Packages of services would start them; in this runlevel they do not.
            .env("RUNLEVEL", "1")
            .limit(APT_LIMIT)
            .demand(log)
    };
    apt(&["update", "-q"])?;
    let mut install = vec!["install", "-q", "-y", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)?;
    Ok(())
}

/// A folder below `target/xtask/<name>` with copies of these files and the packages that they name,
/// so that the tree stays clean.
///
/// # Errors
/// Node is missing and could not be installed, or a package could not be had.
pub fn node_packages(name: &str, source: &Path, files: &[&str], log: &Path) -> Result<PathBuf> {
    need("node", &["nodejs"], log)?;
    let npm = need("npm", &["npm"], log)?;
    let folder = crate::workspace::empty_scratch(name)?;
    for file in files {
        std::fs::copy(source.join(file), folder.join(file))?;
    }
    Job::new(npm).args(["ci", "--no-audit", "--no-fund"]).dir(&folder).demand(log)?;
    Ok(folder)
}

/// A Python environment below `target/xtask/<name>` that holds exactly these requirements, which
/// name a version each. One that already holds them is taken as it is.
///
/// # Errors
/// Python is missing and could not be installed, or a requirement could not be had.
pub fn python(name: &str, requirements: &Path, log: &Path) -> Result<PathBuf> {
    let wanted = std::fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = crate::workspace::target().join("xtask").join(name);
    let done = folder.join("requirements.done");
    if std::fs::read_to_string(&done).is_ok_and(|held| held == wanted) {
        return Ok(folder);
    }
    let folder = crate::workspace::empty_scratch(name)?;
    let made = venv(&folder, log);
    if made.is_err() {
        // Debian keeps the module in a package of its own.
        packages_of_debian(&["python3", "python3-venv"], log)?;
        venv(&folder, log)?;
    }
    Job::new(folder.join("bin/python"))
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .args([requirements])
        .demand(log)?;
    std::fs::write(&done, wanted)?;
    Ok(folder)
}

fn venv(folder: &Path, log: &Path) -> Result<()> {
    Job::new("python3").args(["-m", "venv", "--clear"]).args([folder]).demand(log)?;
    Ok(())
}
