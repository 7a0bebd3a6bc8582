//! What carries a key goes once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::Bytes;
use everhook_domain::idempotency::claim::{Lapse, Policy};
use everhook_web::proxy::{KeySettings, NotAnswered, ProxySettings};
use http::{HeaderName, Method, Response};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Gate, Stage, settings, text};

fn keyed(change: impl Fn(&mut KeySettings)) -> ProxySettings {
    let mut settings = settings();
    change(&mut settings.keys);
    settings
}

#[tokio::test]
async fn case_023_024_033_the_first_answer_is_given_again() {
    let stage = Stage::new(settings(), |request, count| async move {
        assert_eq!(request.headers()["idempotency-key"], "k", "the service sees the same key");
        let answer = Response::builder()
            .status(201)
            .header("location", "/orders/1")
            .header("set-cookie", "session=1")
            .header("date", "Mon, 30 Nov 2026 12:00:00 GMT");
        Ok(answer.body(Body::from(format!("order {count}"))).expect("legal"))
    })
    .await;
    let first = stage.post("k").await;
    first.expect(201, "order 1", false);
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    // Quoted or not, it is the same key.
    for key in ["k", "\"k\""] {
        let again = stage.post(key).await;
        again.expect(201, "order 1", true);
        assert_eq!(again.header("location"), Some("/orders/1"));
        assert_eq!(again.header("set-cookie"), None);
    }
    let other = stage.send("POST /orders?x=1", "idempotency-key: k\r\n", "{ }").await;
    other.expect_problem(422, "idempotency-key-reused");
    stage
        .send("POST /orders?x=2", "idempotency-key: k\r\n", "{}")
        .await
        .expect(201, "order 2", false);
}

#[tokio::test]
async fn case_036_only_what_was_never_sent_frees_its_key() {
    let check = async |why: fn(String) -> NotAnswered, status, slug, again: (u16, &str)| {
        let stage = Stage::new(settings(), move |_, count| async move {
            if count == 1 { Err(why("planted".to_owned())) } else { Ok(text(201, "done")) }
        })
        .await;
        let first = stage.post("k").await.expect_problem(status, slug);
        let retried = stage.post("k").await;
        assert_eq!(retried.status, again.0, "{}", retried.body);
        assert!(retried.body.contains(again.1), "{}", retried.body);
        if again.0 == 409 {
            let told = retried.expect_problem(409, "outcome-unknown");
            assert!(told["record"].is_string());
            assert_eq!(told["record"], first["record"]);
            stage.post("k").await.expect_problem(409, "outcome-unknown");
            assert_eq!(stage.runs(), 1);
        }
    };
    check(NotAnswered::Unsent, 503, "upstream-unreachable", (201, "done")).await;
    check(NotAnswered::Lost, 502, "outcome-unknown", (409, "outcome-unknown")).await;
    check(NotAnswered::Silent, 504, "outcome-unknown", (409, "outcome-unknown")).await;
}

#[tokio::test]
async fn what_a_lost_answer_means_can_be_chosen() {
    let rerun = keyed(|keys| keys.lapse = Lapse::Rerun);
    let stage = Stage::new(rerun, |_, count| async move {
        if count == 1 { Err(NotAnswered::Lost("planted".to_owned())) } else { Ok(text(201, "")) }
    })
    .await;
    stage.post("k").await.expect_problem(502, "outcome-unknown");
    stage.post("k").await.expect(201, "", false);
    stage.post("k").await.expect(201, "", true);
}

#[tokio::test]
async fn case_038_failures_are_remembered_by_policy_and_refusals_never() {
    for (policy, status, again) in [
        (Policy::Final, 500, (500, true)),
        (Policy::Final, 404, (404, true)),
        (Policy::Final, 401, (201, false)),
        (Policy::Final, 413, (201, false)),
        (Policy::Final, 429, (201, false)),
        (Policy::SuccessOnly, 500, (201, false)),
    ] {
        let stage = Stage::new(keyed(|keys| keys.policy = policy), move |_, count| async move {
            Ok(text(if count == 1 { status } else { 201 }, ""))
        })
        .await;
        stage.post("k").await.expect(status, "", false);
        stage.post("k").await.expect(again.0, "", again.1);
    }
}

/// A body of so many pieces of 64 KiB, which counts those that were asked for.
struct Long {
    left: usize,
    asked: Arc<AtomicUsize>,
}

impl hyper::body::Body for Long {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.left == 0 {
            return std::task::Poll::Ready(None);
        }
        self.left -= 1;
        self.asked.fetch_add(1, Ordering::SeqCst);
        std::task::Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1 << 16])))))
    }
}

#[tokio::test]
async fn case_013_a_large_answer_is_given_once_and_not_held() {
    const PIECES: usize = 50 << 4;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let stage = Stage::new(settings(), move |_, _| {
        let body = Body::new(Long { left: PIECES, asked: Arc::clone(&counted) });
        async move { Ok(Response::new(body)) }
    })
    .await;
    let mut stream = stage.connect().await;
    let head = "POST /orders?x=1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                idempotency-key: k\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(head.as_bytes()).await.expect("taken");
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.expect("an answer");
    // Nobody reads on, and a retry is told at once.
    let problem = stage.post("k").await.expect_problem(409, "answer-not-replayable");
    assert_eq!((problem["original_status"].as_u64(), stage.runs()), (Some(200), 1));
    assert!(asked.load(Ordering::SeqCst) < PIECES, "all of it was taken");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.expect("an end in order");
    let bytes = rest.iter().filter(|byte| **byte == b'x').count();
    assert_eq!((bytes, rest.ends_with(b"0\r\n\r\n")), (PIECES << 16, true));
}

#[tokio::test]
async fn case_011_a_client_that_hangs_up_ends_nothing_and_stopping_waits() {
    let gate = Gate::closed();
    let waiting = gate.clone();
    let stage = Stage::new(settings(), move |_, _| {
        let gate = waiting.clone();
        async move {
            gate.pass().await;
            Ok(text(201, "done"))
        }
    })
    .await;
    let head = |key| {
        format!(
            "POST /orders?x=1 HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\n\
             content-length: 2\r\n\r\n{{}}"
        )
    };
    let mut gone = stage.connect().await;
    gone.write_all(head("k").as_bytes()).await.expect("taken");
    gate.arrival().await;
    stage.post("k").await.expect_problem(409, "idempotency-in-progress");
    drop(gone);
    gate.open(1);
    let again = loop {
        let again = stage.post("k").await;
        if again.status != 409 {
            break again;
        }
        tokio::task::yield_now().await;
    };
    again.expect(201, "done", true);
    assert_eq!(stage.runs(), 1);

    let mut gone = stage.connect().await;
    gone.write_all(head("l").as_bytes()).await.expect("taken");
    gate.arrival().await;
    drop(gone);
    let mut stopping = stage.stop();
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(stopping.try_join_next().is_none(), "it does not wait for what is under way");
    }
    gate.open(1);
    stopping.join_next().await.expect("one").expect("no panic");
}

#[tokio::test]
async fn case_020_keys_belong_to_accounts() {
    let named = ProxySettings {
        account_header: Some(HeaderName::from_static("x-account")),
        anonymous: false,
        ..settings()
    };
    let stage =
        Stage::new(named, |_, count| async move { Ok(text(201, &count.to_string())) }).await;
    let post = async |line: &str| {
        let lines = format!("idempotency-key: k\r\n{line}\r\n");
        stage.send("POST /orders", &lines, "").await
    };
    stage.post("k").await.expect_problem(400, "missing-account");
    post("x-account: 1").await.expect(201, "1", false);
    post("x-account: 2").await.expect(201, "2", false);
    post("authorization: Bearer 1").await.expect(201, "3", false);
    post("authorization: Bearer 2").await.expect(201, "4", false);
    post("x-account: 1\r\nauthorization: Bearer 2").await.expect(201, "1", true);
    post("authorization: Bearer 1").await.expect(201, "3", true);
    post("x-account: 1\r\nx-account: 2").await.expect_problem(400, "missing-account");
    stage.send("POST /orders", "", "").await.expect(201, "5", false);
}

#[tokio::test]
async fn which_methods_and_whether_keys_are_asked_for_can_be_chosen() {
    let strict = keyed(|keys| {
        keys.methods = vec![Method::POST, Method::PATCH];
        keys.key_required = true;
        keys.request_bytes_max = 4;
    });
    let stage =
        Stage::new(strict, |_, count| async move { Ok(text(200, &count.to_string())) }).await;
    stage.send("POST /", "", "").await.expect_problem(400, "missing-idempotency-key");
    stage.send("DELETE /", "", "").await.expect(200, "1", false);
    let key = "idempotency-key: k\r\n";
    stage.send("PATCH /", key, "1234").await.expect(200, "2", false);
    stage.send("PATCH /", key, "1234").await.expect(200, "2", true);
    stage.send("PATCH /", key, "12345").await.expect_problem(413, "body-too-large");
    let bad = stage.send("POST /", "idempotency-key: a,b\r\n", "").await;
    bad.expect_problem(400, "invalid-idempotency-key");
    assert_eq!(stage.runs(), 2);
}
