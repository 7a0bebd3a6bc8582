//! `everhook proxy` in front of a service that crashes, hangs, resets, streams and answers a lot.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::time::SystemClock;
use everhook_lab::{Behaviour, Door, Lab, Reply, Script, Step};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked before a test gives up.
const LOOKS_MAX: usize = 1_500;

/// The service, on threads of its own.
struct Service {
    runtime: Runtime,
    lab: Lab,
}

impl Service {
    fn new(behaviour: impl Into<Behaviour>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        let runtime = runtime.expect("threads");
        let clock = Arc::new(SystemClock::start());
        let lab = runtime.block_on(Lab::start(Door::Open, behaviour, clock)).expect("a port");
        Self { runtime, lab }
    }

    /// Requests that have come.
    fn count(&self) -> usize {
        self.lab.record().request_count
    }

    /// Waits for so many requests.
    fn wait_for(&self, count: usize) {
        self.runtime.block_on(self.lab.wait_for(|record| record.request_count >= count));
    }

    /// A server with a proxy in front of this service.
    fn server(&self, dir: &TempDir, more: &[(&str, &str)]) -> Server {
        let url = self.lab.url("/");
        let variables = [
            ("EVERHOOK_ADMIN_TOKEN", TOKEN),
            ("EVERHOOK_PROXY_UPSTREAM", &url),
            ("EVERHOOK_PROXY_LISTEN", "127.0.0.1:0"),
            ("EVERHOOK_IDEMPOTENCY_LEASE", "300ms"),
        ];
        Server::start(&dir.0, &[variables.as_slice(), more].concat())
    }
}

/// Begins a POST of `{}` with a key.
fn begin(server: &Server, path: &str, key: &str) -> TcpStream {
    let address = server.proxy.as_ref().expect("a proxy");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: shop.test\r\nauthorization: Bearer shop\r\n\
         idempotency-key: {key}\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    .expect("taken");
    stream
}

#[derive(Debug)]
struct Answer {
    status: u16,
    replayed: bool,
    body: Vec<u8>,
}

impl Answer {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("text"), 0, "{head}");
        }
        let mut body = Vec::new();
        reader.read_to_end(&mut body).expect("an end in order");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let replayed = head.contains("idempotency-replayed: true\r\n");
        Self { status: status.expect("a status"), replayed, body }
    }

    fn text(&self) -> (u16, bool, &str) {
        (self.status, self.replayed, std::str::from_utf8(&self.body).expect("text"))
    }

    /// Asserts a problem.
    #[track_caller]
    fn problem(&self, status: u16, slug: &str) -> Value {
        let problem: Value = serde_json::from_slice(&self.body).expect("a problem");
        assert_eq!((self.status, self.replayed), (status, false), "{problem}");
        assert_eq!(problem["type"], format!("urn:everhook:problem:{slug}"));
        problem
    }
}

fn post(server: &Server, path: &str, key: &str) -> Answer {
    Answer::read(begin(server, path, key))
}

/// Asks again until the first request is no longer under way.
fn settled(server: &Server, path: &str, key: &str) -> Answer {
    for _ in 0..LOOKS_MAX {
        let answer = post(server, path, key);
        let running = answer.body.windows(11).any(|window| window == b"in-progress");
        if !running {
            return answer;
        }
        std::thread::park_timeout(LOOK);
    }
    panic!("it is under way for ever");
}

#[test]
fn case_036_a_proxy_that_is_killed_never_sends_a_request_again() {
    let script = Script::otherwise(Reply::nothing().then(Step::Hold))
        .on("/done", [Reply::answer(201, &[("location", "/orders/1")], "order 1")]);
    let service = Service::new(script);
    let dir = TempDir::new();
    let server = service.server(&dir, &[]);
    assert_eq!(post(&server, "/done", "a").text(), (201, false, "order 1"));
    let _waits = begin(&server, "/hangs", "k");
    service.wait_for(2);
    post(&server, "/hangs", "k").problem(409, "idempotency-in-progress");
    server.signal("KILL");
    server.wait();

    let server = service.server(&dir, &[]);
    assert_eq!(post(&server, "/done", "a").text(), (201, true, "order 1"), "it is remembered");
    let problem = settled(&server, "/hangs", "k").problem(409, "outcome-unknown");
    post(&server, "/hangs", "k").problem(409, "outcome-unknown");
    assert_eq!(service.count(), 2);

    // Whoever has found out what became of it says so.
    let record = problem["record"].as_str().expect("it is named");
    let (status, listed) =
        server.call(TOKEN, "GET", "/api/v1/idempotency-records?state=unknown", "");
    assert_eq!((status, &listed["data"][0]["subject"]), (200, &json!("POST /hangs")), "{listed}");
    let path = format!("/api/v1/idempotency-records/{record}/resolve");
    let outcome = json!({"status": 201, "body": "order 2"}).to_string();
    let (status, resolved) = server.call(TOKEN, "POST", &path, &outcome);
    assert_eq!(status, 200, "{resolved}");
    assert_eq!(post(&server, "/hangs", "k").text(), (201, true, "order 2"));
    assert_eq!(service.count(), 2);
}

#[test]
fn case_037_lost_answers_are_unknown_and_unsent_requests_free() {
    let script = Script::otherwise(Reply::answer(200, &[], "ok"))
        .on("/reset", [Reply::nothing().then(Step::Reset)])
        .on(
            "/crash",
            [Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhal").then(Step::Reset)],
        )
        .on("/hang", [Reply::nothing().then(Step::Hold)])
        .on("/busy", [Reply::status(429), Reply::status(201)]);
    let service = Service::new(script);
    let dir = TempDir::new();
    let server = service.server(&dir, &[("EVERHOOK_PROXY_TIMEOUT", "500ms")]);
    for (path, status) in [("/reset", 502), ("/crash", 502), ("/hang", 504)] {
        let before = service.count();
        let lost = post(&server, path, "k").problem(status, "outcome-unknown");
        let told = post(&server, path, "k").problem(409, "outcome-unknown");
        assert_eq!(lost["record"], told["record"], "{path}");
        assert_eq!(service.count(), before + 1, "{path}");
    }
    assert_eq!(post(&server, "/busy", "k").text(), (429, false, ""));
    assert_eq!(post(&server, "/busy", "k").text(), (201, false, ""));
    assert_eq!(post(&server, "/busy", "k").text(), (201, true, ""));
    drop(server);

    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    let away = format!("http://{address}");
    let server = service.server(&dir, &[("EVERHOOK_PROXY_UPSTREAM", &away)]);
    drop(free);
    post(&server, "/later", "k").problem(503, "upstream-unreachable");
    post(&server, "/later", "k").problem(503, "upstream-unreachable");
}

/// The most memory that the process has had, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(path).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn case_013_fifty_megabytes_pass_once_without_being_held() {
    const BYTES: usize = 50_000_000;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n");
    let service = Service::new(Reply::raw(head).send(vec![b'x'; BYTES]));
    let dir = TempDir::new();
    let server = service.server(&dir, &[]);
    let before = peak_kib(&server);
    let answer = post(&server, "/report", "k");
    assert_eq!((answer.status, answer.body.len()), (200, BYTES));
    let grown = peak_kib(&server) - before;
    assert!(grown < 24 * 1_024, "{grown} KiB more");
    let problem = post(&server, "/report", "k").problem(409, "answer-not-replayable");
    assert_eq!(problem["original_status"], 200);
    assert_eq!(service.count(), 1);
}

#[test]
fn what_has_no_key_streams_through() {
    let service = Service::new(Behaviour::by(|request| {
        let echo = format!("{:x}\r\n", request.body.len()).into_bytes();
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        Reply::raw([head, echo, request.body.to_vec(), b"\r\n0\r\n\r\n".to_vec()].concat())
    }));
    let dir = TempDir::new();
    let server = service.server(&dir, &[]);
    for count in 1..=2 {
        let address = server.proxy.as_ref().expect("a proxy");
        let mut stream = TcpStream::connect(address).expect("it listens");
        let head = "POST /up?x=1 HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\
                    transfer-encoding: chunked\r\n\r\n3\r\none\r\n";
        stream.write_all(head.as_bytes()).expect("taken");
        stream.write_all(b"5\r\nthree\r\n0\r\n\r\n").expect("taken");
        assert_eq!(Answer::read(stream).text(), (200, false, "8\r\nonethree\r\n0\r\n\r\n"));
        assert_eq!(service.count(), count);
    }
    let record = service.lab.record();
    let request = &record.requests[0];
    assert_eq!((request.method(), request.target()), ("POST", "/up?x=1"));
    assert_eq!(request.header("host"), Some("shop.test"));
    assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
}

#[test]
fn a_stop_waits_for_what_is_under_way() {
    let pause = Step::Pause(Duration::from_millis(500));
    let service = Service::new(
        Reply::nothing()
            .then(pause)
            .send("HTTP/1.1 201 Created\r\ncontent-length: 7\r\n\r\norder 1"),
    );
    let dir = TempDir::new();
    let server = service.server(&dir, &[]);
    let waits = begin(&server, "/orders", "k");
    service.wait_for(1);
    drop(begin(&server, "/orders", "gone"));
    service.wait_for(2);
    server.signal("TERM");
    assert_eq!(Answer::read(waits).text(), (201, false, "order 1"));
    assert_eq!(server.wait().0, 0);
    let server = service.server(&dir, &[]);
    for key in ["k", "gone"] {
        assert_eq!(post(&server, "/orders", key).text(), (201, true, "order 1"), "{key}");
    }
    assert_eq!(service.count(), 2);
}

#[test]
fn it_says_where_it_is_and_asks_whereto() {
    let dir = TempDir::new();
    let args = ["proxy", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
    let (code, stdout, stderr) = ended(&mut everhook(&args));
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("--upstream URL"), "{stderr}");
    assert!(!dir.0.exists());
    for (upstream, expected) in [
        ("localhost:3000", "must begin with http:// or https://"),
        ("http://u:p@localhost", "credentials are the client's own"),
        ("http://localhost/?x", "each request has its own query"),
    ] {
        let (code, _, stderr) = ended(everhook(&args).args(["--upstream", upstream]));
        assert_eq!(code, 2);
        assert!(stderr.contains(expected), "{stderr}");
    }

    let more = ["--upstream", "http://127.0.0.1:9/base", "--proxy-listen", "127.0.0.1:0"];
    let mut command = everhook(&[&args, more.as_slice()].concat());
    command.env("EVERHOOK_ADMIN_TOKEN", TOKEN).env("EVERHOOK_LOG_LEVEL", "off");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    let said = BufReader::new(child.stdout.take().expect("piped"));
    let line = said.lines().map(|line| line.expect("text")).find(|line| line.contains("proxy"));
    child.kill().expect("ours");
    child.wait().expect("ours");
    let line = line.expect("it says so");
    assert!(line.starts_with("  proxy    http://127.0.0.1:"), "{line}");
    assert!(line.ends_with(", in front of http://127.0.0.1:9/base"), "{line}");
}
