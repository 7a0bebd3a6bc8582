//! A PostgreSQL of our own: private, empty, on a free port, gone after the run.
//!
//! Tests find it in the variable [`URL_VARIABLE`]. It refuses to run as root, so root starts it as
//! the user `postgres` (or `nobody`, where there is none). It does not sync: what is tested with it
//! is our SQL and our concurrency, not its disk.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::install;
use crate::job::{Job, Service};

/// The variable in which tests find the URL.
pub const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";

/// How long it may take to accept connections.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    server: Service,
    port: u16,
    folder: PathBuf,
}

impl Postgres {
    /// Installs what is missing, makes an empty cluster and starts it.
    ///
    /// # Errors
    /// It could not be installed, made or started.
    pub fn start(log: &Path) -> Result<Self> {
        let programs = programs(log)?;
        let user = unprivileged()?;
        // Not below the target folder: another user could not get at it through a private home.
        let folder = std::env::temp_dir().join(format!("everhook-postgres-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        if let Some((user, group)) = user {
            std::os::unix::fs::chown(&folder, Some(user), Some(group))?;
        }
        let made = Self::start_in(&programs, user, &folder, log);
        if made.is_err() {
            std::fs::remove_dir_all(&folder)?;
        }
        made
    }

    fn start_in(
        programs: &Path,
        user: Option<(u32, u32)>,
        folder: &Path,
        log: &Path,
    ) -> Result<Self> {
        let data = folder.join("data");
        Job::new(programs.join("initdb"))
            .args(["--username=everhook", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--no-sync", "-D"])
            .args([&data])
            .dir(folder)
            .user(user)
            .demand(log)?;
        let port = free_port()?;
        let mut server = Job::new(programs.join("postgres"))
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")])
            .args(["-c", "unix_socket_directories=", "-c", "max_connections=200"])
            .args(["-c", "fsync=off", "-c", "synchronous_commit=off"])
            .args(["-c", "full_page_writes=off"])
            .args(["-D"])
            .args([&data])
            .dir(folder)
            .user(user)
            .start(log)?;
        let ready = programs.join("pg_isready");
        server.wait_until(START_LIMIT, |_| {
            let port = port.to_string();
            let asked = Command::new(&ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
            asked.is_ok_and(|status| status.success()).then_some(())
        })?;
        Ok(Self { server, port, folder: folder.to_owned() })
    }

    /// Where it is: `postgres://user@host:port/database`, an empty database.
    pub fn url(&self) -> String {
        format!("postgres://everhook@127.0.0.1:{}/postgres", self.port)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let stopped = self.server.stop();
        let removed = std::fs::remove_dir_all(&self.folder);
        if let Err(error) = stopped.and(removed.map_err(Into::into)) {
            eprintln!("xtask: PostgreSQL was not cleared away: {error}");
        }
    }
}

/// The folder of PostgreSQL's own programs, which Debian keeps off the path.
fn programs(log: &Path) -> Result<PathBuf> {
    if let Some(folder) = installed() {
        return Ok(folder);
    }
    install::packages_of_debian(&["postgresql"], log)?;
    installed().context("PostgreSQL is still missing after installing the package postgresql")
}

fn installed() -> Option<PathBuf> {
    let complete = |folder: &PathBuf| {
        ["initdb", "postgres", "pg_isready"].iter().all(|name| folder.join(name).is_file())
    };
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok();
    let mut folders: Vec<PathBuf> =
        versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.extend(install::find("initdb").and_then(|file| file.parent().map(Path::to_owned)));
    folders.into_iter().rev().find(complete)
}

/// The user and group to run it as: none if we are not root.
fn unprivileged() -> Result<Option<(u32, u32)>> {
    if number(&["-u"])? != 0 {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let (Ok(user), Ok(group)) = (number(&["-u", name]), number(&["-g", name])) {
            return Ok(Some((user, group)));
        }
    }
    bail!("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")
}

fn number(args: &[&str]) -> Result<u32> {
    let output = Command::new("id").args(args).output().context("cannot run `id`")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("`id {}` gave no number", args.join(" ")))
}

/// A TCP port of this machine that nobody listens on now.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
