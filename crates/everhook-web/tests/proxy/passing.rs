//! What carries no key passes, as it comes; what cannot be handed on is refused.

use std::time::Duration;

use axum::body::Body;
use everhook_web::proxy::{NotAnswered, ProxySettings};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{Gate, Stage, settings, text};

/// Reads until this has come.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end.as_bytes()) {
        assert_ne!(stream.read_buf(&mut read).await.expect("more"), 0, "{read:?}");
    }
    String::from_utf8(read).expect("text")
}

#[tokio::test]
async fn bodies_stream_through_as_they_come() {
    let stage =
        Stage::new(settings(), |request, _| async move { Ok(Response::new(request.into_body())) })
            .await;
    let mut stream = stage.connect().await;
    let head = "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("taken");
    stream.write_all(b"3\r\none\r\n").await.expect("taken");
    let head = until(&mut stream, "3\r\none\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    stream.write_all(b"5\r\nthree\r\n").await.expect("taken");
    until(&mut stream, "5\r\nthree\r\n").await;
    stream.write_all(b"0\r\n\r\n").await.expect("taken");
    until(&mut stream, "0\r\n\r\n").await;
}

#[tokio::test]
async fn case_027_each_request_without_a_key_goes_and_so_do_reads_with_one() {
    let stage =
        Stage::new(settings(), |_, count| async move { Ok(text(200, &count.to_string())) }).await;
    for (count, (start, lines)) in [
        ("POST /a", ""),
        ("POST /a", ""),
        ("GET /a", "idempotency-key: k\r\n"),
        ("GET /a", "idempotency-key: k\r\n"),
        ("PUT /a", "idempotency-key: k\r\n"),
        ("PUT /a", "idempotency-key: k\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        stage.send(start, lines, "").await.expect(200, &(count + 1).to_string(), false);
    }
}

#[tokio::test]
async fn the_service_is_told_who_called_and_how() {
    let stage = Stage::new(settings(), |_, _| async { Ok(text(200, "")) }).await;
    let seen = async |start: &str, lines: &str| {
        stage.send(start, lines, "").await.expect(200, "", false);
        stage.last()
    };
    let check = |headers: &HeaderMap, expected: &[(&str, Option<&str>)]| {
        for (name, value) in expected {
            let found = headers.get(*name).map(|value| value.to_str().expect("ASCII"));
            assert_eq!(found, *value, "{name}");
        }
    };
    let lines = "x-forwarded-for: 198.51.100.1\r\nkeep-alive: 5\r\nauthorization: Basic x\r\n";
    let head = seen("POST /a/../b%20c?d=%2F&&e", lines).await;
    assert_eq!(head.uri.path_and_query().expect("a path"), "/a/../b%20c?d=%2F&&e");
    check(
        &head.headers,
        &[
            ("host", Some("a.test")),
            ("x-forwarded-for", Some("127.0.0.1")),
            ("x-forwarded-host", Some("a.test")),
            ("via", Some("1.1 everhook")),
            ("authorization", Some("Basic x")),
            ("connection", None),
            ("keep-alive", None),
        ],
    );
    // In absolute form the request line names the host.
    let head = seen("GET http://b.test/x", "").await;
    check(&head.headers, &[("host", Some("b.test")), ("x-forwarded-host", Some("b.test"))]);
    assert_eq!(head.uri.path(), "/x");
}

#[tokio::test]
async fn heads_without_bodies_keep_their_lengths() {
    let stage = Stage::new(settings(), |request, _| async move {
        let status = if request.method() == "HEAD" { 200 } else { 304 };
        let answer = Response::builder().status(status).header("content-length", "5");
        Ok(answer.body(Body::empty()).expect("legal"))
    })
    .await;
    let answer = stage.send("HEAD /a", "", "").await;
    answer.expect(200, "", false);
    assert_eq!(answer.header("content-length"), Some("5"));
    stage.send("GET /a", "", "").await.expect(304, "", false);
    let stage = Stage::new(settings(), |_, _| async { Ok(text(204, "")) }).await;
    let answer = stage.send("DELETE /a", "", "").await;
    answer.expect(204, "", false);
    assert_eq!(answer.header("content-length"), None);
}

#[tokio::test]
async fn what_belongs_to_the_services_connection_stays_there() {
    let stage = Stage::new(settings(), |_, _| async {
        let answer = Response::builder()
            .header("connection", "close, x-mine")
            .header("x-mine", "1")
            .header("keep-alive", "timeout=5")
            .header("set-cookie", "a=b")
            .header("set-cookie", "c=d");
        Ok(answer.body(Body::from("ok")).expect("legal"))
    })
    .await;
    let answer = stage.send("GET /", "", "").await;
    answer.expect(200, "ok", false);
    assert_eq!((answer.header("x-mine"), answer.header("keep-alive")), (None, None));
    assert!(answer.head.contains("set-cookie: a=b\r\nset-cookie: c=d\r\n"), "{}", answer.head);
}

#[tokio::test]
async fn what_cannot_be_handed_on_is_refused() {
    let stage = Stage::new(settings(), |_, _| async { Ok(text(200, "")) }).await;
    for (start, lines) in [
        ("GET /socket", "upgrade: websocket\r\n"),
        ("POST /socket", "upgrade: websocket\r\nidempotency-key: k\r\n"),
        ("CONNECT b.test:443", ""),
    ] {
        stage.send(start, lines, "").await.expect_problem(501, "not-forwarded");
    }
    assert_eq!(stage.runs(), 0);
    stage.send("POST /../admin", "", "").await.expect_problem(400, "unsafe-path");
    stage.send("POST *", "", "").await.expect_problem(400, "unsafe-path");
    assert_eq!(stage.runs(), 0);
    stage.send("GET /", "upgrade: h2c\r\n", "").await.expect(200, "", false);
}

#[tokio::test]
async fn without_a_key_a_lost_answer_is_told_by_its_cause() {
    let stage = Stage::new(settings(), |request, _| async move {
        let why = "planted".to_owned();
        Err(match request.uri().path() {
            "/unsent" => NotAnswered::Unsent(why),
            "/lost" => NotAnswered::Lost(why),
            _ => NotAnswered::Silent(why),
        })
    })
    .await;
    for (start, status, slug, retry_after) in [
        ("POST /unsent", 503, "upstream-unreachable", Some("5")),
        ("POST /lost", 502, "upstream-failed", None),
        ("GET /silent", 504, "upstream-timeout", None),
    ] {
        let answer = stage.send(start, "", "").await;
        let problem = answer.expect_problem(status, slug);
        assert_eq!((answer.header("retry-after"), problem.get("record")), (retry_after, None));
        assert!(!answer.body.contains("planted"), "what the network says is the operator's");
    }
}

#[tokio::test]
async fn more_than_may_be_under_way_is_refused() {
    let gate = Gate::closed();
    let waiting = gate.clone();
    let one = ProxySettings { in_flight_max: 1, ..settings() };
    let stage = Stage::new(one, move |_, _| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            Ok(text(200, "done"))
        }
    })
    .await;
    let second = async {
        gate.arrival().await;
        stage.post("b").await.expect_problem(503, "overloaded");
        gate.open(1);
    };
    let (first, ()) = tokio::join!(stage.post("a"), second);
    first.expect(200, "done", false);
    gate.open(1);
    stage.post("b").await.expect(200, "done", false);
    // A request with a key holds its place when its client has gone.
    let mut gone = stage.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: c\r\ncontent-length: 0\r\n\r\n";
    gone.write_all(head.as_bytes()).await.expect("taken");
    gate.arrival().await;
    gate.arrival().await;
    drop(gone);
    stage.send("GET /", "", "").await.expect_problem(503, "overloaded");
}

#[tokio::test]
async fn who_stops_in_the_middle_of_a_body_is_not_waited_for() {
    let hasty = ProxySettings { silence_max: Duration::from_millis(50), ..settings() };
    let stage = Stage::new(hasty, |request, _| async move {
        request.into_body().collect().await.map_err(|why| NotAnswered::Lost(why.to_string()))?;
        Ok(text(200, ""))
    })
    .await;
    for (lines, status) in [("idempotency-key: k\r\n", "400"), ("", "400")] {
        let mut stream = stage.connect().await;
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{lines}content-length: 9\r\n\r\nhalf");
        stream.write_all(head.as_bytes()).await.expect("taken");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        assert_eq!(std::str::from_utf8(&start[9..]), Ok(status));
    }
    // Of the one with a key nothing was begun.
    assert_eq!(stage.runs(), 1);
}

/// A body that is not HTTP is the client's fault, whatever became of the connection to the service.
#[tokio::test]
async fn broken_chunks_are_told_to_the_client() {
    let stage = Stage::new(settings(), |request, _| async move {
        request.into_body().collect().await.map_err(|why| NotAnswered::Unsent(why.to_string()))?;
        Ok(text(200, ""))
    })
    .await;
    for size in ["zz", "0x2", "10000000000000002"] {
        let mut stream = stage.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(format!("{head}{size}\r\n{{}}\r\n").as_bytes()).await.expect("taken");
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.expect("an answer");
        assert_eq!(std::str::from_utf8(&start[9..]), Ok("400"), "{size}");
    }
}
