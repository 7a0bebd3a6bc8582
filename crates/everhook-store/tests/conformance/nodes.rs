//! Two nodes on one database, where a store can have several.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhook_domain::bulk::BulkKind;
use everhook_domain::endpoint::EndpointVerb::{Disable, Enable};
use everhook_domain::receipt::{ReceiptStatus, Verdict};
use everhook_store::{
    Change, Claimed, DeliveryQuery, JobStep, ReceiptQuery, Settled, StatusFilter, Store, Wanted,
};

use crate::backend::Kind;
use crate::bulk::{dead, request, strict, try_start, with_status};
use crate::inbox::{guarded, item};
use crate::sketch::{
    AMPLE, claim, event, events, everything, finished, keyed, ms, publish_in, secs,
};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(case_001_two_nodes_never_send_the_same),
        case(one_source_event_id_is_one_event_on_both),
        case(one_dedupe_key_is_one_receipt_on_both),
        case(one_idempotency_key_runs_once_on_both),
        case(ids_of_both_are_distinct),
        case(a_change_holds_on_the_other_node),
        case(a_disable_holds_on_the_other_node_at_once),
        case(leases_of_a_dead_node_end_with_their_time),
        case(two_nodes_share_the_jobs),
        case(bulk_replays_of_both_share_nothing_and_send_once),
        case(two_catch_ups_make_each_delivery_once),
    ]
}

/// Tasks alternate between the two.
fn pair(world: &mut World) -> [Arc<dyn Store>; 2] {
    [Arc::clone(&world.store), world.another_node()]
}

fn case_001_two_nodes_never_send_the_same(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(500));
    let nodes = pair(&mut world);
    let leased = world.at_once(40, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        let wanted = vec![Wanted { endpoint, fresh: 9, retry: 9, suspect: 1, held: 0 }];
        async move {
            let mut got = Vec::new();
            loop {
                let (leased, _) = node.claim(wanted.clone(), AMPLE, now).await.unwrap();
                if leased.is_empty() {
                    return got;
                }
                got.extend(leased);
            }
        }
    });
    let leased: Vec<_> = leased.into_iter().flatten().collect();
    let distinct: HashSet<_> = leased.iter().map(|lease| lease.id).collect();
    let tokens: HashSet<_> = leased.iter().map(|lease| lease.token).collect();
    assert_eq!((leased.len(), distinct.len(), tokens.len()), (500, 500, 500));
    // Whoever sent it, either may write down the result.
    let settlements = leased.iter().map(|lease| finished(lease, world.now, 200)).collect();
    let settled = world.wait(nodes[1].settle(settlements, world.now)).unwrap();
    assert_eq!(settled, vec![Settled::Recorded; 500]);
}

fn one_source_event_id_is_one_event_on_both(kind: Kind) {
    let mut world = World::new(kind);
    world.endpoint();
    let (nodes, tenant) = (pair(&mut world), world.tenant.clone());
    let accepted = world.at_once(1_000, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        let publish = publish_in(&tenant, vec![keyed("k", "1")]);
        async move { done(node.publish(publish, None, now).await.unwrap()).remove(0) }
    });
    assert_eq!(accepted.iter().filter(|event| !event.duplicate).count(), 1);
    assert!(accepted.iter().all(|event| event.id == accepted[0].id));
    assert_eq!((world.events().len(), world.deliveries().len()), (1, 1));
}

/// Keys and guards in common, in every order: nobody waits for ever, and all agree.
fn one_dedupe_key_is_one_receipt_on_both(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source("shop");
    let (nodes, tenant) = (pair(&mut world), world.tenant.clone());
    let received = world.at_once(400, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        let mut items = vec![guarded("a", "1", 1), guarded("b", "1", 2), item("mail", "one")];
        items.push(guarded(&format!("captured {}", number % 5), "1", 1));
        items.rotate_left(number % 4);
        let receive = crate::inbox::request(&tenant, source, items);
        async move { node.receive(receive, now).await.unwrap() }
    });
    let mut kept = HashMap::new();
    for received in received.concat() {
        *kept.entry((received.receipt, received.verdict != Verdict::Duplicate)).or_insert(0) += 1;
    }
    let firsts = kept.iter().filter(|((_, first), _)| *first);
    // Of "a" and the captured ones, which have its bytes, one runs and the others wait.
    assert_eq!((firsts.clone().count(), firsts.map(|(_, count)| count).sum::<i32>()), (8, 8));
    let receipts = world.receipts(ReceiptQuery::default());
    let waiting = receipts.iter().filter(|one| one.status == ReceiptStatus::Conflict).count();
    assert_eq!((receipts.len(), waiting), (8, 5));
    for receipt in receipts {
        let counted = kept.get(&(receipt.id, false)).copied().unwrap_or(0);
        assert_eq!(u64::try_from(counted), Ok(receipt.duplicates), "{receipt:?}");
    }
}

fn one_idempotency_key_runs_once_on_both(kind: Kind) {
    let mut world = World::new(kind);
    let (nodes, tenant) = (pair(&mut world), world.tenant.clone());
    let answers = world.at_once(200, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        let publish = publish_in(&tenant, events(1));
        async move { node.publish(publish, Some(claim("k", "1")), now).await.unwrap() }
    });
    let ran = answers.iter().filter(|answer| matches!(answer, Claimed::Done(_))).count();
    let replayed = answers.iter().filter(|answer| matches!(answer, Claimed::Replayed(_))).count();
    assert_eq!((ran, replayed, world.events().len()), (1, 199, 1));
}

fn ids_of_both_are_distinct(kind: Kind) {
    let mut world = World::new(kind);
    let (nodes, tenant) = (pair(&mut world), world.tenant.clone());
    let accepted = world.at_once(100, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        let publish = publish_in(&tenant, events(20));
        async move { done(node.publish(publish, None, now).await.unwrap()) }
    });
    let ids: HashSet<_> = accepted.iter().flatten().map(|event| event.id).collect();
    assert_eq!((ids.len(), world.events().len()), (2_000, 2_000));
}

fn a_change_holds_on_the_other_node(kind: Kind) {
    let mut world = World::new(kind);
    let [here, there] = pair(&mut world);
    let deliveries = |world: &World| {
        let publish = publish_in(&world.tenant, vec![event("a", "1")]);
        done(world.wait(there.publish(publish, None, world.now)).unwrap())[0].deliveries
    };
    assert_eq!(deliveries(&world), 0);
    let endpoint = world.endpoint();
    assert_eq!(deliveries(&world), 1);
    world.change_state(endpoint, Disable);
    let claimed = world.wait(there.claim(vec![everything(endpoint)], AMPLE, world.now)).unwrap();
    assert_eq!(claimed.0, []);
    assert_eq!(deliveries(&world), 0);
    let known = [&here, &there].map(|node| node.directory().unwrap().version());
    assert_eq!(known[0], known[1]);
    let shop = world.add_tenant("shop");
    world.endpoint_for(&shop, &["*"]);
    world.run_jobs();
    world.change_state(endpoint, Enable);
    assert_eq!(deliveries(&world), 1);
}

fn a_disable_holds_on_the_other_node_at_once(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let (nodes, tenant) = (pair(&mut world), world.tenant.clone());
    let disable = Change::ActOnEndpoint { tenant: tenant.clone(), endpoint, verb: Disable };
    let answered = Arc::new(AtomicBool::new(false));
    let published = world.at_once(60, |number, _, now| {
        let [here, there] = [number % 2, (number + 1) % 2].map(|node| Arc::clone(&nodes[node]));
        let (publish, disable) = (publish_in(&tenant, events(1)), disable.clone());
        let answered = Arc::clone(&answered);
        async move {
            if number == 10 {
                there.change(disable, None, now).await.unwrap();
                answered.store(true, Ordering::SeqCst);
            }
            let after = answered.load(Ordering::SeqCst);
            (after, done(here.publish(publish, None, now).await.unwrap())[0].deliveries)
        }
    });
    assert!(published.iter().any(|(after, _)| *after));
    assert!(published.iter().all(|(after, deliveries)| !(*after && *deliveries > 0)));
    world.run_jobs();
    assert_eq!(world.due(), []);
}

fn leases_of_a_dead_node_end_with_their_time(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(3));
    let survivor = world.another_node();
    let leases = world.claim_all(endpoint);
    let until = leases[0].until.unwrap();
    world.finish(&leases[0], 200);
    world.now = until.minus(ms(1));
    assert_eq!(world.wait(survivor.lapse(world.now)), Ok(0), "its owner may be alive");
    assert_eq!(world.finish(&leases[1], 200), Settled::Recorded);
    world.now = until;
    assert_eq!(world.wait(survivor.lapse(world.now)), Ok(1));
    assert_eq!(world.finish(&leases[2], 200), Settled::Stale, "it was stopped, and goes on");
    let (again, _) =
        world.wait(survivor.claim(vec![everything(endpoint)], AMPLE, world.now)).unwrap();
    assert_eq!((again.len(), again[0].id, again[0].number), (1, leases[2].id, 1));
}

fn two_nodes_share_the_jobs(kind: Kind) {
    let mut world = World::new(kind);
    let endpoints = [world.endpoint(), world.endpoint()];
    world.publish(events(700));
    for endpoint in endpoints {
        world.change_state(endpoint, Disable);
    }
    let nodes = pair(&mut world);
    world.at_once(6, |number, _, now| {
        let node = Arc::clone(&nodes[number % 2]);
        async move { while node.step(now).await.unwrap() == JobStep::More {} }
    });
    world.run_jobs();
    assert_eq!(world.due(), []);
    assert!(world.deliveries().iter().all(|delivery| {
        matches!(delivery.state, everhook_domain::delivery::State::Cancelled(_))
    }));
}

/// Both nodes step at once, until nothing is left to do.
fn step_on_both(world: &mut World, nodes: &[Arc<dyn Store>; 2]) {
    for _ in 0..100 {
        world.advance(secs(1));
        let left = world.at_once(6, |number, _, now| {
            let node = Arc::clone(&nodes[number % 2]);
            async move {
                let mut step = JobStep::More;
                while step == JobStep::More {
                    step = node.step(now).await.unwrap();
                }
                step
            }
        });
        if left.iter().all(|step| *step == JobStep::Idle) {
            return;
        }
    }
    panic!("the work does not end");
}

fn bulk_replays_of_both_share_nothing_and_send_once(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 1_200);
    let nodes = pair(&mut world);
    // In the millisecond in which a node is opened it may give the ids that another one gives.
    world.advance(ms(1));
    let wanted = request(&world, BulkKind::Replay, with_status(StatusFilter::Dead));
    let started = world.at_once(6, |number, _, now| {
        let (node, wanted) = (Arc::clone(&nodes[number % 2]), wanted.clone());
        async move { node.start_bulk(wanted, None, now).await.unwrap().done().unwrap() }
    });
    let matched: u64 = started.iter().filter_map(|started| started.matched).sum();
    assert_eq!(matched, 1_200, "{started:?}");
    step_on_both(&mut world, &nodes);
    let once =
        |progress: everhook_domain::delivery::Progress| (progress.round, progress.owed) == (2, 0);
    assert!(world.deliveries().iter().all(|delivery| once(delivery.progress)));
}

fn two_catch_ups_make_each_delivery_once(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let from = Some(world.now);
    world.publish(events(300));
    world.change_state(endpoint, Disable);
    world.run_jobs();
    world.publish(events(900));
    world.change_state(endpoint, Enable);
    let nodes = pair(&mut world);
    let filter = DeliveryQuery { endpoint: Some(endpoint), from, ..DeliveryQuery::default() };
    for _ in 0..2 {
        try_start(&world, request(&world, BulkKind::CatchUp, filter.clone())).unwrap();
    }
    step_on_both(&mut world, &nodes);
    let deliveries = world.deliveries();
    let distinct: HashSet<_> = deliveries.iter().map(|delivery| delivery.id.event()).collect();
    assert_eq!((deliveries.len(), distinct.len(), crate::bulk::due(&world)), (1_200, 1_200, 1_200));
    assert!(deliveries.iter().all(|delivery| delivery.progress.owed == 0));
}
