//! The pool: connections used again, and those that closed under us.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use everhook_engine::EngineSettings;
use everhook_engine::http::Resolver;
use everhook_lab::{Behaviour, Reply, Step};
use tokio::task::JoinSet;

use crate::client::{Client, delivered, failed, lab};

fn ok() -> Reply {
    Reply::answer(200, &[], "ok")
}

#[tokio::test]
async fn what_peers_fail_19_connections_are_used_again() {
    let lab = lab(ok()).await;
    let client = Arc::new(Client::new());
    for _ in 0..50 {
        delivered(&client.get_answer(&lab.url("/")).await);
    }
    assert_eq!(lab.record().connections, 1);
    for _ in 0..10 {
        let mut sending = JoinSet::new();
        for _ in 0..100 {
            let (client, url) = (Arc::clone(&client), lab.url("/"));
            sending.spawn(async move { delivered(&client.get_answer(&url).await) });
        }
        sending.join_all().await;
    }
    let connections = lab.record().connections;
    assert!(connections <= 100, "{connections} connections");
}

#[tokio::test]
async fn case_016_a_connection_closed_while_it_idled_is_noticed() {
    // Says nothing of it, and closes after every answer.
    let lab = lab(ok().then(Step::Reset)).await;
    let client = Client::new();
    for nth in 1..=3 {
        let outcome = client.get_answer(&lab.url("/")).await;
        delivered(&outcome);
        assert!(!outcome.resent);
        lab.wait_for(|record| record.ended == nth).await;
    }
    assert_eq!(lab.record().connections, 3);
}

#[tokio::test]
async fn case_016_a_connection_closed_under_the_request_is_replaced_once() {
    for end in [Step::Close, Step::Reset] {
        // Every connection answers two requests, then ends on the third without a word.
        let lab = lab(Behaviour::by(move |request| match request.nth {
            0 | 1 => ok(),
            _ => Reply::nothing().then(end.clone()),
        }))
        .await;
        let client = Client::new();
        let mut resent = Vec::new();
        for _ in 0..7 {
            let outcome = client.get_answer(&lab.url("/")).await;
            delivered(&outcome);
            resent.push(outcome.resent);
        }
        assert_eq!(resent, [false, false, true, false, true, false, true]);
        let record = lab.record();
        assert_eq!((record.connections, record.request_count), (4, 10));
        let same = |request: &everhook_lab::Request| request.head == record.requests[0].head;
        assert!(record.requests.iter().all(same), "the same request, byte by byte");
    }
}

#[tokio::test]
async fn case_016_there_is_no_second_resend_and_none_after_a_byte_of_an_answer() {
    let ends = Behaviour::by(|request| match (request.connection, request.nth) {
        (0, 0) => ok(),
        _ => Reply::nothing().then(Step::Close),
    });
    let begins = Behaviour::by(|request| match request.nth {
        0 => ok(),
        _ => Reply::raw("H").then(Step::Close),
    });
    for (behaviour, resent, connections) in [(ends, true, 2), (begins, false, 1)] {
        let lab = lab(behaviour).await;
        let client = Client::new();
        delivered(&client.get_answer(&lab.url("/")).await);
        let outcome = client.get_answer(&lab.url("/")).await;
        failed(&outcome, ErrorClass::Reset);
        assert_eq!(outcome.resent, resent);
        assert_eq!(lab.record().connections, connections);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_time_and_not_used_beyond_its_age() {
    let lab = lab(ok()).await;
    let short = Duration::from_millis(50);
    let settings = EngineSettings { pool_idle: short, ..EngineSettings::default() };
    let client = Client::with(settings, Resolver::system());
    delivered(&client.get_answer(&lab.url("/")).await);
    lab.wait_for(|record| record.ended == 1).await;

    let settings = EngineSettings { pool_age: Duration::ZERO, ..EngineSettings::default() };
    let client = Client::with(settings, Resolver::system());
    for ended in [2, 3] {
        delivered(&client.get_answer(&lab.url("/")).await);
        lab.wait_for(|record| record.ended == ended).await;
    }
    assert_eq!(lab.record().connections, 3);
}

#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_closes_the_connection() {
    let client = Client::new();
    let large = lab(Reply::answer(200, &[], &"x".repeat(4_097))).await;
    let fitting = lab(Reply::answer(200, &[], &"x".repeat(4_096))).await;
    for (lab, connections) in [(large, 3), (fitting, 1)] {
        for _ in 0..3 {
            let outcome = client.get_answer(&lab.url("/")).await;
            assert_eq!(delivered(&outcome).1.len(), 4_096);
            assert_eq!(outcome.response.expect("an answer").truncated, connections == 3);
        }
        assert_eq!(lab.record().connections, connections);
    }
}

#[tokio::test]
async fn hosts_and_schemes_do_not_share_connections() {
    let lab = lab(ok()).await;
    let client = Client::new();
    let port = lab.address().port();
    for url in [format!("http://127.0.0.1:{port}/"), format!("http://localhost:{port}/")] {
        for _ in 0..2 {
            delivered(&client.get_answer(&url).await);
        }
    }
    assert_eq!(lab.record().connections, 2);
}
