//! Connections that end in the wrong place, and answers that are none.

use everhook_domain::attempt::ErrorClass;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::server::{Client, SHORT, Server, delivered, failed, read_request};

#[tokio::test]
async fn case_015_a_connection_closed_without_an_answer_is_a_reset() {
    let server = Server::replying_once("").await;
    let detail = failed(&Client::new().get_answer(&server.url("/")).await, ErrorClass::Reset);
    assert_eq!(detail, "the connection was closed by the endpoint without an answer");
    assert_eq!(server.connections(), 1, "a fresh connection is not tried twice");
}

#[tokio::test]
async fn case_015_a_connection_that_ends_amid_the_headers_is_a_reset() {
    let server = Server::replying_once("HTTP/1.1 200 OK\r\ncontent-le").await;
    let detail = failed(&Client::new().get_answer(&server.url("/")).await, ErrorClass::Reset);
    assert_eq!(
        detail,
        "the connection was closed by the endpoint before its headers were complete"
    );
    let server = Server::run(|_, mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200").await.expect("a client");
        stream.set_zero_linger().expect("a socket");
    })
    .await;
    failed(&Client::new().get_answer(&server.url("/")).await, ErrorClass::Reset);
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
async fn case_015_case_075_no_answer_is_a_timeout() {
    for begin in ["", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"] {
        let server = Server::run(move |_, mut stream| async move {
            read_request(&mut stream).await;
            stream.write_all(begin.as_bytes()).await.expect("a client");
            // Holds the connection until the client gives up.
            read_request(&mut stream).await;
        })
        .await;
        let outcome = Client::new().within(SHORT).get_answer(&server.url("/")).await;
        let detail = failed(&outcome, ErrorClass::Timeout);
        assert_eq!(detail, "no status line and headers came within 300 ms");
    }
}

#[tokio::test]
async fn case_075_after_the_headers_a_reset_changes_nothing() {
    for (status, success) in [(200, true), (500, false)] {
        let server = Server::run(move |_, mut stream| async move {
            read_request(&mut stream).await;
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 100\r\n\r\npart");
            stream.write_all(answer.as_bytes()).await.expect("a client");
            read_request(&mut stream).await;
        })
        .await;
        let outcome = Client::new().within(SHORT).get_answer(&server.url("/")).await;
        assert_eq!(outcome.is_success(), success);
        let response = outcome.response.expect("an answer");
        assert_eq!((response.status, &*response.body), (status, "part"));
        assert!(response.truncated);
    }
    let server = Server::replying_once("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart").await;
    assert_eq!(delivered(&Client::new().get_answer(&server.url("/")).await), (200, "part".into()));
}

#[tokio::test]
async fn case_015_what_is_not_http_is_a_protocol_error() {
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(128 * 1_024));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    for answer in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "hello\r\n\r\n",
        "\x15\x03\x01\x00\x02\x02\x46 and more than enough",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        &long,
        &many,
    ] {
        let server = Server::replying_once(answer).await;
        let outcome = Client::new().within(SHORT).get_answer(&server.url("/")).await;
        failed(&outcome, ErrorClass::Protocol);
    }
}
