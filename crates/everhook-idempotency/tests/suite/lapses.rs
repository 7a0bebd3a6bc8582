//! Handlers that are never heard of again, and what that means.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use everhook_idempotency::{Answer, Lapse, Settings, Settlement, UnknownRecord};

use crate::backend::{Kind, runtime};
use crate::world::{Gate, Handler, Node, Notes, claim, gated, handler, post, settled, short, text};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(case_101_what_is_unknown_is_never_run_again),
        case(an_operator_says_that_nothing_happened),
        case(an_operator_says_what_the_answer_is),
        case(what_runs_is_not_settled),
        case(a_rerun_knows_that_it_is_one),
        case(a_resumed_handler_goes_on_where_it_was),
        case(a_lost_process_is_noticed_when_its_lease_is_over),
        case(a_lease_is_renewed_while_the_handler_runs),
        case(a_late_handler_settles_what_is_unknown),
        case(a_late_handler_after_a_settlement_is_fenced),
        case(a_late_handler_after_a_rerun_is_fenced),
    ]
}

/// Notes its runs and panics in the first.
fn panicking(notes: &Notes) -> Handler {
    let notes = Arc::clone(notes);
    handler(move |request, run| {
        let (notes, claim) = (Arc::clone(&notes), claim(&request));
        async move {
            let seen = claim.checkpoint().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            let note = format!("{run} {} {seen:?}", claim.is_rerun());
            notes.lock().unwrap().push(note);
            claim.save_checkpoint(format!("after {run}").as_bytes()).await.unwrap();
            assert!(run > 1, "a planted panic after the effect");
            text(201, &run.to_string())
        }
    })
}

fn lapsing(lapse: Lapse) -> Settings {
    Settings { lapse, ..Settings::default() }
}

fn case_101_what_is_unknown_is_never_run_again(kind: Kind) {
    let world = kind.create();
    let notes = Notes::default();
    let node = Node::new(&world.nodes[0], lapsing(Lapse::Unknown), panicking(&notes));
    world.runtime.block_on(async {
        node.post("k").await.expect_problem(500, "internal");
        for _ in 0..3 {
            let got = node.post("k").await;
            got.expect_problem(409, "outcome-unknown");
            assert_eq!(got.retry_after(), 60);
        }
        node.send(post("k", "x")).await.expect_problem(422, "idempotency-key-reused");
        assert_eq!(node.runs(), 1);
        assert_eq!(*notes.lock().unwrap(), ["1 false None"]);
        assert_eq!((node.layer.counts().unanswered, node.layer.counts().unknown), (1, 3));
    });
}

/// A key that is unknown, as the client and the operator are told of it.
async fn unknown(node: &Node) -> UnknownRecord {
    node.post("k").await.expect_problem(500, "internal");
    let problem = node.post("k").await.expect_problem(409, "outcome-unknown");
    let listed = node.layer.unknown(10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(problem["record"], listed[0].record.to_string());
    listed[0]
}

fn an_operator_says_that_nothing_happened(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), panicking(&Notes::default()));
    world.runtime.block_on(async {
        let record = unknown(&node).await.record;
        assert_eq!(node.layer.settle(record, Settlement::NothingHappened).await, Ok(true));
        assert_eq!(node.layer.settle(record, Settlement::NothingHappened).await, Ok(false));
        assert_eq!(node.layer.unknown(10).await.unwrap(), []);
        node.post("k").await.expect(201, "2", false);
    });
}

fn an_operator_says_what_the_answer_is(kind: Kind) {
    let world = kind.create();
    let node = Node::new(&world.nodes[0], Settings::default(), panicking(&Notes::default()));
    world.runtime.block_on(async {
        let record = unknown(&node).await.record;
        let answer = Answer { status: 201, headers: vec![], body: b"found".to_vec() };
        let settlement = Settlement::Answer(answer);
        assert_eq!(node.layer.settle(record, settlement.clone()).await, Ok(true));
        assert_eq!(node.layer.settle(record, settlement).await, Ok(false));
        node.post("k").await.expect(201, "found", true);
        // It is still compared with the first request.
        node.send(post("k", "x")).await.expect_problem(422, "idempotency-key-reused");
        assert_eq!(node.runs(), 1);
    });
}

fn what_runs_is_not_settled(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let node = Node::new(&world.nodes[0], Settings::default(), gated(&gate));
    world.runtime.block_on(async {
        let first = tokio::spawn(node.send(post("k", "{}")));
        gate.arrival().await;
        assert_eq!(node.layer.unknown(10).await.unwrap(), []);
        let strange = "00".repeat(16).parse().unwrap();
        assert_eq!(node.layer.settle(strange, Settlement::NothingHappened).await, Ok(false));
        gate.open(1);
        first.await.unwrap().expect(201, "1", false);
    });
}

fn a_rerun_knows_that_it_is_one(kind: Kind) {
    let world = kind.create();
    let notes = Notes::default();
    let node = Node::new(&world.nodes[0], lapsing(Lapse::Rerun), panicking(&notes));
    world.runtime.block_on(async {
        node.post("k").await.expect_problem(500, "internal");
        node.post("k").await.expect(201, "2", false);
        node.post("k").await.expect(201, "2", true);
        assert_eq!(*notes.lock().unwrap(), ["1 false None", "2 true None"]);
        assert_eq!(node.layer.counts().reran, 1);
    });
}

fn a_resumed_handler_goes_on_where_it_was(kind: Kind) {
    let world = kind.create();
    let notes = Notes::default();
    let node = Node::new(&world.nodes[0], lapsing(Lapse::Resume), panicking(&notes));
    world.runtime.block_on(async {
        node.post("k").await.expect_problem(500, "internal");
        node.post("k").await.expect(201, "2", false);
        assert_eq!(*notes.lock().unwrap(), ["1 false None", "2 true Some(\"after 1\")"]);
    });
}

fn a_lost_process_is_noticed_when_its_lease_is_over(kind: Kind) {
    let world = kind.create();
    for (lapse, status) in [(Lapse::Unknown, 409), (Lapse::Rerun, 201)] {
        let settings = || Settings { lapse, ..short() };
        let (key, gate) = (format!("{lapse:?}"), Gate::closed());
        // Its own runtime stands for its process: with it, handler and heartbeat end at once.
        let process = runtime();
        let lost = Node::new(&(kind.open)(&world.address, &process), settings(), gated(&gate));
        let waiting = process.spawn(lost.send(post(&key, "{}")));
        world.runtime.block_on(gate.arrival());
        process.shutdown_background();
        assert!(world.runtime.block_on(waiting).is_err());
        gate.open(2);
        let node = lost.beside(&world.nodes[1], settings());
        let got = world.runtime.block_on(settled(&node, &key));
        assert_eq!(got.status.as_u16(), status, "{}", got.text());
        assert_eq!(node.runs(), if status == 201 { 2 } else { 1 });
    }
}

fn a_lease_is_renewed_while_the_handler_runs(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let settings =
        || Settings { lapse: Lapse::Unknown, lease: Duration::from_millis(600), ..short() };
    let node = Node::new(&world.nodes[0], settings(), gated(&gate));
    let other = node.beside(&world.nodes[1], settings());
    world.runtime.block_on(async {
        let first = tokio::spawn(node.send(post("k", "{}")));
        gate.arrival().await;
        // Several leases, by the store's own clock.
        let key = everhook_domain::key::KeyHash([9; 16]);
        let began = world.nodes[1].look(key).await.unwrap().now;
        while world.nodes[1].look(key).await.unwrap().now.since(began) < Duration::from_secs(2) {
            other.post("k").await.expect_problem(409, "idempotency-in-progress");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        gate.open(1);
        first.await.unwrap().expect(201, "1", false);
        assert_eq!(node.runs(), 1);
    });
}

/// Settings under which a lease is not renewed, as if its process stood still.
fn unrenewed(lapse: Lapse) -> Settings {
    Settings { lapse, handler_max: short().lease, ..short() }
}

fn a_late_handler_settles_what_is_unknown(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let node = Node::new(&world.nodes[0], unrenewed(Lapse::Unknown), gated(&gate));
    let other = node.beside(&world.nodes[1], unrenewed(Lapse::Unknown));
    world.runtime.block_on(async {
        let first = tokio::spawn(node.send(post("k", "{}")));
        gate.arrival().await;
        settled(&other, "k").await.expect_problem(409, "outcome-unknown");
        gate.open(1);
        first.await.unwrap().expect(201, "1", false);
        other.post("k").await.expect(201, "1", true);
        assert_eq!(node.runs(), 1);
    });
}

fn a_late_handler_after_a_settlement_is_fenced(kind: Kind) {
    let world = kind.create();
    world.runtime.block_on(async {
        let found = Answer { status: 201, headers: vec![], body: b"found".to_vec() };
        for (number, settlement) in
            [Settlement::Answer(found), Settlement::NothingHappened].into_iter().enumerate()
        {
            let (gate, key) = (Gate::closed(), number.to_string());
            let node = Node::new(&world.nodes[0], unrenewed(Lapse::Unknown), gated(&gate));
            let first = tokio::spawn(node.send(post(&key, "{}")));
            gate.arrival().await;
            settled(&node, &key).await.expect_problem(409, "outcome-unknown");
            let record = node.layer.unknown(10).await.unwrap()[0].record;
            assert_eq!(node.layer.settle(record, settlement.clone()).await, Ok(true));
            gate.open(1);
            let late = first.await.unwrap();
            match settlement {
                Settlement::Answer(_) => {
                    late.expect(201, "found", true);
                    node.post(&key).await.expect(201, "found", true);
                }
                // It did happen, and nothing of it is kept: the operator is told by the count.
                Settlement::NothingHappened => {
                    late.expect_problem(409, "outcome-unknown");
                }
            }
            assert_eq!(node.layer.counts().fenced, 1);
        }
    });
}

fn a_late_handler_after_a_rerun_is_fenced(kind: Kind) {
    let world = kind.create();
    let gate = Gate::closed();
    let held = gate.clone();
    let lost = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&lost);
    let first_waits = handler(move |request, run| {
        let (gate, noted, claim) = (held.clone(), Arc::clone(&noted), claim(&request));
        async move {
            if run == 1 {
                gate.pass().await;
                *noted.lock().unwrap() = Some(claim.save_checkpoint(b"late").await.is_err());
            }
            text(201, &run.to_string())
        }
    });
    let node = Node::new(&world.nodes[0], unrenewed(Lapse::Rerun), first_waits);
    let other = node.beside(&world.nodes[1], unrenewed(Lapse::Rerun));
    world.runtime.block_on(async {
        let first = tokio::spawn(node.send(post("k", "{}")));
        gate.arrival().await;
        settled(&other, "k").await.expect(201, "2", false);
        gate.open(1);
        // It is answered with what the key means, not with what it did itself.
        first.await.unwrap().expect(201, "2", true);
        other.post("k").await.expect(201, "2", true);
        assert_eq!(*lost.lock().unwrap(), Some(true));
        assert_eq!(node.layer.counts().fenced, 1);
    });
}
