//! Starts the binary, with nothing of this test run's own environment in it.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// An admin token for servers on loopback.
pub(crate) const TOKEN: &str = "an-admin-token-for-tests-on-loopback";

/// The binary, not yet started.
pub(crate) fn everhook(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_everhook"));
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"EVERHOOK_") {
            command.env_remove(name);
        }
    }
    command.env_remove("COLUMNS").args(args).stdin(Stdio::null());
    command
}

/// How a command ended: its code, what it printed, and what it complained of.
pub(crate) fn ended(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("not killed"), text(stdout), text(stderr))
}

/// A directory that goes with this value.
pub(crate) struct TempDir(pub(crate) PathBuf);

impl TempDir {
    /// A path that nothing is at yet.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("everhook-cli-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _may_be_missing = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// A file in it with these permissions; its path.
    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> String {
        std::fs::create_dir_all(&self.0).expect("a folder");
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("ours");
        path.to_str().expect("text").to_owned()
    }

    /// The path as an argument.
    pub(crate) fn arg(&self) -> &str {
        self.0.to_str().expect("text")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _may_be_missing = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
    /// `127.0.0.1:…`
    pub(crate) address: String,
    /// Where its proxy is, if it has one.
    pub(crate) proxy: Option<String>,
    /// Printed at the first start only.
    pub(crate) made_token: Option<String>,
}

impl Server {
    /// Starts a server on a free port and waits until it says that it listens.
    pub(crate) fn start(data_dir: &Path, variables: &[(&str, &str)]) -> Self {
        let data_dir = data_dir.to_str().expect("text");
        let args = ["serve", "--data-dir", data_dir, "--listen", "127.0.0.1:0", "--json"];
        let mut command = everhook(&args);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut server =
            Self { child, stdout, address: String::new(), proxy: None, made_token: None };
        while server.address.is_empty() {
            server.read_what_is_said_at_start();
        }
        server
    }

    fn read_what_is_said_at_start(&mut self) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("text");
        if line.is_empty() {
            let log: Vec<_> = self.log().collect();
            panic!("the server did not start: {log:?}");
        }
        let said: Value = serde_json::from_str(&line).expect("JSON lines");
        if let Some(token) = said["admin_token"].as_str() {
            self.made_token = Some(token.to_owned());
        }
        let plain = |url: &str| url.strip_prefix("http://").expect("plain HTTP").to_owned();
        if let Some(url) = said["url"].as_str() {
            self.address = plain(url);
            self.proxy = said["proxy"]["url"].as_str().map(plain);
        }
    }

    /// A command that talks to this server as admin, not yet started.
    pub(crate) fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = everhook(&[name]);
        let url = format!("http://{}", self.address);
        command.args(args).env("EVERHOOK_SERVER", url).env("EVERHOOK_TOKEN", TOKEN);
        command
    }

    /// Sends a signal, `TERM` or `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }

    /// Waits for the end; returns the code, and what else was printed and logged.
    pub(crate) fn wait(mut self) -> (i32, String, String) {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("text");
        if let Some(mut log) = self.child.stderr.take() {
            log.read_to_string(&mut stderr).expect("text");
        }
        let status = self.child.wait().expect("ours");
        (status.code().unwrap_or(-1), stdout, stderr)
    }

    /// The log, line by line; afterwards [`Server::wait`] has none.
    pub(crate) fn log(&mut self) -> impl Iterator<Item = String> + use<> {
        let log = self.child.stderr.take().expect("not taken before");
        BufReader::new(log).lines().map(|line| line.expect("text"))
    }

    /// Calls the API; returns status and body.
    pub(crate) fn call(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             connection: close\r\ncontent-type: application/json\r\ncontent-length: \
             {length}\r\n\r\n{body}"
        )
        .expect("writable");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        (status.expect("a status"), serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
