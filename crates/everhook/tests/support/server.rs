//! A real `everhook serve`: its start, its address and its death.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::api::TOKEN;
use super::http::Connection;
use super::{now, pause};

/// An attempt takes at most this long; also how an answer that never comes ends.
const TIMEOUT: &str = "1s";
/// How long a delivery belongs to an attempt, and so how long recovery may take.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// The offsets of the seven attempts, in milliseconds.
pub(crate) const SCHEDULE_MS: [u64; 7] = [0, 60, 120, 200, 300, 420, 560];
/// A process that is not ready by then will not be.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait for a line of the process before looking at it again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Variables of the environment.
pub(crate) type Env = Vec<(&'static str, OsString)>;

/// What a process is started with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Its data.
    pub(crate) data_dir: PathBuf,
    /// Where its log goes.
    pub(crate) log: PathBuf,
    /// What else is in its environment.
    pub(crate) env: Env,
}

/// A process that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// When that was seen.
    pub(crate) at: Instant,
    /// How it ended.
    pub(crate) status: ExitStatus,
}

/// A process that is ready. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// When it first said that it is ready.
    pub(crate) ready: Instant,
}

impl Server {
    /// Starts a process and waits until it is ready, or has ended before.
    pub(crate) fn start(setup: &Setup) -> Result<Self, Ended> {
        let mut process = Process::spawn(setup);
        let deadline = now() + START_LIMIT;
        let address = loop {
            match process.line(START_LIMIT) {
                Next::Line(line) => {
                    if let Some(address) = address_in(&line) {
                        break address;
                    }
                }
                Next::Nothing => panic!("it does not say where it listens; see {:?}", setup.log),
                Next::End => return Err(process.ended()),
            }
        };
        while !is_ready(address) {
            assert!(now() < deadline, "it does not become ready; see {:?}", setup.log);
            if let Next::End = process.line(LOOK_EVERY) {
                return Err(process.ended());
            }
        }
        Ok(Self { process, address, ready: now() })
    }

    /// Starts a process and kills it so long after, whatever it is doing.
    pub(crate) fn start_and_kill(setup: &Setup, moment: Duration) -> Ended {
        let mut process = Process::spawn(setup);
        pause(moment);
        process.child.kill().expect("our child");
        process.ended()
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(mut self) -> Ended {
        self.process.child.kill().expect("our child");
        self.process.ended()
    }

    /// Waits until it ends by itself; gives it back if it does not.
    pub(crate) fn end(mut self, limit: Duration) -> Result<Ended, Self> {
        let deadline = now() + limit;
        loop {
            let left = deadline.saturating_duration_since(now());
            match self.process.line(left) {
                Next::Line(_) => {}
                Next::Nothing => return Err(self),
                Next::End => return Ok(self.process.ended()),
            }
        }
    }

    /// Lets a moment pass; whether the process is still alive after it.
    pub(crate) fn lives_on(&mut self, moment: Duration) -> bool {
        !matches!(self.process.line(moment), Next::End)
    }
}

enum Next {
    Line(String),
    Nothing,
    End,
}

#[derive(Debug)]
struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Process {
    fn spawn(setup: &Setup) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(&setup.log);
        let schedule: Vec<_> = SCHEDULE_MS.iter().map(|offset| format!("{offset}ms")).collect();
        let mut child = Command::new(env!("CARGO_BIN_EXE_everhook"))
            .args(["serve", "--json", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&setup.data_dir)
            .env_clear()
            .env("EVERHOOK_ADMIN_TOKEN", TOKEN)
            .env("EVERHOOK_DELIVERY_TIMEOUT", TIMEOUT)
            .env("EVERHOOK_DELIVERY_LEASE", format!("{}ms", LEASE.as_millis()))
            .env("EVERHOOK_RETRY_SCHEDULE", schedule.join(","))
            .env("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8")
            .envs(setup.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log.expect("the log can be written"))
            .spawn()
            .expect("the binary is built");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // Ends when the process does: the system closes the pipe then, however it died.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn line(&self, limit: Duration) -> Next {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Next::Line(line),
            Err(RecvTimeoutError::Timeout) => Next::Nothing,
            Err(RecvTimeoutError::Disconnected) => Next::End,
        }
    }

    fn ended(&mut self) -> Ended {
        let status = self.child.wait().expect("our child");
        Ended { at: now(), status }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only for a process that has been waited for.
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let said: Value = serde_json::from_str(line).ok()?;
    said["url"].as_str()?.strip_prefix("http://")?.parse().ok()
}

fn is_ready(address: SocketAddr) -> bool {
    Connection::open(address)
        .and_then(|mut connection| connection.call("GET /readyz", &[], b""))
        .is_ok_and(|(status, _)| status == 200)
}

/// The last lines of a log, for the message of a failing test.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
