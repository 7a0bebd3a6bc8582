//! The server on a real socket: limits while reading, keep-alive, stopping.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use everhook_web::{ServerLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::harness::{Api, TOKEN};

pub(crate) struct Running {
    pub(crate) api: Arc<Api>,
    pub(crate) address: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) async fn start(api: Api, limits: ServerLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let router = api.router.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, router, async { drop(stopped.await) }, limits));
        Self { api: Arc::new(api), address, stop: Some(stop), tasks }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends the signal and waits until everything has ended.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.tasks.join_next().await.expect("one task").expect("no panic");
    }
}

fn head(rest: &str) -> String {
    format!(
        "POST /api/v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n{rest}\r\n"
    )
}

/// Reads one answer: its status line and headers, and its body.
pub(crate) async fn answer(stream: &mut TcpStream) -> (String, String) {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8(read[..end].to_vec()).expect("text").to_lowercase();
            let length = head.split("content-length: ").nth(1).expect("a length");
            let length: usize =
                length.split("\r\n").next().expect("a line").parse().expect("a number");
            while read.len() < end + 4 + length {
                assert_ne!(stream.read_buf(&mut read).await.expect("more"), 0, "ended too early");
            }
            let body = String::from_utf8(read[end + 4..].to_vec()).expect("text");
            return (head, body);
        }
        assert_ne!(stream.read_buf(&mut read).await.expect("more"), 0, "ended without an answer");
    }
}

async fn ended(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    matches!(stream.read_to_end(&mut rest).await, Ok(0) | Err(_))
}

const EVENT: &str = r#"{"type":"a","data":1}"#;

#[tokio::test]
async fn requests_share_a_connection_and_stopping_ends_it() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        let request = head(&format!("content-length: {}\r\n", EVENT.len())) + EVENT;
        stream.write_all(request.as_bytes()).await.expect("sent");
        let (head, body) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 202"), "{head}");
        assert!(body.contains("\"duplicate\":false"), "{body}");
    }
    let chunked = head("transfer-encoding: chunked\r\n")
        + "5\r\n{\"typ\r\n10\r\ne\":\"a\",\"data\":1}\r\n0\r\n\r\n";
    stream.write_all(chunked.as_bytes()).await.expect("sent");
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 202"), "{head}");
    let api = Arc::clone(&server.api);
    server.stop().await;
    assert!(ended(&mut stream).await, "an idle connection is closed on stop");
    assert_eq!(api.list("/api/v1/events").await.len(), 4);
}

/// A server that needs a moment for each request, and to which all of it has come by then.
#[tokio::test]
async fn a_client_that_ends_its_side_after_the_request_is_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut stream =
        TcpStream::connect(listener.local_addr().expect("an address")).await.expect("a connection");
    let request = head(&format!("content-length: {}\r\n", EVENT.len())) + EVENT;
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream.shutdown().await.expect("half closed");
    let router = Router::new().fallback(async || {
        tokio::task::yield_now().await;
        "done"
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(serve(listener, router, std::future::pending(), ServerLimits::default()));
    let (head, body) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert_eq!(body, "done");
    assert!(ended(&mut stream).await, "nothing more can come");
}

#[tokio::test]
async fn too_large_is_said_before_the_body_came() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    let mut stream = server.connect().await;
    let request = head("content-length: 1000000000\r\nexpect: 100-continue\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let (head, body) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 413"), "{head}");
    assert!(body.contains("1048576"), "{body}");
    server.stop().await;
}

#[tokio::test]
async fn case_084_a_sender_that_never_stops_gets_its_413() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    let mut stream = server.connect().await;
    stream.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).await.expect("sent");
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
    for _ in 0..30_000_000 / 0x1_0000 {
        stream.write_all(chunk.as_bytes()).await.expect("read on, not broken off");
    }
    stream.write_all(b"0\r\n\r\n").await.expect("sent");
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 413"), "{head}");
    assert!(server.api.list("/api/v1/events").await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_broken_body_stores_nothing() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    let mut stream = server.connect().await;
    let request = head("transfer-encoding: chunked\r\n") + "zz\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let (head_read, body) = answer(&mut stream).await;
    assert!(head_read.starts_with("http/1.1 400"), "{head_read}");
    assert!(body.contains("unreadable-body"), "{body}");
    let mut stream = server.connect().await;
    let request = head("content-length: 100\r\n") + EVENT;
    stream.write_all(request.as_bytes()).await.expect("sent");
    drop(stream);
    let api = Arc::clone(&server.api);
    server.stop().await;
    assert!(api.list("/api/v1/events").await.is_empty());
}

#[tokio::test]
async fn bodies_share_a_budget() {
    let api = Api::with(|settings| settings.body_limits.in_flight_bytes_max = 1_000);
    let server = Running::start(api, ServerLimits::default()).await;
    let mut first = server.connect().await;
    let request = head("content-length: 901\r\n") + &" ".repeat(900);
    first.write_all(request.as_bytes()).await.expect("sent");
    let padded = format!("{EVENT}{}", " ".repeat(100));
    let second = head(&format!("content-length: {}\r\n", padded.len())) + &padded;
    // The first body is on its way; how soon it is counted is the server's matter.
    loop {
        let mut stream = server.connect().await;
        stream.write_all(second.as_bytes()).await.expect("sent");
        let (head, body) = answer(&mut stream).await;
        if head.starts_with("http/1.1 503") {
            assert!(head.contains("retry-after: 1") && body.contains("overloaded"), "{head}");
            break;
        }
    }
    first.write_all(b" ").await.expect("sent");
    let (head, _) = answer(&mut first).await;
    assert!(head.starts_with("http/1.1 400"), "{head}");
    let mut stream = server.connect().await;
    stream.write_all(second.as_bytes()).await.expect("sent");
    let (head, _) = answer(&mut stream).await;
    assert!(head.starts_with("http/1.1 202"), "the room was given back: {head}");
    server.stop().await;
}

#[tokio::test]
async fn slow_senders_are_cut_off() {
    let limits =
        ServerLimits { idle_timeout: Duration::from_millis(50), ..ServerLimits::default() };
    let api = Api::with(|settings| settings.body_limits.timeout = Duration::from_millis(50));
    let server = Running::start(api, limits).await;
    let mut idle = server.connect().await;
    assert!(ended(&mut idle).await, "says nothing at all");
    let mut slow_head = server.connect().await;
    slow_head.write_all(b"POST /api/v1/events HT").await.expect("sent");
    assert!(ended(&mut slow_head).await, "half a head");
    let mut slow_body = server.connect().await;
    slow_body.write_all(head("content-length: 9\r\n").as_bytes()).await.expect("sent");
    let (head, body) = answer(&mut slow_body).await;
    assert!(head.starts_with("http/1.1 408") && body.contains("request-timeout"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_their_turn() {
    let limits = ServerLimits { connections_max: 1, ..ServerLimits::default() };
    let server = Running::start(Api::new(), limits).await;
    let request = head(&format!("content-length: {}\r\n", EVENT.len())) + EVENT;
    let mut first = server.connect().await;
    first.write_all(request.as_bytes()).await.expect("sent");
    answer(&mut first).await;
    let mut second = server.connect().await;
    second.write_all(request.as_bytes()).await.expect("sent");
    let mut byte = [0];
    let waits = tokio::time::timeout(Duration::from_millis(50), second.peek(&mut byte)).await;
    assert!(waits.is_err(), "no answer while the first is there");
    drop(first);
    let (head, _) = answer(&mut second).await;
    assert!(head.starts_with("http/1.1 202"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn stopping_waits_for_requests_under_way_but_not_for_ever() {
    let limits =
        ServerLimits { drain_timeout: Duration::from_millis(200), ..ServerLimits::default() };
    let server = Running::start(Api::new(), limits).await;
    let address = server.address;
    let mut stream = server.connect().await;
    let request = head(&format!("content-length: {}\r\nexpect: 100-continue\r\n", EVENT.len()));
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut line = [0; 25];
    stream.read_exact(&mut line).await.expect("leave to go on");
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    let mut stuck = server.connect().await;
    stuck.write_all(head("content-length: 9\r\n").as_bytes()).await.expect("sent");
    let stopping = server.stop();
    let finishing = async {
        stream.write_all(EVENT.as_bytes()).await.expect("sent");
        answer(&mut stream).await
    };
    let ((), (head, _)) = tokio::join!(stopping, finishing);
    assert!(head.starts_with("http/1.1 202"), "{head}");
    assert!(ended(&mut stuck).await);
    assert!(TcpStream::connect(address).await.is_err(), "nothing listens any more");
}
