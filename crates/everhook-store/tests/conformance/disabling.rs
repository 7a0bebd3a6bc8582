//! Disabling endpoints, by request and automatically.

use everhook_domain::delivery::State;
use everhook_domain::endpoint::EndpointState::{Disabled, Enabled};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause};
use everhook_domain::endpoint::{Disabled as DisabledBy, DisabledReason};
use everhook_domain::id::EndpointId;
use everhook_store::{LeasedDelivery, Settled, StorePolicy};
use serde_json::{Value, json};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, events, finished, secs};
use crate::system::{FAILING, RECOVERED, attempts, failures, types};
use crate::world::World;
use crate::{Case, case};

const DISABLED: &str = "everhook.endpoint.disabled";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(disabling_is_told_of),
        case(enabling_begins_anew),
        case(results_at_an_endpoint_that_is_gone_are_not_counted),
        case(by_default_nothing_is_disabled_automatically),
        case(an_endpoint_that_only_fails_is_disabled),
        case(a_success_in_time_keeps_it_enabled),
        case(what_was_disabled_automatically_is_swept_and_enabled_again),
    ]
}

fn disabling_is_told_of(kind: Kind) {
    let mut world = World::new(kind);
    let (quiet, loud) = (world.endpoint(), world.endpoint_for(&world.tenant, &["loud"]));
    let since = world.now;
    for _ in 0..5 {
        world.publish_one(event("loud", "1"));
        let lease = world.claim_all(loud).remove(0);
        world.finish(&lease, 500);
    }
    world.advance(secs(9));
    let changed = world.try_change_state(quiet, Disable).unwrap();
    let by_request = DisabledBy { reason: DisabledReason::Requested, at: world.now };
    assert_eq!(changed.disabled, Some(by_request));
    // Once is enough.
    world.change_state(quiet, Disable);
    world.change_state(loud, Disable);
    world.change_state(loud, Delete);
    let url = "https://example.org/hook";
    let data = |endpoint: EndpointId, failures: u32, since: Value| {
        json!({
            "endpoint_id": endpoint,
            "url": url,
            "reason": "requested",
            "consecutive_failures": failures,
            "failing_since": since,
        })
    };
    let expected = [
        (DISABLED.to_owned(), data(quiet, 0, Value::Null)),
        (DISABLED.to_owned(), data(loud, 5, json!(since.to_string()))),
    ];
    assert_eq!(world.system_events()[1..], expected);
    assert_eq!(world.lanes.disabled(), []);
    world.crash();
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.endpoint(quiet).unwrap().disabled, Some(by_request));
}

fn enabling_begins_anew(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    attempts(&world, endpoint, 7, 500);
    world.change_state(endpoint, Pause);
    world.change_state(endpoint, Enable);
    assert_eq!(failures(&world, endpoint), 7);
    world.change_state(endpoint, Disable);
    world.run_jobs();
    assert_eq!(failures(&world, endpoint), 7);
    let enabled = world.try_change_state(endpoint, Enable).unwrap();
    assert_eq!((enabled.disabled, world.endpoint_health(endpoint)), (None, None));
    world.crash();
    attempts(&world, endpoint, 4, 500);
    assert_eq!(types(&world), [FAILING, DISABLED]);
    attempts(&world, endpoint, 1, 500);
    attempts(&world, endpoint, 1, 200);
    assert_eq!(types(&world), [FAILING, DISABLED, FAILING, RECOVERED]);
}

fn results_at_an_endpoint_that_is_gone_are_not_counted(kind: Kind) {
    for status in [200, 500] {
        let world = World::new(kind);
        let endpoint = world.endpoint();
        attempts(&world, endpoint, 5, 500);
        world.publish(events(1));
        let lease = world.claim_all(endpoint).remove(0);
        world.change_state(endpoint, Disable);
        assert_eq!(world.finish(&lease, status), Settled::Recorded);
        assert_eq!((types(&world).len(), failures(&world, endpoint)), (2, 5));
    }
}

fn by_default_nothing_is_disabled_automatically(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    for _ in 0..12 {
        attempts(&world, endpoint, 1, 500);
        world.advance(secs(86_400));
    }
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.endpoint(endpoint).unwrap().state, Enabled);
    assert_eq!(world.lanes.disabled(), []);
}

/// Five days of nothing but failures, one a day.
fn five_days() -> StorePolicy {
    StorePolicy { disable_after: Some(secs(5 * 86_400)), ..StorePolicy::default() }
}

fn an_endpoint_that_only_fails_is_disabled(kind: Kind) {
    let mut world = World::with(kind, five_days());
    let listener = world.endpoint_for(&world.tenant, &["everhook.*"]);
    let endpoint = world.endpoint();
    let first = world.now;
    attempts(&world, endpoint, 5, 500);
    let (_, data) = world.system_events().remove(0);
    assert_eq!(data["disables_at"], (first + secs(5 * 86_400)).to_string());
    world.now = (first + secs(5 * 86_400)).minus(secs(1));
    attempts(&world, endpoint, 1, 500);
    assert_eq!(types(&world), [FAILING]);
    world.advance(secs(1));
    let changes = world.lanes.directory_changes();
    attempts(&world, endpoint, 1, 500);
    let expected = json!({
        "endpoint_id": endpoint,
        "url": "https://example.org/hook",
        "reason": "automatic",
        "consecutive_failures": 7,
        "failing_since": first.to_string(),
    });
    assert_eq!(world.system_events()[1..], [(DISABLED.to_owned(), expected)]);
    assert_eq!(world.delivery_of(world.events()[0].id).endpoint, listener);
    let directory = world.store.directory().unwrap();
    let disabled = directory.endpoint(endpoint).unwrap();
    let automatic = DisabledBy { reason: DisabledReason::Automatic, at: world.now };
    assert_eq!((disabled.state, disabled.disabled), (Disabled, Some(automatic)));
    assert_eq!(world.lanes.disabled(), [(endpoint, first)]);
    assert_eq!(world.lanes.directory_changes(), changes + 1);
    assert_eq!(world.publish_one(event(TYPE, "1")).deliveries, 0);
}

fn a_success_in_time_keeps_it_enabled(kind: Kind) {
    let mut world = World::with(kind, five_days());
    let endpoint = world.endpoint();
    // Too few failures to count as failing, however long ago the first one was.
    for _ in 0..4 {
        attempts(&world, endpoint, 1, 500);
        world.advance(secs(3 * 86_400));
    }
    attempts(&world, endpoint, 1, 200);
    attempts(&world, endpoint, 4, 500);
    world.advance(secs(4 * 86_400));
    // In one batch with the success that ends them.
    world.publish(events(2));
    let leased = world.claim_all(endpoint);
    let fresh: Vec<&LeasedDelivery> = leased.iter().filter(|lease| lease.number == 1).collect();
    world.advance(secs(2 * 86_400));
    let settlements = vec![finished(fresh[0], world.now, 500), finished(fresh[1], world.now, 200)];
    assert_eq!(world.settle(settlements), [Settled::Recorded; 2]);
    assert_eq!(types(&world), [FAILING, RECOVERED]);
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.endpoint(endpoint).unwrap().state, Enabled);
}

fn what_was_disabled_automatically_is_swept_and_enabled_again(kind: Kind) {
    let mut world = World::with(kind, five_days());
    let endpoint = world.endpoint();
    attempts(&world, endpoint, 4, 500);
    world.advance(secs(6 * 86_400));
    let jobs = world.lanes.job_hints();
    attempts(&world, endpoint, 1, 500);
    assert!(world.lanes.job_hints() > jobs);
    assert_eq!(types(&world), [FAILING, DISABLED]);
    world.crash();
    world.lapse();
    world.run_jobs();
    assert!(
        world
            .deliveries()
            .iter()
            .all(|delivery| { !matches!(delivery.state, State::Due(_) | State::Leased(_)) })
    );
    world.change_state(endpoint, Enable);
    attempts(&world, endpoint, 4, 500);
    world.advance(secs(4 * 86_400));
    attempts(&world, endpoint, 1, 500);
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.endpoint(endpoint).unwrap().state, Enabled);
    assert_eq!(types(&world), [FAILING, DISABLED, FAILING]);
}
