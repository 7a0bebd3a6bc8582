//! `event`, `events`, `delivery`, `deliveries`, `health`: single things and lists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhook_domain::endpoint::EndpointVerb::{Disable, Enable, Pause};
use everhook_domain::event::Origin;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::schedule::Schedule;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Act, DeliveryQuery, DeliveryRecord, EventQuery, EventRecord, Page, PageRequest, Position,
    StatusFilter, StoreHealth, StorePolicy,
};

use crate::backend::Kind;
use crate::sketch::{AMPLE, event, event_type, events, everything, finished, ms, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(every_filter_finds_what_it_names),
        case(events_are_found_by_type_and_time),
        case(pages_join_without_a_seam),
        case(pages_of_events_join_without_a_seam),
        case(from_is_inclusive_and_to_is_exclusive),
        case(a_page_keeps_its_limits),
        case(places_and_filters_from_elsewhere_are_harmless),
        case(what_is_not_there_is_none),
        case(attempts_are_listed_oldest_first),
        case(what_is_read_together_belongs_together),
        case(health_tells_of_writing_and_waiting),
    ]
}

const STATUSES: [StatusFilter; 5] = [
    StatusFilter::Due,
    StatusFilter::Leased,
    StatusFilter::Delivered,
    StatusFilter::Dead,
    StatusFilter::Cancelled,
];

/// A world with deliveries in every state, of several types, endpoints and instants.
fn crowded(kind: Kind) -> (World, Vec<EndpointId>) {
    let schedule = Schedule::new(vec![secs(0), secs(60)]).unwrap();
    let mut world = World::with(kind, StorePolicy { schedule, ..StorePolicy::default() });
    let endpoints = vec![world.endpoint(), world.endpoint_for(&world.tenant, &["a", "b"])];
    let other = world.add_tenant("other");
    world.endpoint_for(&other, &["*"]);
    for round in 0..4 {
        world.lanes.give(endpoints[0], 1);
        for event_type in ["a", "b", "c"] {
            world.publish_one(event(event_type, &round.to_string()));
            world.try_publish(publish_in(&other, events(1))).unwrap();
        }
        for endpoint in &endpoints {
            let leases = world.claim(everything(*endpoint)).0;
            for (lease, fate) in leases.into_iter().zip([round, 1, 2]) {
                match fate {
                    0 => world.finish_all(&[lease], 200),
                    1 => world.finish_all(&[lease], 500),
                    2 => {
                        world.act(lease.id, Act::Cancel).unwrap();
                        world.release_all(&[lease]);
                    }
                    _ => {}
                }
            }
        }
        world.advance(secs(60));
    }
    (world, endpoints)
}

/// Reads a list to its end, page by page.
fn walk<T>(page: PageRequest, mut read: impl FnMut(PageRequest) -> Page<T>) -> Vec<T> {
    let mut all = Vec::new();
    let mut request = page;
    loop {
        let page = read(request);
        assert!(page.items.len() <= request.limit);
        all.extend(page.items);
        match page.next {
            None => return all,
            Some(next) => {
                assert!(request.after.is_none_or(|after| next < after), "it must get on");
                request.after = Some(next);
            }
        }
    }
}

fn deliveries(world: &World, query: &DeliveryQuery, page: PageRequest) -> Page<DeliveryRecord> {
    world.wait(world.store.deliveries(world.tenant.clone(), query.clone(), page)).unwrap()
}

fn events_page(world: &World, query: &EventQuery, page: PageRequest) -> Page<EventRecord> {
    world.wait(world.store.events(world.tenant.clone(), query.clone(), page)).unwrap()
}

const fn page(limit: usize, scan_limit: usize) -> PageRequest {
    PageRequest { limit, after: None, scan_limit }
}

fn matches(query: &DeliveryQuery, delivery: &DeliveryRecord) -> bool {
    let accepted = delivery.id.event().created_at();
    query.status.is_none_or(|status| status == StatusFilter::of(&delivery.state))
        && query.endpoint.is_none_or(|endpoint| endpoint == delivery.endpoint)
        && query.event.is_none_or(|event| event == delivery.id.event())
        && query.event_type.as_ref().is_none_or(|wanted| *wanted == delivery.event_type)
        && query.from.is_none_or(|from| accepted >= from)
        && query.to.is_none_or(|to| accepted < to)
}

/// Every combination of filters that a screen offers.
fn queries(world: &World, endpoints: &[EndpointId]) -> Vec<DeliveryQuery> {
    let all = world.deliveries();
    let event = all[all.len() / 2].id.event();
    let middle = event.created_at();
    let mut queries = Vec::new();
    for status in STATUSES.map(Some).into_iter().chain([None]) {
        for endpoint in endpoints.iter().copied().map(Some).chain([None]) {
            for event_type in [Some(event_type("a")), Some(event_type("none")), None] {
                for (from, to) in [(None, None), (Some(middle), None), (None, Some(middle))] {
                    for event in [None, Some(event)] {
                        let event_type = event_type.clone();
                        queries.push(DeliveryQuery {
                            status,
                            endpoint,
                            event,
                            event_type,
                            from,
                            to,
                        });
                    }
                }
            }
        }
    }
    queries
}

/// As in case 56: filters work together, and every delivery has exactly one status.
fn every_filter_finds_what_it_names(kind: Kind) {
    let (world, endpoints) = crowded(kind);
    let all = world.deliveries();
    assert_eq!(all.len(), 20);
    assert!(all.is_sorted_by(|a, b| a.id > b.id), "newest first");
    for status in STATUSES {
        assert!(all.iter().any(|delivery| StatusFilter::of(&delivery.state) == status));
    }
    for query in queries(&world, &endpoints) {
        let expected: Vec<_> = all.iter().filter(|d| matches(&query, d)).cloned().collect();
        let found = deliveries(&world, &query, page(1_000, 10_000));
        assert_eq!((found.items, found.next), (expected, None), "{query:?}");
    }
}

fn pages_join_without_a_seam(kind: Kind) {
    let (world, endpoints) = crowded(kind);
    let all = world.deliveries();
    for (index, query) in queries(&world, &endpoints).iter().enumerate() {
        let (limit, scan_limit) = [(1, 1), (2, 3), (3, 100), (100, 2), (7, 7)][index % 5];
        let expected: Vec<_> = all.iter().filter(|d| matches(query, d)).cloned().collect();
        let found = walk(page(limit, scan_limit), |page| deliveries(&world, query, page));
        assert_eq!(found, expected, "{query:?} {limit} {scan_limit}");
    }
}

fn events_are_found_by_type_and_time(kind: Kind) {
    let (world, _) = crowded(kind);
    let all = world.events();
    // Twelve were published; those that died are told of.
    assert_eq!(all.iter().filter(|event| event.origin == Origin::Published).count(), 12);
    assert_eq!(all.len(), 12 + world.system_events().len());
    assert!(all.is_sorted_by(|a, b| a.id > b.id), "newest first");
    let middle = all[5].id.created_at();
    for event_type in [Some(event_type("b")), Some(event_type("none")), None] {
        for (from, to) in [(None, None), (Some(middle), None), (None, Some(middle))] {
            let query = EventQuery { event_type: event_type.clone(), from, to };
            let expected = all.iter().filter(|event| {
                event_type.as_ref().is_none_or(|wanted| *wanted == event.event_type)
                    && from.is_none_or(|from| event.id.created_at() >= from)
                    && to.is_none_or(|to| event.id.created_at() < to)
            });
            let expected: Vec<_> = expected.cloned().collect();
            for (limit, scan_limit) in [(1_000, 10_000), (1, 1), (5, 2), (2, 5)] {
                let read = |page| events_page(&world, &query, page);
                assert_eq!(walk(page(limit, scan_limit), read), expected, "{query:?}");
            }
        }
    }
}

fn pages_of_events_join_without_a_seam(kind: Kind) {
    let world = World::new(kind);
    let ids: Vec<_> = world.publish(events(25)).iter().rev().map(|event| event.id).collect();
    let query = EventQuery::default();
    for limit in [1, 4, 24, 25, 26] {
        let found = walk(page(limit, 1_000), |page| events_page(&world, &query, page));
        assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), ids);
    }
}

fn from_is_inclusive_and_to_is_exclusive(kind: Kind) {
    let mut world = World::new(kind);
    world.endpoint();
    let begun = world.now;
    for _ in 0..3 {
        world.publish(events(2));
        world.advance(ms(10));
    }
    let at = |offset: u64| Some(begun + ms(offset));
    let early = Some(begun.minus(ms(1)));
    for (from, to, expected) in [
        (None, None, 6),
        (early, at(0), 0),
        (at(0), at(1), 2),
        (at(0), at(10), 2),
        (at(0), at(11), 4),
        (at(10), at(20), 2),
        (at(10), None, 4),
        (at(11), None, 2),
        (at(20), at(20), 0),
        (at(21), None, 0),
        (at(20), at(10), 0),
        (early, at(1_000), 6),
    ] {
        let query = EventQuery { from, to, ..EventQuery::default() };
        let found = events_page(&world, &query, page(100, 100));
        assert_eq!(found.items.len(), expected, "{query:?}");
        let query = DeliveryQuery { from, to, ..DeliveryQuery::default() };
        let found = deliveries(&world, &query, page(100, 100));
        assert_eq!(found.items.len(), expected, "{query:?}");
    }
}

fn a_page_keeps_its_limits(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    world.publish((0..10).map(|_| event("common", "1")).collect());
    world.publish(vec![event("rare", "1")]);
    world.publish((0..10).map(|_| event("common", "1")).collect());
    let all = DeliveryQuery::default();
    let first = deliveries(&world, &all, page(21, 100));
    assert_eq!((first.items.len(), first.next), (21, None), "the end is told with the last page");
    let first = deliveries(&world, &all, page(20, 100));
    assert_eq!(first.items.len(), 20);
    let last = deliveries(&world, &all, PageRequest { after: first.next, ..page(20, 100) });
    assert_eq!((last.items.len(), last.next), (1, None));
    let rare = DeliveryQuery { event_type: Some(event_type("rare")), ..all };
    let short = deliveries(&world, &rare, page(5, 10));
    assert_eq!(short.items.len(), 0, "ten rows were looked at");
    let next = deliveries(&world, &rare, PageRequest { after: short.next, ..page(5, 10) });
    assert_eq!(next.items.len(), 1);
    assert!(short.next.is_some() && next.next.is_some());
}

fn places_and_filters_from_elsewhere_are_harmless(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let known = world.publish_one(event("a", "1")).id;
    let edge = EventId::from_parts(1, (1 << 47) - 1, 0, 0).bits();
    let odd = [0, 1, u128::MAX, u128::MAX >> 1, edge, edge | 0xffff, known.bits() ^ (1 << 16)];
    for bits in odd {
        let request = PageRequest { after: Some(Position(bits)), ..page(10, 10) };
        let found = deliveries(&world, &DeliveryQuery::default(), request);
        assert!(found.items.len() <= 1);
        let found = events_page(&world, &EventQuery::default(), request);
        assert!(found.items.len() <= 1);
        let event = EventId::from_bits(bits);
        for status in STATUSES.map(Some).into_iter().chain([None]) {
            let query = DeliveryQuery { event: Some(event), status, ..DeliveryQuery::default() };
            assert_eq!(deliveries(&world, &query, page(10, 10)).items, [], "{event}");
        }
        let query = DeliveryQuery {
            endpoint: Some(EndpointId::from_bits(bits)),
            ..DeliveryQuery::default()
        };
        assert_eq!(deliveries(&world, &query, page(10, 10)).items, []);
    }
    let far = [i64::MIN, -1, 0, i64::MAX].map(Timestamp::from_millis);
    for (from, to, expected) in [(far[0], far[3], 1), (far[1], far[2], 0), (far[3], far[3], 0)] {
        let query = DeliveryQuery { from: Some(from), to: Some(to), ..DeliveryQuery::default() };
        assert_eq!(deliveries(&world, &query, page(10, 10)).items.len(), expected);
        let query = EventQuery { from: Some(from), to: Some(to), ..EventQuery::default() };
        assert_eq!(events_page(&world, &query, page(10, 10)).items.len(), expected);
    }
    assert_eq!(world.claim_all(endpoint).len(), 1);
}

fn what_is_not_there_is_none(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    let known = world.publish_one(event("a", "1")).id;
    for bits in [0, u128::MAX, known.bits() ^ (1 << 16), known.bits() ^ (1 << 80), known.bits() + 2]
    {
        let event = world.store.event(world.tenant.clone(), EventId::from_bits(bits));
        assert!(world.wait(event).unwrap().is_none());
        let delivery = world.store.delivery(world.tenant.clone(), DeliveryId::from_bits(bits));
        assert_eq!(world.wait(delivery), Ok(None));
    }
}

fn attempts_are_listed_oldest_first(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event("a", "1")).id.delivery(1);
    for _ in 0..12 {
        world.act(delivery, Act::Replay).unwrap();
        world.advance(secs(1));
        world.send(endpoint, 500);
    }
    let numbers: Vec<u32> = world.attempts(delivery).iter().map(|a| a.number).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
}

/// One reader, one writer: a delivery is never shown with the attempts of another instant, nor
/// twice in a list while it moves on.
fn what_is_read_together_belongs_together(kind: Kind) {
    let schedule = Schedule::new(vec![secs(0)]).unwrap();
    let world = World::with(kind, StorePolicy { schedule, ..StorePolicy::default() });
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event("a", "1")).id.delivery(1);
    let tenant = world.tenant.clone();
    let done = Arc::new(AtomicBool::new(false));
    world.at_once(4, |number, store, now| {
        let (tenant, done) = (tenant.clone(), Arc::clone(&done));
        async move {
            if number == 0 {
                for _ in 0..150 {
                    let wanted = vec![everything(endpoint)];
                    let lease = store.claim(wanted, AMPLE, now).await.unwrap().0.remove(0);
                    store.settle(vec![finished(&lease, now, 200)], now).await.unwrap();
                    let act = Act::Replay;
                    store.act(tenant.clone(), delivery, act, None, now).await.unwrap();
                }
                done.store(true, Ordering::SeqCst);
            }
            while !done.load(Ordering::SeqCst) {
                let detail = store.delivery(tenant.clone(), delivery).await.unwrap().unwrap();
                assert_eq!(detail.attempts.len() as u32, detail.record.progress.number);
                let leased = Some(StatusFilter::Leased);
                let query = DeliveryQuery { status: leased, ..DeliveryQuery::default() };
                let list = store.deliveries(tenant.clone(), query, page(10, 10)).await.unwrap();
                assert!(list.items.len() <= 1);
                tokio::task::yield_now().await;
            }
        }
    });
}

fn health_tells_of_writing_and_waiting(kind: Kind) {
    let mut world = World::new(kind);
    let health = |world: &World| world.wait(world.store.health()).unwrap();
    let idle = StoreHealth { writable: true, oldest_due: None, stalled_since: None };
    assert_eq!(health(&world), idle);
    let [one, two] = [world.endpoint(), world.endpoint_for(&world.tenant, &["b"])];
    let first = world.now;
    world.publish(vec![event("b", "1")]);
    world.claim_all(one);
    world.advance(secs(5));
    world.publish(vec![event("a", "1")]);
    let second = world.now;
    assert_eq!(health(&world).oldest_due, Some(first));
    assert_eq!(health(&world).stalled_since, Some(first));
    world.lanes.fail(two);
    assert_eq!(health(&world).oldest_due, Some(first));
    assert_eq!(health(&world).stalled_since, Some(second), "the other waits for its endpoint");
    world.change_state(two, Pause);
    assert_eq!(health(&world).oldest_due, Some(second), "a paused lane waits on purpose");
    world.change_state(two, Enable);
    world.change_state(two, Disable);
    assert_eq!(health(&world).oldest_due, Some(second));
    world.claim_all(one);
    assert_eq!(health(&world), idle);
}
