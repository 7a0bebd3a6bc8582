//! HTTP/2 connections and streams that end in the wrong place.

use everhook_domain::attempt::{AttemptOutcome, ErrorClass};

use crate::client::{Client, SHORT, delivered, failed};
use crate::frames::{self, END_HEADERS, END_STREAM, Frames, HEADERS};
use crate::secure::url;
use crate::secure::{Authority, Server};

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

/// What a server does with a request instead of answering it.
#[derive(Clone, Copy, Debug)]
enum Instead {
    /// Goes away without having begun with it.
    GoAway,
    /// Refuses it.
    Refuse,
    /// Closes the connection without a word.
    Close,
    /// Ends the connection with a TCP reset.
    Abort,
    /// Says that it may have begun with it, and closes the connection.
    GoAwayAfter,
    /// Resets its stream.
    Reset,
}

impl Instead {
    async fn run(self, mut frames: Frames, stream: u32) {
        match self {
            Self::GoAway => {
                frames.go_away(stream.saturating_sub(2), ENHANCE_YOUR_CALM).await;
                frames.wait_for_end().await;
            }
            Self::Refuse => {
                frames.reset(stream, REFUSED_STREAM).await;
                frames.wait_for_end().await;
            }
            Self::Close => {}
            Self::Abort => frames.0.get_ref().0.set_zero_linger().expect("a socket"),
            Self::GoAwayAfter => frames.go_away(stream, NO_ERROR).await,
            Self::Reset => {
                frames.reset(stream, INTERNAL_ERROR).await;
                frames.answer_all().await;
            }
        }
    }
}

/// A server that answers `first` requests, then does something else, on connections before `good`.
async fn server(authority: &Authority, instead: Instead, first: usize, good: usize) -> Server {
    frames::run(authority, &[], move |number, mut frames| async move {
        if number < good {
            for _ in 0..first {
                let stream = frames.request().await.expect("a request");
                frames.answer(stream).await;
            }
            let Some(stream) = frames.request().await else { return };
            instead.run(frames, stream).await;
        } else {
            frames.answer_all().await;
        }
    })
    .await
}

async fn send(client: &Client, server: &Server) -> AttemptOutcome {
    client.get_answer(&url(server)).await
}

#[tokio::test]
async fn case_016_a_request_that_was_not_begun_is_sent_once_more() {
    let authority = Authority::new("trusted");
    for instead in [Instead::GoAway, Instead::Refuse] {
        for first in [0, 1] {
            let server = server(&authority, instead, first, 1).await;
            let client = authority.client();
            for _ in 0..first {
                assert!(!send(&client, &server).await.resent);
            }
            let outcome = send(&client, &server).await;
            delivered(&outcome);
            assert!(outcome.resent, "{instead:?} after {first}");
            assert_eq!(server.connections(), 2);
        }
    }
}

#[tokio::test]
async fn case_016_it_is_not_sent_a_third_time() {
    let authority = Authority::new("trusted");
    for (instead, text) in [
        (
            Instead::GoAway,
            "the connection was closed by the endpoint before it took the request (GOAWAY, \
             ENHANCE_YOUR_CALM)",
        ),
        (
            Instead::Refuse,
            "the request was reset by the endpoint without an answer (REFUSED_STREAM)",
        ),
    ] {
        let server = server(&authority, instead, 0, usize::MAX).await;
        let outcome = send(&authority.client(), &server).await;
        assert_eq!(failed(&outcome, ErrorClass::Reset), text);
        assert!(outcome.resent);
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn case_016_a_used_connection_that_closes_under_the_request_is_replaced_once() {
    let authority = Authority::new("trusted");
    for instead in [Instead::Close, Instead::Abort, Instead::GoAwayAfter] {
        let server = server(&authority, instead, 1, 1).await;
        let client = authority.client();
        assert!(!send(&client, &server).await.resent);
        let outcome = send(&client, &server).await;
        delivered(&outcome);
        assert!(outcome.resent, "{instead:?}");
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn case_015_a_fresh_connection_that_closes_without_an_answer_is_a_reset() {
    let authority = Authority::new("trusted");
    for instead in [Instead::Close, Instead::GoAwayAfter] {
        let server = server(&authority, instead, 0, usize::MAX).await;
        let outcome = send(&authority.client(), &server).await;
        let detail = failed(&outcome, ErrorClass::Reset);
        assert_eq!(detail, "the connection was closed by the endpoint without an answer");
        assert!(!outcome.resent);
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn case_015_a_stream_that_is_reset_fails_alone() {
    let authority = Authority::new("trusted");
    let server = server(&authority, Instead::Reset, 1, usize::MAX).await;
    let client = authority.client();
    delivered(&send(&client, &server).await);
    let outcome = send(&client, &server).await;
    assert_eq!(
        failed(&outcome, ErrorClass::Reset),
        "the request was reset by the endpoint without an answer (INTERNAL_ERROR)"
    );
    assert!(!outcome.resent, "it may have been begun");
    delivered(&send(&client, &server).await);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn case_016_a_connection_that_closed_while_it_idled_takes_no_request() {
    let authority = Authority::new("trusted");
    let server = frames::run(&authority, &[], |_, mut frames| async move {
        let stream = frames.request().await.expect("a request");
        frames.answer(stream).await;
        frames.go_away(stream, NO_ERROR).await;
        frames.wait_for_end().await;
    })
    .await;
    let client = authority.client();
    for _ in 0..5 {
        delivered(&send(&client, &server).await);
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn case_015_what_is_not_http2_is_a_protocol_error() {
    let authority = Authority::new("trusted");
    let server = frames::run(&authority, &[], |_, mut frames| async move {
        frames.request().await.expect("a request");
        let noise = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n and more than enough";
        tokio::io::AsyncWriteExt::write_all(&mut frames.0, noise).await.ok();
        frames.wait_for_end().await;
    })
    .await;
    let outcome = send(&authority.client().within(SHORT), &server).await;
    let detail = failed(&outcome, ErrorClass::Protocol);
    assert!(
        detail.starts_with("what the endpoint sends is not HTTP/2, or more than is allowed ("),
        "{detail}"
    );
}

#[tokio::test]
async fn case_015_headers_that_are_too_large_are_a_protocol_error_of_one_request() {
    let authority = Authority::new("trusted");
    let server = frames::run(&authority, &[], |_, mut frames| async move {
        let stream = frames.request().await.expect("a request");
        // A status, then five times a header of 16,000 bytes.
        let mut value = vec![0x00, 1, b'x', 0x7f];
        let mut rest = 16_000_usize - 127;
        while rest >= 128 {
            value.push(u8::try_from(rest % 128).expect("seven bits") | 0x80);
            rest /= 128;
        }
        value.push(u8::try_from(rest).expect("seven bits"));
        value.extend([b'y'; 16_000]);
        let head = [frames::STATUS_200, &value].concat();
        frames.send(HEADERS, END_STREAM, stream, &head).await;
        for piece in 1..5 {
            let flags = if piece == 4 { END_HEADERS } else { 0 };
            frames.send(9, flags, stream, &value).await;
        }
        frames.answer_all().await;
    })
    .await;
    let client = authority.client();
    let outcome = send(&client, &server).await;
    assert_eq!(
        failed(&outcome, ErrorClass::Protocol),
        "the answer breaks the rules of HTTP/2, or its headers are too large (PROTOCOL_ERROR)"
    );
    delivered(&send(&client, &server).await);
    assert_eq!(server.connections(), 1);
}
