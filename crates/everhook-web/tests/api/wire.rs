//! What comes to sources, byte for byte on a real socket.

use std::sync::Arc;
use std::time::Duration;

use everhook_web::ServerLimits;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::harness::{Api, SECRET, stripe_signature, text};
use crate::server::{Running, answer};

const EVENT: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;

async fn running() -> (Running, String) {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    (Running::start(api, ServerLimits::default()).await, source)
}

/// What is answered to these bytes: status line and headers, and the body.
async fn exchange(server: &Running, parts: &[&[u8]]) -> (String, String) {
    let mut stream = server.connect().await;
    send(&mut stream, parts).await;
    answer(&mut stream).await
}

async fn send(stream: &mut TcpStream, parts: &[&[u8]]) {
    for part in parts {
        stream.write_all(part).await.expect("sent");
        stream.flush().await.expect("sent");
    }
}

/// A request with this version, these lines of headers and this body.
fn request(version: &str, lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /in/shop HTTP/{version}\r\nhost: x\r\ncontent-length: {}\r\n{lines}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn case_031_names_of_headers_are_found_in_any_case() {
    let (server, _) = running().await;
    let good = stripe_signature(SECRET, server.api.now(), EVENT);
    let bad = stripe_signature("whsec_other", server.api.now(), EVENT);
    for (lines, status) in [
        (format!("stripe-signature: {good}\r\n"), "200"),
        (format!("STRIPE-SIGNATURE:{good}\r\n"), "200"),
        (format!("StRiPe-SiGnAtUrE: \t {good} \t\r\n"), "200"),
        // Twice the same is one; of two that differ none is trusted.
        (format!("Stripe-Signature: {good}\r\nstripe-signature: {good}\r\n"), "200"),
        (format!("stripe-signature: {good}\r\nstripe-signature: {bad}\r\n"), "401"),
        (format!("stripe-signature: {bad}\r\nstripe-signature: {good}\r\n"), "401"),
        (String::new(), "401"),
    ] {
        let (head, body) = exchange(&server, &[&request("1.1", &lines, EVENT)]).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{lines}: {head} {body}");
    }
    // Line folding was taken out of HTTP (RFC 9112 §5.2): refused, and nothing is stored.
    let (first, rest) = good.split_at(10);
    let folded = format!("stripe-signature: {first}\r\n {rest}\r\n");
    let mut stream = server.connect().await;
    send(&mut stream, &[&request("1.1", &folded, EVENT)]).await;
    let mut reply = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut reply).await.expect("an answer");
    assert!(reply.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&reply));
    let receipts = server.api.rows("/api/v1/receipts").await;
    assert_eq!(receipts.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn bytes_are_verified_and_forwarded_as_they_were_on_the_wire() {
    let (server, _) = running().await;
    let mixed = b"{\"id\":\"evt_2\",\r\n \"text\":\"\xf0\x9f\x98\x80\\u0000\"}\r\n".to_vec();
    let marked = [b"\xef\xbb\xbf".as_slice(), b"{\"id\":\"evt_3\"}"].concat();
    let zeros = vec![0; 4_096];
    let any: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    for body in [EVENT.to_vec(), mixed, marked, zeros, any] {
        let signature = stripe_signature(SECRET, server.api.now(), &body);
        let line = format!("stripe-signature: {signature}\r\n");
        for request in [request("1.1", &line, &body), request("1.0", &line, &body)] {
            let (head, answered) = exchange(&server, &[&request]).await;
            assert!(head.contains(" 200 ok"), "{head}");
            let first = request.windows(8).any(|window| window == b"HTTP/1.1");
            let status = if first { "accepted" } else { "duplicate" };
            assert_eq!(answered, format!("{{\"status\":\"{status}\"}}"));
        }
        let event = text(&server.api.rows("/api/v1/receipts?limit=1").await[0]["event_id"]);
        let event = everhook_store::Reading::event(
            &*server.api.store,
            everhook_domain::tenant::TenantId::default_tenant(),
            event.parse().expect("an id"),
        );
        assert_eq!(event.await.expect("the store").expect("the event").body, body);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_chunked_body_in_single_bytes_with_trailers_is_one_body() {
    let (server, _) = running().await;
    let signature = stripe_signature(SECRET, server.api.now(), EVENT);
    let head = format!(
        "POST /in/shop HTTP/1.1\r\nhost: x\r\nstripe-signature: {signature}\r\n\
         transfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    );
    let chunk = |byte: &u8| [b"1;ext=1\r\n", &[*byte][..], b"\r\n"].concat();
    let chunks: Vec<_> = EVENT.iter().map(chunk).collect();
    let mut parts = vec![head.as_bytes()];
    parts.extend(chunks.iter().map(Vec::as_slice));
    parts.push(b"0\r\nx-sum: 1\r\n\r\n");
    let (head, body) = exchange(&server, &parts).await;
    assert!(head.starts_with("http/1.1 200"), "{head} {body}");
    assert_eq!(server.api.rows("/api/v1/receipts").await[0]["key"], "evt_1");
    server.stop().await;
}

#[tokio::test]
async fn case_035_too_large_is_said_early() {
    let (server, source) = running().await;
    let head = "POST /in/shop HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n\
                content-length: 1000000000\r\n\r\n";
    let (head, body) = exchange(&server, &[head.as_bytes()]).await;
    assert!(head.starts_with("http/1.1 413"), "{head}");
    assert!(body.contains("26214400"), "{body}");

    // One that never ends: it is read on for a while, so that its sender gets to see the answer.
    let mut stream = server.connect().await;
    let head = "POST /in/shop HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 0x10_0000], b"\r\n"].concat();
    let (mut read, mut write) = stream.split();
    let sending = async { while write.write_all(&chunk).await.is_ok() {} };
    let mut start = [0; 12];
    let answered = tokio::io::AsyncReadExt::read_exact(&mut read, &mut start);
    tokio::select! {
        biased;
        answered = answered => { answered.expect("an answer"); }
        () = sending => panic!("broken off without an answer"),
    }
    assert_eq!(&start, b"HTTP/1.1 413");
    let path = format!("/api/v1/sources/{source}");
    let shown = server.api.get(&path).await.expect(http::StatusCode::OK);
    assert_eq!(shown["rejected"]["too_large"], 2);
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn who_announces_a_body_and_waits_is_refused_at_once() {
    let (server, _) = running().await;
    for (line, status) in [
        ("POST /in/nobody", "404"),
        ("PUT /in/shop", "405"),
        ("POST /api/v1/events", "401"),
        ("PUT /api/v1/events", "405"),
        ("POST /nowhere", "404"),
    ] {
        let mut stream = server.connect().await;
        let head = format!("{line} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n");
        send(&mut stream, &[head.as_bytes()]).await;
        // The other side has ended too, so all of it is here.
        let mut reply = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut reply);
        let read = tokio::time::timeout(Duration::from_secs(4), read).await;
        read.expect("no waiting for what does not come").expect("an answer");
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{line}: {reply}");
        assert!(reply.contains("connection: close") && reply.ends_with('}'), "{line}: {reply}");
    }
    // Of what is small and here the connection goes on.
    let mut stream = server.connect().await;
    for _ in 0..3 {
        let small = "POST /in/nobody HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
        send(&mut stream, &[small.as_bytes()]).await;
        assert!(answer(&mut stream).await.0.starts_with("http/1.1 404"));
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused() {
    let (server, _) = running().await;
    for (lines, status) in [
        ("content-length: 2\r\n\r\n{}", "400"),
        ("host: x\r\nhost: y\r\ncontent-length: 2\r\n\r\n{}", "400"),
        ("host: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "501"),
    ] {
        let request = format!("POST /in/shop HTTP/1.1\r\n{lines}");
        let (head, body) = exchange(&server, &[request.as_bytes()]).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{lines}: {head}");
        assert!(body.contains("invalid-header"), "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn case_088_no_body_at_all_is_an_answer_too() {
    let (server, _) = running().await;
    let signature = stripe_signature(SECRET, server.api.now(), b"");
    for length in ["content-length: 0\r\n", ""] {
        let head = format!(
            "POST /in/shop HTTP/1.1\r\nhost: x\r\n{length}stripe-signature: {signature}\r\n\r\n"
        );
        let (head, _) = exchange(&server, &[head.as_bytes()]).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
    }
    let probe =
        format!("GET /in/shop HTTP/1.1\r\nhost: x\r\nstripe-signature: {signature}\r\n\r\n");
    let (head, _) = exchange(&server, &[probe.as_bytes()]).await;
    assert!(head.starts_with("http/1.1 405") && head.contains("\r\nallow: post"), "{head}");
    server.stop().await;
}

#[tokio::test]
async fn bodies_of_sources_and_of_the_api_do_not_starve_each_other() {
    let api = Api::with(|settings| {
        settings.receive_limits.in_flight_bytes_max = 1_000;
        settings.body_limits.in_flight_bytes_max = 1_000;
    });
    api.source(&json!({"name": "shop", "kind": "none"})).await;
    let server = Running::start(api, ServerLimits::default()).await;
    let mut first = server.connect().await;
    let head = "POST /in/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 901\r\n\r\n";
    send(&mut first, &[head.as_bytes(), &[b' '; 900]]).await;
    // How soon it is counted is the server's matter.
    loop {
        let (head, body) = exchange(&server, &[&request("1.1", "", &[b'x'; 101])]).await;
        if head.starts_with("http/1.1 503") {
            assert!(head.contains("retry-after: 1") && body.contains("overloaded"), "{head}");
            break;
        }
    }
    server.api.event("a").await;
    send(&mut first, &[b" "]).await;
    let (head, _) = answer(&mut first).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    let (head, _) = exchange(&server, &[&request("1.1", "", &[b'x'; 101])]).await;
    assert!(head.starts_with("http/1.1 200"), "the room was given back: {head}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let api = Api::with(|settings| settings.receive_limits.timeout = Duration::from_millis(50));
    let source = text(&api.source(&json!({"name": "shop", "kind": "none"})).await["id"]);
    let server = Running::start(api, ServerLimits::default()).await;
    let head = "POST /in/shop HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n";
    let (head, body) = exchange(&server, &[head.as_bytes(), b"x"]).await;
    assert!(head.starts_with("http/1.1 408") && body.contains("request-timeout"), "{head}");
    let api = Arc::clone(&server.api);
    let shown = api.get(&format!("/api/v1/sources/{source}")).await.expect(http::StatusCode::OK);
    assert_eq!(shown["rejected"]["incomplete"], 1);
    server.stop().await;
}
