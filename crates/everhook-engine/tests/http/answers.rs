//! What answers mean and what is kept of them.

use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use tokio::io::AsyncWriteExt;

use crate::server::{Client, PATIENCE, SHORT, Server, delivered, failed, read_request};

#[tokio::test]
async fn case_013_every_2xx_is_a_success() {
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", (200, "ok")),
        ("HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", (201, "")),
        (
            "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            (202, "ok"),
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", (204, "")),
        ("HTTP/1.1 206 Partial\r\ncontent-length: 1\r\n\r\nx", (206, "x")),
        ("HTTP/1.1 299 Fine\r\ncontent-length: 0\r\n\r\n", (299, "")),
        ("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", (200, "")),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", (200, "")),
    ] {
        let server = Server::replying(answer).await;
        let outcome = Client::new().get_answer(&server.url("/")).await;
        let (status, body) = delivered(&outcome);
        assert_eq!((status, &*body), expected, "{answer}");
        assert!(!outcome.response.expect("an answer").truncated);
    }
    for answer in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
        "HTTP/1.0 200 OK\r\n\r\nto the end",
    ] {
        let server = Server::replying_once(answer).await;
        let outcome = Client::new().get_answer(&server.url("/")).await;
        assert_eq!(delivered(&outcome), (200, "to the end".to_owned()), "{answer}");
    }
}

#[tokio::test]
async fn case_014_case_066_case_111_a_redirect_is_a_failure_and_is_not_followed() {
    let other = Server::replying("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    for status in [301, 302, 303, 307, 308] {
        for location in [
            other.url("/"),
            format!("//{}/x", other.address),
            "/".to_owned(),
            "http://169.254.169.254/".to_owned(),
        ] {
            let server = Server::replying(format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n"
            ))
            .await;
            let outcome = Client::new().get_answer(&server.url("/")).await;
            failed(&outcome, ErrorClass::Status);
            let response = outcome.response.expect("an answer");
            assert_eq!(response.status, status);
            assert!(response.headers.contains(&("location".to_owned(), location)));
            assert_eq!(server.connections(), 1);
        }
    }
    let server = Server::replying("HTTP/1.1 302 Nowhere\r\ncontent-length: 0\r\n\r\n").await;
    failed(&Client::new().get_answer(&server.url("/")).await, ErrorClass::Status);
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn case_007_case_075_case_084_other_statuses_are_failures_with_their_status() {
    for status in [400, 403, 404, 410, 413, 429, 500, 503, 599] {
        let answer = format!("HTTP/1.1 {status} No\r\ncontent-length: 2\r\n\r\nno");
        let server = Server::replying(answer).await;
        let outcome = Client::new().get_answer(&server.url("/")).await;
        let detail = failed(&outcome, ErrorClass::Status);
        assert!(detail.contains(&status.to_string()), "{detail}");
        let response = outcome.response.expect("an answer");
        assert_eq!((response.status, &*response.body), (status, "no"));
    }
}

#[tokio::test]
async fn case_005_of_a_large_body_only_the_start_is_read() {
    const MEBIBYTE: usize = 1 << 20;
    for (head, pieces) in [
        ("content-length: 102400\r\n\r\n".to_owned(), 1),
        (format!("content-length: {}\r\n\r\n", 50 * MEBIBYTE), 50),
        ("connection: close\r\n\r\n".to_owned(), usize::MAX),
    ] {
        let server = Server::run(move |_, mut stream| {
            let head = head.clone();
            async move {
                read_request(&mut stream).await;
                let head = format!("HTTP/1.1 200 OK\r\n{head}");
                stream.write_all(head.as_bytes()).await.expect("a client");
                // Ends when the client has closed the connection.
                let piece = "äé".repeat(if pieces == 1 { 25_600 } else { MEBIBYTE / 4 });
                for _ in 0..pieces {
                    if stream.write_all(piece.as_bytes()).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await;
        let outcome = Client::new().get_answer(&server.url("/")).await;
        let (status, body) = delivered(&outcome);
        assert_eq!((status, &*body), (200, &*"äé".repeat(1_024)));
        assert!(outcome.response.expect("an answer").truncated);
    }
}

#[tokio::test]
async fn what_peers_fail_8_an_endless_chunked_body_and_one_that_drips_are_successes() {
    for endless in [true, false] {
        let server = Server::run(move |_, mut stream| async move {
            read_request(&mut stream).await;
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.expect("a client");
            let mut pause = tokio::time::interval(Duration::from_millis(20));
            while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                if !endless {
                    pause.tick().await;
                }
            }
        })
        .await;
        let client = Client::new().within(if endless { PATIENCE } else { SHORT });
        let outcome = client.get_answer(&server.url("/")).await;
        let (status, body) = delivered(&outcome);
        assert_eq!(status, 200);
        assert!(!body.is_empty() && body.bytes().all(|byte| byte == b'x'), "{body}");
        assert!(body.len() == 4_096 || !endless);
        assert!(outcome.response.expect("an answer").truncated);
    }
}

#[tokio::test]
async fn case_070_bytes_that_are_not_text_are_escaped_and_nothing_is_decoded() {
    let mut answer = b"HTTP/1.1 200 \xe9\r\ncontent-encoding: gzip\r\nx-odd: \xe4<b>\r\n".to_vec();
    answer.extend_from_slice(b"bad header\r\ncontent-length: 8\r\n\r\n\x1f\x8b\x08\x00<i>\xff");
    let server = Server::replying(answer).await;
    let outcome = Client::new().get_answer(&server.url("/")).await;
    assert_eq!(delivered(&outcome), (200, "\\x1f\\x8b\\x08\\x00<i>\\xff".to_owned()));
    let headers = outcome.response.expect("an answer").headers;
    assert!(headers.contains(&("x-odd".to_owned(), "\\xe4<b>".to_owned())), "{headers:?}");
    assert!(headers.contains(&("content-encoding".to_owned(), "gzip".to_owned())));
}

#[tokio::test]
async fn what_peers_fail_9_retry_after_is_read() {
    for (value, seconds) in
        [("120", Some(120)), ("soon", None), ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0))]
    {
        let answer =
            format!("HTTP/1.1 503 Busy\r\nretry-after: {value}\r\ncontent-length: 0\r\n\r\n");
        let server = Server::replying(answer).await;
        let outcome = Client::new().get_answer(&server.url("/")).await;
        assert_eq!(outcome.retry_after, seconds.map(Duration::from_secs), "{value}");
    }
}

#[tokio::test]
async fn case_021_case_022_the_request_arrives_as_it_was_signed() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = Server::run(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            tell.send(read_request(&mut stream).await).expect("a test");
            stream.write_all(b"HTTP/1.1 204 OK\r\n\r\n").await.expect("a client");
        }
    })
    .await;
    let body = "{\"data\":\"\\ud83d 🎉 e\u{301}\"}".as_bytes();
    let url = format!("http://user:pa%20ss@{}/a%2Fb c?q=1+2&r=%25", server.address);
    delivered(&Client::new().post(&url, body).await);
    let request = told.recv().await.flatten().expect("a request");
    let text = String::from_utf8(request).expect("UTF-8");
    let (head, sent) = text.split_once("\r\n\r\n").expect("a head");
    assert_eq!(sent.as_bytes(), body);
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("POST /a%2Fb%20c?q=1+2&r=%25 HTTP/1.1"));
    let host = format!("host: {}", server.address);
    assert_eq!(lines.next(), Some(&*host));
    assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
    assert!(!head.contains("pa"), "credentials are the engine's to send: {head}");
}
