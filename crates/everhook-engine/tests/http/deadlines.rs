//! One deadline for all that comes before the end of an answer's headers. Nothing that a receiver
//! or a name server does moves it.

use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_lab::{Door, Reply, Step};

use crate::client::{Client, PATIENCE, SHORT, behind, failed, in_paused_time, lab};

const NO_HEAD: &str = "no status line and headers came within 10 s";

#[tokio::test(start_paused = true)]
async fn case_015_case_075_no_answer_is_a_timeout_after_ten_seconds_whatever_drips() {
    let second = Duration::from_secs(1);
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n";
    for reply in [
        Reply::nothing().then(Step::Hold),
        Reply::raw("HTTP/1.1 200 OK\r\n").then(Step::Hold),
        Reply::raw(head).then(Step::Hold),
        Reply::nothing().then(Step::Drip(format!("{head}\r\n").into(), second)),
        Reply::raw("HTTP/1.1 200 OK\r\n").then(Step::Endlessly("x: y\r\n".into(), second)),
        Reply::raw("HTTP/1.1 200 OK\r\nx: ").then(Step::Endlessly("y".into(), second)),
        // Answers that are none come for ever.
        Reply::nothing().then(Step::Endlessly("HTTP/1.1 100 Continue\r\n\r\n".into(), second)),
        Reply::nothing().then(Step::Endlessly("\r\n".into(), second)),
        Reply::nothing().then(Step::Pause(PATIENCE + second)).send("HTTP/1.1 200 OK\r\n\r\n"),
    ] {
        let lab = lab(reply.clone()).await;
        let client = Client::new();
        let (outcome, took) = in_paused_time(client.get_answer(&lab.url("/"))).await;
        assert_eq!(failed(&outcome, ErrorClass::Timeout), NO_HEAD, "{reply:?}");
        assert!(outcome.response.is_none());
        assert!((PATIENCE..PATIENCE + second).contains(&took), "{took:?} {reply:?}");
        lab.wait_for(|record| record.ended == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_just_within_the_deadline_counts() {
    let late = PATIENCE - Duration::from_millis(500);
    let lab = lab(Reply::nothing().then(Step::Pause(late)).send("HTTP/1.1 204 OK\r\n\r\n")).await;
    let client = Client::new();
    let (outcome, took) = in_paused_time(client.get_answer(&lab.url("/"))).await;
    assert!(outcome.is_success(), "{outcome:?}");
    assert!((late..PATIENCE).contains(&took), "{took:?}");
}

#[tokio::test]
async fn a_flood_of_answers_that_are_none_does_not_hold_the_deadline_back() {
    for flood in ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Hints\r\nlink: </x>\r\n\r\n"] {
        let flood = flood.repeat(500);
        let lab = lab(Reply::nothing().then(Step::Endlessly(flood.into(), Duration::ZERO))).await;
        let outcome = Client::new().within(SHORT).get_answer(&lab.url("/")).await;
        failed(&outcome, ErrorClass::Timeout);
        lab.wait_for(|record| record.ended == 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn case_076_a_handshake_that_does_not_end_is_a_timeout() {
    let second = Duration::from_secs(1);
    for reply in [
        Reply::nothing().then(Step::Hold),
        // The beginning of a record, and then the rest of it, slowly.
        Reply::raw(&b"\x16\x03\x03\x40\x00"[..]).then(Step::Endlessly("x".into(), second)),
    ] {
        let lab = behind(Door::Slammed(reply), Reply::nothing()).await;
        let url = format!("https://{}/", lab.address());
        let client = Client::new();
        let (outcome, took) = in_paused_time(client.get_answer(&url)).await;
        let text = failed(&outcome, ErrorClass::Timeout);
        assert_eq!(text, "the TLS handshake did not end within 10 s");
        assert!((PATIENCE..PATIENCE + second).contains(&took), "{took:?}");
    }
}
