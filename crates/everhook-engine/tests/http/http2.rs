//! HTTP/2: when it is spoken, how connections are shared, and when they are not.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use tokio::sync::{Barrier, Notify, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::client::{Client, SHORT, delivered, failed};
use crate::frames::{self, DATA, END_HEADERS, HEADERS, MAX_CONCURRENT_STREAMS, RST_STREAM};
use crate::frames::{END_STREAM, STATUS_200};
use crate::secure::{self, BOTH, KEEP, localhost, url};
use crate::secure::{Authority, Server};

const OK: (u16, String) = (200, String::new());

/// So many requests at once, all of which must be delivered.
async fn send_at_once(client: &Arc<Client>, server: &Server, count: usize) {
    let mut sending = JoinSet::new();
    for _ in 0..count {
        let (client, url) = (Arc::clone(client), url(server));
        sending.spawn(async move {
            let outcome = client.get_answer(&url).await;
            assert_eq!(delivered(&outcome), OK);
            assert!(!outcome.resent);
        });
    }
    sending.join_all().await;
}

#[tokio::test]
async fn what_peers_fail_19_one_connection_carries_many_requests_at_once() {
    let authority = Authority::new("trusted");
    // Answers only when a hundred are waiting.
    let server = frames::run(&authority, &[], |_, mut frames| async move {
        loop {
            let mut waiting = Vec::new();
            while waiting.len() < 100 {
                let Some(stream) = frames.request().await else { return };
                waiting.push(stream);
            }
            for stream in waiting.into_iter().rev() {
                frames.answer(stream).await;
            }
        }
    })
    .await;
    let client = Arc::new(authority.client());
    for _ in 0..5 {
        send_at_once(&client, &server, 100).await;
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn beyond_our_limit_of_streams_another_connection_is_opened() {
    let authority = Authority::new("trusted");
    let all = Arc::new(Barrier::new(3));
    let waiting = Arc::clone(&all);
    // Nobody is answered before all 25 are there.
    let server = frames::run(&authority, &[], move |number, mut frames| {
        let waiting = Arc::clone(&waiting);
        async move {
            let mut streams = Vec::new();
            for _ in 0..[10, 10, 5][number] {
                streams.push(frames.request().await.expect("a request"));
            }
            waiting.wait().await;
            for stream in streams {
                frames.answer(stream).await;
            }
            frames.answer_all().await;
        }
    })
    .await;
    let settings = EngineSettings { http2_streams_max: 10, ..EngineSettings::default() };
    let client = Arc::new(authority.client_with(settings));
    send_at_once(&client, &server, 25).await;
    send_at_once(&client, &server, 25).await;
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn the_endpoints_limit_of_streams_is_kept() {
    let authority = Authority::new("trusted");
    let both = Arc::new(Barrier::new(2));
    let waiting = Arc::clone(&both);
    let settings = &[(MAX_CONCURRENT_STREAMS, 1)];
    let server = frames::run(&authority, settings, move |number, mut frames| {
        let waiting = Arc::clone(&waiting);
        async move {
            if number == 0 {
                let stream = frames.request().await.expect("a request");
                frames.answer(stream).await;
            }
            let stream = frames.request().await.expect("a request");
            waiting.wait().await;
            frames.answer(stream).await;
            frames.answer_all().await;
        }
    })
    .await;
    let client = Arc::new(authority.client());
    // Then the limit is known.
    send_at_once(&client, &server, 1).await;
    send_at_once(&client, &server, 2).await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn the_endpoint_chooses_and_can_be_kept_from_choosing() {
    let authority = Authority::new("trusted");
    for (protocols, offered, chosen) in [
        (&[][..], true, None),
        (&[&b"http/1.1"[..]][..], true, Some(&b"http/1.1"[..])),
        (BOTH, false, None),
    ] {
        let (tell, mut told) = mpsc::unbounded_channel();
        let server = secure::run(localhost(&authority, protocols), move |_, mut stream| {
            tell.send(stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)).expect("a test");
            async move {
                while crate::secure::read_request(&mut stream).await.is_some() {
                    tokio::io::AsyncWriteExt::write_all(&mut stream, KEEP).await.expect("a client");
                }
            }
        })
        .await;
        let settings = EngineSettings { http2: offered, ..EngineSettings::default() };
        let client = authority.client_with(settings);
        for _ in 0..3 {
            let outcome = client.get_answer(&url(&server)).await;
            assert_eq!(delivered(&outcome).0, 204);
        }
        assert_eq!(told.recv().await.expect("a connection").as_deref(), chosen);
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn requests_that_wait_for_an_http1_host_all_get_a_connection() {
    let authority = Authority::new("trusted");
    let (server, _) = secure::replying(localhost(&authority, &[]), KEEP).await;
    let client = Arc::new(authority.client());
    let mut sending = JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (Arc::clone(&client), url(&server));
        sending.spawn(async move { delivered(&client.get_answer(&url).await) });
    }
    assert_eq!(sending.join_all().await.len(), 20);
    assert!(server.connections() <= 20);
}

#[tokio::test]
async fn who_gives_up_a_connection_that_is_being_made_leaves_it_to_the_others() {
    let authority = Authority::new("trusted");
    let acceptor = TlsAcceptor::from(Arc::new(localhost(&authority, &[])));
    let (there, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, gone_on) = (Arc::clone(&there), Arc::clone(&go_on));
    let server = Server::run(move |_, stream| {
        let (acceptor, tell, gone_on) = (acceptor.clone(), Arc::clone(&tell), Arc::clone(&gone_on));
        async move {
            tell.notify_one();
            gone_on.notified().await;
            let mut stream = acceptor.accept(stream).await.expect("a client");
            while secure::read_request(&mut stream).await.is_some() {
                tokio::io::AsyncWriteExt::write_all(&mut stream, KEEP).await.expect("a client");
            }
        }
    })
    .await;
    let (client, target) = (authority.client(), url(&server));
    let mut first = Box::pin(client.get_answer(&target));
    let mut second = Box::pin(client.get_answer(&target));
    tokio::select! {
        biased;
        _ = &mut first => unreachable!("nobody has answered"),
        _ = &mut second => unreachable!("nobody has answered"),
        () = there.notified() => {}
    }
    drop(first);
    go_on.notify_one();
    assert_eq!(delivered(&second.await).0, 204);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn case_021_case_022_the_request_arrives_as_it_was_signed_over_http2() {
    let authority = Authority::new("trusted");
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = secure::run(localhost(&authority, BOTH), move |_, stream| {
        let tell = tell.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.expect("a client");
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                let tell = tell.clone();
                let answer = http::Response::new(());
                respond.send_response(answer, true).expect("a client");
                let (head, mut body) = request.into_parts();
                let reading = async move {
                    let mut bytes = Vec::new();
                    while let Some(Ok(piece)) = body.data().await {
                        bytes.extend_from_slice(&piece);
                    }
                    tell.send((head, bytes)).expect("a test");
                };
                tokio::select! {
                    () = reading => {}
                    _ = std::future::poll_fn(|cx| connection.poll_closed(cx)) => {}
                }
            }
        }
    })
    .await;
    let client = authority.client();
    let port = server.address.port();
    for body in ["{\"data\":\"\\ud83d 🎉 e\u{301}\"}", ""] {
        let url = format!("https://user:pa%20ss@localhost:{port}/a%2Fb c?q=1+2&r=%25");
        delivered(&client.post(&url, body.as_bytes()).await);
        let (head, sent) = told.recv().await.expect("a request");
        assert_eq!(sent, body.as_bytes());
        assert_eq!(head.method, "POST");
        let target = format!("https://localhost:{port}/a%2Fb%20c?q=1+2&r=%25");
        assert_eq!(head.uri.to_string(), target);
        assert_eq!(head.headers["content-length"], body.len().to_string());
        assert_eq!(head.headers["content-type"], "application/json");
        assert!(!head.headers.contains_key("host"), "the target names it");
        assert!(!format!("{head:?}").contains("pa%20ss"), "credentials are the engine's to send");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn case_005_beyond_the_cap_of_a_body_the_stream_ends_and_not_the_connection() {
    let authority = Authority::new("trusted");
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = frames::run(&authority, &[], move |_, mut frames| {
        let tell = tell.clone();
        async move {
            let large = frames.request().await.expect("a request");
            frames.send(HEADERS, END_HEADERS, large, STATUS_200).await;
            frames.send(DATA, 0, large, &[b'x'; 5_000]).await;
            let reset = frames.wait_for(RST_STREAM).await.expect("a reset");
            tell.send(reset.stream == large).expect("a test");
            let small = frames.request().await.expect("a request");
            frames.send(HEADERS, END_HEADERS, small, STATUS_200).await;
            frames.send(DATA, END_STREAM, small, b"ok").await;
            frames.wait_for_end().await;
        }
    })
    .await;
    let client = authority.client();
    let outcome = client.get_answer(&url(&server)).await;
    assert_eq!(delivered(&outcome), (200, "x".repeat(4_096)));
    assert!(outcome.response.expect("an answer").truncated);
    assert_eq!(told.recv().await, Some(true));
    let outcome = client.get_answer(&url(&server)).await;
    assert_eq!(delivered(&outcome), (200, "ok".to_owned()));
    assert!(!outcome.response.expect("an answer").truncated);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_was_silent_to_the_end_gets_no_more_requests() {
    let authority = Authority::new("trusted");
    let server = frames::run(&authority, &[], |number, mut frames| async move {
        if number == 0 {
            // Once alive, then dead.
            let stream = frames.request().await.expect("a request");
            frames.answer(stream).await;
            frames.wait_for_end().await;
        }
        frames.answer_all().await;
    })
    .await;
    let client = authority.client();
    delivered(&client.get_answer(&url(&server)).await);
    let client = client.within(SHORT);
    let detail = failed(&client.get_answer(&url(&server)).await, ErrorClass::Timeout);
    assert_eq!(detail, "no status line and headers came within 300 ms");
    assert_eq!(server.connections(), 1);
    let client = client.within(crate::client::PATIENCE);
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn one_slow_request_does_not_end_the_use_of_a_connection_that_answers_others() {
    let authority = Authority::new("trusted");
    let slow_is_there = Arc::new(Notify::new());
    let tell = Arc::clone(&slow_is_there);
    let server = frames::run(&authority, &[], move |_, mut frames| {
        let tell = Arc::clone(&tell);
        async move {
            frames.request().await.expect("the slow one");
            tell.notify_one();
            frames.answer_all().await;
        }
    })
    .await;
    let client = Arc::new(authority.client().within(Duration::from_secs(2)));
    let (slow, target) = (Arc::clone(&client), url(&server));
    let mut sending = JoinSet::new();
    sending.spawn(async move { slow.get_answer(&target).await });
    slow_is_there.notified().await;
    delivered(&client.get_answer(&url(&server)).await);
    let outcomes = sending.join_all().await;
    failed(&outcomes[0], ErrorClass::Timeout);
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn while_a_connection_is_silent_others_go_elsewhere() {
    let authority = Authority::new("trusted");
    let (tell, mut told) = mpsc::unbounded_channel();
    let go_on = Arc::new(Notify::new());
    let gone_on = Arc::clone(&go_on);
    let server = frames::run(&authority, &[], move |number, mut frames| {
        let (tell, gone_on) = (tell.clone(), Arc::clone(&gone_on));
        async move {
            let stream = frames.request().await.expect("a request");
            tell.send(number).expect("a test");
            if number == 0 {
                gone_on.notified().await;
            }
            frames.answer(stream).await;
            frames.answer_all().await;
        }
    })
    .await;
    // Any silence is too long.
    let settings =
        EngineSettings { http2_silence_max: Duration::ZERO, ..EngineSettings::default() };
    let client = Arc::new(authority.client_with(settings));
    let (first, target) = (Arc::clone(&client), url(&server));
    let mut sending = JoinSet::new();
    sending.spawn(async move { first.get_answer(&target).await });
    assert_eq!(told.recv().await, Some(0));
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(server.connections(), 2);
    go_on.notify_one();
    delivered(&sending.join_all().await[0]);
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(server.connections(), 2, "nobody waits there any more, so it is used again");
}

#[tokio::test]
async fn idle_and_old_connections_are_closed_and_so_are_all_of_a_sender_that_ends() {
    let authority = Authority::new("trusted");
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = frames::run(&authority, &[], move |number, mut frames| {
        let tell = tell.clone();
        async move {
            frames.answer_all().await;
            tell.send(number).expect("a test");
        }
    })
    .await;
    let short = Duration::from_millis(50);
    let settings = EngineSettings { pool_idle: short, ..EngineSettings::default() };
    let client = authority.client_with(settings);
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(told.recv().await, Some(0));

    let settings = EngineSettings { pool_age: Duration::ZERO, ..EngineSettings::default() };
    let client = authority.client_with(settings);
    delivered(&client.get_answer(&url(&server)).await);
    assert_eq!(told.recv().await, Some(1));

    let client = authority.client();
    delivered(&client.get_answer(&url(&server)).await);
    drop(client);
    assert_eq!(told.recv().await, Some(2));
}
