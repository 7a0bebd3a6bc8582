//! `publish`: what is accepted, under which id, for whom.

use std::collections::HashSet;

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled};
use everhook_domain::delivery::{Due, IllegalStep, Progress, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause};
use everhook_domain::event::{Origin, data_of_stored};
use everhook_domain::id::EndpointId;
use everhook_store::{AcceptedEvent, EventRecord, Refusal, Settled, Share, StoreError};

use crate::backend::Kind;
use crate::lanes::Full;
use crate::sketch::{HAPPENED, TYPE, event, event_type, events, keyed, publish_in, secs, tenant};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_is_accepted_is_readable),
        case(ids_rise_and_creation_never_falls),
        case(ids_go_on_rising_after_a_crash),
        case(an_event_makes_a_delivery_for_each_endpoint_that_wants_it),
        case(an_event_that_nobody_wants_is_accepted),
        case(a_paused_endpoint_gets_deliveries_and_a_gone_one_none),
        case(an_unknown_tenant_gets_nothing),
        case(a_delivery_is_leased_at_birth_only_with_a_permit),
        case(a_lane_that_gets_room_in_time_is_used),
        case(a_full_lane_is_waited_for_once),
        case(a_delivery_without_a_permit_is_hinted),
        case(a_test_event_goes_to_one_endpoint),
        case(a_test_event_for_an_endpoint_that_is_gone_is_refused),
        case(what_was_accepted_survives_a_crash),
    ]
}

fn what_is_accepted_is_readable(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let data = r#"{"b":1.0, "a":1e2,"c":"\u00e4","b":0}"#;
    let accepted = world.publish_one(keyed("order-1", data));
    let expected = AcceptedEvent {
        id: accepted.id,
        event_type: event_type(TYPE),
        timestamp: HAPPENED,
        duplicate: false,
        differs: false,
        deliveries: 1,
    };
    assert_eq!(accepted, expected);
    assert_eq!(accepted.id.created_at(), world.now);
    let detail = world.event(accepted.id);
    let record = EventRecord {
        id: accepted.id,
        event_type: event_type(TYPE),
        origin: Origin::Published,
        timestamp: HAPPENED,
        source_event_id: Some("order-1".into()),
        source: None,
        deliveries: 1,
    };
    assert_eq!(detail.record, record);
    assert_eq!(detail.body, keyed("order-1", data).envelope.seal(accepted.id));
    assert_eq!(data_of_stored(&event_type(TYPE), &detail.body), Some(data.as_bytes()));
    let delivery = world.delivery_of(accepted.id);
    assert_eq!(delivery.id.event(), accepted.id);
    assert_eq!((delivery.endpoint, &delivery.event_type), (endpoint, &event_type(TYPE)));
    assert_eq!(delivery.state, State::Due(Due { at: world.now, cause: Trigger::Schedule }));
    assert_eq!((delivery.progress, delivery.created_at), (Progress::NEW, world.now));
    assert_eq!(world.attempts(delivery.id), []);
}

fn ids_rise_and_creation_never_falls(kind: Kind) {
    let mut world = World::new(kind);
    let mut ids: Vec<_> = world.publish(events(50)).iter().map(|event| event.id).collect();
    let first = world.now;
    world.advance(secs(5));
    ids.extend(world.publish(events(2)).iter().map(|event| event.id));
    let latest = world.now;
    world.now = first;
    ids.extend(world.publish(events(2)).iter().map(|event| event.id));
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let created: Vec<_> = ids[48..].iter().map(|id| id.created_at()).collect();
    assert_eq!(created, [first, first, latest, latest, latest, latest]);
    assert!(ids.iter().all(|id| id.ordinal() == 0));
}

fn ids_go_on_rising_after_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let before = world.publish_one(event(TYPE, "1"));
    world.crash();
    let after = world.publish_one(event(TYPE, "2"));
    assert!(after.id > before.id);
    assert_eq!(after.id.tag(), before.id.tag(), "one database, one tag");
}

fn an_event_makes_a_delivery_for_each_endpoint_that_wants_it(kind: Kind) {
    let world = World::new(kind);
    let exact = world.endpoint_for(&world.tenant, &["invoice.paid"]);
    let wildcard = world.endpoint_for(&world.tenant, &["invoice.*"]);
    let other = world.endpoint_for(&world.tenant, &["order.*"]);
    let all = world.endpoint();
    for (event_type, expected) in [
        ("invoice.paid", vec![exact, wildcard, all]),
        ("invoice.sent", vec![wildcard, all]),
        ("order.paid", vec![other, all]),
        ("else", vec![all]),
    ] {
        let accepted = world.publish_one(event(event_type, "{}"));
        let made = world.deliveries_for(accepted.id);
        let endpoints: Vec<EndpointId> = made.iter().map(|delivery| delivery.endpoint).collect();
        assert_eq!(endpoints, expected, "{event_type}");
        assert_eq!(accepted.deliveries as usize, expected.len());
        let ids: Vec<_> = (1..).map(|n| accepted.id.delivery(n)).take(expected.len()).collect();
        assert_eq!(made.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), ids);
    }
}

fn an_event_that_nobody_wants_is_accepted(kind: Kind) {
    let world = World::new(kind);
    world.endpoint_for(&world.tenant, &["invoice.*"]);
    let accepted = world.publish_one(event("order.paid", "{}"));
    assert_eq!((accepted.deliveries, world.deliveries().len()), (0, 0));
    assert_eq!(world.event(accepted.id).record.deliveries, 0);
}

fn a_paused_endpoint_gets_deliveries_and_a_gone_one_none(kind: Kind) {
    let world = World::new(kind);
    let endpoints = [Enable, Pause, Disable, Delete].map(|verb| {
        let endpoint = world.endpoint();
        world.change_state(endpoint, verb);
        endpoint
    });
    let accepted = world.publish_one(event(TYPE, "{}"));
    let made = world.deliveries_for(accepted.id);
    let made: Vec<_> = made.iter().map(|delivery| delivery.endpoint).collect();
    assert_eq!((accepted.deliveries, made), (2, endpoints[..2].to_vec()));
}

fn an_unknown_tenant_gets_nothing(kind: Kind) {
    let world = World::new(kind);
    let refused = world.try_publish(publish_in(&tenant("nobody"), events(3)));
    assert_eq!(refused, Err(StoreError::Refused(Refusal::NotFound)));
    assert_eq!(world.events(), []);
}

fn a_delivery_is_leased_at_birth_only_with_a_permit(kind: Kind) {
    let world = World::new(kind);
    let (one, other) = (world.endpoint(), world.endpoint());
    world.lanes.give(one, 2);
    world.lanes.hints();
    let accepted = world.publish(events(3));
    let handed = world.lanes.handed();
    assert_eq!(world.lanes.free(one), 0);
    for (event, leased) in accepted.iter().zip(&handed) {
        assert_eq!((leased.id, leased.endpoint), (event.id.delivery(1), one));
        assert_eq!((leased.number, leased.due_at), (1, world.now));
        assert_eq!((leased.cause, leased.share), (Trigger::Schedule, Share::Fresh));
        assert_eq!(leased.body, world.event(event.id).body);
        assert!(leased.until.is_none_or(|until| until > world.now));
        let State::Leased(lease) = world.state(leased.id) else { panic!("not leased") };
        assert_eq!((lease.token, lease.until), (leased.token, leased.until));
    }
    assert_eq!(handed.len(), 2);
    let waiting = world.claim_all(one);
    assert_eq!(waiting.len(), 1, "what was handed over is not claimed as well");
    assert_eq!(waiting[0].id, accepted[2].id.delivery(1));
    assert_eq!(world.claim_all(other).len(), 3);
    let tokens: HashSet<_> = handed.iter().chain(&waiting).map(|leased| leased.token).collect();
    assert_eq!(tokens.len(), 3);
    assert_eq!(world.finish(&handed[0], 204), Settled::Recorded);
    assert_eq!(world.state(handed[0].id), State::Delivered);
}

fn a_lane_that_gets_room_in_time_is_used(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    world.lanes.when_full(Full::GetsRoom);
    world.publish(events(1));
    world.publish(events(1));
    assert_eq!((world.lanes.handed().len(), world.lanes.rooms_awaited()), (2, 2));
}

/// The wait is for the call, not for each delivery: a batch must not stand for minutes.
fn a_full_lane_is_waited_for_once(kind: Kind) {
    let world = World::new(kind);
    let endpoints = [world.endpoint(), world.endpoint()];
    world.lanes.when_full(Full::NeverHasRoom);
    world.publish(events(50));
    assert_eq!(world.lanes.rooms_awaited(), 1);
    assert_eq!(world.lanes.handed(), []);
    assert!(endpoints.iter().all(|endpoint| world.claim_all(*endpoint).len() == 50));
}

fn a_delivery_without_a_permit_is_hinted(kind: Kind) {
    let world = World::new(kind);
    let (one, other) = (world.endpoint(), world.endpoint());
    world.lanes.give(one, 1);
    world.publish(events(1));
    assert_eq!(world.lanes.hints(), [(other, Share::Fresh, world.now)]);
}

fn a_test_event_goes_to_one_endpoint(kind: Kind) {
    let world = World::new(kind);
    let picky = world.endpoint_for(&world.tenant, &["invoice.*"]);
    world.endpoint();
    let accepted = world.publish_test(picky).unwrap();
    let delivery = world.delivery_of(accepted.id);
    assert_eq!((accepted.deliveries, delivery.endpoint), (1, picky));
    assert_eq!(delivery.state, State::Due(Due { at: world.now, cause: Trigger::Test }));
    let leased = world.claim_one(picky);
    assert_eq!((leased.cause, leased.number), (Trigger::Test, 1));
}

fn a_test_event_for_an_endpoint_that_is_gone_is_refused(kind: Kind) {
    let world = World::new(kind);
    let unknown = EndpointId::from_parts(1, 999, 7, 0);
    for (verb, reason) in [(Disable, EndpointDisabled), (Delete, EndpointDeleted)] {
        let endpoint = world.endpoint();
        world.change_state(endpoint, verb);
        let before = world.events();
        let refused = StoreError::Refused(Refusal::Step(IllegalStep::EndpointGone(reason)));
        assert_eq!(world.publish_test(endpoint), Err(refused));
        assert_eq!(world.events(), before);
    }
    let before = world.events();
    let refused = StoreError::Refused(Refusal::NotFound);
    assert_eq!(world.publish_test(unknown), Err(refused));
    assert_eq!(world.events(), before);
}

fn what_was_accepted_survives_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(20));
    let before = (world.events(), world.deliveries());
    let body = world.event(before.0[0].id).body;
    world.crash();
    assert_eq!((world.events(), world.deliveries()), before);
    assert_eq!(world.event(before.0[0].id).body, body);
    assert_eq!(world.claim_all(endpoint).len(), 20);
}
