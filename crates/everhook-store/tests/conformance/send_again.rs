//! `send_again`: an event goes out once more.

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled};
use everhook_domain::delivery::{Due, IllegalStep, Progress, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Pause};
use everhook_domain::id::{EndpointId, EventId};
use everhook_store::{Change, DeliveryRecord, Refusal, SentAgain, Share, StoreError};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, events, secs, settings};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(every_delivery_and_every_new_match),
        case(only_the_named_endpoint),
        case(a_named_endpoint_without_a_delivery_gets_one),
        case(the_same_bytes_under_the_same_id),
        case(an_event_without_deliveries_can_be_sent),
        case(twice_is_twice_but_one_delivery_for_each_endpoint),
        case(endpoints_that_are_gone_are_left_out),
        case(with_every_endpoint_gone_it_is_refused),
        case(a_named_endpoint_that_is_gone_is_refused),
        case(a_paused_endpoint_waits),
        case(what_is_unknown_is_not_found),
        case(the_answer_is_what_is_read),
        case(what_is_set_going_is_hinted),
        case(all_at_once_make_one_delivery_for_each_endpoint),
    ]
}

fn endpoints(sent: &SentAgain) -> Vec<EndpointId> {
    sent.iter().map(|delivery| delivery.endpoint).collect()
}

fn every_delivery_and_every_new_match(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    let id = world.publish_one(event(TYPE, "1")).id;
    world.send(one, 200);
    let added = world.endpoint_for(&world.tenant, &[TYPE]);
    world.endpoint_for(&world.tenant, &["invoice.*"]);
    // An endpoint that has a delivery gets it again, though it no longer wants the type.
    let change = Change::UpdateEndpoint {
        tenant: world.tenant.clone(),
        endpoint: two,
        expected_version: 1,
        settings: settings(&["invoice.*"]),
    };
    world.change(change).unwrap();
    world.advance(secs(9));
    let sent = world.send_again(id, None).unwrap();
    assert_eq!(endpoints(&sent), [one, two, added]);
    assert_eq!(sent.iter().map(|d| d.id).collect::<Vec<_>>(), [1, 2, 3].map(|n| id.delivery(n)));
    let now = State::Due(Due { at: world.now, cause: Trigger::Replay });
    assert!(sent.iter().all(|delivery| delivery.state == now));
    assert_eq!(sent.iter().map(|d| d.progress.round).collect::<Vec<_>>(), [2, 1, 1]);
    assert_eq!(sent[2].progress, Progress::NEW);
    assert_eq!((sent[0].created_at, sent[2].created_at), (id.created_at(), world.now));
    assert_eq!(world.event(id).record.deliveries, 2, "as at acceptance");
}

fn only_the_named_endpoint(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    let id = world.publish_one(event(TYPE, "1")).id;
    world.send(one, 200);
    world.send(two, 200);
    world.advance(secs(9));
    let sent = world.send_again(id, Some(two)).unwrap();
    assert_eq!((endpoints(&sent), sent[0].id), (vec![two], id.delivery(2)));
    assert_eq!(world.state(id.delivery(1)), State::Delivered);
    assert_eq!(world.send(two, 200), id.delivery(2));
}

fn a_named_endpoint_without_a_delivery_gets_one(kind: Kind) {
    let world = World::new(kind);
    let picky = world.endpoint_for(&world.tenant, &["invoice.*"]);
    world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    let sent = world.send_again(id, Some(picky)).unwrap();
    assert_eq!((endpoints(&sent), sent[0].id), (vec![picky], id.delivery(2)));
    let lease = world.claim_one(picky);
    assert_eq!((lease.number, lease.cause, lease.share), (1, Trigger::Replay, Share::Fresh));
    world.finish(&lease, 500);
    let due = Due { at: world.now + secs(60), cause: Trigger::Schedule };
    assert_eq!(world.state(lease.id), State::Due(due), "the whole schedule");
}

/// As in case 24: a receiver can tell a repetition from a new event, and the signature stays right.
fn the_same_bytes_under_the_same_id(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let accepted = world.publish_one(event(TYPE, r#"{"b" : 1.00,"a":"\u00E4"}"#));
    let first = world.claim_one(endpoint);
    world.finish(&first, 500);
    world.advance(secs(60));
    let second = world.claim_one(endpoint);
    world.finish(&second, 200);
    world.crash();
    world.send_again(accepted.id, None).unwrap();
    let third = world.claim_one(endpoint);
    assert_eq!(first.body, world.event(accepted.id).body);
    assert_eq!([&second.body, &third.body], [&first.body; 2]);
    assert_eq!([second.id, third.id], [first.id; 2]);
    assert_eq!([first.number, second.number, third.number], [1, 2, 3]);
}

fn an_event_without_deliveries_can_be_sent(kind: Kind) {
    let world = World::new(kind);
    let id = world.publish_one(event(TYPE, "1")).id;
    assert_eq!(world.send_again(id, None), Ok(vec![]));
    let endpoint = world.endpoint();
    let sent = world.send_again(id, None).unwrap();
    assert_eq!((endpoints(&sent), sent[0].id), (vec![endpoint], id.delivery(1)));
}

fn twice_is_twice_but_one_delivery_for_each_endpoint(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint_for(&world.tenant, &["invoice.*"]);
    let id = world.publish_one(event(TYPE, "1")).id;
    for owed in [0, 1, 2] {
        let sent = world.send_again(id, Some(endpoint)).unwrap();
        assert_eq!((sent.len(), sent[0].progress.owed), (1, owed));
    }
    assert_eq!(world.deliveries_for(id).len(), 1);
    for _ in 0..3 {
        world.send(endpoint, 200);
    }
    assert_eq!(world.claim_all(endpoint), []);
    assert_eq!(world.state(id.delivery(1)), State::Delivered);
}

fn endpoints_that_are_gone_are_left_out(kind: Kind) {
    let world = World::new(kind);
    let [one, two, three] = [world.endpoint(), world.endpoint(), world.endpoint()];
    let id = world.publish_one(event(TYPE, "1")).id;
    world.change_state(one, Disable);
    world.change_state(three, Delete);
    world.run_jobs();
    let sent = world.send_again(id, None).unwrap();
    assert_eq!(endpoints(&sent), [two]);
    assert_eq!(world.state(id.delivery(1)), State::Cancelled(EndpointDisabled));
    assert_eq!(world.state(id.delivery(3)), State::Cancelled(EndpointDeleted));
}

fn with_every_endpoint_gone_it_is_refused(kind: Kind) {
    let world = World::new(kind);
    let one = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    world.change_state(one, Disable);
    world.run_jobs();
    let refused = Refusal::Step(IllegalStep::EndpointGone(EndpointDisabled));
    assert_eq!(world.send_again(id, None), Err(refused.into()));
    assert_eq!(world.state(id.delivery(1)), State::Cancelled(EndpointDisabled));
    let other = world.endpoint();
    assert_eq!(endpoints(&world.send_again(id, None).unwrap()), [other]);
}

fn a_named_endpoint_that_is_gone_is_refused(kind: Kind) {
    let world = World::new(kind);
    for (verb, reason) in [(Disable, EndpointDisabled), (Delete, EndpointDeleted)] {
        let [with, without] = [&["*"], &["invoice.*"]]
            .map(|event_types| world.endpoint_for(&world.tenant, event_types));
        let id = world.publish_one(event(TYPE, "1")).id;
        for endpoint in [with, without] {
            world.change_state(endpoint, verb);
            let refused = Refusal::Step(IllegalStep::EndpointGone(reason));
            assert_eq!(world.send_again(id, Some(endpoint)), Err(refused.into()));
        }
        assert_eq!(world.deliveries_for(id).len(), 1);
    }
}

fn a_paused_endpoint_waits(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    world.send(endpoint, 200);
    world.change_state(endpoint, Pause);
    assert_eq!(world.send_again(id, Some(endpoint)).unwrap().len(), 1);
    assert!(matches!(world.state(id.delivery(1)), State::Due(_)));
}

fn what_is_unknown_is_not_found(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    let not_found = Err(StoreError::Refused(Refusal::NotFound));
    for unknown in [
        EventId::from_parts(id.millis(), id.sequence() + 1, id.tag(), 0),
        EventId::from_parts(id.millis() + 1, id.sequence(), id.tag(), 0),
        EventId::from_parts(id.millis(), id.sequence(), id.tag() ^ 1, 0),
        EventId::from_bits(id.bits() | 1),
        EventId::from_bits(u128::MAX),
        EventId::from_bits(0),
    ] {
        assert_eq!(world.send_again(unknown, None), not_found, "{unknown}");
        assert_eq!(world.send_again(unknown, Some(endpoint)), not_found, "{unknown}");
    }
    let unknown = EndpointId::from_parts(1, 999, 7, 0);
    assert_eq!(world.send_again(id, Some(unknown)), not_found);
}

fn the_answer_is_what_is_read(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    world.send(endpoint, 200);
    world.endpoint();
    assert_eq!(world.send_again(id, None).unwrap(), world.deliveries_for(id));
}

fn what_is_set_going_is_hinted(kind: Kind) {
    let world = World::new(kind);
    let one = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    world.send(one, 200);
    let two = world.endpoint();
    world.lanes.hints();
    world.send_again(id, None).unwrap();
    let expected = [(one, Share::Retry, world.now), (two, Share::Fresh, world.now)];
    assert_eq!(world.lanes.hints(), expected);
}

fn all_at_once_make_one_delivery_for_each_endpoint(kind: Kind) {
    let world = World::new(kind);
    let ids: Vec<EventId> = world.publish(events(2)).iter().map(|event| event.id).collect();
    let endpoints = [world.endpoint(), world.endpoint(), world.endpoint()];
    let (tenant, id) = (world.tenant.clone(), ids[0]);
    world.at_once(30, |number, store, now| {
        let tenant = tenant.clone();
        let endpoint = (number % 4 > 0).then(|| endpoints[number % 4 - 1]);
        async move { store.send_again(tenant, id, endpoint, None, now).await.unwrap() }
    });
    let made: Vec<DeliveryRecord> = world.deliveries_for(id);
    let mut to: Vec<_> = made.iter().map(|delivery| delivery.endpoint).collect();
    to.sort();
    assert_eq!(to, endpoints);
    // Three times eight by name or so, eight times for all: each one is owed once.
    let asked = |slot: usize| (0..30).filter(|n| n % 4 == 0 || n % 4 == slot + 1).count() as u32;
    for (slot, endpoint) in endpoints.iter().enumerate() {
        let of = made.iter().find(|delivery| delivery.endpoint == *endpoint).unwrap();
        assert_eq!(of.progress.owed, asked(slot) - 1);
    }
    assert_eq!(world.deliveries_for(ids[1]), []);
}
