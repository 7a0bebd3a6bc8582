//! The behaviour that was agreed on before anything was built, by its numbers. Those that need a
//! process that dies or stands still are in `crash`, that of the handler's own transaction in
//! `transaction` too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use everhook_domain::time::{Clock, Timestamp};
use everhook_idempotency::store::Store;
use everhook_idempotency::store::memory::MemoryStore;
use everhook_idempotency::{Account, AccountOf, IdempotencyLayer, Settings};
use http::{Method, Response};
use http_body::Frame;
use tokio::task::JoinSet;

use crate::backend::{Kind, runtime};
use crate::hooked::{Hooked, failing};
use crate::world::{Gate, Node, gated, handler, numbered, post, request};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(acceptance_01_of_two_hundred_at_once_one_runs),
        case(acceptance_05_a_client_that_hangs_up_cancels_nothing),
        case(acceptance_06_quoted_and_bare_are_one_key),
        case(acceptance_07_accounts_and_tenants_run_separately),
        case(acceptance_08_a_changed_body_is_refused_and_another_path_is_another_key),
        case(acceptance_09_a_replay_lacks_what_was_the_first_callers),
        case(acceptance_10_a_flood_of_keys_meets_the_quota),
        case(acceptance_12_an_answer_too_large_is_sent_once),
        case(acceptance_13_another_boundary_is_the_same_request),
        case(acceptance_14_without_the_store_nothing_runs),
        case(acceptance_14_an_answer_that_was_not_recorded_is_not_given),
        case(acceptance_14_a_short_absence_is_waited_out),
    ]
}

/// Where the clock is the test's.
pub(crate) fn own_cases() -> Vec<Case> {
    vec![
        case(acceptance_11_an_answer_lives_to_the_millisecond),
        case(what_is_over_is_cleared_away_now_and_then),
    ]
}

fn acceptance_01_of_two_hundred_at_once_one_runs(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let first = Node::new(&world.nodes[0], Settings::default(), gated(&gate));
    let nodes = [
        first.beside(&world.nodes[1], Settings::default()),
        first.beside(&world.nodes[0], Settings::default()),
        first,
    ];
    world.runtime.block_on(async {
        let mut tries = JoinSet::new();
        for number in 0..200 {
            tries.spawn(nodes[number % 3].send(post("k", "{}")));
        }
        gate.arrival().await;
        // The one that runs is answered when all the others were.
        for _ in 0..199 {
            let got = tries.join_next().await.unwrap().unwrap();
            got.expect_problem(409, "idempotency-in-progress");
        }
        gate.open(1);
        tries.join_next().await.unwrap().unwrap().expect(201, "1", false);
        for node in &nodes {
            node.post("k").await.expect(201, "1", true);
        }
        assert_eq!(nodes[0].runs(), 1);
    });
}

fn acceptance_05_a_client_that_hangs_up_cancels_nothing(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let node = Node::new(&world.nodes[0], Settings::default(), gated(&gate));
    world.runtime.block_on(async {
        let mut sent = Box::pin(node.post("k"));
        tokio::select! {
            _ = &mut sent => panic!("nobody opened the gate"),
            () = gate.arrival() => {}
        }
        drop(sent);
        gate.open(1);
        node.layer.drain().await;
        node.post("k").await.expect(201, "1", true);
        assert_eq!(node.runs(), 1);
    });
}

fn acceptance_06_quoted_and_bare_are_one_key(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    let long = "k".repeat(255);
    world.runtime.block_on(async {
        node.post("key").await.expect(201, "1", false);
        node.post("\"key\"").await.expect(201, "1", true);
        node.post("Key").await.expect(201, "2", false);
        node.post(&long).await.expect(201, "3", false);
        node.post(&format!("\"{long}\"")).await.expect(201, "3", true);
        let longer = node.post(&format!("{long}k")).await;
        longer.expect_problem(400, "invalid-idempotency-key");
        let twice = [("idempotency-key", "key"), ("idempotency-key", "key")];
        let twice = node.send(request(Method::POST, "/orders", &twice, "{}")).await;
        twice.expect_problem(400, "invalid-idempotency-key");
        assert_eq!(node.runs(), 3);
    });
}

fn acceptance_07_accounts_and_tenants_run_separately(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    let by_tenant = AccountOf::request(|parts| {
        let tenant = parts.headers.get("tenant")?.to_str().ok()?.parse().ok()?;
        Some(Account::new("one").in_tenant(tenant))
    });
    let store = Arc::clone(&world.nodes[0]);
    let layer = IdempotencyLayer::new(store, by_tenant, Settings::default()).unwrap();
    let tenants = Node { layer, ..node.clone() };
    let with = |name, value| {
        request(Method::POST, "/orders", &[("idempotency-key", "k"), (name, value)], "{}")
    };
    world.runtime.block_on(async {
        node.send(with("account", "a")).await.expect(201, "1", false);
        node.send(with("account", "b")).await.expect(201, "2", false);
        node.send(with("account", "a")).await.expect(201, "1", true);
        tenants.send(with("tenant", "a")).await.expect(201, "3", false);
        tenants.send(with("tenant", "b")).await.expect(201, "4", false);
        tenants.send(with("tenant", "b")).await.expect(201, "4", true);
    });
}

fn acceptance_08_a_changed_body_is_refused_and_another_path_is_another_key(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    world.runtime.block_on(async {
        node.post("k").await.expect(201, "1", false);
        node.send(post("k", "{\"a\":1}")).await.expect_problem(422, "idempotency-key-reused");
        let other = request(Method::POST, "/refunds", &[("idempotency-key", "k")], "{\"a\":1}");
        node.send(other).await.expect(201, "2", false);
        node.post("k").await.expect(201, "1", true);
    });
}

fn acceptance_09_a_replay_lacks_what_was_the_first_callers(kind: Kind) {
    let world = kind.create();
    let answering = handler(|_, _| async {
        Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .header("location", "/orders/7")
            .header("set-cookie", "a=b")
            .header("date", "Mon, 30 Nov 2026 10:00:00 GMT")
            .body(Body::from("{}"))
            .unwrap()
    });
    let node = Node::new(&world.nodes[0], Settings::default(), answering);
    world.runtime.block_on(async {
        let first = node.post("k").await;
        let again = node.post("k").await;
        assert!(first.header("set-cookie").is_some() && first.header("date").is_some());
        let kept = ["content-type", "location"].map(|name| again.header(name));
        assert_eq!(kept, [Some("application/json"), Some("/orders/7")]);
        assert_eq!(["set-cookie", "date"].map(|name| again.header(name)), [None, None]);
    });
}

fn acceptance_10_a_flood_of_keys_meets_the_quota(kind: Kind) {
    let world = kind.create();
    let settings = Settings { account_keys_max: 50, ..Settings::default() };
    let node = Node::new(&world.nodes[0], settings, numbered());
    world.runtime.block_on(async {
        for number in 0..500 {
            let got = node.post(&format!("random-{number}")).await;
            if number < 50 {
                got.expect(201, &(number + 1).to_string(), false);
            } else {
                got.expect_problem(429, "idempotency-quota");
                assert_eq!(got.retry_after(), 60);
            }
        }
        // What was taken before is still answered, and others are not hindered.
        node.post("random-49").await.expect(201, "50", true);
        let other = [("idempotency-key", "k"), ("account", "two")];
        node.send(request(Method::POST, "/orders", &other, "")).await.expect(201, "51", false);
        assert_eq!((node.runs(), node.layer.counts().over_quota), (51, 450));
    });
}

/// A clock that stands where it was set.
#[derive(Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }
}

fn acceptance_11_an_answer_lives_to_the_millisecond(_: Kind) {
    let clock = Arc::new(SetClock::default());
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(as_clock));
    let settings = Settings { ttl: Duration::from_millis(86_400_000), ..Settings::default() };
    let node = Node::new(&store, settings, numbered());
    let stop = Arc::new(AtomicBool::new(false));
    runtime().block_on(async {
        let (cleaner, stopped) = (Arc::clone(&store), Arc::clone(&stop));
        let cleaning = tokio::spawn(async move {
            while !stopped.load(Ordering::SeqCst) {
                cleaner.clean(10).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        // Each round begins at the very end of the one before.
        for round in 0..20 {
            let body = (round + 1).to_string();
            node.post("k").await.expect(201, &body, false);
            clock.0.fetch_add(86_400_000 - 1, Ordering::SeqCst);
            for _ in 0..5 {
                node.post("k").await.expect(201, &body, true);
            }
            clock.0.fetch_add(1, Ordering::SeqCst);
        }
        stop.store(true, Ordering::SeqCst);
        cleaning.await.unwrap();
    });
}

fn what_is_over_is_cleared_away_now_and_then(_: Kind) {
    let clock = Arc::new(SetClock::default());
    let as_clock: Arc<dyn Clock> = Arc::<SetClock>::clone(&clock);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_clock(as_clock));
    let settings = Settings { ttl: Duration::from_millis(10), ..Settings::default() };
    let node = Node::new(&store, settings, numbered());
    runtime().block_on(async {
        // Each answer is over after ten further ones, and every 64th handler clears away.
        for number in 0..640 {
            clock.0.fetch_add(1, Ordering::SeqCst);
            node.post(&number.to_string()).await;
        }
        clock.0.fetch_add(10, Ordering::SeqCst);
        assert_eq!(store.clean(1_000).await, Ok(10));
    });
}

const CHUNK: &[u8] = &[b'x'; 1 << 16];

/// So many chunks, counted as they are asked for.
struct Chunks(u32, Arc<AtomicU32>);

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        if self.0 == 0 {
            return Poll::Ready(None);
        }
        self.0 -= 1;
        self.1.fetch_add(1, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(CHUNK)))))
    }
}

fn acceptance_12_an_answer_too_large_is_sent_once(kind: Kind) {
    let world = kind.create();
    let chunks: u32 = 50 * 16;
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let large = handler(move |_, _| {
        let asked = Arc::clone(&counted);
        async move { Response::new(Body::new(Chunks(chunks, asked))) }
    });
    let node = Node::new(&world.nodes[0], Settings::default(), large);
    world.runtime.block_on(async {
        let got = node.post("k").await;
        assert_eq!((got.status.as_u16(), got.body.len()), (200, 50 << 20));
        let again = node.post("k").await;
        let problem = again.expect_problem(409, "answer-not-replayable");
        assert_eq!(problem["original_status"], 200);
        assert_eq!((node.runs(), node.layer.counts().tombstones), (1, 1));
        // A client that leaves in the middle has not had it read into memory.
        asked.store(0, Ordering::SeqCst);
        let mut service = tower_layer::Layer::layer(&node.layer, node.shop.clone());
        let response = tower_service::Service::call(&mut service, post("2", "{}")).await.unwrap();
        drop(response);
        assert_eq!(asked.load(Ordering::SeqCst), 5);
        node.post("2").await.expect_problem(409, "answer-not-replayable");
    });
}

fn acceptance_13_another_boundary_is_the_same_request(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), numbered());
    let send = |boundary: &str, content: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\
             Content-Type: text/plain\r\n\r\n{content}\r\n--{boundary}--\r\n"
        );
        let kind = format!("multipart/form-data; boundary={boundary}");
        let headers = [("idempotency-key", "k"), ("content-type", &kind)];
        node.send(request(Method::POST, "/files", &headers, &body))
    };
    world.runtime.block_on(async {
        send("----aaa", "one").await.expect(201, "1", false);
        send("----bbb", "one").await.expect(201, "1", true);
        send("----ccc", "two").await.expect_problem(422, "idempotency-key-reused");
        assert_eq!(node.runs(), 1);
    });
}

/// A node whose store fails at some steps.
fn faulty(
    store: &Arc<dyn Store>,
    settings: Settings,
    fails: impl Fn(&'static str) -> bool + Send + Sync + 'static,
) -> Node {
    let hooked: Arc<dyn Store> =
        Arc::new(Hooked { inner: Arc::clone(store), hook: failing(fails) });
    Node::new(&hooked, settings, numbered())
}

fn acceptance_14_without_the_store_nothing_runs(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        for step in ["look:before", "look:after", "take:before", "take:after"] {
            let node = faulty(&world.nodes[0], Settings::default(), move |at| at == step);
            let got = node.post(step).await;
            got.expect_problem(503, "store-unavailable");
            assert_eq!(got.retry_after(), 5);
            assert_eq!((node.runs(), node.layer.counts().store_away), (0, 1));
            // Without a key the store is not asked.
            let bare = request(Method::POST, "/orders", &[], "{}");
            node.send(bare).await.expect(201, "1", false);
            // When it is back, the key is as good as new.
            let whole = Node::new(&world.nodes[1], Settings::default(), numbered());
            whole.post(step).await.expect(201, "1", false);
        }
    });
}

fn acceptance_14_an_answer_that_was_not_recorded_is_not_given(kind: Kind) {
    let world = kind.create();
    let lease = Duration::from_millis(50);
    let settings = || Settings { lease, ..Settings::default() };
    let node = faulty(&world.nodes[0], settings(), |at| at == "finish:before");
    world.runtime.block_on(async {
        let got = node.post("k").await;
        got.expect_problem(503, "outcome-unknown");
        assert_eq!(got.retry_after(), 5);
        let other = node.beside(&world.nodes[1], settings());
        let got = crate::world::settled(&other, "k").await;
        got.expect_problem(409, "outcome-unknown");
        assert_eq!(node.runs(), 1);
    });
}

fn acceptance_14_a_short_absence_is_waited_out(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        for step in ["finish:before", "finish:after"] {
            let left = AtomicU32::new(3);
            let fails = move |at| {
                at == step
                    && left
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                        .is_ok()
            };
            let node = faulty(&world.nodes[0], Settings::default(), fails);
            node.post(step).await.expect(201, "1", false);
            node.post(step).await.expect(201, "1", true);
        }
    });
}
