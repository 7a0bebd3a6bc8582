//! Bodies that are too large, too slow or without end: only their start is read, and they decide
//! nothing.

use std::time::Duration;

use bytes::Bytes;
use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use everhook_lab::{Reply, Step};

use crate::client::{Client, SHORT, delivered, in_paused_time, lab};

const MEBIBYTE: usize = 1 << 20;
/// More than is read of a body, with all buffers on the way; far less than the bodies here.
const ON_THE_WAY_MAX: usize = 2 * MEBIBYTE;
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn case_005_of_a_large_body_only_the_start_is_read_and_the_connection_is_closed() {
    let body = |bytes: usize| "äé".repeat(bytes / 4);
    let head =
        |length: usize| Reply::raw(format!("HTTP/1.1 200 \r\ncontent-length: {length}\r\n\r\n"));
    for reply in [
        head(102_400).send(body(102_400)),
        head(50 * MEBIBYTE).send(body(50 * MEBIBYTE)),
        Reply::raw("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
            .then(Step::Endlessly(body(MEBIBYTE).into(), Duration::ZERO)),
    ] {
        let lab = lab(reply).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(delivered(&outcome), (200, body(4_096)));
        assert!(outcome.response.expect("an answer").truncated);
        let record = lab.wait_for(|record| record.ended == 1).await;
        assert!(record.bytes_sent < ON_THE_WAY_MAX, "{} bytes", record.bytes_sent);
    }
}

#[tokio::test]
async fn case_005_the_most_that_is_ever_kept_is_sixteen_kibibytes() {
    let lab = lab(Reply::answer(200, &[], &"x".repeat(100_000))).await;
    for (set, kept) in [(0, 0), (1, 1), (16_384, 16_384), (1_000_000, 16_384)] {
        let settings = EngineSettings { response_bytes_max: set, ..EngineSettings::default() };
        let client = Client::with(settings, Resolver::system());
        let outcome = client.get_answer(&lab.url("/")).await;
        assert_eq!(delivered(&outcome).1.len(), kept);
        assert!(outcome.response.expect("an answer").truncated);
    }
}

#[tokio::test]
async fn case_005_an_endless_chunked_body_is_cut() {
    let large = format!("5000\r\n{}\r\n", "x".repeat(0x5000));
    // Of extensions so many are read that their number is no attack; then the body counts as cut.
    for (chunk, least) in [("1\r\nx\r\n", 4_096), (&large, 4_096), ("1;e=\"y\"\r\nx\r\n", 1_024)] {
        let chunks = Bytes::copy_from_slice(chunk.as_bytes());
        let reply = Reply::raw(CHUNKED).then(Step::Endlessly(chunks, Duration::ZERO));
        let lab = lab(reply).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let (status, body) = delivered(&outcome);
        assert!(body.bytes().all(|byte| byte == b'x'), "{body}");
        assert_eq!((status, (least..=4_096).contains(&body.len())), (200, true));
        assert!(outcome.response.expect("an answer").truncated);
        let record = lab.wait_for(|record| record.ended == 1).await;
        assert!(record.bytes_sent < ON_THE_WAY_MAX, "{} bytes", record.bytes_sent);
    }
}

#[tokio::test]
async fn a_compressed_body_without_end_is_kept_as_it_came() {
    // Zeros as deflate writes them: thirteen bytes unfold to more than two thousand, for ever.
    let begin = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x62\x18";
    let zeros = b"\x05\xa3\x60\x14\x8c\x82\x51\x30\x0a\x46\xc1\x28\x18".repeat(1_000);
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n";
    let reply = Reply::raw(head).send(&begin[..]);
    let lab = lab(reply.then(Step::Endlessly(zeros.into(), Duration::ZERO))).await;
    let outcome = Client::new().get_answer(&lab.url("/")).await;
    let (status, body) = delivered(&outcome);
    assert_eq!(status, 200);
    assert!(body.starts_with("\\x1f\\x8b\\x08\\x00"), "not decoded: {body}");
    assert!(body.len() <= 4 * 4_096, "four characters a byte at most: {}", body.len());
    let record = lab.wait_for(|record| record.ended == 1).await;
    assert_eq!(record.requests[0].header("accept-encoding"), None, "nor asked for");
    assert!(record.bytes_sent < ON_THE_WAY_MAX, "{} bytes", record.bytes_sent);
}

#[tokio::test(start_paused = true)]
async fn what_peers_fail_8_a_body_that_drips_is_a_success_by_the_deadline() {
    let second = Duration::from_secs(1);
    for reply in [
        Reply::raw(CHUNKED).then(Step::Endlessly("1\r\nx\r\n".into(), second)),
        Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
            .then(Step::Drip("x".repeat(100).into(), second)),
        Reply::raw("HTTP/1.0 200 OK\r\n\r\n").then(Step::Endlessly("x".into(), second)),
    ] {
        let lab = lab(reply).await;
        let client = Client::new();
        let (outcome, took) = in_paused_time(client.get_answer(&lab.url("/"))).await;
        let (status, body) = delivered(&outcome);
        assert_eq!(status, 200);
        assert!((9..=10).contains(&body.len()) && body.bytes().all(|b| b == b'x'), "{body}");
        assert!(outcome.response.expect("an answer").truncated);
        assert!((10 * second..11 * second).contains(&took), "{took:?}");
        lab.wait_for(|record| record.ended == 1).await;
    }
}

#[tokio::test]
async fn case_075_after_the_headers_nothing_changes_the_verdict() {
    for (status, success) in [(200, true), (500, false)] {
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 100\r\n\r\n");
        for end in [Step::Hold, Step::Close, Step::Reset] {
            // The pause lets the client read what came before a reset.
            let lab = lab(Reply::raw(head.clone())
                .send("part")
                .then(Step::Pause(Duration::from_millis(50)))
                .then(end.clone()))
            .await;
            let client = Client::new().within(SHORT);
            let outcome = client.get_answer(&lab.url("/")).await;
            assert_eq!(outcome.is_success(), success, "{end:?}");
            if !success {
                assert_eq!(outcome.error.expect("a failure").class, ErrorClass::Status);
            }
            let response = outcome.response.expect("an answer");
            assert_eq!((response.status, &*response.body), (status, "part"), "{end:?}");
            assert!(response.truncated, "{end:?}");
        }
    }
}
