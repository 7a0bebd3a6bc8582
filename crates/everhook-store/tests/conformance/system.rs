//! System events, and the health of endpoints.

use everhook_domain::attempt::{AttemptOutcome, ErrorClass, Trigger};
use everhook_domain::delivery::{Dead, DeadReason, Due, State};
use everhook_domain::endpoint::EndpointState::Enabled;
use everhook_domain::endpoint::EndpointVerb::Pause;
use everhook_domain::event::Origin;
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::schedule::Schedule;
use everhook_store::{Act, LeasedDelivery, Settled, Settlement, SettlementResult, StorePolicy};
use serde_json::{Value, json};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, events, finished, report, secs};
use crate::world::World;
use crate::{Case, case};

const DEAD: &str = "everhook.delivery.dead";
pub(crate) const FAILING: &str = "everhook.endpoint.failing";
pub(crate) const RECOVERED: &str = "everhook.endpoint.recovered";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_death_is_told_of),
        case(a_death_by_interruptions_is_told_of),
        case(a_replayed_delivery_dies_again),
        case(five_failures_in_a_row_are_told_of_once),
        case(failures_count_over_all_deliveries_of_an_endpoint),
        case(the_next_success_is_told_of_once),
        case(a_batch_counts_in_its_order),
        case(health_is_stored),
        case(a_stale_result_is_not_counted),
        case(system_events_go_to_those_who_name_them),
        case(deliveries_of_system_events_cause_none),
        case(tests_cause_none),
        case(a_test_that_is_replayed_is_sent_once),
        case(case_074_gone_is_a_failure_like_any_other),
        case(case_075_what_failed_is_told_of_with_its_class),
    ]
}

/// A schedule of so many attempts, a second apart.
fn steps(steps: u64) -> StorePolicy {
    let schedule = Schedule::new((0..steps).map(secs).collect()).unwrap();
    StorePolicy { schedule, ..StorePolicy::default() }
}

/// The types of the system events so far, oldest first.
pub(crate) fn types(world: &World) -> Vec<String> {
    world.system_events().into_iter().map(|(event_type, _)| event_type).collect()
}

/// Publishes so many events and sends each of them once, one after another, with this result.
pub(crate) fn attempts(world: &World, endpoint: EndpointId, count: usize, status: u16) {
    for _ in 0..count {
        let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
        let leased = world.claim_all(endpoint);
        let lease = leased.iter().find(|lease| lease.id == delivery).unwrap();
        assert_eq!(world.finish(lease, status), Settled::Recorded);
    }
}

/// An endpoint's failures since its last success.
pub(crate) fn failures(world: &World, endpoint: EndpointId) -> u32 {
    world.endpoint_health(endpoint).map_or(0, |health| health.health.consecutive_failures)
}

fn a_death_is_told_of(kind: Kind) {
    let mut world = World::with(kind, steps(2));
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    world.send(endpoint, 503);
    world.advance(secs(60));
    let started_at = world.now;
    assert_eq!(types(&world), [""; 0]);
    world.send(endpoint, 404);
    let expected = json!({
        "delivery_id": delivery,
        "event_id": delivery.event(),
        "endpoint_id": endpoint,
        "type": TYPE,
        "reason": "exhausted",
        "round": 1,
        "attempt_count": 2,
        "interruptions": 0,
        "last_attempt": {
            "number": 2,
            "started_at": started_at.to_string(),
            "status_code": 404,
            "error_class": "status",
        },
    });
    assert_eq!(world.system_events(), [(DEAD.to_owned(), expected)]);
    let record = &world.events()[0];
    assert_eq!((record.origin, record.timestamp), (Origin::System, world.now));
    assert_eq!((record.deliveries, record.source_event_id.as_deref()), (0, None));
}

fn a_death_by_interruptions_is_told_of(kind: Kind) {
    let policy = StorePolicy { interruptions_max: 2, ..StorePolicy::default() };
    let mut world = World::with(kind, policy);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    for died in [0, 1] {
        world.claim_one(endpoint);
        world.crash();
        assert_eq!((world.lapse(), types(&world).len()), (1, died));
    }
    let (event_type, data) = world.system_events().remove(0);
    assert_eq!(event_type, DEAD);
    assert_eq!(data["delivery_id"], delivery.to_string());
    assert_eq!((&data["reason"], &data["interruptions"]), (&json!("interrupted"), &json!(2)));
    assert_eq!((&data["attempt_count"], &data["last_attempt"]), (&json!(0), &Value::Null));
    assert_eq!(failures(&world, endpoint), 0);
}

fn a_replayed_delivery_dies_again(kind: Kind) {
    let world = World::with(kind, steps(1));
    let endpoint = world.endpoint();
    world.publish(events(1));
    let delivery = world.send(endpoint, 500);
    world.act(delivery, Act::Acknowledge).unwrap();
    world.act(delivery, Act::Replay).unwrap();
    world.send(endpoint, 500);
    let rounds: Vec<Value> =
        world.system_events().into_iter().map(|(_, data)| data["round"].clone()).collect();
    assert_eq!(rounds, [1, 2]);
}

fn five_failures_in_a_row_are_told_of_once(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let first = world.now;
    for (number, offset) in (1..).zip([60, 300, 1_800, 7_200, 21_600]) {
        assert_eq!(types(&world).len(), 0, "{number}");
        world.send(endpoint, 500);
        if number < 5 {
            world.now = first + secs(offset);
        }
    }
    let expected = json!({
        "endpoint_id": endpoint,
        "url": "https://example.org/hook",
        "consecutive_failures": 5,
        "failing_since": first.to_string(),
        "disables_at": null,
        "last_attempt": {
            "number": 5,
            "started_at": world.now.to_string(),
            "status_code": 500,
            "error_class": "status",
        },
    });
    assert_eq!(world.system_events(), [(FAILING.to_owned(), expected)]);
    attempts(&world, endpoint, 7, 500);
    assert_eq!(types(&world), [FAILING]);
    assert_eq!(world.state(delivery), {
        State::Due(Due { at: first + secs(21_600), cause: Trigger::Schedule })
    });
}

fn failures_count_over_all_deliveries_of_an_endpoint(kind: Kind) {
    let world = World::new(kind);
    let (one, other) = (world.endpoint(), world.endpoint_for(&world.tenant, &["other"]));
    attempts(&world, one, 4, 500);
    world.publish_one(event("other", "1"));
    world.claim_all(one);
    world.send(other, 500);
    assert_eq!((failures(&world, one), failures(&world, other)), (4, 1));
    attempts(&world, one, 1, 500);
    let (event_type, data) = world.system_events().remove(0);
    assert_eq!((event_type.as_str(), &data["endpoint_id"]), (FAILING, &json!(one)));
    assert_eq!(world.system_events().len(), 1);
}

fn the_next_success_is_told_of_once(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    attempts(&world, endpoint, 4, 500);
    attempts(&world, endpoint, 1, 200);
    let since = world.now;
    attempts(&world, endpoint, 6, 500);
    world.advance(secs(5));
    attempts(&world, endpoint, 1, 204);
    attempts(&world, endpoint, 3, 200);
    let events = world.system_events();
    let expected = json!({
        "endpoint_id": endpoint,
        "url": "https://example.org/hook",
        "consecutive_failures": 6,
        "failing_since": since.to_string(),
    });
    assert_eq!(events[1], (RECOVERED.to_owned(), expected));
    attempts(&world, endpoint, 5, 500);
    attempts(&world, endpoint, 1, 200);
    assert_eq!(types(&world), [FAILING, RECOVERED, FAILING, RECOVERED]);
}

fn a_batch_counts_in_its_order(kind: Kind) {
    for (statuses, expected, left) in [
        ([500, 500, 500, 500, 500, 500], vec![FAILING], 6),
        ([500, 500, 500, 500, 500, 200], vec![FAILING, RECOVERED], 0),
        ([200, 500, 500, 500, 500, 500], vec![FAILING], 5),
        ([500, 500, 500, 200, 500, 500], vec![], 2),
    ] {
        let world = World::new(kind);
        let endpoint = world.endpoint();
        world.publish(events(6));
        let leased = world.claim_all(endpoint);
        let settle = |(lease, status): (&LeasedDelivery, u16)| finished(lease, world.now, status);
        let settlements = leased.iter().zip(statuses).map(settle).collect();
        assert_eq!(world.settle(settlements), [Settled::Recorded; 6]);
        assert_eq!(types(&world), expected, "{statuses:?}");
        assert_eq!(failures(&world, endpoint), left, "{statuses:?}");
    }
}

fn health_is_stored(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    assert_eq!(world.endpoint_health(endpoint), None);
    let first = world.now;
    attempts(&world, endpoint, 4, 500);
    world.crash();
    world.lapse();
    let health = world.endpoint_health(endpoint).unwrap();
    assert_eq!((health.health.consecutive_failures, health.first_failure_at), (4, Some(first)));
    attempts(&world, endpoint, 1, 500);
    assert_eq!(types(&world), [FAILING]);
    world.crash();
    attempts(&world, endpoint, 1, 200);
    assert_eq!((types(&world), world.endpoint_health(endpoint)), {
        (vec![FAILING.to_owned(), RECOVERED.to_owned()], None)
    });
    let other = world.add_tenant("other");
    attempts(&world, endpoint, 1, 500);
    let foreign = world.store.endpoint_health(other, vec![endpoint]);
    assert_eq!(world.wait(foreign).unwrap().len(), 0);
}

fn a_stale_result_is_not_counted(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    world.finish(&lease, 500);
    assert_eq!(world.finish(&lease, 500), Settled::Stale);
    assert_eq!(failures(&world, endpoint), 1);
    world.advance(secs(60));
    let lease = world.claim_one(endpoint);
    world.release(&lease);
    assert_eq!(failures(&world, endpoint), 1);
}

/// `*` does not name them; what names them takes them, also where it is what they are about.
fn system_events_go_to_those_who_name_them(kind: Kind) {
    let world = World::with(kind, steps(1));
    let all = world.endpoint_for(&world.tenant, &["order.paid", "*"]);
    let every = world.endpoint_for(&world.tenant, &["everhook.*"]);
    let deaths = world.endpoint_for(&world.tenant, &[DEAD]);
    let failing = world.endpoint_for(&world.tenant, &["everhook.endpoint.*"]);
    world.change_state(failing, Pause);
    let foreign = world.add_tenant("foreign");
    let elsewhere = world.endpoint_for(&foreign, &["everhook.*"]);
    world.lanes.hints();
    world.publish(events(1));
    world.send(all, 500);
    let told = world.events()[0].id;
    let to: Vec<EndpointId> = world.deliveries_for(told).iter().map(|d| d.endpoint).collect();
    assert_eq!((to, world.event(told).record.deliveries), (vec![every, deaths], 2));
    let hinted: Vec<EndpointId> =
        world.lanes.hints().into_iter().map(|(endpoint, ..)| endpoint).collect();
    assert!(hinted.ends_with(&[every, deaths]), "{hinted:?}");
    let lease = world.claim_one(every);
    assert_eq!((lease.body, lease.cause, lease.number), {
        (world.event(told).body, Trigger::Schedule, 1)
    });
    assert_eq!(world.claim_all(elsewhere), []);
    attempts(&world, all, 4, 500);
    assert_eq!(types(&world), [DEAD, DEAD, DEAD, DEAD, FAILING, DEAD]);
    let told = world.events().into_iter().find(|event| event.event_type.as_str() == FAILING);
    let to: Vec<EndpointId> =
        world.deliveries_for(told.unwrap().id).iter().map(|d| d.endpoint).collect();
    assert_eq!(to, [every, failing]);
}

/// They go by the schedule, and are dead in the end; nobody is told of that.
fn deliveries_of_system_events_cause_none(kind: Kind) {
    let mut world = World::with(kind, steps(7));
    let endpoint = world.endpoint_for(&world.tenant, &["*", "everhook.*"]);
    world.publish(events(1));
    for _ in 0..7 {
        world.send(endpoint, 500);
        world.advance(secs(60));
        if types(&world).contains(&FAILING.to_owned()) {
            break;
        }
    }
    assert_eq!((types(&world), failures(&world, endpoint)), (vec![FAILING.to_owned()], 5));
    let told = world.delivery_of(world.events()[0].id).id;
    for _ in 0..7 {
        let leased = world.claim_all(endpoint);
        let lease = leased.iter().find(|lease| lease.id == told).unwrap();
        world.finish(lease, 500);
        for other in leased.iter().filter(|lease| lease.id != told) {
            world.release(other);
        }
        world.advance(secs(60));
    }
    let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at: None };
    assert_eq!(world.state(told), State::Dead(dead));
    assert_eq!((types(&world), failures(&world, endpoint)), (vec![FAILING.to_owned()], 5));
    // Nor does a success there mean that the endpoint has recovered.
    world.act(told, Act::Replay).unwrap();
    let lease = world.claim_all(endpoint).into_iter().find(|lease| lease.id == told).unwrap();
    world.finish(&lease, 200);
    assert_eq!((types(&world), failures(&world, endpoint)), (vec![FAILING.to_owned()], 5));
}

fn tests_cause_none(kind: Kind) {
    let world = World::with(kind, steps(1));
    let endpoint = world.endpoint();
    world.endpoint_for(&world.tenant, &["everhook.*"]);
    for _ in 0..7 {
        world.publish_test(endpoint).unwrap();
        world.send(endpoint, 500);
    }
    assert_eq!((failures(&world, endpoint), world.events().len()), (0, 7));
}

fn a_test_that_is_replayed_is_sent_once(kind: Kind) {
    let mut world = World::new(kind);
    let (endpoint, other) = (world.endpoint(), world.endpoint());
    let test = world.publish_test(endpoint).unwrap().id;
    let delivery = world.send(endpoint, 500);
    let acknowledged = |world: &World, delivery: DeliveryId| {
        let acknowledged_at = Some(world.now);
        let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at };
        assert_eq!(world.state(delivery), State::Dead(dead));
        assert_eq!(world.progress(delivery).step, 1);
    };
    acknowledged(&world, delivery);
    for _ in 0..2 {
        world.advance(secs(5));
        world.act(delivery, Act::Replay).unwrap();
        assert_eq!(world.send(endpoint, 500), delivery);
        acknowledged(&world, delivery);
    }
    // To an endpoint that it did not go to, too.
    let sent = world.send_again(test, Some(other)).unwrap();
    assert_eq!(world.send(other, 500), sent[0].id);
    acknowledged(&world, sent[0].id);
    assert_eq!(world.due(), []);
}

/// 410 on every attempt: tried to the end, then dead, and the endpoint stays as it was. 410 once
/// and 200 later: delivered.
fn case_074_gone_is_a_failure_like_any_other(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let delivery = world.send(endpoint, 410);
    world.advance(secs(60));
    world.send(endpoint, 200);
    assert_eq!(world.state(delivery), State::Delivered);
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let anchor = world.now;
    for offset in [60, 300, 1_800, 7_200, 21_600, 86_400, 86_400] {
        assert_eq!(world.send(endpoint, 410), delivery);
        world.now = anchor + secs(offset);
    }
    assert!(matches!(world.state(delivery), State::Dead(_)));
    assert_eq!(types(&world), [FAILING, DEAD]);
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.endpoint(endpoint).unwrap().state, Enabled);
}

/// An endpoint that never answers, one with 404, one that resets.
fn case_075_what_failed_is_told_of_with_its_class(kind: Kind) {
    let response = crate::sketch::answered(404);
    for (outcome, status, class) in [
        (AttemptOutcome::failed(ErrorClass::Timeout, "no answer"), Value::Null, "timeout"),
        (response, json!(404), "status"),
        (AttemptOutcome::failed(ErrorClass::Reset, "reset"), Value::Null, "reset"),
    ] {
        let world = World::with(kind, steps(1));
        let endpoint = world.endpoint();
        for _ in 0..5 {
            world.publish(events(1));
            let lease = world.claim_one(endpoint);
            let result = SettlementResult::Finished(report(world.now, outcome.clone()));
            let settlement = Settlement { delivery: lease.id, token: lease.token, result };
            assert_eq!(world.settle(vec![settlement]), [Settled::Recorded]);
        }
        for (event_type, data) in world.system_events() {
            let last = &data["last_attempt"];
            assert_eq!((&last["status_code"], &last["error_class"]), (&status, &json!(class)));
            assert!([DEAD, FAILING].contains(&event_type.as_str()));
        }
        assert_eq!(types(&world).len(), 6);
    }
}
