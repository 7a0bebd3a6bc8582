//! What a request with a key is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use bytes::Bytes;
use everhook_idempotency::{AccountOf, IdempotencyLayer, Policy, Settings};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::backend::Kind;
use crate::world::{Gate, Got, Node, claim, gated, handler, numbered, post, request, text};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_request_without_a_key_runs_each_time),
        case(other_methods_run_each_time_unless_set),
        case(what_cannot_be_used_is_refused_before_anything_is_done),
        case(case_048_the_first_one_runs_and_the_others_are_told),
        case(case_050_failures_are_remembered_by_policy),
        case(case_050_what_was_refused_is_not_remembered),
        case(case_051_another_request_is_another_key_or_refused),
        case(case_053_a_replay_is_the_first_answer),
        case(a_handler_can_say_that_nothing_happened),
        case(an_answer_that_never_ends_is_passed_on_and_not_kept),
        case(case_036_an_answer_that_breaks_off_is_none),
        case(any_tower_service_and_its_errors),
        case(every_number_is_counted),
    ]
}

fn a_request_without_a_key_runs_each_time(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    let required = Settings { key_required: true, ..Settings::default() };
    let strict = Node::new(&world.nodes[0], required, numbered());
    world.runtime.block_on(async {
        let bare = || request(Method::POST, "/orders", &[], "{}");
        node.send(bare()).await.expect(201, "1", false);
        node.send(bare()).await.expect(201, "2", false);
        strict.send(bare()).await.expect_problem(400, "missing-idempotency-key");
        assert_eq!(strict.runs(), 0);
        strict.post("k").await.expect(201, "1", false);
    });
}

fn other_methods_run_each_time_unless_set(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    let wide = Settings { methods: vec![Method::PATCH, Method::PUT], ..Settings::default() };
    let wide = Node::new(&world.nodes[0], wide, numbered());
    let with = |method: &Method| request(method.clone(), "/o", &[("idempotency-key", "k")], "");
    world.runtime.block_on(async {
        for (number, method) in [Method::GET, Method::HEAD, Method::PUT].iter().enumerate() {
            for turn in 1..=2 {
                node.send(with(method)).await.expect(201, &(number * 2 + turn).to_string(), false);
            }
        }
        // Not even looked at.
        let odd = request(Method::GET, "/o", &[("idempotency-key", "a,b")], "");
        node.send(odd).await.expect(201, "7", false);
        wide.send(with(&Method::PATCH)).await.expect(201, "1", false);
        wide.send(with(&Method::PATCH)).await.expect(201, "1", true);
        wide.send(with(&Method::PUT)).await.expect(201, "2", false);
        wide.send(with(&Method::POST)).await.expect(201, "3", false);
        wide.send(with(&Method::POST)).await.expect(201, "4", false);
    });
}

fn what_cannot_be_used_is_refused_before_anything_is_done(kind: Kind) {
    let world = kind.create();
    let settings = Settings { request_bytes_max: 10, ..Settings::default() };
    let node = Node::new(&world.nodes[0], settings, numbered());
    world.runtime.block_on(async {
        let long = "x".repeat(256);
        for (headers, body, status, slug) in [
            (&[("idempotency-key", "")][..], "", 400, "invalid-idempotency-key"),
            (&[("idempotency-key", "a b")], "", 400, "invalid-idempotency-key"),
            (&[("idempotency-key", &long)], "", 400, "invalid-idempotency-key"),
            (
                &[("idempotency-key", "a"), ("idempotency-key", "a")],
                "",
                400,
                "invalid-idempotency-key",
            ),
            (&[("idempotency-key", "a"), ("account", "nobody")], "", 400, "missing-account"),
            (&[("idempotency-key", "a")], "0123456789a", 413, "body-too-large"),
        ] {
            let sent = request(Method::POST, "/o", headers, body);
            node.send(sent).await.expect_problem(status, slug);
        }
        // A body that breaks off.
        let broken = futures(vec![Ok("{"), Err("reset")]);
        let mut sent = post("a", "");
        *sent.body_mut() = broken;
        node.send(sent).await.expect_problem(400, "unreadable-body");
        assert_eq!((node.runs(), node.layer.counts().invalid), (0, 7));
        node.send(request(Method::POST, "/o", &[("idempotency-key", "a")], "0123456789"))
            .await
            .expect(201, "1", false);
    });
}

/// A body of these frames, one after the other.
fn futures(frames: Vec<Result<&'static str, &'static str>>) -> Body {
    Body::new(Frames(frames.into_iter().collect()))
}

struct Frames(std::collections::VecDeque<Result<&'static str, &'static str>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        let frame = self.0.pop_front();
        std::task::Poll::Ready(frame.map(|frame| match frame {
            Ok(text) => Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes()))),
            Err(text) => Err(std::io::Error::other(text)),
        }))
    }
}

fn case_048_the_first_one_runs_and_the_others_are_told(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let node = Node::new(&world.nodes[0], Settings::default(), gated(&gate));
    let other = node.beside(&world.nodes[1], Settings::default());
    world.runtime.block_on(async {
        let first = tokio::task::spawn({
            let node = node.clone();
            async move { node.post("k").await }
        });
        gate.arrival().await;
        for node in [&node, &other] {
            let got = node.post("k").await;
            got.expect_problem(409, "idempotency-in-progress");
            assert_eq!(got.retry_after(), 1);
            // Another request is not told to come again.
            node.send(post("k", "{} ")).await.expect_problem(422, "idempotency-key-reused");
        }
        gate.open(1);
        first.await.unwrap().expect(201, "1", false);
        node.post("k").await.expect(201, "1", true);
        other.post("k").await.expect(201, "1", true);
        assert_eq!(node.runs(), 1);
    });
}

fn case_050_failures_are_remembered_by_policy(kind: Kind) {
    let world = kind.create();
    let failing = || {
        handler(|request, run| async move {
            let status = if run == 1 { request.uri().path()[1..].parse().unwrap() } else { 201 };
            text(status, &run.to_string())
        })
    };
    world.runtime.block_on(async {
        for (policy, status, again) in [
            (Policy::Final, 201, (201, "1", true)),
            (Policy::Final, 400, (400, "1", true)),
            (Policy::Final, 503, (503, "1", true)),
            (Policy::SuccessOnly, 201, (201, "1", true)),
            (Policy::SuccessOnly, 302, (201, "2", false)),
            (Policy::SuccessOnly, 400, (201, "2", false)),
            (Policy::SuccessOnly, 503, (201, "2", false)),
        ] {
            let settings = Settings { policy, ..Settings::default() };
            let node = Node::new(&world.nodes[0], settings, failing());
            let key = format!("{policy:?}");
            let send = || {
                let path = format!("/{status}");
                node.send(request(Method::POST, &path, &[("idempotency-key", &key)], ""))
            };
            send().await.expect(status, "1", false);
            send().await.expect(again.0, again.1, again.2);
        }
    });
}

fn case_050_what_was_refused_is_not_remembered(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        for status in [401, 403, 405, 408, 413, 415, 425, 429] {
            let refusing = handler(move |_, run| async move {
                text(if run == 1 { status } else { 201 }, &run.to_string())
            });
            let node = Node::new(&world.nodes[0], Settings::default(), refusing);
            let key = status.to_string();
            node.post(&key).await.expect(status, "1", false);
            node.post(&key).await.expect(201, "2", false);
            node.post(&key).await.expect(201, "2", true);
            assert_eq!(node.layer.counts().freed, 1);
        }
    });
}

fn case_051_another_request_is_another_key_or_refused(kind: Kind) {
    let world = kind.create();
    let settings = Settings { methods: vec![Method::POST, Method::PUT], ..Settings::default() };
    let node = Node::new(&world.nodes[0], settings, numbered());
    let send = |method, path, more: Option<(&'static str, &'static str)>, body| {
        let headers: Vec<_> = [("idempotency-key", "k")].into_iter().chain(more).collect();
        node.send(request(method, path, &headers, body))
    };
    world.runtime.block_on(async {
        send(Method::POST, "/a?x=1", None, "{}").await.expect(201, "1", false);
        send(Method::POST, "/a?x=2", None, "{}").await.expect(201, "2", false);
        send(Method::POST, "/b?x=1", None, "{}").await.expect(201, "3", false);
        send(Method::PUT, "/a?x=1", None, "{}").await.expect(201, "4", false);
        let two = Some(("account", "two"));
        send(Method::POST, "/a?x=1", two, "{}").await.expect(201, "5", false);
        let json = Some(("content-type", "application/json"));
        for (more, body) in [(None, "{ }"), (None, ""), (json, "{}")] {
            let got = send(Method::POST, "/a?x=1", more, body).await;
            got.expect_problem(422, "idempotency-key-reused");
            assert_eq!(got.header("retry-after"), None);
        }
        // Headers that a retry may change are none of it.
        let trace = Some(("traceparent", "00-1-2-01"));
        send(Method::POST, "/a?x=1", trace, "{}").await.expect(201, "1", true);
        assert_eq!(node.runs(), 5);
    });
}

fn case_053_a_replay_is_the_first_answer(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        for (number, (status, body)) in
            [(201, &b"{\"id\":1}"[..]), (204, b""), (303, b""), (200, b"\x00\xff\n\n")]
                .into_iter()
                .enumerate()
        {
            let answering = handler(move |_, _| async move {
                Response::builder()
                    .status(status)
                    .header("content-type", "application/x-odd")
                    .header("location", "/orders/1")
                    .header("link", "</a>")
                    .header("link", "</b>")
                    .header("set-cookie", "session=1")
                    .header("x-request-id", "first")
                    .body(Body::from(body))
                    .unwrap()
            });
            let node = Node::new(&world.nodes[0], Settings::default(), answering);
            let other = node.beside(&world.nodes[1], Settings::default());
            let key = number.to_string();
            let first = node.post(&key).await;
            assert_eq!(first.header("set-cookie"), Some("session=1"));
            let again = other.post(&key).await;
            assert!(again.is_replay());
            assert_eq!((again.status, &again.body), (first.status, &first.body));
            let links: Vec<_> = again.headers.get_all("link").iter().collect();
            assert_eq!(links, ["</a>", "</b>"]);
            for (name, value) in [
                ("content-type", Some("application/x-odd")),
                ("location", Some("/orders/1")),
                ("set-cookie", None),
                ("x-request-id", None),
            ] {
                assert_eq!(again.header(name), value, "{name}");
            }
            assert_eq!(node.runs(), 1);
        }
    });
}

fn a_handler_can_say_that_nothing_happened(kind: Kind) {
    let world = kind.create();
    let empty = handler(|request, run| async move {
        if run < 3 {
            claim(&request).nothing_happened();
        }
        assert!(run != 2, "a panic of which it is known that it did nothing");
        text(if run == 1 { 500 } else { 201 }, &run.to_string())
    });
    let node = Node::new(&world.nodes[0], Settings::default(), empty);
    world.runtime.block_on(async {
        node.post("k").await.expect(500, "1", false);
        node.post("k").await.expect_problem(500, "internal");
        node.post("k").await.expect(201, "3", false);
        node.post("k").await.expect(201, "3", true);
    });
}

fn an_answer_that_never_ends_is_passed_on_and_not_kept(kind: Kind) {
    let world = kind.create();
    let streaming = handler(|_, _| async move {
        let body = futures(vec![Ok("data: 1\n\n"), Ok("data: 2\n\n")]);
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    });
    let node = Node::new(&world.nodes[0], Settings::default(), streaming);
    world.runtime.block_on(async {
        node.post("k").await.expect(200, "data: 1\n\ndata: 2\n\n", false);
        let problem = node.post("k").await.expect_problem(409, "answer-not-replayable");
        assert_eq!(problem["original_status"], 200);
        assert_eq!(node.runs(), 1);
    });
}

fn case_036_an_answer_that_breaks_off_is_none(kind: Kind) {
    let world = kind.create();
    let breaking =
        handler(|_, _| async move { Response::new(futures(vec![Ok("{"), Err("reset")])) });
    let node = Node::new(&world.nodes[0], Settings::default(), breaking);
    world.runtime.block_on(async {
        let first = node.post("k").await.expect_problem(502, "outcome-unknown");
        let again = node.post("k").await.expect_problem(409, "outcome-unknown");
        assert_eq!(first["record"], again["record"]);
        assert_eq!((node.runs(), node.layer.counts().unanswered), (1, 1));
    });
}

/// A service with other bodies and an error of its own, which is passed on.
#[derive(Clone, Default)]
struct Plain(Arc<AtomicU32>);

impl Service<Request<Full<Bytes>>> for Plain {
    type Response = Response<Full<Bytes>>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Response<Full<Bytes>>, std::io::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), std::io::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let run = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        std::future::ready(if request.uri().path() == "/fails" {
            Err(std::io::Error::other("planted"))
        } else {
            Ok(Response::new(Full::from(run.to_string())))
        })
    }
}

fn any_tower_service_and_its_errors(kind: Kind) {
    let world = kind.create();
    let store = Arc::clone(&world.nodes[0]);
    let account = AccountOf::everybody();
    let layer = IdempotencyLayer::new(store, account, Settings::default()).unwrap();
    let service = layer.layer(Plain::default());
    let ask = |path: &'static str| {
        let mut service = service.clone();
        async move {
            let request = Request::post(path).header("idempotency-key", "k");
            let answer = service.call(request.body(Full::default()).unwrap()).await?;
            let (parts, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            Ok::<_, std::io::Error>(Got { status: parts.status, headers: parts.headers, body })
        }
    };
    world.runtime.block_on(async {
        ask("/works").await.unwrap().expect(200, "1", false);
        ask("/works").await.unwrap().expect(200, "1", true);
        assert_eq!(ask("/fails").await.unwrap_err().to_string(), "planted");
        ask("/fails").await.unwrap().expect_problem(409, "outcome-unknown");
        assert_eq!((layer.counts().ran, layer.counts().unanswered), (2, 1));
    });
}

fn every_number_is_counted(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    world.runtime.block_on(async {
        node.post("k").await;
        node.post("k").await;
        node.send(post("k", "other")).await;
        node.post("a,b").await;
        let counts = node.layer.counts();
        assert_eq!((counts.ran, counts.remembered, counts.replayed), (1, 1, 1));
        assert_eq!((counts.mismatched, counts.invalid, counts.in_progress), (1, 1, 0));
    });
}
