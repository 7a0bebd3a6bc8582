//! What is decided about receipts, how they are listed, and what goes with them.

use everhook_domain::attempt::Trigger;
use everhook_domain::bulk::BulkKind;
use everhook_domain::endpoint::EndpointVerb;
use everhook_domain::id::ReceiptId;
use everhook_domain::receipt::{IllegalDecision, ReceiptReason, ReceiptStatus};
use everhook_store::Decision::{Discard, Force, Release};
use everhook_store::Verdict::Duplicate;
use everhook_store::{
    Act, Change, Claimed, Decision, DeliveryQuery, PageRequest, ReceiptQuery, ReceiptRecord,
    Received, Refusal, StoreError,
};

use crate::backend::Kind;
use crate::inbox::{headers, item, marked, request, unreadable};
use crate::sketch::{answer, claim, ms, secs};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_released_conflict_runs_as_of_now),
        case(a_discarded_conflict_never_runs),
        case(what_cannot_be_read_can_be_released),
        case(case_036_a_forced_one_runs_once_more),
        case(a_decision_that_is_made_is_made),
        case(a_decision_takes_a_claim),
        case(decisions_at_once_make_one_set_of_deliveries),
        case(nothing_else_runs_what_waits),
        case(a_catch_up_goes_on_behind_what_waits),
        case(processed_is_another_fact_than_received),
        case(lists_by_source_status_and_duplicates),
        case(a_page_goes_on_where_it_ended),
        case(receipts_are_the_tenants_own),
        case(nothing_is_left_of_an_erased_tenant),
    ]
}

/// A source, and a conflict that came to it after its first receipt.
fn conflict(world: &World) -> (Received, Received) {
    let source = world.source("mail");
    let first = world.receive_one(source, item("k", "one"));
    (first, world.receive_one(source, item("k", "two")))
}

fn illegal(why: IllegalDecision) -> Result<ReceiptRecord, StoreError> {
    Err(Refusal::Receipt(why).into())
}

fn a_released_conflict_runs_as_of_now(kind: Kind) {
    let mut world = World::new(kind);
    let (_, waiting) = conflict(&world);
    // Both are made after it came.
    let (one, two) = (world.inbox(&["mail"]), world.inbox(&["mail"]));
    world.advance(secs(3_600));
    let _earlier = world.lanes.hints();
    let released = world.decide(waiting.receipt, Release).unwrap();
    assert_eq!(released.status, ReceiptStatus::Accepted);
    assert_eq!((released.released_at, released.deliveries), (Some(world.now), 2));
    assert!(matches!(released.reason, Some(ReceiptReason::OtherContent(_))), "it stays");
    let event = waiting.receipt.event();
    assert_eq!(world.event_record(event).deliveries, 2);
    let mut hinted: Vec<_> = world.lanes.hints().into_iter().map(|(lane, ..)| lane).collect();
    hinted.sort_unstable();
    assert_eq!(hinted, [one, two]);
    for endpoint in [one, two] {
        let lease = world.claim_one(endpoint);
        assert_eq!((lease.id.event(), &lease.body[..]), (event, &b"two"[..]));
        assert_eq!((lease.cause, lease.due_at), (Trigger::Schedule, world.now));
        assert_eq!(lease.headers.as_deref(), Some(&headers()));
        world.finish(&lease, 200);
    }
    world.crash();
    let record = world.receipt(waiting.receipt);
    assert_eq!(record.status, ReceiptStatus::Accepted);
    assert!(record.processed_at.is_some());
}

fn a_discarded_conflict_never_runs(kind: Kind) {
    let mut world = World::new(kind);
    let (_, waiting) = conflict(&world);
    world.inbox(&["mail"]);
    let discarded = world.decide(waiting.receipt, Discard).unwrap();
    assert_eq!(discarded.status, ReceiptStatus::Dead);
    assert_eq!((discarded.reason, discarded.released_at), (Some(ReceiptReason::Discarded), None));
    for decision in [Release, Force] {
        let decided = world.decide(waiting.receipt, decision);
        assert_eq!(decided, illegal(IllegalDecision::Discarded));
    }
    world.crash();
    assert_eq!(world.receipt(waiting.receipt).reason, Some(ReceiptReason::Discarded));
    assert_eq!(world.deliveries_for(waiting.receipt.event()), []);
    // Its bytes stay, and its retries are its duplicates.
    assert_eq!(&world.event(waiting.receipt.event()).body[..], b"two");
    let source = world.receipt(waiting.receipt).source;
    assert_eq!(world.verdict(source, item("k", "two")), Duplicate);
}

fn what_cannot_be_read_can_be_released(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let dead = world.receive_one(source, unreadable("k", "{"));
    for decision in [Discard, Force] {
        let decided = world.decide(dead.receipt, decision);
        assert_eq!(decided, illegal(IllegalDecision::Unreadable));
    }
    assert!(world.claim_all(endpoint).is_empty());
    let released = world.decide(dead.receipt, Release).unwrap();
    assert_eq!(released.status, ReceiptStatus::Accepted);
    assert_eq!(released.reason, Some(ReceiptReason::Unreadable("not JSON".into())));
    assert_eq!(&world.claim_one(endpoint).body[..], b"{");
}

fn case_036_a_forced_one_runs_once_more(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let received = world.receive_one(source, marked("k", "1"));
    // The handler fails; the provider's retry is a duplicate, and the work still waits to be done.
    world.send(endpoint, 500);
    assert_eq!(world.verdict(source, marked("k", "1")), Duplicate);
    assert_eq!(world.receipt(received.receipt).processed_at, None);
    let forced = world.decide(received.receipt, Force).unwrap();
    assert_eq!((forced.duplicates, forced.status), (1, ReceiptStatus::Accepted));
    let lease = world.claim_one(endpoint);
    assert_eq!((lease.id, lease.cause), (received.receipt.event().delivery(1), Trigger::Replay));
    world.finish(&lease, 200);
    assert!(world.receipt(received.receipt).processed_at.is_some());
    // And once more, which is not done until it is.
    let forced = world.decide(received.receipt, Force).unwrap();
    assert_eq!(forced.processed_at, None);
    world.send(endpoint, 200);
    assert!(world.receipt(received.receipt).processed_at.is_some());
    world.change_state(endpoint, EndpointVerb::Disable);
    let refused = world.decide(received.receipt, Force);
    assert!(matches!(refused, Err(StoreError::Refused(Refusal::Step(_)))), "{refused:?}");
}

fn a_decision_that_is_made_is_made(kind: Kind) {
    let mut world = World::new(kind);
    let (first, waiting) = conflict(&world);
    let endpoint = world.inbox(&["mail"]);
    for decision in [Release, Discard] {
        assert_eq!(world.decide(first.receipt, decision), illegal(IllegalDecision::Accepted));
    }
    assert_eq!(world.decide(waiting.receipt, Force), illegal(IllegalDecision::Waiting));
    let released = world.decide(waiting.receipt, Release).unwrap();
    world.advance(secs(60));
    assert_eq!(world.decide(waiting.receipt, Release), Ok(released), "nothing happens again");
    assert_eq!(world.decide(waiting.receipt, Discard), illegal(IllegalDecision::Accepted));
    assert_eq!(world.claim_all(endpoint).len(), 1);
    let source = world.receipt(waiting.receipt).source;
    let other = world.receive_one(source, item("k", "three"));
    let discarded = world.decide(other.receipt, Discard).unwrap();
    assert_eq!(world.decide(other.receipt, Discard), Ok(discarded));
    let nobodys = ReceiptId::from_parts(1, 2, 3, 0);
    assert_eq!(world.decide(nobodys, Release), Err(Refusal::NotFound.into()));
    let published = world.publish_one(crate::sketch::event("a", "1")).id.receipt();
    assert_eq!(world.decide(published, Force), Err(Refusal::NotFound.into()));
}

fn a_decision_takes_a_claim(kind: Kind) {
    let world = World::new(kind);
    let (_, waiting) = conflict(&world);
    let endpoint = world.inbox(&["mail"]);
    let decide = |decision: Decision, body: &str| {
        let (tenant, claim) = (world.tenant.clone(), Some(claim("decide", body)));
        let verb = world.store.decide(tenant, waiting.receipt, decision, claim, world.now);
        world.wait(verb)
    };
    assert_eq!(
        decide(Force, "1").map(drop_answer),
        Err(Refusal::Receipt(IllegalDecision::Waiting).into())
    );
    let released = done(decide(Release, "1").unwrap());
    let replayed = Claimed::Replayed(answer(&format!("{released:?}")));
    assert_eq!(decide(Release, "1"), Ok(replayed));
    assert_eq!(decide(Release, "2"), Ok(Claimed::Mismatch));
    assert_eq!(world.claim_all(endpoint).len(), 1);
}

fn drop_answer<T>(_: Claimed<T>) {}

fn decisions_at_once_make_one_set_of_deliveries(kind: Kind) {
    let world = World::new(kind);
    let (_, waiting) = conflict(&world);
    let endpoint = world.inbox(&["mail"]);
    let (tenant, receipt) = (world.tenant.clone(), waiting.receipt);
    let decided = world.at_once(40, |number, store, now| {
        let decision = if number % 2 == 0 { Release } else { Discard };
        let verb = {
            let tenant = tenant.clone();
            async move { store.decide(tenant, receipt, decision, None, now).await }
        };
        async move { (decision, verb.await.is_ok()) }
    });
    let released = world.receipt(receipt).status == ReceiptStatus::Accepted;
    for (decision, done) in decided {
        assert_eq!(done, (decision == Release) == released, "{decision:?}");
    }
    assert_eq!(world.claim_all(endpoint).len(), usize::from(released));
}

fn nothing_else_runs_what_waits(kind: Kind) {
    let mut world = World::new(kind);
    let (first, waiting) = conflict(&world);
    let source = world.receipt(first.receipt).source;
    let dead = world.receive_one(source, unreadable("broken", "{"));
    let other = world.receive_one(source, item("k", "three"));
    world.decide(other.receipt, Discard).unwrap();
    let endpoint = world.inbox(&["mail"]);
    for (received, why) in [
        (waiting, IllegalDecision::Waiting),
        (dead, IllegalDecision::Unreadable),
        (other, IllegalDecision::Discarded),
    ] {
        for to in [None, Some(endpoint)] {
            let sent = world.send_again(received.receipt.event(), to);
            assert_eq!(sent, Err(Refusal::Receipt(why).into()));
        }
    }
    let filter = DeliveryQuery { endpoint: Some(endpoint), ..DeliveryQuery::default() };
    run_bulk(&mut world, BulkKind::CatchUp, filter);
    run_bulk(&mut world, BulkKind::Replay, DeliveryQuery::default());
    // The first one had no endpoint when it came.
    let leases = world.claim_all(endpoint);
    let events: Vec<_> = leases.iter().map(|lease| lease.id.event()).collect();
    assert_eq!(events, [first.receipt.event()]);
    assert_eq!(&leases[0].body[..], b"one");
    assert_eq!(leases[0].headers.as_deref(), Some(&headers()));
}

/// What waits at the very end of a step must not end the work.
fn a_catch_up_goes_on_behind_what_waits(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source("mail");
    for waiting in [1, 498, 499, 500, 501] {
        world.advance(secs(1));
        let mut items: Vec<_> = (0..1_200).map(|n| item(&format!("{waiting} {n}"), "1")).collect();
        items[waiting] = item(&format!("{waiting} 0"), "2");
        let begun = world.receive(source, items)[0].receipt.created_at();
        let endpoint = world.inbox(&["mail"]);
        let filter = DeliveryQuery {
            endpoint: Some(endpoint),
            from: Some(begun),
            ..DeliveryQuery::default()
        };
        run_bulk(&mut world, BulkKind::CatchUp, filter);
        assert_eq!(world.claim_all(endpoint).len(), 1_199, "{waiting} waits");
        world.change_state(endpoint, EndpointVerb::Delete);
    }
}

fn run_bulk(world: &mut World, kind: BulkKind, filter: DeliveryQuery) {
    let request = everhook_store::BulkRequest {
        tenant: world.tenant.clone(),
        kind,
        filter,
        rate_per_second: 1_000_000,
        dry_run: false,
    };
    world.wait(world.store.start_bulk(request, None, world.now)).unwrap();
    // After nearly a second, its pace holds back nothing.
    world.advance(ms(900));
    world.run_jobs();
}

fn processed_is_another_fact_than_received(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source("shop");
    let (one, two) = (world.inbox(&["shop"]), world.inbox(&["shop"]));
    let received = world.receive_one(source, item("k", "1")).receipt;
    let processed = |world: &World| world.receipt(received).processed_at;
    world.send(one, 200);
    assert_eq!(processed(&world), None, "one of two");
    world.advance(secs(5));
    world.send(two, 500);
    world.advance(secs(60));
    let lease = world.claim_one(two);
    assert_eq!(processed(&world), None);
    world.finish(&lease, 200);
    assert_eq!(processed(&world), Some(world.now + ms(12)));
    assert_eq!(world.receipts(ReceiptQuery::default())[0].processed_at, processed(&world));
    let nowhere = world.source("nowhere");
    let received = world.receive_one(nowhere, item("k", "1")).receipt;
    assert_eq!(world.receipt(received).processed_at, None, "without any delivery");
    assert_eq!(world.receipt(received).deliveries, 0);
    // Nothing is sent again that has nowhere to go, and the record says so.
    assert_eq!(world.decide(received, Force).unwrap().deliveries, 0);
    let inbox = world.inbox(&["nowhere"]);
    assert_eq!(world.decide(received, Force).unwrap().deliveries, 1);
    assert_eq!(world.claim_one(inbox).id.event(), received.event());
    assert_eq!(world.receipts(ReceiptQuery::default())[0].deliveries, 1);
    let third = world.receive_one(source, item("third", "1")).receipt;
    world.send(one, 200);
    world.act(third.event().delivery(2), Act::Cancel).unwrap();
    assert_eq!(world.receipt(third).processed_at, None, "one was not wanted");
}

fn lists_by_source_status_and_duplicates(kind: Kind) {
    let world = World::new(kind);
    let (shop, mail) = (world.source("shop"), world.source("mail"));
    let mut ids = Vec::new();
    for (source, item) in [
        (shop, marked("a", "1")),
        (mail, item("k", "one")),
        (mail, item("k", "two")),
        (shop, unreadable("b", "x")),
        (mail, item("k", "three")),
        (shop, marked("c", "1")),
    ] {
        ids.push(world.receive_one(source, item).receipt);
    }
    world.decide(ids[4], Discard).unwrap();
    for _ in 0..3 {
        world.receive_one(shop, marked("a", "1"));
    }
    world.receive_one(mail, item("k", "two"));
    let (accepted, conflict, dead) =
        (Some(ReceiptStatus::Accepted), Some(ReceiptStatus::Conflict), Some(ReceiptStatus::Dead));
    for (source, status, duplicates_min, expected) in [
        (None, None, None, vec![5, 4, 3, 2, 1, 0]),
        (Some(shop), None, None, vec![5, 3, 0]),
        (None, accepted, None, vec![5, 1, 0]),
        (None, conflict, None, vec![2]),
        (None, dead, None, vec![4, 3]),
        (Some(mail), dead, None, vec![4]),
        (None, None, Some(0), vec![5, 4, 3, 2, 1, 0]),
        (None, None, Some(1), vec![2, 0]),
        (None, None, Some(3), vec![0]),
        (None, None, Some(4), vec![]),
        (Some(mail), conflict, Some(1), vec![2]),
        (Some(shop), conflict, None, vec![]),
    ] {
        let query = ReceiptQuery { source, status, duplicates_min };
        let found: Vec<_> = world.receipts(query.clone()).iter().map(|one| one.id).collect();
        let expected: Vec<_> = expected.into_iter().map(|place: usize| ids[place]).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

fn a_page_goes_on_where_it_ended(kind: Kind) {
    let world = World::new(kind);
    let source = world.source("shop");
    let items = (0..30).map(|n| {
        if n % 10 == 0 { unreadable(&n.to_string(), "x") } else { item(&n.to_string(), "1") }
    });
    let mut ids: Vec<_> =
        world.receive(source, items.collect()).iter().map(|one| one.receipt).collect();
    ids.reverse();
    let dead = ReceiptQuery { status: Some(ReceiptStatus::Dead), ..ReceiptQuery::default() };
    let rare = ReceiptQuery { duplicates_min: Some(1), ..ReceiptQuery::default() };
    world.receive_one(source, item("1", "1"));
    for (query, limit, scan_limit, pages_max) in [
        (ReceiptQuery::default(), 7, 1_000, 5),
        (ReceiptQuery::default(), 50, 8, 4),
        (dead.clone(), 2, 1_000, 2),
        (rare.clone(), 50, 5, 6),
    ] {
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = PageRequest { limit, after, scan_limit };
            let verb = world.store.receipts(world.tenant.clone(), query.clone(), page);
            let page = world.wait(verb).unwrap();
            found.extend(page.items.into_iter().map(|one| one.id));
            pages += 1;
            assert!(pages <= pages_max, "{query:?}");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let whole: Vec<_> = world.receipts(query.clone()).into_iter().map(|one| one.id).collect();
        assert_eq!(found, whole, "{query:?}");
    }
    assert_eq!(
        world.receipts(ReceiptQuery::default()).iter().map(|one| one.id).collect::<Vec<_>>(),
        ids
    );
}

fn receipts_are_the_tenants_own(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let theirs = world.source_in(&other, "mail", None);
    let items = vec![item("k", "one"), item("k", "two")];
    let received = world.try_receive(request(&other, theirs, items)).unwrap();
    assert_eq!(world.receipts(ReceiptQuery::default()), []);
    for Received { receipt, .. } in received {
        let found = world.wait(world.store.receipt(world.tenant.clone(), receipt));
        assert_eq!(found, Ok(None));
        for decision in [Release, Discard, Force] {
            assert_eq!(world.decide(receipt, decision), Err(Refusal::NotFound.into()));
        }
        let found = world.wait(world.store.receipt(other.clone(), receipt)).unwrap().unwrap();
        assert_eq!(found.id, receipt);
    }
}

fn nothing_is_left_of_an_erased_tenant(kind: Kind) {
    let mut world = World::new(kind);
    let kept = world.source("mail");
    world.receive(kept, vec![item("k", "one"), item("k", "two")]);
    let before = world.rows();
    let shop = world.add_tenant("shop");
    let source = world.source_in(&shop, "mail", None);
    let items = || {
        let mut items: Vec<_> = (0..700).map(|n| item(&n.to_string(), "1")).collect();
        items.extend([item("0", "2"), unreadable("x", "x")]);
        items
    };
    world.try_receive(request(&shop, source, items())).unwrap();
    world.change(Change::DeleteTenant(shop.clone())).unwrap();
    let refused = world.try_receive(request(&shop, source, items()));
    assert_eq!(refused, Err(Refusal::NotFound.into()));
    world.run_jobs();
    assert_eq!(world.rows(), before);
    // Its keys mean nothing to the next tenant with its id.
    world.add_tenant("shop");
    let source = world.source_in(&shop, "mail", None);
    let received = world.try_receive(request(&shop, source, items())).unwrap();
    assert_eq!(received.iter().filter(|one| one.verdict != Duplicate).count(), 702);
}
