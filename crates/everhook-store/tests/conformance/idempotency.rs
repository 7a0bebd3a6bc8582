//! Idempotency claims: a verb runs once for a key, and its answer is given again.

use everhook_domain::endpoint::EndpointVerb::Disable;
use everhook_domain::event::NewEvent;
use everhook_store::{
    Act, Change, Claim, Claimed, Publish, Published, Refusal, StoreError, StorePolicy, Targets,
};

use crate::backend::Kind;
use crate::sketch::{
    TYPE, answer, claim, create_tenant, event, events, keyed, ms, nobodys_delivery, publish_in,
    secrets, secs, settings, tenant,
};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(the_same_request_gets_the_same_bytes),
        case(another_request_under_the_key_does_nothing),
        case(every_verb_takes_a_claim),
        case(a_refused_verb_frees_the_key),
        case(a_replayed_answer_comes_before_a_refusal),
        case(a_record_ends_at_its_time),
        case(a_duplicate_event_is_an_answer_too),
        case(keys_are_apart_from_source_event_ids),
        case(records_survive_a_crash),
        case(permits_come_back_from_replays),
        case(two_hundred_at_once_have_one_effect),
        case(keys_and_source_event_ids_at_once),
    ]
}

fn publish(world: &World, events: Vec<NewEvent>, claim: Claim<Published>) -> Claimed<Published> {
    let publish = publish_in(&world.tenant, events);
    world.wait(world.store.publish(publish, Some(claim), world.now)).unwrap()
}

fn the_same_request_gets_the_same_bytes(kind: Kind) {
    let mut world = World::new(kind);
    world.endpoint();
    let first = done(publish(&world, events(2), claim("k", "{}")));
    let expected = Claimed::Replayed(answer(&format!("{first:?}")));
    world.advance(secs(1));
    assert_eq!(publish(&world, events(2), claim("k", "{}")), expected);
    // What is compared is the fingerprint; what would be done is not looked at.
    assert_eq!(publish(&world, events(5), claim("k", "{}")), expected);
    assert_eq!((world.events().len(), world.deliveries().len()), (2, 2));
    let other = publish(&world, events(1), claim("other", "{}"));
    assert!(matches!(other, Claimed::Done(_)));
}

fn another_request_under_the_key_does_nothing(kind: Kind) {
    let world = World::new(kind);
    publish(&world, events(1), claim("k", "{}"));
    for body in ["{} ", "", "{\"a\":1}"] {
        assert_eq!(publish(&world, events(1), claim("k", body)), Claimed::Mismatch);
    }
    assert_eq!(world.events().len(), 1);
    assert!(matches!(publish(&world, events(1), claim("k", "{}")), Claimed::Replayed(_)));
}

fn every_verb_takes_a_claim(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    let delivery = id.delivery(1);
    let tenant = &world.tenant;
    let act = |body| {
        let claim = Some(claim("act", body));
        let verb = world.store.act(tenant.clone(), delivery, Act::Replay, claim, world.now);
        world.wait(verb).unwrap()
    };
    let acted = done(act("1"));
    assert_eq!(act("1"), Claimed::Replayed(answer(&format!("{acted:?}"))));
    assert_eq!(act("2"), Claimed::Mismatch);
    assert_eq!(world.progress(delivery).owed, 0, "brought forward once");
    let again = |body| {
        let claim = Some(claim("again", body));
        let verb = world.store.send_again(tenant.clone(), id, Some(endpoint), claim, world.now);
        world.wait(verb).unwrap()
    };
    let sent = done(again("1"));
    assert_eq!(again("1"), Claimed::Replayed(answer(&format!("{sent:?}"))));
    assert_eq!(again("2"), Claimed::Mismatch);
    assert_eq!(world.progress(delivery).owed, 1);
    let create = |body| {
        let change = Change::CreateEndpoint {
            tenant: tenant.clone(),
            settings: settings(&["*"]),
            secrets: secrets(3),
        };
        world.wait(world.store.change(change, Some(claim("create", body)), world.now)).unwrap()
    };
    let created = done(create("1"));
    let Claimed::Replayed(replayed) = create("1") else { panic!("it ran again") };
    assert_eq!(replayed, answer(&format!("{created:?}")));
    assert!(matches!(create("2"), Claimed::Mismatch));
    assert_eq!(world.store.directory().unwrap().all().count(), 2);
}

fn a_refused_verb_frees_the_key(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let id = world.publish_one(event(TYPE, "1")).id;
    let delivery = id.delivery(1);
    let store = &world.store;
    let act = |delivery, act| {
        world.wait(store.act(world.tenant.clone(), delivery, act, Some(claim("k", "1")), world.now))
    };
    let not_found = StoreError::Refused(Refusal::NotFound);
    assert_eq!(act(nobodys_delivery(), Act::Cancel), Err(not_found.clone()));
    assert!(matches!(act(delivery, Act::Acknowledge), Err(StoreError::Refused(_))));
    let nobodys = Publish { tenant: tenant("nobody"), ..publish_in(&world.tenant, events(1)) };
    let refused = world.wait(store.publish(nobodys, Some(claim("k", "2")), world.now));
    assert_eq!(refused, Err(not_found.clone()));
    let change = create_tenant("default");
    let refused = world.wait(store.change(change, Some(claim("k", "3")), world.now));
    assert_eq!(refused.map(drop), Err(StoreError::Refused(Refusal::Taken)));
    world.change_state(endpoint, Disable);
    let again = store.send_again(
        world.tenant.clone(),
        id,
        Some(endpoint),
        Some(claim("k", "4")),
        world.now,
    );
    assert!(matches!(world.wait(again), Err(StoreError::Refused(Refusal::Step(_)))));
    assert!(matches!(act(delivery, Act::Cancel), Ok(Claimed::Done(_))), "the key was free");
    assert!(matches!(act(delivery, Act::Cancel), Ok(Claimed::Replayed(_))), "not refused again");
}

/// What was answered once is answered again, though the request could not be done any more.
fn a_replayed_answer_comes_before_a_refusal(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let test = |world: &World| {
        let events = vec![event("everhook.test", "{}")];
        let targets = Targets::Test(endpoint);
        let publish = Publish { targets, ..publish_in(&world.tenant, events) };
        world.wait(world.store.publish(publish, Some(claim("test", "1")), world.now))
    };
    let delivery = done(test(&world).unwrap())[0].id.delivery(1);
    let cancel = |world: &World| {
        let (tenant, claim) = (world.tenant.clone(), Some(claim("cancel", "1")));
        world.wait(world.store.act(tenant, delivery, Act::Cancel, claim, world.now))
    };
    let create = |world: &World| {
        let claim = Some(claim("tenant", "1"));
        world.wait(world.store.change(create_tenant("new"), claim, world.now))
    };
    assert!(cancel(&world).is_ok() && create(&world).is_ok());
    world.change_state(endpoint, Disable);
    world.advance(secs(1));
    assert!(matches!(test(&world), Ok(Claimed::Replayed(_))));
    assert!(matches!(cancel(&world), Ok(Claimed::Replayed(_))));
    assert!(matches!(create(&world), Ok(Claimed::Replayed(_))));
}

fn a_record_ends_at_its_time(kind: Kind) {
    for ttl in [secs(24 * 3_600), secs(5)] {
        let policy = StorePolicy { idempotency_ttl: ttl, ..StorePolicy::default() };
        let mut world = World::with(kind, policy);
        let begun = world.now;
        publish(&world, events(1), claim("k", "1"));
        world.now = begun + (ttl - ms(1));
        assert!(matches!(publish(&world, events(1), claim("k", "1")), Claimed::Replayed(_)));
        assert_eq!(publish(&world, events(1), claim("k", "2")), Claimed::Mismatch);
        world.now = begun + ttl;
        assert!(matches!(publish(&world, events(1), claim("k", "2")), Claimed::Done(_)));
        assert_eq!(publish(&world, events(1), claim("k", "1")), Claimed::Mismatch);
        world.now = begun + (ttl + ttl - ms(1));
        assert!(matches!(publish(&world, events(1), claim("k", "2")), Claimed::Replayed(_)));
        assert_eq!(world.events().len(), 2);
    }
}

fn a_duplicate_event_is_an_answer_too(kind: Kind) {
    let world = World::new(kind);
    let first = world.publish_one(keyed("source", "1"));
    let second = done(publish(&world, vec![keyed("source", "2")], claim("k", "1")));
    assert_eq!((second[0].id, second[0].differs), (first.id, true));
    let expected = Claimed::Replayed(answer(&format!("{second:?}")));
    assert_eq!(publish(&world, vec![keyed("source", "2")], claim("k", "1")), expected);
}

fn keys_are_apart_from_source_event_ids(kind: Kind) {
    let world = World::new(kind);
    publish(&world, vec![keyed("a", "1")], claim("b", "1"));
    let other = done(publish(&world, vec![keyed("b", "1")], claim("a", "1")));
    assert!(!other[0].duplicate);
    assert_eq!(world.events().len(), 2);
}

fn records_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let first = publish(&world, vec![keyed("a", "1")], claim("k", "1"));
    let expected = Claimed::Replayed(answer(&format!("{:?}", done(first))));
    world.crash();
    assert_eq!(publish(&world, vec![keyed("a", "1")], claim("k", "1")), expected);
    assert_eq!(publish(&world, vec![], claim("k", "2")), Claimed::Mismatch);
    assert_eq!(world.events().len(), 1);
}

fn permits_come_back_from_replays(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.lanes.give(endpoint, 10);
    publish(&world, events(2), claim("k", "1"));
    publish(&world, events(2), claim("k", "1"));
    publish(&world, events(2), claim("k", "2"));
    assert_eq!((world.lanes.free(endpoint), world.lanes.handed().len()), (8, 2));
}

fn two_hundred_at_once_have_one_effect(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let tenant = world.tenant.clone();
    let answers = world.at_once(200, |number, store, now| {
        let publish = publish_in(&tenant, events(1));
        let body = if number % 10 == 0 { "other" } else { "1" };
        async move { (body, store.publish(publish, Some(claim("k", body)), now).await.unwrap()) }
    });
    let ran: Vec<_> = answers.iter().filter(|(_, a)| matches!(a, Claimed::Done(_))).collect();
    let [(winner, Claimed::Done(published))] = ran[..] else { panic!("{} ran", ran.len()) };
    let replayed = Claimed::Replayed(answer(&format!("{published:?}")));
    for (body, answer) in &answers {
        let expected = if body == winner { &replayed } else { &Claimed::Mismatch };
        assert!(answer == expected || matches!(answer, Claimed::Done(_)), "{answer:?}");
    }
    assert_eq!((world.events().len(), world.claim_all(endpoint).len()), (1, 1));
}

/// Different keys around the same source event IDs, in opposite orders: nobody blocks anybody for
/// good, and what comes second is a duplicate.
fn keys_and_source_event_ids_at_once(kind: Kind) {
    let world = World::new(kind);
    let tenant = world.tenant.clone();
    let answers = world.at_once(60, |number, store, now| {
        let mut batch = vec![keyed("a", "1"), keyed("b", "1"), keyed("c", "1")];
        batch.rotate_left(number % 3);
        let publish = publish_in(&tenant, batch);
        let claim = claim(&format!("k{}", number % 20), &(number % 20).to_string());
        async move { store.publish(publish, Some(claim), now).await.unwrap() }
    });
    let ran = answers.into_iter().filter_map(Claimed::done);
    let events: Vec<_> = ran.flatten().collect();
    assert_eq!(events.len(), 60, "twenty keys ran once each");
    assert_eq!(events.iter().filter(|event| !event.duplicate).count(), 3);
    assert_eq!(world.events().len(), 3);
}
