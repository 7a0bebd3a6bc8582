//! A Redis of our own: private, empty, on a free port, gone after the run.
//!
//! Tests find it in the variable [`URL_VARIABLE`]. It has a database for each test, and writes
//! nothing to the disk: what is tested with it is our scripts and our concurrency.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::install;
use crate::job::{Job, Service};
use crate::postgres::free_port;

/// The variable in which tests find the URL, to which they add the number of a database.
pub const URL_VARIABLE: &str = "EVERHOOK_TEST_REDIS";

/// How long it may take to answer.
const START_LIMIT: Duration = Duration::from_secs(60);
/// More databases than there are tests.
const DATABASES: &str = "10000";

/// A running server. Dropping it stops it and removes its folder.
#[derive(Debug)]
pub struct Redis {
    server: Service,
    port: u16,
    folder: PathBuf,
}

impl Redis {
    /// Installs what is missing and starts it.
    ///
    /// # Errors
    /// It could not be installed or started.
    pub fn start(log: &Path) -> Result<Self> {
        let program = install::need("redis-server", &["redis-server"], log)?;
        let folder = std::env::temp_dir().join(format!("everhook-redis-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let started = Self::start_in(&program, &folder, log);
        if started.is_err() {
            std::fs::remove_dir_all(&folder)?;
        }
        started
    }

    fn start_in(program: &Path, folder: &Path, log: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut server = Job::new(program)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no", "--databases", DATABASES])
            .args(["--dir"])
            .args([folder])
            .dir(folder)
            .start(log)?;
        server.wait_until(START_LIMIT, |_| answers(port).then_some(()))?;
        Ok(Self { server, port, folder: folder.to_owned() })
    }

    /// Where it is: `redis://host:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut said = [0; 5];
    let limited = stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok();
    limited
        && stream.write_all(b"PING\r\n").is_ok()
        && stream.read_exact(&mut said).is_ok()
        && &said == b"+PONG"
}

impl Drop for Redis {
    fn drop(&mut self) {
        let stopped = self.server.stop();
        let removed = std::fs::remove_dir_all(&self.folder);
        if let Err(error) = stopped.and(removed.map_err(Into::into)) {
            eprintln!("xtask: Redis was not cleared away: {error}");
        }
    }
}
