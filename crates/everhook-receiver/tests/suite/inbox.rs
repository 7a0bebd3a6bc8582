//! What an inbox is, and whoever works on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use everhook_receiver::inbox::{Inbox, InboxService, Job, Letter, Stored, Worker, WorkerSettings};
use everhook_receiver::store::{Claimed, Token};
use everhook_receiver::{EventKey, ForwardedHeaders, KEEP};
use http::StatusCode;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::transaction::{End, Orders, With, on};
use crate::world::{attempt, send, verifier};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(of_many_attempts_one_is_stored),
        case(a_request_is_stored_as_a_whole),
        case(captured_bytes_are_not_stored),
        case(an_event_is_taken_by_one_worker),
        case(an_event_comes_whole_to_its_handler),
        case(what_fails_comes_again_and_dies_in_the_end),
        case(a_panic_is_a_failure),
        case(an_event_that_kills_its_worker_dies_too),
        case(the_dead_are_listed_and_revived),
        case(a_token_that_is_not_the_last_changes_nothing),
        case(a_mark_in_the_works_transaction_is_fenced),
        case(a_slow_handler_keeps_its_event),
        case(a_worker_wakes_and_stops),
        case(only_processed_events_are_pruned),
    ]
}

const LONG: Duration = Duration::from_secs(600);

fn key(number: u32) -> EventKey {
    EventKey::new("message", &format!("evt_{number}"))
}

pub(crate) fn letter(number: u32) -> Letter {
    Letter {
        key: key(number),
        guard: None,
        event_type: "message.test".to_owned(),
        headers: ForwardedHeaders::default(),
        body: format!("body {number}").into(),
    }
}

/// Retries at once, so often.
fn impatient(retries: usize) -> WorkerSettings {
    WorkerSettings { retries: vec![Duration::ZERO; retries], ..WorkerSettings::default() }
}

type Handling = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// A handler that does nothing.
fn good(_: Job) -> Handling {
    Box::pin(async { Ok(()) })
}

fn bad(job: Job) -> Handling {
    Box::pin(async move { Err(format!("attempt {}\0 failed", job.attempt)) })
}

/// Works until nothing is due; how often it did.
async fn exhaust(worker: &Worker, handler: fn(Job) -> Handling) -> u32 {
    let mut count = 0;
    while worker.run_once(&handler).await.unwrap() {
        count += 1;
    }
    count
}

fn of_many_attempts_one_is_stored(kind: Kind) {
    let world = kind.create();
    let inboxes = world.inboxes();
    let route = |inbox: &Arc<dyn Inbox>| {
        let service = InboxService::new(verifier(), Arc::clone(inbox));
        Router::new().route_service("/hooks", service)
    };
    let routes = inboxes.each_ref().map(route);
    world.runtime.block_on(async {
        let mut attempts = JoinSet::new();
        for index in 0..50 {
            let route = routes[index % 2].clone();
            attempts.spawn(async move { send(&route, attempt("evt_1", "{}")).await });
        }
        let answers = attempts.join_all().await;
        assert!(answers.iter().all(|answer| answer.status == StatusCode::OK), "{answers:?}");
        let duplicates = answers.iter().filter(|answer| answer.is_duplicate()).count();
        assert_eq!(duplicates, 49);
        let worker = Worker::new(Arc::clone(&inboxes[0]), impatient(0));
        assert_eq!(exhaust(&worker, good).await, 1);
        // Processed, it still is a duplicate.
        assert!(send(&routes[1], attempt("evt_1", "{}")).await.is_duplicate());
        assert_eq!(exhaust(&worker, good).await, 0);
        let mut forged = attempt("evt_2", "{}");
        forged.headers_mut().insert("webhook-id", "evt_3".parse().unwrap());
        assert_eq!(send(&routes[0], forged).await.status, StatusCode::UNAUTHORIZED);
    });
}

fn a_request_is_stored_as_a_whole(kind: Kind) {
    use Stored::{Duplicate, New};
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    world.runtime.block_on(async {
        let store = async |inbox: &Arc<dyn Inbox>, numbers: &[u32]| {
            let letters: Vec<_> = numbers.iter().map(|number| letter(*number)).collect();
            inbox.store(&letters).await.unwrap()
        };
        assert_eq!(store(&inbox, &[3, 1]).await, [New, New]);
        assert_eq!(store(&other, &[1, 2, 3]).await, [Duplicate, New, Duplicate]);
        assert_eq!(store(&inbox, &[]).await, []);
        // Requests that hold the same events in another order do not wait for each other.
        let mut storing = JoinSet::new();
        for index in 0..20_usize {
            let inbox = Arc::clone(if index % 2 == 0 { &inbox } else { &other });
            storing.spawn(async move {
                let mut letters: Vec<_> = (10..20).map(letter).collect();
                letters.rotate_left(index % 10);
                inbox.store(&letters).await.unwrap()
            });
        }
        let stored = storing.join_all().await;
        assert_eq!(stored.iter().flatten().filter(|stored| **stored == New).count(), 10);
    });
}

fn captured_bytes_are_not_stored(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    let guarded = |number: u32, guard: &str| Letter {
        guard: Some(EventKey::new("message", guard)),
        ..letter(number)
    };
    world.runtime.block_on(async {
        for (number, guard, expected) in [
            (1, "a", Stored::New),
            (1, "a", Stored::Duplicate),
            (2, "a", Stored::Captured),
            // Signed anew, and known from then on.
            (1, "b", Stored::Duplicate),
            (3, "b", Stored::Captured),
            (3, "c", Stored::New),
        ] {
            let stored = other.store(&[guarded(number, guard)]).await;
            assert_eq!(stored, Ok(vec![expected]), "{number} {guard}");
        }
        assert_eq!(exhaust(&Worker::new(inbox, impatient(0)), good).await, 2);
    });
}

fn an_event_is_taken_by_one_worker(kind: Kind) {
    let world = kind.create();
    let inboxes = world.inboxes();
    world.runtime.block_on(async {
        let letters: Vec<_> = (0..20).map(letter).collect();
        inboxes[0].store(&letters).await.unwrap();
        let mut taking = JoinSet::new();
        for index in 0..40 {
            let inbox = Arc::clone(&inboxes[index % 2]);
            let token = Token(i64::try_from(index).unwrap());
            taking.spawn(async move { inbox.take(token, LONG).await.unwrap() });
        }
        let taken = taking.join_all().await;
        let mut keys: Vec<_> = taken.iter().flatten().map(|job| job.key.clone()).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(taken.iter().flatten().count(), keys.len());
        // What another looked at in the same instant may have been passed over.
        while let Some(job) = inboxes[0].take(Token(-1), LONG).await.unwrap() {
            assert!(!keys.contains(&job.key));
            keys.push(job.key);
        }
        assert_eq!(keys.len(), 20);
    });
}

fn an_event_comes_whole_to_its_handler(kind: Kind) {
    let world = kind.create();
    let [inbox, _] = world.inboxes();
    let service = InboxService::new(verifier(), Arc::clone(&inbox));
    let route = Router::new().route_service("/hooks", service);
    let got: Arc<Mutex<Vec<Job>>> = Arc::default();
    world.runtime.block_on(async {
        let body = r#"{"type":"a.b","odd": 1.0 }"#;
        let mut request = attempt("evt_1", body);
        request.headers_mut().insert("x-shop", "s1".parse().unwrap());
        request.headers_mut().insert("authorization", "Basic eDp5".parse().unwrap());
        let answered = send(&route, request).await;
        assert_eq!(answered.body, r#"{"status":"accepted"}"#);
        let keeping = Arc::clone(&got);
        let handler = move |job: Job| {
            keeping.lock().unwrap().push(job);
            async { Ok::<_, String>(()) }
        };
        let worker = Worker::new(inbox, impatient(0));
        assert!(worker.run_once(&handler).await.unwrap());
        let got = got.lock().unwrap();
        let job = &got[0];
        assert_eq!((job.key.clone(), job.attempt), (EventKey::new("message", "evt_1"), 1));
        assert_eq!(job.key.source(), "message");
        assert_eq!((&*job.event_type, &job.body[..]), ("message.a.b", body.as_bytes()));
        assert_eq!(job.headers["x-shop"], "s1");
        assert!(!job.headers.contains_key("authorization"));
        assert!(!format!("{job:?}").contains("odd"));
    });
}

fn what_fails_comes_again_and_dies_in_the_end(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    let worker = Worker::new(Arc::clone(&inbox), impatient(2));
    world.runtime.block_on(async {
        inbox.store(&[letter(1), letter(2)]).await.unwrap();
        assert!(worker.run_once(&good).await.unwrap());
        assert_eq!(exhaust(&worker, bad).await, 3);
        let dead = other.dead(10).await.unwrap();
        assert_eq!(dead.len(), 1);
        assert_eq!((dead[0].attempts, &*dead[0].event_type), (3, "message.test"));
        assert!(dead[0].reason.starts_with("attempt 3"), "{dead:?}");
        assert_eq!(other.due_in().await, Ok(None));
        // The sender is not told, and cannot bring it back.
        let stored = other.store(&[letter(1), letter(2)]).await;
        assert_eq!(stored, Ok(vec![Stored::Duplicate; 2]));
        // A retry that is not due is not taken.
        let hour = WorkerSettings {
            retries: vec![Duration::from_secs(3_600)],
            ..WorkerSettings::default()
        };
        let worker = Worker::new(Arc::clone(&inbox), hour);
        inbox.store(&[letter(3)]).await.unwrap();
        assert_eq!(exhaust(&worker, bad).await, 1);
        let due_in = other.due_in().await.unwrap().unwrap();
        assert!(due_in > Duration::from_secs(1_800) && due_in <= Duration::from_secs(3_600));
    });
}

fn a_panic_is_a_failure(kind: Kind) {
    let world = kind.create();
    let [inbox, _] = world.inboxes();
    let worker = Worker::new(Arc::clone(&inbox), impatient(1));
    world.runtime.block_on(async {
        inbox.store(&[letter(1)]).await.unwrap();
        let panics = |_: Job| -> Handling { Box::pin(async { panic!("planted") }) };
        assert_eq!(exhaust(&worker, panics).await, 2);
        assert_eq!(inbox.dead(1).await.unwrap()[0].reason, "the handler panicked");
    });
}

/// As of a worker whose process ends each time: it takes, and says nothing more.
fn an_event_that_kills_its_worker_dies_too(kind: Kind) {
    let world = kind.create();
    let [inbox, _] = world.inboxes();
    let worker = Worker::new(Arc::clone(&inbox), impatient(1));
    world.runtime.block_on(async {
        inbox.store(&[letter(1), letter(2)]).await.unwrap();
        let poison = inbox.take(Token(0), Duration::ZERO).await.unwrap().unwrap();
        let mut innocent = 0;
        for token in 1.. {
            // A lease of nothing is over at once.
            let Some(job) = inbox.take(Token(token), Duration::ZERO).await.unwrap() else { break };
            if job.key != poison.key {
                assert!(inbox.finish(&job.key, job.token).await.unwrap());
                innocent += 1;
            } else if job.attempt == 2 {
                break;
            }
        }
        while inbox.dead(1).await.unwrap().is_empty() {
            worker.run_once(&good).await.unwrap();
        }
        let dead = inbox.dead(10).await.unwrap();
        assert_eq!((dead.len(), &dead[0].key), (1, &poison.key));
        assert!(dead[0].reason.contains("its worker died"), "{dead:?}");
        assert!(innocent <= 1);
    });
}

fn the_dead_are_listed_and_revived(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    let worker = Worker::new(Arc::clone(&inbox), impatient(0));
    world.runtime.block_on(async {
        for number in 1..=3 {
            inbox.store(&[letter(number)]).await.unwrap();
            assert_eq!(exhaust(&worker, bad).await, 1);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let dead = other.dead(2).await.unwrap();
        let keys: Vec<_> = dead.iter().map(|dead| dead.key.clone()).collect();
        assert_eq!(keys, [key(3), key(2)]);
        assert_eq!(other.prune(Duration::ZERO, 10).await, Ok(0), "dead is not gone");
        assert_eq!(other.revive(&key(2)).await, Ok(true));
        assert_eq!(other.revive(&key(2)).await, Ok(false));
        assert_eq!(other.revive(&key(9)).await, Ok(false));
        assert_eq!(exhaust(&worker, good).await, 1);
        assert_eq!(inbox.dead(10).await.unwrap().len(), 2);
        assert_eq!(other.revive(&key(2)).await, Ok(false), "it is processed");
    });
}

fn a_token_that_is_not_the_last_changes_nothing(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    world.runtime.block_on(async {
        inbox.store(&[letter(1)]).await.unwrap();
        inbox.take(Token(1), Duration::ZERO).await.unwrap().unwrap();
        let mut second = None;
        while second.is_none() {
            second = other.take(Token(2), LONG).await.unwrap();
        }
        let fenced = async |token: Token| {
            assert_eq!(inbox.renew(&key(1), token, Duration::ZERO).await, Ok(false));
            assert_eq!(inbox.finish(&key(1), token).await, Ok(false));
            assert_eq!(inbox.retry(&key(1), token, Duration::ZERO, "x").await, Ok(false));
            assert_eq!(inbox.bury(&key(1), token, "x").await, Ok(false));
        };
        fenced(Token(1)).await;
        assert!(inbox.take(Token(3), LONG).await.unwrap().is_none());
        assert_eq!(other.renew(&key(1), Token(2), LONG).await, Ok(true));
        for _ in 0..2 {
            assert_eq!(other.finish(&key(1), Token(2)).await, Ok(true));
        }
        fenced(Token(1)).await;
        // Nor does its own, afterwards.
        assert_eq!(other.renew(&key(1), Token(2), Duration::ZERO).await, Ok(true));
        assert_eq!(other.retry(&key(1), Token(2), Duration::ZERO, "x").await, Ok(false));
        assert_eq!(other.bury(&key(1), Token(2), "x").await, Ok(false));
        assert!(inbox.take(Token(3), LONG).await.unwrap().is_none());
    });
}

fn a_mark_in_the_works_transaction_is_fenced(kind: Kind) {
    let world = kind.create();
    let orders = Orders::create(&world);
    let [inbox, other] = world.inboxes();
    world.runtime.block_on(async {
        inbox.store(&[letter(1)]).await.unwrap();
        let slow = inbox.take(Token(1), Duration::ZERO).await.unwrap().unwrap();
        let mut quick = None;
        while quick.is_none() {
            quick = other.take(Token(2), LONG).await.unwrap();
        }
        let quick = quick.unwrap();
        assert_eq!(orders.order(With::Mark(&slow), End::Commit, on).await, Claimed::InProgress);
        assert_eq!(orders.order(With::Mark(&quick), End::RollBack, on).await, Claimed::Yes);
        assert_eq!(orders.count().await, 0);
        assert_eq!(orders.order(With::Mark(&quick), End::Commit, on).await, Claimed::Yes);
        assert_eq!(orders.order(With::Mark(&slow), End::Commit, on).await, Claimed::InProgress);
        assert_eq!(orders.count().await, 1);
        // As the worker does after its handler.
        assert_eq!(other.finish(&key(1), Token(2)).await, Ok(true));
    });
}

fn a_slow_handler_keeps_its_event(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    let lease = Duration::from_millis(900);
    let settings = WorkerSettings { lease, ..impatient(0) };
    let worker = Worker::new(Arc::clone(&inbox), settings);
    let count = Arc::new(AtomicU32::new(0));
    world.runtime.block_on(async {
        inbox.store(&[letter(1)]).await.unwrap();
        let (counting, looking) = (Arc::clone(&count), Arc::clone(&other));
        let handler = move |_: Job| -> Handling {
            let (counting, looking) = (Arc::clone(&counting), Arc::clone(&looking));
            Box::pin(async move {
                counting.fetch_add(1, Ordering::SeqCst);
                // Three of its leases are over when that of this one is.
                looking.store(&[letter(2)]).await.unwrap();
                let taken = looking.take(Token(5), Duration::from_millis(2_700)).await.unwrap();
                assert_eq!(taken.unwrap().key, key(2));
                loop {
                    match looking.take(Token(6), LONG).await.unwrap() {
                        Some(job) if job.key == key(2) => return Ok(()),
                        Some(job) => panic!("{job:?} was taken from its worker"),
                        None => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            })
        };
        assert!(worker.run_once(&handler).await.unwrap());
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert_eq!(inbox.dead(1).await, Ok(vec![]));
        assert_eq!(inbox.due_in().await.unwrap().map(|due_in| due_in.is_zero()), Some(false));
    });
}

/// Asleep until something is stored, and not ended in the middle of an event.
fn a_worker_wakes_and_stops(kind: Kind) {
    let world = kind.create();
    let [inbox, _] = world.inboxes();
    // So that it is the hint that wakes it, or nothing does.
    let settings = WorkerSettings { poll: Duration::from_secs(3_600), ..impatient(0) };
    let worker = Worker::new(Arc::clone(&inbox), settings);
    world.runtime.block_on(async {
        let (begun, go_on, stop) =
            (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (telling, waiting, stopping) = (begun.clone(), go_on.clone(), stop.clone());
        let handler = move |_: Job| -> Handling {
            let (telling, waiting) = (telling.clone(), waiting.clone());
            Box::pin(async move {
                telling.notify_one();
                waiting.notified().await;
                Ok(())
            })
        };
        let mut running = JoinSet::new();
        running.spawn(async move { worker.run(handler, stopping.notified()).await });
        for number in 1..=2 {
            inbox.store(&[letter(number)]).await.unwrap();
            begun.notified().await;
            if number == 2 {
                stop.notify_one();
            }
            go_on.notify_one();
        }
        running.join_all().await;
        let stored = inbox.store(&[letter(1), letter(2)]).await;
        assert_eq!(stored, Ok(vec![Stored::Duplicate; 2]));
        assert_eq!(inbox.due_in().await, Ok(None), "both were marked");
    });
}

fn only_processed_events_are_pruned(kind: Kind) {
    let world = kind.create();
    let [inbox, other] = world.inboxes();
    world.runtime.block_on(async {
        let letters: Vec<_> = (1..=4).map(letter).collect();
        inbox.store(&letters).await.unwrap();
        let worker = Worker::new(Arc::clone(&inbox), impatient(0));
        for _ in 0..3 {
            worker.run_once(&good).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(other.prune(KEEP, 10).await, Ok(0));
        assert_eq!(other.prune(Duration::ZERO, 2).await, Ok(2));
        assert_eq!(other.prune(Duration::ZERO, 10).await, Ok(1));
        let stored = other.store(&letters).await.unwrap();
        assert_eq!(stored.iter().filter(|stored| **stored == Stored::Duplicate).count(), 1);
    });
}
