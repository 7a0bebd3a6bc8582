//! What every bench needs: a server on fresh data, a receiver, and the generator, each a process.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::machine;
use crate::http::{self, Connection};
use crate::job::{Job, Service};
use crate::server::{Server, release_program};
use crate::workspace;

/// The folder of the server's data.
const DATA: &str = "bench-data";

/// One load: what the generator got accepted, and its own words.
#[derive(Debug)]
pub struct Load {
    /// The id of each accepted event, when it was planned, and when it was answered.
    pub accepted: Vec<(String, u64, u64)>,
    /// The generator's summary.
    pub summary: Value,
}

/// A server and a receiver, which are ended when this is dropped.
#[derive(Debug)]
pub struct Rig<'a> {
    /// Drives the calls that this process makes.
    pub runtime: tokio::runtime::Runtime,
    /// What is measured.
    pub server: Server,
    /// What it delivers to.
    pub receiver: Service,
    receiver_address: SocketAddr,
    folder: &'a Path,
    log: &'a Path,
    payload: usize,
    next: u64,
}

/// Builds the product and this program for release.
///
/// # Errors
/// One of them does not build.
pub fn build(log: &Path) -> Result<()> {
    println!("building the release");
    // One after the other: together, the product would get the features that this tool asks for.
    for package in ["everhook", "xtask"] {
        Job::cargo(&["build", "--release", "--locked", "-p", package]).demand(log)?;
    }
    Ok(())
}

/// An empty folder for the server's data: below the target folder, because a temporary one may be
/// memory, which has no syncs.
///
/// # Errors
/// It cannot be emptied.
pub fn data() -> Result<PathBuf> {
    workspace::empty_scratch(DATA)
}

impl<'a> Rig<'a> {
    /// Starts both. The server has no endpoint yet; `payload` is the size of each event's `data`.
    ///
    /// # Errors
    /// One of them does not start.
    pub fn start(payload: usize, folder: &'a Path, log: &'a Path) -> Result<Self> {
        Self::start_on(&data()?, payload, folder, log)
    }

    /// The same on data that is there already.
    ///
    /// # Errors
    /// As above.
    pub fn start_on(data: &Path, payload: usize, folder: &'a Path, log: &'a Path) -> Result<Self> {
        Self::start_with(data, &[], payload, folder, log)
    }

    /// The same with settings of the server as variables.
    ///
    /// # Errors
    /// As above.
    pub fn start_with(
        data: &Path,
        settings: &[(&str, &str)],
        payload: usize,
        folder: &'a Path,
        log: &'a Path,
    ) -> Result<Self> {
        let runtime = http::runtime()?;
        let mut receiver = Job::new(own_release())
            .args(["bench", "receiver", "--payload", &payload.to_string()])
            .start(log)?;
        let port = receiver.wait_until(Duration::from_secs(10), |receiver| {
            let output = receiver.output().ok()?;
            output.lines().find_map(|line| line.strip_prefix("port ")?.parse::<u16>().ok())
        })?;
        let receiver_address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server = Server::start_with(&release_program(), data, settings, log)?;
        Ok(Self { runtime, server, receiver, receiver_address, folder, log, payload, next: 0 })
    }

    /// Stops the server as an operator would, and removes its data.
    ///
    /// # Errors
    /// It could not be waited for, or the data not be removed.
    pub fn stop(mut self) -> Result<()> {
        self.server.stop()?;
        Ok(std::fs::remove_dir_all(workspace::empty_scratch(DATA)?)?)
    }

    /// The URL of a path at the receiver.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.receiver_address)
    }

    /// Calls the server's API.
    ///
    /// # Errors
    /// It answers with another status.
    pub fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        status: u16,
    ) -> Result<Value> {
        self.runtime
            .block_on(async { self.server.api().await?.call(method, path, body, status).await })
    }

    /// A number of the server's memory, in KiB, such as `VmRSS`.
    ///
    /// # Errors
    /// There is no such number.
    pub fn memory(&self, name: &str) -> Result<u64> {
        machine::field(self.server.pid(), "status", name)
    }

    /// Asks the receiver something.
    ///
    /// # Errors
    /// It answers anything but 200.
    pub async fn ask_receiver(&self, path: &str, body: Option<&[u8]>) -> Result<String> {
        let mut connection = Connection::open(self.receiver_address).await?;
        let request = http::request("POST", path, "", body);
        let response = connection.exchange(&request).await?;
        let text = String::from_utf8_lossy(response.body).into_owned();
        anyhow::ensure!(response.status == 200, "the receiver: {text}");
        Ok(text)
    }

    /// Has the receiver write its arrivals, `ask` saying how; gives its words and the arrivals.
    ///
    /// # Errors
    /// It cannot be asked, or the file not be read.
    pub fn arrivals(&self, ask: &str) -> Result<(String, Vec<(String, u64)>)> {
        let file = self.folder.join("arrived");
        let path = format!("{ask}{}", file.display());
        let said = self.runtime.block_on(self.ask_receiver(&path, None))?;
        let text = std::fs::read_to_string(&file)?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let arrivals = lines.map(|(id, at)| Ok((id.to_owned(), at.parse()?)));
        Ok((said, arrivals.collect::<Result<_>>()?))
    }

    /// Runs the generator until it has ended.
    ///
    /// # Errors
    /// It failed, or its output has another form.
    pub fn generate(&mut self, args: &[&str]) -> Result<Load> {
        self.generate_with(Server::token(), args)
    }

    /// The same with another secret than the token of the API.
    ///
    /// # Errors
    /// As above.
    pub fn generate_with(&mut self, secret: &str, args: &[&str]) -> Result<Load> {
        let out = self.folder.join("accepted");
        let job = Job::new(own_release())
            .args(["bench", "generator", "--server", &self.server.address().to_string()])
            .args(["--payload", &self.payload.to_string()])
            .args(["--first", &self.next.to_string(), "--out"])
            .args([&out])
            .args(args)
            .env("XTASK_TOKEN", secret);
        let output = job.demand(self.log)?;
        let summary = output.lines().rev().find(|line| line.starts_with('{'));
        let summary: Value =
            serde_json::from_str(summary.context("the generator printed no summary")?)?;
        self.next = summary["next"].as_u64().context("a summary without `next`")?;
        let accepted: Vec<(String, u64, u64)> = std::fs::read_to_string(&out)?
            .lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                let id = words.next()?.to_owned();
                Some((id, words.next()?.parse().ok()?, words.next()?.parse().ok()?))
            })
            .collect();
        Ok(Load { accepted, summary })
    }
}

/// This program, built for release.
fn own_release() -> PathBuf {
    workspace::target().join("release/xtask")
}

/// The commit that is checked out, with a plus if files differ from it.
pub fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["describe", "--always", "--dirty=+"])
        .current_dir(workspace::root())
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
