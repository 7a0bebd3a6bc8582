//! Rows of the case list that are decided in the store, one function a row.
//!
//! Other rows are tests of their own in the modules beside this one, which name them.

use everhook_domain::attempt::Trigger;
use everhook_domain::bulk::BulkKind::Acknowledge;
use everhook_domain::delivery::CancelReason::{EndpointDeleted, Requested};
use everhook_domain::delivery::{Dead, DeadReason, Due, IllegalStep, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause};
use everhook_domain::schedule::Schedule;
use everhook_store::{
    Act, DeliveryQuery, DeliveryRecord, JobStep, PageRequest, Refusal, Settled, StatusFilter,
    StoreError, StorePolicy, Wanted,
};

use crate::backend::Kind;
use crate::sketch::{TYPE, claim, event, events, keyed, ms, publish_in, secs};
use crate::world::{World, done};
use crate::{Case, bulk, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(case_001_recovery_leaves_alone_what_is_being_sent),
        case(case_007_every_attempt_is_counted),
        case(case_010_nothing_is_sent_to_a_deleted_endpoint),
        case(case_056_filtered_counts_add_up),
        case(case_057_a_manual_retry_has_a_row_of_its_own),
        case(case_059_a_page_goes_on_where_it_ended),
        case(case_073_only_the_named_delivery_is_cancelled),
        case(case_078_a_new_event_does_not_wait_for_old_retries),
        case(case_083_the_same_event_twice_is_one_delivery),
        case(case_099_a_key_means_something_for_a_day),
        case(case_104_a_replay_at_a_disabled_endpoint_ends),
        case(case_106_acknowledging_thousands_touches_no_other_row),
    ]
}

fn case_001_recovery_leaves_alone_what_is_being_sent(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(6));
    let two = Wanted { endpoint, fresh: 2, retry: 0, suspect: 0, held: 0 };
    world.claim(two);
    world.crash();
    // The new process begins on one and two, and recovers what the old one left only then.
    let (sending, _) = world.claim(two);
    assert_eq!((sending.len(), world.lapse()), (2, 2));
    let rest = world.claim_all(endpoint);
    let mut ids: Vec<_> = sending.iter().chain(&rest).map(|lease| lease.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((rest.len(), ids.len()), (4, 6), "each one is in one pair of hands");
    assert_eq!((world.lapse(), world.claim_all(endpoint).len()), (0, 0));
    for lease in sending.iter().chain(&rest) {
        assert_eq!(world.finish(lease, 200), Settled::Recorded);
    }
    assert!(world.deliveries().iter().all(|delivery| delivery.progress.number == 1));
}

fn case_007_every_attempt_is_counted(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let anchor = world.now;
    for sent in 1..=7 {
        world.send(endpoint, 403);
        assert_eq!(world.progress(delivery).number, sent);
        if let State::Due(due) = world.state(delivery) {
            world.now = due.at;
        }
    }
    let starts = world.attempts(delivery).into_iter();
    let offsets: Vec<_> = starts.map(|a| a.report.started_at.since(anchor).as_secs()).collect();
    assert_eq!(offsets, [0, 60, 300, 1_800, 7_200, 21_600, 86_400]);
    let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at: None };
    assert_eq!(world.state(delivery), State::Dead(dead));
}

fn case_010_nothing_is_sent_to_a_deleted_endpoint(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(2));
    let leases = world.claim_all(endpoint);
    world.finish(&leases[0], 500);
    world.change_state(endpoint, Delete);
    world.advance(secs(60));
    assert_eq!(world.claim_all(endpoint), []);
    assert_eq!(world.finish(&leases[1], 500), Settled::Recorded, "it was on the wire");
    world.run_jobs();
    world.advance(secs(100_000));
    assert_eq!((world.claim_all(endpoint), world.due()), (vec![], vec![]));
    for lease in &leases {
        assert_eq!(world.state(lease.id), State::Cancelled(EndpointDeleted));
        assert_eq!(world.attempts(lease.id).len(), 1, "history stays readable");
    }
}

fn case_056_filtered_counts_add_up(kind: Kind) {
    let schedule = Schedule::new(vec![secs(0)]).unwrap();
    let world = World::with(kind, StorePolicy { schedule, ..StorePolicy::default() });
    let endpoint = world.endpoint();
    let counts = |world: &World| {
        let status = |status| DeliveryQuery { status: Some(status), ..DeliveryQuery::default() };
        [
            StatusFilter::Due,
            StatusFilter::Leased,
            StatusFilter::Delivered,
            StatusFilter::Dead,
            StatusFilter::Cancelled,
        ]
        .map(|filter| world.deliveries_of(&world.tenant, status(filter)).len())
    };
    assert_eq!(counts(&world), [0; 5]);
    world.lanes.give(endpoint, 1);
    world.publish(events(10));
    assert_eq!(counts(&world), [9, 1, 0, 0, 0]);
    let leases = world.claim(Wanted { endpoint, fresh: 6, retry: 0, suspect: 0, held: 0 }).0;
    assert_eq!(counts(&world), [3, 7, 0, 0, 0]);
    world.finish(&leases[0], 200);
    world.finish(&leases[1], 200);
    world.finish(&leases[2], 500);
    world.act(leases[3].id, Act::Cancel).unwrap();
    world.release(&leases[3]);
    assert_eq!(counts(&world), [3, 3, 2, 1, 1]);
    assert_eq!(counts(&world).iter().sum::<usize>(), world.deliveries().len());
}

fn case_057_a_manual_retry_has_a_row_of_its_own(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    for wait in [60, 240, 0] {
        world.send(endpoint, 500);
        world.advance(secs(wait));
    }
    world.advance(secs(100));
    assert_eq!(world.claim_all(endpoint), [], "half an hour is not over");
    world.act(delivery, Act::Replay).unwrap();
    let lease = world.claim_one(endpoint);
    assert_eq!((lease.id, lease.number), (delivery, 4), "the header's value");
    world.finish(&lease, 500);
    let State::Due(due) = world.state(delivery) else { panic!("not due") };
    world.now = due.at;
    world.send(endpoint, 200);
    let rows = world.attempts(delivery).into_iter().map(|a| (a.number, a.trigger));
    use Trigger::{Replay, Schedule};
    let expected = [(1, Schedule), (2, Schedule), (3, Schedule), (4, Replay), (5, Schedule)];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

fn case_059_a_page_goes_on_where_it_ended(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    world.publish(events(50));
    let due = DeliveryQuery { status: Some(StatusFilter::Due), ..DeliveryQuery::default() };
    let expected: Vec<_> = world.deliveries().iter().map(|delivery| delivery.id).collect();
    let mut request = PageRequest { limit: 10, after: None, scan_limit: 1_000 };
    let mut seen = Vec::new();
    loop {
        let list = world.store.deliveries(world.tenant.clone(), due.clone(), request);
        let page = world.wait(list).unwrap();
        let boundary = page.items.last().map(|delivery| delivery.id);
        seen.extend(page.items.into_iter().map(|delivery| delivery.id));
        // The row that the cursor names leaves the list, and newer ones enter it.
        world.act(boundary.unwrap(), Act::Cancel).unwrap();
        world.publish(events(30));
        let Some(next) = page.next else { break };
        request.after = Some(next);
    }
    assert_eq!(seen, expected, "none twice, none left out");
}

fn case_073_only_the_named_delivery_is_cancelled(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let mut pending = Vec::new();
    for _ in 0..3 {
        world.publish(events(1));
        pending.push(world.send(endpoint, 500));
        world.advance(secs(1));
    }
    let others = |world: &World| [pending[0], pending[2]].map(|id| world.delivery(id));
    let before = others(&world);
    world.act(pending[1], Act::Cancel).unwrap();
    assert_eq!(world.state(pending[1]), State::Cancelled(Requested));
    assert_eq!(others(&world), before);
    world.change_state(endpoint, Pause);
    world.run_jobs();
    world.change_state(endpoint, Enable);
    assert_eq!(others(&world), before, "due time, attempt count and id");
    world.advance(secs(60));
    let sent: Vec<_> = world.claim_all(endpoint).iter().map(|lease| lease.id).collect();
    assert_eq!(sent, [pending[0], pending[2]]);
}

fn case_078_a_new_event_does_not_wait_for_old_retries(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(200));
    world.finish_all(&world.claim_all(endpoint), 500);
    world.advance(secs(60));
    let id = world.publish_one(event(TYPE, "1")).id;
    let (leases, _) = world.claim(Wanted { endpoint, fresh: 1, retry: 1, suspect: 1, held: 0 });
    let new = leases.iter().find(|lease| lease.id == id.delivery(1)).unwrap();
    assert_eq!((new.number, new.due_at, id.created_at()), (1, world.now, world.now));
}

fn case_083_the_same_event_twice_is_one_delivery(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    let first = world.publish_one(keyed("order-7:paid", "1"));
    world.advance(ms(400));
    let second = world.publish_one(keyed("order-7:paid", "1"));
    assert_eq!((second.id, second.duplicate), (first.id, true));
    // The POST is sent again after a lost answer, without a source event ID.
    let post = |world: &World| {
        let publish = publish_in(&world.tenant, vec![event(TYPE, "2")]);
        world.wait(world.store.publish(publish, Some(claim("retry", "2")), world.now)).unwrap()
    };
    let published = done(post(&world));
    world.advance(secs(1));
    assert!(post(&world).done().is_none());
    for endpoint in [one, two] {
        let events: Vec<_> = world.claim_all(endpoint).iter().map(|l| l.id.event()).collect();
        assert_eq!(events, [first.id, published[0].id]);
    }
}

fn case_099_a_key_means_something_for_a_day(kind: Kind) {
    let mut world = World::new(kind);
    let begun = world.now;
    let hour = 3_600;
    for (at, duplicate) in [(0, false), (24 * hour - 60, true), (24 * hour + 60, false)] {
        world.now = begun + secs(at);
        assert_eq!(world.publish_one(keyed("k", "1")).duplicate, duplicate, "after {at} s");
    }
}

fn case_104_a_replay_at_a_disabled_endpoint_ends(kind: Kind) {
    let schedule = Schedule::new(vec![secs(0)]).unwrap();
    let world = World::with(kind, StorePolicy { schedule, ..StorePolicy::default() });
    let endpoint = world.endpoint();
    world.publish(events(1));
    let dead = world.send(endpoint, 500);
    let before = world.delivery(dead);
    world.change_state(endpoint, Disable);
    world.run_jobs();
    let Err(StoreError::Refused(Refusal::Step(reason))) = world.act(dead, Act::Replay) else {
        panic!("not refused");
    };
    assert!(matches!(reason, IllegalStep::EndpointGone(_)));
    assert_eq!(reason.to_string(), "the endpoint takes no requests (endpoint_disabled)");
    assert_eq!(world.delivery(dead), before);
    world.change_state(endpoint, Enable);
    let again = world.act(dead, Act::Replay).unwrap();
    assert_eq!(again.state, State::Due(Due { at: world.now, cause: Trigger::Replay }));
    world.send(endpoint, 500);
    assert!(matches!(world.state(dead), State::Dead(_)));
}

fn case_106_acknowledging_thousands_touches_no_other_row(kind: Kind) {
    let mut world = bulk::strict(kind);
    let [endpoint, other] = [world.endpoint(), world.endpoint()];
    world.publish(events(600));
    let claim =
        |endpoint, fresh| world.claim(Wanted { endpoint, fresh, retry: 0, suspect: 0, held: 0 }).0;
    world.finish_all(&claim(endpoint, 600), 500);
    world.finish_all(&claim(other, 200), 200);
    world.finish_all(&claim(other, 200), 500);
    let list = |world: &World, query| world.deliveries_of(&world.tenant, query);
    let to = |endpoint| DeliveryQuery { endpoint: Some(endpoint), ..DeliveryQuery::default() };
    let before = list(&world, to(other));
    let filter = DeliveryQuery { status: Some(StatusFilter::Dead), ..to(endpoint) };
    let started = bulk::try_start(&world, bulk::request(&world, Acknowledge, filter)).unwrap();
    assert_eq!(started.matched, Some(600));
    let is_noted = |row: &&DeliveryRecord| {
        matches!(row.state, State::Dead(Dead { acknowledged_at: Some(_), .. }))
    };
    let mut noted = Vec::new();
    loop {
        match world.job_step() {
            JobStep::More => {}
            JobStep::NotBefore(at) => world.now = at + secs(1),
            JobStep::Idle => break,
        }
        let dead = list(&world, bulk::with_status(StatusFilter::Dead));
        assert_eq!(dead.len(), 800, "they stay dead, and are found under it all the time");
        noted.push(dead.iter().filter(is_noted).count());
    }
    assert!(noted.len() > 2 && noted.is_sorted() && noted.last() == Some(&600), "{noted:?}");
    assert_eq!(list(&world, to(other)), before, "no other row has changed");
}
