//! The pool: connections used again, and those that closed under us.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::server::{Client, Server, delivered, failed, read_request};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[tokio::test]
async fn what_peers_fail_19_connections_are_used_again() {
    let server = Server::replying(OK).await;
    let client = Arc::new(Client::new());
    for _ in 0..50 {
        delivered(&client.get_answer(&server.url("/")).await);
    }
    assert_eq!(server.connections(), 1);
    for _ in 0..10 {
        let mut sending = JoinSet::new();
        for _ in 0..100 {
            let (client, url) = (Arc::clone(&client), server.url("/"));
            sending.spawn(async move { delivered(&client.get_answer(&url).await) });
        }
        sending.join_all().await;
    }
    assert!(server.connections() <= 100, "{} connections", server.connections());
}

#[tokio::test]
async fn case_016_a_connection_closed_while_it_idled_is_noticed() {
    let closed = Arc::new(Notify::new());
    let tell = Arc::clone(&closed);
    let server = Server::run(move |_, mut stream| {
        let tell = Arc::clone(&tell);
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.expect("a client");
            stream.shutdown().await.expect("a socket");
            tell.notify_one();
        }
    })
    .await;
    let client = Client::new();
    for _ in 0..3 {
        let outcome = client.get_answer(&server.url("/")).await;
        delivered(&outcome);
        assert!(!outcome.resent);
        closed.notified().await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn case_016_a_connection_closed_under_the_request_is_replaced_once() {
    // Every connection answers two requests, then closes on the third without a word.
    let server = Server::run(|_, mut stream| async move {
        for _ in 0..2 {
            read_request(&mut stream).await;
            stream.write_all(OK).await.expect("a client");
        }
        read_request(&mut stream).await;
    })
    .await;
    let client = Client::new();
    let mut resent = Vec::new();
    for _ in 0..7 {
        let outcome = client.get_answer(&server.url("/")).await;
        delivered(&outcome);
        resent.push(outcome.resent);
    }
    assert_eq!(resent, [false, false, true, false, true, false, true]);
}

#[tokio::test]
async fn case_016_a_reset_under_the_request_is_the_same() {
    let server = Server::run(|number, mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(OK).await.expect("a client");
        read_request(&mut stream).await;
        if number == 0 {
            stream.set_zero_linger().expect("a socket");
        } else {
            stream.write_all(OK).await.ok();
        }
    })
    .await;
    let client = Client::new();
    assert!(!client.get_answer(&server.url("/")).await.resent);
    let outcome = client.get_answer(&server.url("/")).await;
    delivered(&outcome);
    assert!(outcome.resent);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn case_016_there_is_no_second_resend_and_none_after_a_byte_of_an_answer() {
    let server = Server::run(|number, mut stream| async move {
        if number == 0 {
            read_request(&mut stream).await;
            stream.write_all(OK).await.expect("a client");
        }
        read_request(&mut stream).await;
    })
    .await;
    let client = Client::new();
    delivered(&client.get_answer(&server.url("/")).await);
    let outcome = client.get_answer(&server.url("/")).await;
    failed(&outcome, ErrorClass::Reset);
    assert!(outcome.resent);
    assert_eq!(server.connections(), 2);

    let server = Server::run(|_, mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(OK).await.expect("a client");
        read_request(&mut stream).await;
        stream.write_all(b"H").await.expect("a client");
    })
    .await;
    delivered(&client.get_answer(&server.url("/")).await);
    let outcome = client.get_answer(&server.url("/")).await;
    failed(&outcome, ErrorClass::Reset);
    assert!(!outcome.resent);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_time_and_not_used_beyond_its_age() {
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let server = Server::run(move |_, mut stream| {
        let tell = Arc::clone(&tell);
        async move {
            while read_request(&mut stream).await.is_some() {
                stream.write_all(OK).await.expect("a client");
            }
            assert_eq!(stream.read(&mut [0]).await.ok(), Some(0));
            tell.notify_one();
        }
    })
    .await;
    let short = Duration::from_millis(50);
    let settings = EngineSettings { pool_idle: short, ..EngineSettings::default() };
    let client = Client::with(settings, Resolver::system());
    delivered(&client.get_answer(&server.url("/")).await);
    ended.notified().await;

    let settings = EngineSettings { pool_age: Duration::ZERO, ..EngineSettings::default() };
    let client = Client::with(settings, Resolver::system());
    delivered(&client.get_answer(&server.url("/")).await);
    ended.notified().await;
    delivered(&client.get_answer(&server.url("/")).await);
    ended.notified().await;
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_closes_the_connection() {
    let body = "x".repeat(4_097);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4097\r\n\r\n{body}");
    let server = Server::replying(answer).await;
    let client = Client::new();
    for _ in 0..3 {
        let (_, kept) = delivered(&client.get_answer(&server.url("/")).await);
        assert_eq!(kept.len(), 4_096);
    }
    assert_eq!(server.connections(), 3);
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 4096\r\n\r\n{}", &body[1..]);
    let server = Server::replying(answer).await;
    for _ in 0..3 {
        let outcome = client.get_answer(&server.url("/")).await;
        assert!(!outcome.response.expect("an answer").truncated);
    }
    assert_eq!(server.connections(), 1, "all of it was read");
}

#[tokio::test]
async fn hosts_and_schemes_do_not_share_connections() {
    let server = Server::replying(OK).await;
    let client = Client::new();
    let port = server.address.port();
    for url in [format!("http://127.0.0.1:{port}/"), format!("http://localhost:{port}/")] {
        for _ in 0..2 {
            delivered(&client.get_answer(&url).await);
        }
    }
    assert_eq!(server.connections(), 2);
}
