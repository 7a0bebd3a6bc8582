//! A real `everhook serve`, started for a test or a measurement, and calls of its API.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http::{self, Connection};
use crate::job::{Job, Service};
use crate::postgres::free_port;

/// The admin token of servers that we start. It guards nothing but a server on loopback.
const TOKEN: &str = "xtask-admin-token-for-loopback-only-0123456789";
/// How long a server may take until it is ready: with ten million keys to read, some while.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    service: Service,
    address: SocketAddr,
}

impl Server {
    /// Starts this program with its data in this folder, and waits until it is ready.
    ///
    /// # Errors
    /// It ended, or was not ready in time; its last words are in the message.
    pub fn start(program: &Path, data: &Path, log: &Path) -> Result<Self> {
        Self::start_with(program, data, &[], log)
    }

    /// The same with settings as variables.
    ///
    /// # Errors
    /// As above.
    pub fn start_with(
        program: &Path,
        data: &Path,
        settings: &[(&str, &str)],
        log: &Path,
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let job =
            settings.iter().fold(Job::new(program), |job, (name, value)| job.env(name, value));
        let mut service = job
            .args(["serve", "--listen", &address.to_string(), "--data-dir"])
            .args([data])
            .env("EVERHOOK_ADMIN_TOKEN", TOKEN)
            .env("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8")
            .start(log)?;
        service
            .wait_until(START_LIMIT, |_| (probe(address, "/readyz").ok()? == 200).then_some(()))?;
        Ok(Self { service, address })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.service.pid()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to its API, as admin.
    ///
    /// # Errors
    /// It does not accept connections.
    pub async fn api(&self) -> Result<Api> {
        Ok(Api { connection: Connection::open(self.address).await? })
    }

    /// Stops it as an operator would.
    ///
    /// # Errors
    /// It could not be waited for.
    pub fn stop(&mut self) -> Result<()> {
        self.service.stop()
    }

    /// Ends it as a crash would, at once.
    ///
    /// # Errors
    /// It could not be waited for.
    pub fn kill(&mut self) -> Result<()> {
        self.service.kill()
    }

    /// The token with which its API is called.
    pub fn token() -> &'static str {
        TOKEN
    }
}

/// The product as it is shipped: a release build without any feature.
pub fn release_program() -> PathBuf {
    crate::workspace::target().join("release/everhook")
}

/// The status with which a server answers a GET.
fn probe(address: SocketAddr, path: &str) -> Result<u16> {
    let mut stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(1024).read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).context("no status line")?;
    Ok(status.parse()?)
}

/// Calls of `/api/v1`.
#[derive(Debug)]
pub struct Api {
    connection: Connection,
}

impl Api {
    /// Calls a path below `/api/v1` and demands this status.
    ///
    /// # Errors
    /// The connection failed, or the answer is another; it is in the message.
    pub async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        status: u16,
    ) -> Result<Value> {
        let bytes = body.map(Value::to_string);
        self.call_bytes(method, path, bytes.as_deref().map(str::as_bytes), status).await
    }

    /// The same with a body whose bytes matter.
    ///
    /// # Errors
    /// As above.
    pub async fn call_bytes(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        status: u16,
    ) -> Result<Value> {
        let request = http::request(method, &format!("/api/v1{path}"), TOKEN, body);
        let response = self.connection.exchange(&request).await?;
        if response.status != status {
            let said = String::from_utf8_lossy(response.body);
            bail!("{method} {path}: {} instead of {status}: {said}", response.status);
        }
        if response.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(response.body)
            .with_context(|| format!("{method} {path}: the answer is not JSON"))
    }

    /// Follows a list to its end, and hands each of its items to `each`.
    ///
    /// # Errors
    /// A call failed, or the list has another form.
    pub async fn walk(&mut self, list: &str, mut each: impl FnMut(&Value)) -> Result<()> {
        let mut cursor = String::new();
        loop {
            let page = self.call("GET", &format!("{list}{cursor}"), None, 200).await?;
            page["data"].as_array().context("a list without `data`")?.iter().for_each(&mut each);
            match &page["next_cursor"] {
                Value::Null => return Ok(()),
                Value::String(next) => cursor = format!("&cursor={next}"),
                other => bail!("`next_cursor` is {other}"),
            }
        }
    }
}
