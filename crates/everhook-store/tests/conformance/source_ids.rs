//! Source event IDs: within the window, one ID makes one event.

use std::collections::{HashMap, HashSet};

use everhook_domain::event::NewEvent;
use everhook_store::{Publish, StorePolicy, Targets};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, event_type, keyed, ms, publish_in, secs};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_second_event_names_the_first),
        case(a_duplicate_says_whether_it_differs),
        case(a_duplicate_says_how_many_deliveries_the_first_was_given),
        case(a_batch_may_hold_the_same_id_twice),
        case(no_peer_4_the_same_id_in_two_tenants_makes_two_events),
        case(ids_are_taken_as_they_are),
        case(the_window_runs_from_the_first_event),
        case(the_window_is_a_setting),
        case(pruning_changes_nothing),
        case(ids_survive_a_crash),
        case(permits_come_back_from_duplicates),
        case(no_peer_2_a_thousand_at_once_make_one_event),
        case(batches_at_once_make_each_event_once),
    ]
}

fn a_second_event_names_the_first(kind: Kind) {
    let mut world = World::new(kind);
    world.endpoint();
    let first = world.publish_one(keyed("k", "1"));
    world.advance(secs(1));
    let second = world.publish_one(keyed("k", "1"));
    let mut expected = first;
    expected.duplicate = true;
    assert_eq!(second, expected);
    assert_eq!((world.events().len(), world.deliveries().len()), (1, 1));
}

fn a_duplicate_says_whether_it_differs(kind: Kind) {
    let world = World::new(kind);
    let first = world.publish_one(keyed("k", r#"{"a":1}"#));
    let later = NewEvent { timestamp: first.timestamp + secs(9), ..keyed("k", r#"{"a":1}"#) };
    let retyped = event("order.sent", r#"{"a":1}"#);
    let retyped = NewEvent { source_event_id: keyed("k", "1").source_event_id, ..retyped };
    for (event, differs) in [
        (keyed("k", r#"{"a":1}"#), false),
        (keyed("k", r#"{"a":2}"#), true),
        (keyed("k", r#"{"a": 1}"#), true),
        (keyed("k", "1"), true),
        (retyped, true),
        (later, false),
    ] {
        let duplicate = world.publish_one(event);
        assert_eq!((duplicate.duplicate, duplicate.differs), (true, differs));
        let named = (duplicate.id, &duplicate.event_type, duplicate.timestamp);
        assert_eq!(named, (first.id, &event_type(TYPE), first.timestamp));
    }
    assert_eq!(world.events().len(), 1);
    assert_eq!(world.event(first.id).body, keyed("k", r#"{"a":1}"#).envelope.seal(first.id));
}

fn a_duplicate_says_how_many_deliveries_the_first_was_given(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    let first = world.publish_one(keyed("k", "1"));
    let added = world.endpoint();
    assert_eq!(world.publish_one(keyed("k", "1")).deliveries, 1);
    assert_eq!(world.deliveries_for(first.id).len(), 1);
    assert_eq!(world.claim_all(added), []);
}

/// No peer passes: row 3.
fn a_batch_may_hold_the_same_id_twice(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    let before = world.publish_one(keyed("old", "0"));
    let batch = vec![
        keyed("a", "1"),
        keyed("b", "1"),
        keyed("a", "1"),
        keyed("a", "2"),
        event(TYPE, "1"),
        event(TYPE, "1"),
        keyed("old", "0"),
        keyed("b", "1"),
    ];
    let accepted = world.publish(batch);
    let told: Vec<_> = accepted.iter().map(|event| (event.duplicate, event.differs)).collect();
    let (new, same, other) = ((false, false), (true, false), (true, true));
    assert_eq!(told, [new, new, same, other, new, new, same, same]);
    assert_eq!(accepted[2].id, accepted[0].id);
    assert_eq!(accepted[3].id, accepted[0].id);
    assert_eq!(accepted[6].id, before.id);
    assert_eq!(accepted[7].id, accepted[1].id);
    assert_eq!((world.events().len(), world.deliveries().len()), (5, 5));
}

fn no_peer_4_the_same_id_in_two_tenants_makes_two_events(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let first = world.publish_one(keyed("k", "1"));
    let second = world.try_publish(publish_in(&other, vec![keyed("k", "1")])).unwrap().remove(0);
    assert!(!second.duplicate && second.id != first.id);
    let third = world.try_publish(publish_in(&other, vec![keyed("k", "1")])).unwrap().remove(0);
    assert_eq!((third.duplicate, third.id), (true, second.id));
}

fn ids_are_taken_as_they_are(kind: Kind) {
    let world = World::new(kind);
    let spellings = ["k", "K", " k", "k ", "ä", "a\u{308}", "k\n"];
    let accepted = world.publish(spellings.iter().map(|key| keyed(key, "1")).collect());
    assert!(accepted.iter().all(|event| !event.duplicate));
}

/// As in case 99: a duplicate does not extend the window, and its end is exact.
fn the_window_runs_from_the_first_event(kind: Kind) {
    let mut world = World::new(kind);
    let window = world.policy().dedupe_window;
    let begun = world.now;
    let first = world.publish_one(keyed("k", "1"));
    world.now = begun + (window - ms(1));
    assert_eq!(world.publish_one(keyed("k", "1")).id, first.id);
    world.now = begun + window;
    let second = world.publish_one(keyed("k", "1"));
    assert!(!second.duplicate && second.id != first.id);
    world.now = begun + (window + window - ms(1));
    assert_eq!(world.publish_one(keyed("k", "1")).id, second.id);
    world.now = begun + (window + window);
    assert!(!world.publish_one(keyed("k", "1")).duplicate);
}

fn the_window_is_a_setting(kind: Kind) {
    let policy = StorePolicy { dedupe_window: secs(10), ..StorePolicy::default() };
    let mut world = World::with(kind, policy);
    world.publish_one(keyed("k", "1"));
    world.advance(ms(9_999));
    assert!(world.publish_one(keyed("k", "1")).duplicate);
    world.advance(ms(1));
    assert!(!world.publish_one(keyed("k", "1")).duplicate);
}

fn pruning_changes_nothing(kind: Kind) {
    let mut world = World::new(kind);
    let window = world.policy().dedupe_window;
    let first = world.publish_one(keyed("a", "1"));
    world.advance(window - secs(1));
    let second = world.publish_one(keyed("b", "1"));
    world.run_jobs();
    assert_eq!(world.publish_one(keyed("a", "1")).id, first.id);
    world.advance(secs(1));
    let renewed = world.publish_one(keyed("a", "1"));
    assert!(!renewed.duplicate);
    world.run_jobs();
    assert_eq!(world.publish_one(keyed("a", "1")).id, renewed.id);
    assert_eq!(world.publish_one(keyed("b", "1")).id, second.id);
}

fn ids_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let window = world.policy().dedupe_window;
    let begun = world.now;
    let first = world.publish_one(keyed("k", "1"));
    world.now = begun + window;
    let second = world.publish_one(keyed("k", "1"));
    world.crash();
    let third = world.publish_one(keyed("k", "1"));
    assert!(first.id != second.id && third.duplicate);
    assert_eq!(third.id, second.id, "the later one stands for the key");
}

fn permits_come_back_from_duplicates(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.lanes.give(endpoint, 10);
    world.publish(vec![keyed("k", "1"), keyed("k", "1"), keyed("l", "1")]);
    assert_eq!((world.lanes.free(endpoint), world.lanes.handed().len()), (8, 2));
    world.publish(vec![keyed("k", "1")]);
    assert_eq!((world.lanes.free(endpoint), world.lanes.handed().len()), (8, 0));
}

fn no_peer_2_a_thousand_at_once_make_one_event(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let tenant = world.tenant.clone();
    let accepted = world.at_once(1_000, |number, store, now| {
        let publish = publish_in(&tenant, vec![keyed("k", &(number % 2).to_string())]);
        async move { done(store.publish(publish, None, now).await.unwrap()).remove(0) }
    });
    let ids: HashSet<_> = accepted.iter().map(|event| event.id).collect();
    assert_eq!((accepted.len(), ids.len()), (1_000, 1));
    assert_eq!(accepted.iter().filter(|event| !event.duplicate).count(), 1);
    assert_eq!((world.events().len(), world.claim_all(endpoint).len()), (1, 1));
}

/// The same IDs, each batch in an order of its own: nothing blocks, nothing is made twice.
fn batches_at_once_make_each_event_once(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    let tenant = world.tenant.clone();
    let answers = world.at_once(24, |number, store, now| {
        let keys = (0..40).map(|n| format!("k{}", (n * 7 + number * 13) % 40));
        let keys: Vec<String> = if number % 2 == 0 { keys.collect() } else { keys.rev().collect() };
        let events = keys.iter().map(|key| keyed(key, "1")).collect();
        let publish = Publish { tenant: tenant.clone(), events, targets: Targets::Subscribed };
        async move { keys.into_iter().zip(done(store.publish(publish, None, now).await.unwrap())) }
    });
    let mut first = HashMap::new();
    let mut made = 0;
    for (key, event) in answers.into_iter().flatten() {
        assert_eq!(*first.entry(key).or_insert(event.id), event.id);
        made += usize::from(!event.duplicate);
    }
    assert_eq!((made, first.len(), world.events().len()), (40, 40, 40));
    assert_eq!(world.deliveries().len(), 40);
}
