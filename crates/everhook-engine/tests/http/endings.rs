//! Connections that end in the wrong place.

use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_lab::{Door, Reply, Step};
use tokio::net::TcpListener;

use crate::client::{Client, behind, failed, lab};

const CLOSED: &str = "the connection was closed by the endpoint without an answer";
const RESET: &str = "the connection was reset by the endpoint without an answer";
const CLOSED_AMID: &str =
    "the connection was closed by the endpoint before its headers were complete";
const RESET_AMID: &str =
    "the connection was reset by the endpoint before its headers were complete";

/// The pause lets the client read what came before a reset, which would take it away otherwise.
fn and_then(begin: &'static str, end: Step) -> Reply {
    Reply::raw(begin).then(Step::Pause(Duration::from_millis(50))).then(end)
}

#[tokio::test]
async fn case_015_case_075_a_connection_that_ends_before_an_answer_is_a_reset() {
    for (reply, text) in [
        (Reply::nothing().then(Step::Close), CLOSED),
        (Reply::nothing().then(Step::Reset), RESET),
        (and_then("H", Step::Close), CLOSED_AMID),
        (and_then("HTTP/1.1 200", Step::Reset), RESET_AMID),
        (and_then("HTTP/1.1 200 OK\r\ncontent-le", Step::Close), CLOSED_AMID),
        (and_then("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", Step::Close), CLOSED_AMID),
        (and_then("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", Step::Reset), RESET_AMID),
        // An interim answer is none.
        (and_then("HTTP/1.1 100 Continue\r\n\r\n", Step::Close), CLOSED_AMID),
        (and_then("HTTP/1.1 103 Hints\r\nlink: <x>\r\n\r\nHTTP/1.1 2", Step::Reset), RESET_AMID),
    ] {
        let lab = lab(reply.clone()).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        assert_eq!(failed(&outcome, ErrorClass::Reset), text, "{reply:?}");
        assert!(outcome.response.is_none() && !outcome.resent, "{reply:?}");
        assert_eq!(lab.record().connections, 1, "a fresh connection is not tried twice");
    }
}

#[tokio::test]
async fn case_015_a_connection_that_ends_before_the_request_is_a_reset() {
    for reply in [Reply::nothing(), Reply::nothing().then(Step::Reset)] {
        let lab = behind(Door::Slammed(reply), Reply::status(200)).await;
        let outcome = Client::new().get_answer(&lab.url("/")).await;
        let text = failed(&outcome, ErrorClass::Reset);
        assert!(text.starts_with("the connection was "), "{text}");
        assert!(text.contains("by the endpoint"), "{text}");
    }
}

#[tokio::test]
async fn case_015_a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    drop(listener);
    let detail = failed(&Client::new().get_answer(&url).await, ErrorClass::Refused);
    assert_eq!(detail, "the connection was refused: nothing listens there");
}

#[tokio::test]
async fn case_084_an_answer_before_the_body_was_read_is_the_answer() {
    // More than fits into the buffers on the way, so that the request is never written whole.
    let body = vec![b'x'; 32 << 20];
    let answer = Reply::answer(413, &[("connection", "close")], "too much");
    let pause = Step::Pause(Duration::from_millis(100));
    for reply in [
        answer.clone().then(Step::Close),
        answer.clone().then(pause.clone()).then(Step::Reset),
        // Closed with bytes that were never read, as a server does that refuses.
        answer.then(pause),
    ] {
        let lab = behind(Door::Impatient, reply.clone()).await;
        let outcome = Client::new().post(&lab.url("/"), &body).await;
        let text = failed(&outcome, ErrorClass::Status);
        assert_eq!(text, "the endpoint answered with status 413", "{reply:?}");
        assert_eq!(outcome.response.expect("an answer").status, 413);
        let record = lab.wait_for(|record| record.ended == 1).await;
        assert_eq!((record.connections, record.request_count), (1, 1), "{reply:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_there_before_the_request_is_taken() {
    // Some refuse at once and close; their answer is the better reason.
    let reply = Reply::answer(503, &[("connection", "close")], "busy");
    let lab = behind(Door::Slammed(reply), Reply::status(200)).await;
    let outcome = Client::new().get_answer(&lab.url("/")).await;
    let error = outcome.error.as_ref().expect("a failure");
    assert!([ErrorClass::Status, ErrorClass::Protocol].contains(&error.class), "{error:?}");
}
