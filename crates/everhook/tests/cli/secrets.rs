//! Secrets at rest and in everything that is said: the real binary at its most talkative.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

/// Parts of credentials that would be recognised anywhere.
const USER: &str = "kennwort-user";
const PASSWORD: &str = "kennwort-7f3a";
const HEADER: &str = "kennwort-header-51c0";
/// `kennwort-user:p@kennwort-7f3a` in base64, as it is sent.
const BASIC: &str = "a2VubndvcnQtdXNlcjpwQGtlbm53b3J0LTdmM2E=";
const KEY: &str = "3q2+7wABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhs=";
const OTHER_KEY: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";

/// A named pipe in this folder, into which nobody writes.
fn pipe(dir: &TempDir) -> String {
    let path = dir.0.join("pipe");
    let made = Command::new("mkfifo").args(["-m", "600"]).arg(&path).status();
    assert!(made.expect("mkfifo is there").success());
    path.to_str().expect("text").to_owned()
}

/// Answers each request by its path; returns the address and what was received.
fn receiver() -> (String, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let received = Arc::new(Mutex::new(String::new()));
    let log = Arc::clone(&received);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = Arc::clone(&log);
            thread::spawn(move || answer(stream, &log));
        }
    });
    (address, received)
}

fn answer(mut stream: TcpStream, log: &Mutex<String>) {
    let mut bytes = [0; 8_192];
    let read = stream.read(&mut bytes).unwrap_or(0);
    let request = String::from_utf8_lossy(&bytes[..read]).into_owned();
    log.lock().expect("no panic").push_str(&request);
    let answer = match request.split(' ').nth(1) {
        Some("/500") => "HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        Some("/hang") => return thread::sleep(Duration::from_secs(2)),
        Some("/close") => "",
        _ => "no HTTP at all\r\n\r\n",
    };
    // Whoever has hung up needs no answer.
    let _gone = stream.write_all(answer.as_bytes());
}

/// Everything that was said, and who says it.
struct Said {
    server: Server,
    answers: String,
    log: Option<thread::JoinHandle<String>>,
}

impl Said {
    fn start(dir: &TempDir, variables: &[(&str, &str)]) -> Self {
        let mut server = Server::start(&dir.0, variables);
        let lines = server.log();
        let log = Some(thread::spawn(move || lines.collect::<Vec<_>>().join("\n")));
        Self { server, answers: String::new(), log }
    }

    fn call(&mut self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let (status, answer) = self.server.call(TOKEN, method, &format!("/api/v1{path}"), body);
        self.answers.push_str(&format!("{answer}\n"));
        (status, answer)
    }

    /// An answer that shows its secret, this once.
    fn secret(&mut self, path: &str, body: &str) -> (String, String) {
        let (_, answer) = self.server.call(TOKEN, "POST", &format!("/api/v1{path}"), body);
        let text = |name: &str| answer[name].as_str().expect("text").to_owned();
        (text("id"), text("secret"))
    }

    /// Stops the server; the log.
    fn stop(mut self) -> (String, String) {
        self.server.signal("TERM");
        let log = self.log.take().expect("once").join().expect("no panic");
        let (code, stdout, _) = self.server.wait();
        assert_eq!(code, 0, "{log}");
        (self.answers, format!("{stdout}\n{log}"))
    }
}

/// Endpoints that fail in every way, and an event for each of them.
fn fail_in_many_ways(said: &mut Said, address: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    let urls = [
        format!("http://{USER}:p%40{PASSWORD}@{address}/500"),
        format!("http://{USER}:p%40{PASSWORD}@{address}/hang"),
        format!("http://{USER}:p%40{PASSWORD}@{address}/close"),
        format!("http://{USER}:p%40{PASSWORD}@{address}/garbage"),
        format!("https://{USER}:p%40{PASSWORD}@{address}/tls"),
        format!("http://{USER}:p%40{PASSWORD}@127.0.0.1:1/refused"),
        format!("http://{USER}:p%40{PASSWORD}@nowhere.invalid/dns"),
    ];
    let mut last = String::new();
    for url in &urls {
        let body = json!({ "url": url, "headers": { "X-Api-Key": HEADER } }).to_string();
        let (id, secret) = said.secret("/endpoints", &body);
        secrets.push(secret);
        last = id;
    }
    secrets.push(said.secret(&format!("/endpoints/{last}/rotate-secret"), "").1);
    let (status, event) = said.call("POST", "/events", r#"{"type":"a","data":{}}"#);
    assert_eq!((status, event["deliveries"].as_u64()), (202, Some(urls.len() as u64)));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, dead) = said.call("GET", "/deliveries?status=dead", "");
        let dead = dead["data"].as_array().expect("a list").clone();
        if dead.len() == urls.len() {
            for delivery in dead {
                let id = delivery["id"].as_str().expect("an id").to_owned();
                let (_, delivery) = said.call("GET", &format!("/deliveries/{id}"), "");
                assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(2), "{delivery}");
            }
            return secrets;
        }
        assert!(Instant::now() < until, "{dead:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Requests that are refused, with credentials in them.
fn be_refused(said: &mut Said) {
    for body in [
        json!({ "url": format!("http://{USER}:{PASSWORD}@@example.com/") }),
        json!({ "url": format!("http://{USER}:{PASSWORD}@example.com:0/") }),
        json!({ "url": format!("http://{USER}:{PASSWORD}@169.254.169.254/") }),
        json!({ "url": "http://a.example/", "headers": { "x-a": format!("{HEADER}\r\nb: c") } }),
        json!({ "url": "http://a.example/", "headers": { "x a": HEADER } }),
    ] {
        assert_eq!(said.call("POST", "/endpoints", &body.to_string()).0, 422, "{body}");
    }
    let broken = format!("{{\"url\": \"http://{USER}:{PASSWORD}@example.com/\"");
    assert_eq!(said.call("POST", "/endpoints", &broken).0, 400);
    let (_, list) = said.call("GET", "/endpoints", "");
    let path = format!("/endpoints/{}", list["data"][0]["id"].as_str().expect("an id"));
    said.call("GET", &path, "");
    let headers = json!({ "headers": { "host": HEADER } }).to_string();
    assert_eq!(said.call("PATCH", &path, &headers).0, 422);
    assert_eq!(said.call("PATCH", &path, r#"{"description":"x"}"#).0, 200);
    assert_eq!(said.call("POST", &format!("{path}/pause"), "").0, 200);
}

#[track_caller]
fn assert_silent(what: &str, bytes: &[u8], secrets: &[String]) {
    let fixed = ["kennwort", BASIC, KEY, KEY.trim_end_matches('='), TOKEN];
    let digits = secrets.iter().map(|secret| secret.trim_start_matches("whsec_"));
    for secret in fixed.into_iter().chain(digits) {
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{what} holds {secret}");
    }
}

/// Every file in the data directory.
fn files(dir: &TempDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&dir.0).expect("a folder");
    entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file()).collect()
}

#[test]
fn case_113_no_secret_is_in_a_log_an_answer_or_the_file() {
    let (dir, keys) = (TempDir::new(), TempDir::new());
    let key = keys.file("key", &format!("{KEY}\n"), 0o600);
    let variables = [
        ("EVERHOOK_ADMIN_TOKEN", TOKEN),
        ("EVERHOOK_SECRETS_MASTER_KEY_FILE", &key),
        ("EVERHOOK_LOG_LEVEL", "trace"),
        ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8"),
        ("EVERHOOK_RETRY_SCHEDULE", "0s,100ms"),
        ("EVERHOOK_DELIVERY_TIMEOUT", "500ms"),
        ("EVERHOOK_DELIVERY_LEASE", "2s"),
    ];
    let (address, received) = receiver();
    let mut said = Said::start(&dir, &variables);
    let secrets = fail_in_many_ways(&mut said, &address);
    be_refused(&mut said);
    // While it runs the log beside the database is read as well.
    for path in files(&dir) {
        assert_silent(&path.display().to_string(), &std::fs::read(&path).expect("ours"), &secrets);
    }
    let (answers, log) = said.stop();
    assert_silent("an answer", answers.as_bytes(), &secrets);
    assert!(log.contains("DEBUG"), "the log is talkative: {log}");
    assert_silent("the log", log.as_bytes(), &secrets);
    let received = received.lock().expect("no panic");
    assert!(received.contains(&format!("Basic {BASIC}")), "{received}");
    assert!(received.contains(HEADER), "{received}");
    for path in files(&dir) {
        assert_silent(&path.display().to_string(), &std::fs::read(&path).expect("ours"), &secrets);
    }
    let mut check = everhook(&["config", "check"]);
    let (code, stdout, stderr) = ended(check.envs(variables));
    assert_eq!(code, 0, "{stderr}");
    assert_silent("config check", format!("{stdout}{stderr}").as_bytes(), &secrets);
}

#[test]
fn what_peers_fail_18_a_master_key_that_is_not_one_is_refused_plainly() {
    let (dir, keys) = (TempDir::new(), TempDir::new());
    let missing = keys.0.join("missing").to_str().expect("text").to_owned();
    for (path, expected) in [
        (missing, "cannot be read"),
        (keys.file("short", "a2Vubndvcnqx\n", 0o600), "holds 9 bytes: 32 are needed"),
        (keys.file("empty", "", 0o600), "it is empty"),
        (keys.file("space", &format!("{KEY} \n"), 0o600), "white space"),
        (keys.file("text", "kennwort, not a key", 0o600), "white space"),
        (keys.file("open", KEY, 0o644), "every user of this machine"),
        (keys.arg().to_owned(), "is not a file"),
        ("/dev/zero".to_owned(), "is not a file"),
        (pipe(&keys), "is not a file"),
    ] {
        let args = ["serve", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
        let mut serve = everhook(&args);
        let (code, _, stderr) = ended(serve.env("EVERHOOK_SECRETS_MASTER_KEY_FILE", &path));
        assert_eq!(code, 2, "{path}: {stderr}");
        assert!(stderr.contains(expected) && stderr.contains(&path), "{path}: {stderr}");
        assert_silent("the refusal", stderr.as_bytes(), &[]);
        let mut check = everhook(&["config", "check"]);
        let (code, _, stderr) = ended(check.env("EVERHOOK_SECRETS_MASTER_KEY_FILE", &path));
        assert_eq!(code, 2, "{path}: what would not start does not pass the check");
        assert!(stderr.contains(expected) && stderr.contains(&path), "{path}: {stderr}");
    }
    let begun = std::fs::read_dir(&dir.0).is_ok_and(|mut dir| dir.next().is_some());
    assert!(!begun, "no token was made or shown");
    let mut check = everhook(&["config", "check"]);
    let (code, _, stderr) = ended(check.env("EVERHOOK_SECRETS_MASTER_KEY_FILES_OLD", "x"));
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("EVERHOOK_SECRETS_MASTER_KEY_FILES_OLD"), "{stderr}");
}

#[test]
fn a_master_key_is_set_replaced_and_missed() {
    let (dir, keys) = (TempDir::new(), TempDir::new());
    let first = keys.file("first", KEY, 0o400);
    let second = keys.file("second", &format!("{OTHER_KEY}\r\n"), 0o600);
    let (current, old) =
        ("EVERHOOK_SECRETS_MASTER_KEY_FILE", "EVERHOOK_SECRETS_MASTER_KEY_FILES_OLD");
    let token = ("EVERHOOK_ADMIN_TOKEN", TOKEN);
    let mut said = Said::start(&dir, &[token]);
    let body = json!({ "url": format!("http://{USER}:{PASSWORD}@a.example/") }).to_string();
    let (id, secret) = said.secret("/endpoints", &body);
    // So many that pages of the database are split.
    for _ in 0..300 {
        said.call("POST", "/endpoints", &body);
    }
    said.stop();
    let database = dir.0.join("everhook.db");
    let holds = |what: &str| {
        let bytes = std::fs::read(&database).expect("ours");
        bytes.windows(what.len()).any(|window| window == what.as_bytes())
    };
    assert!(holds(PASSWORD) && holds(&secret), "without a key it is stored as it is");

    let (_, log) = Said::start(&dir, &[token, (current, &first)]).stop();
    assert!(log.contains("secrets were sealed under this master key"), "{log}");
    assert_silent(
        "the database",
        &std::fs::read(&database).expect("ours"),
        std::slice::from_ref(&secret),
    );

    for (variables, needed) in
        [(vec![], "no master key is given"), (vec![(current, &second)], "have the ids")]
    {
        let args = ["serve", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
        let mut serve = everhook(&args);
        let (code, _, stderr) = ended(serve.envs(variables).env(token.0, token.1));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(needed) && stderr.contains("master key with the id"), "{stderr}");
        assert_silent("the refusal", stderr.as_bytes(), std::slice::from_ref(&secret));
    }

    let (_, log) = Said::start(&dir, &[token, (current, &second), (old, &first)]).stop();
    assert!(log.contains("empty secrets.master_key_files_old"), "{log}");
    let mut said = Said::start(&dir, &[token, (current, &second)]);
    let (status, endpoint) = said.call("GET", &format!("/endpoints/{id}"), "");
    assert_eq!((status, endpoint.get("unusable")), (200, None), "{endpoint}");
    assert_eq!(endpoint["url"], "http://***:***@a.example/");
}
