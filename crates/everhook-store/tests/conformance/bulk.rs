//! `start_bulk` and what follows: exact, fixed, paced, once each.

use std::collections::BTreeMap;

use everhook_domain::bulk::BulkKind::{Acknowledge, Replay};
use everhook_domain::bulk::{BulkKind, BulkStatus, SkipReason, Tally};
use everhook_domain::delivery::{CancelReason, Dead, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Pause};
use everhook_domain::id::{DeliveryId, EndpointId, ReplayId};
use everhook_domain::schedule::Schedule;
use everhook_store::{
    Act, BulkRecord, BulkRequest, BulkStarted, Claimed, DeliveryQuery, JobStep, PageRequest,
    Refusal, StatusFilter, StoreError, StorePolicy,
};

use crate::backend::Kind;
use crate::sketch::{claim, event, events, ms, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_matches_is_exact_for_every_filter),
        case(a_dry_run_stores_nothing),
        case(the_set_is_fixed_when_it_is_begun),
        case(each_member_is_replayed_once),
        case(one_in_unfinished_work_is_in_no_other),
        case(many_begun_at_once_share_nothing),
        case(the_pace_is_kept),
        case(a_step_is_bounded_however_fast),
        case(work_goes_on_after_a_crash),
        case(what_is_cancelled_stays_as_it_is),
        case(what_cannot_be_sent_is_skipped_and_counted),
        case(acknowledged_ones_stay_dead_and_replayable),
        case(work_belongs_to_its_tenant),
        case(a_key_begins_one),
        case(lists_are_newest_first),
        case(no_kind_of_work_waits_for_another),
    ]
}

/// As fast as a step may be.
pub(crate) const FAST: u32 = 1_000_000;

/// A world in which one failed attempt is the last.
pub(crate) fn strict(kind: Kind) -> World {
    let schedule = Schedule::new(vec![secs(0)]).unwrap();
    World::with(kind, StorePolicy { schedule, ..StorePolicy::default() })
}

/// Publishes so many and lets them die.
pub(crate) fn dead(world: &World, endpoint: EndpointId, count: usize) {
    world.publish(events(count));
    let leases = world.claim_all(endpoint);
    world.finish_all(&leases, 500);
}

pub(crate) fn with_status(status: StatusFilter) -> DeliveryQuery {
    DeliveryQuery { status: Some(status), ..DeliveryQuery::default() }
}

pub(crate) fn request(world: &World, kind: BulkKind, filter: DeliveryQuery) -> BulkRequest {
    let tenant = world.tenant.clone();
    BulkRequest { tenant, kind, filter, rate_per_second: FAST, dry_run: false }
}

pub(crate) fn try_start(world: &World, request: BulkRequest) -> Result<BulkStarted, StoreError> {
    let started = world.wait(world.store.start_bulk(request, None, world.now))?;
    Ok(started.done().unwrap())
}

/// Begins work; its id and how many it has.
fn start(world: &World, kind: BulkKind, filter: DeliveryQuery) -> (ReplayId, u64) {
    let started = try_start(world, request(world, kind, filter)).unwrap();
    (started.id.unwrap(), started.matched.unwrap())
}

pub(crate) fn bulk(world: &World, id: ReplayId) -> BulkRecord {
    world.wait(world.store.bulk(world.tenant.clone(), id)).unwrap().unwrap()
}

fn cancel(world: &World, id: ReplayId) -> BulkRecord {
    world.wait(world.store.cancel_bulk(world.tenant.clone(), id, world.now)).unwrap()
}

/// Runs jobs and lets time pass until nothing is left to do.
pub(crate) fn finish(world: &mut World) {
    loop {
        match world.job_step() {
            JobStep::More => {}
            JobStep::NotBefore(at) => {
                assert!(at > world.now);
                world.now = at;
            }
            JobStep::Idle => return,
        }
    }
}

fn listed(world: &World, filter: &DeliveryQuery) -> Vec<DeliveryId> {
    let deliveries = world.deliveries_of(&world.tenant, filter.clone());
    deliveries.into_iter().map(|delivery| delivery.id).collect()
}

pub(crate) fn due(world: &World) -> usize {
    listed(world, &with_status(StatusFilter::Due)).len()
}

/// Deliveries of every status, to two endpoints, of two types, accepted at three instants.
fn mixture(kind: Kind) -> (World, [EndpointId; 2]) {
    let mut world = strict(kind);
    let [one, two] = [world.endpoint(), world.endpoint_for(&world.tenant, &["b"])];
    for event_type in ["a", "b", "a"] {
        world.publish(vec![event(event_type, "1"), event("b", "2"), event(event_type, "3")]);
        world.advance(secs(1));
    }
    let leases = world.claim_all(one);
    world.finish_all(&leases[..3], 500);
    world.finish_all(&leases[3..5], 200);
    world.release_all(&leases[5..7]);
    world.act(leases[5].id, Act::Cancel).unwrap();
    let leases = world.claim_all(two);
    world.finish_all(&leases[..2], 500);
    world.release(&leases[2]);
    (world, [one, two])
}

fn what_matches_is_exact_for_every_filter(kind: Kind) {
    let (world, [one, two]) = mixture(kind);
    let (from, to) = (Some(world.now.minus(secs(2))), Some(world.now.minus(ms(1_500))));
    let mut filters = vec![
        DeliveryQuery::default(),
        DeliveryQuery { from, ..DeliveryQuery::default() },
        DeliveryQuery { to, ..DeliveryQuery::default() },
        DeliveryQuery { from, to, ..DeliveryQuery::default() },
        DeliveryQuery { endpoint: Some(two), ..with_status(StatusFilter::Dead) },
        DeliveryQuery { endpoint: Some(one), ..DeliveryQuery::default() },
    ];
    for status in ["due", "leased", "delivered", "dead", "cancelled"] {
        let of_status = with_status(StatusFilter::from_word(status).unwrap());
        let event_type = Some(crate::sketch::event_type("b"));
        filters.push(DeliveryQuery { event_type, ..of_status.clone() });
        assert!(!listed(&world, &of_status).is_empty(), "{status}");
        filters.push(of_status);
    }
    for filter in filters {
        let expected = u64::try_from(listed(&world, &filter).len()).unwrap();
        assert!(expected > 0, "{filter:?}");
        let (id, matched) = start(&world, Replay, filter.clone());
        assert_eq!(matched, expected, "{filter:?}");
        let record = bulk(&world, id);
        assert_eq!((record.filter, record.matched), (filter, Some(expected)));
        assert_eq!((record.status, record.tally), (BulkStatus::Running, Tally::default()));
        cancel(&world, id);
    }
    let nothing = DeliveryQuery { from: Some(world.now), ..DeliveryQuery::default() };
    let (id, matched) = start(&world, Replay, nothing);
    let record = bulk(&world, id);
    assert_eq!((matched, record.status), (0, BulkStatus::Done));
    assert_eq!(record.ended_at, Some(world.now));
}

fn a_dry_run_stores_nothing(kind: Kind) {
    let (mut world, _) = mixture(kind);
    let before = world.deliveries();
    let dead = listed(&world, &with_status(StatusFilter::Dead)).len();
    let filter = with_status(StatusFilter::Dead);
    let dry = BulkRequest { dry_run: true, ..request(&world, Replay, filter) };
    let started = try_start(&world, dry).unwrap();
    assert_eq!(started, BulkStarted { id: None, matched: Some(dead as u64) });
    finish(&mut world);
    assert_eq!(world.deliveries(), before);
    assert!(all(&world).is_empty());
}

fn all(world: &World) -> Vec<BulkRecord> {
    let page = PageRequest { limit: 100, after: None, scan_limit: 100 };
    world.wait(world.store.bulks(world.tenant.clone(), page)).unwrap().items
}

fn the_set_is_fixed_when_it_is_begun(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 3);
    let members = listed(&world, &with_status(StatusFilter::Dead));
    let (id, matched) = start(&world, Replay, with_status(StatusFilter::Dead));
    // One that dies later is not in it; one that does not match any more still is.
    dead(&world, endpoint, 2);
    world.act(members[0], Act::Replay).unwrap();
    world.send(endpoint, 200);
    finish(&mut world);
    assert_eq!((matched, bulk(&world, id).tally.done), (3, 3));
    assert_eq!(listed(&world, &with_status(StatusFilter::Due)), members);
    assert_eq!(world.progress(members[0]).round, 3);
    assert_eq!(world.progress(members[1]).round, 2);
}

fn each_member_is_replayed_once(kind: Kind) {
    let (mut world, _) = mixture(kind);
    let before: BTreeMap<_, _> =
        world.deliveries().into_iter().map(|record| (record.id, record)).collect();
    let (id, matched) = start(&world, Replay, DeliveryQuery::default());
    finish(&mut world);
    assert_eq!(matched, before.len() as u64);
    assert_eq!(bulk(&world, id).tally, Tally { done: matched, ..Tally::default() });
    for after in world.deliveries() {
        let before = &before[&after.id];
        let rounds = after.progress.round - before.progress.round;
        let owed = after.progress.owed - before.progress.owed;
        match before.state {
            State::Delivered | State::Dead(_) | State::Cancelled(_) => {
                assert_eq!((rounds, owed), (1, 0), "{before:?}");
            }
            State::Leased(_) => assert_eq!((rounds, owed), (0, 1), "{before:?}"),
            State::Due(_) => assert_eq!((rounds, owed), (0, 0), "{before:?}"),
        }
    }
}

fn one_in_unfinished_work_is_in_no_other(kind: Kind) {
    let mut world = strict(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    world.publish(events(4));
    for endpoint in [one, two] {
        let leases = world.claim_all(endpoint);
        world.finish_all(&leases, 500);
    }
    let to_one = DeliveryQuery { endpoint: Some(one), ..DeliveryQuery::default() };
    let slow = BulkRequest { rate_per_second: 1, ..request(&world, Replay, to_one) };
    let first = try_start(&world, slow).unwrap();
    assert_eq!(first.matched, Some(4));
    world.run_jobs();
    let everything = DeliveryQuery::default;
    let (second, matched) = start(&world, Replay, everything());
    assert_eq!(matched, 4, "those to the second endpoint, also after one was set going");
    assert_eq!(start(&world, Replay, everything()).1, 0);
    // Taking note of them is no replay.
    assert_eq!(start(&world, Acknowledge, with_status(StatusFilter::Dead)).1, 7);
    finish(&mut world);
    assert_eq!(bulk(&world, second).tally.done, 4);
    assert_eq!((start(&world, Replay, everything()).1, due(&world)), (8, 8));
    assert!(world.deliveries().iter().all(|record| record.progress.round == 2));
}

fn many_begun_at_once_share_nothing(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 50);
    let wanted = request(&world, Replay, with_status(StatusFilter::Dead));
    let started = world.at_once(8, |_, store, now| {
        let wanted = wanted.clone();
        async move { store.start_bulk(wanted, None, now).await.unwrap().done().unwrap() }
    });
    let matched: u64 = started.iter().filter_map(|started| started.matched).sum();
    assert_eq!(matched, 50, "{started:?}");
    finish(&mut world);
    assert_eq!(due(&world), 50);
    assert!(world.deliveries().iter().all(|record| record.progress.owed == 0));
}

fn the_pace_is_kept(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 25);
    let begun = world.now;
    let filter = with_status(StatusFilter::Dead);
    let slow = BulkRequest { rate_per_second: 10, ..request(&world, Replay, filter) };
    let id = try_start(&world, slow).unwrap().id.unwrap();
    for (at, expected) in [(0, 1), (99, 1), (100, 2), (1_000, 11), (1_050, 11), (2_000, 21)] {
        world.now = begun + ms(at);
        world.run_jobs();
        assert_eq!(due(&world), expected, "after {at} ms");
    }
    assert_eq!(world.job_step(), JobStep::NotBefore(begun + ms(2_100)));
    // What was not done in an hour is not made up for.
    world.now = begun + secs(3_600);
    world.run_jobs();
    assert_eq!((due(&world), bulk(&world, id).status), (22, BulkStatus::Running));
    finish(&mut world);
    let record = bulk(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Done, 25));
    assert_eq!(record.ended_at, Some(begun + secs(3_600) + ms(300)));
}

fn a_step_is_bounded_however_fast(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 1_200);
    let (id, matched) = start(&world, Replay, with_status(StatusFilter::Dead));
    assert_eq!((matched, world.job_step(), due(&world)), (1_200, JobStep::More, 1));
    world.advance(secs(1));
    let mut before = 1;
    while world.job_step() == JobStep::More {
        let after = due(&world);
        assert!(after - before <= 500, "{before} to {after}");
        before = after;
    }
    assert_eq!(bulk(&world, id).tally.done, 1_200);
    assert_eq!(world.job_step(), JobStep::Idle);
}

fn work_goes_on_after_a_crash(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 1_200);
    let (id, _) = start(&world, Replay, with_status(StatusFilter::Dead));
    for _ in 0..3 {
        world.advance(secs(1));
        assert_eq!(world.job_step(), JobStep::More);
        world.crash();
    }
    let record = bulk(&world, id);
    assert_eq!(record.status, BulkStatus::Running);
    assert_eq!(due(&world) as u64, record.tally.done);
    assert!(record.tally.done > 0 && record.tally.done < 1_200);
    finish(&mut world);
    let record = bulk(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Done, 1_200));
    let once = |world: &World| {
        let records = world.deliveries();
        records.iter().all(|record| record.progress.round == 2 && record.progress.owed == 0)
    };
    assert!(once(&world));
    world.crash();
    finish(&mut world);
    assert!(once(&world));
}

fn what_is_cancelled_stays_as_it_is(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 20);
    let filter = with_status(StatusFilter::Dead);
    let slow = BulkRequest { rate_per_second: 10, ..request(&world, Replay, filter.clone()) };
    let id = try_start(&world, slow).unwrap().id.unwrap();
    world.advance(ms(500));
    world.run_jobs();
    let record = cancel(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Cancelled, 6));
    assert_eq!((record.ended_at, record.matched), (Some(world.now), Some(20)));
    let cancelled_at = world.now;
    finish(&mut world);
    world.advance(secs(60));
    finish(&mut world);
    assert_eq!((due(&world), listed(&world, &filter).len()), (6, 14));
    assert_eq!(cancel(&world, id).ended_at, Some(cancelled_at), "once is enough");
    // What is left of it is free for other work; what has ended stays ended.
    let (other, matched) = start(&world, Replay, filter);
    finish(&mut world);
    assert_eq!((matched, cancel(&world, other).status), (14, BulkStatus::Done));
}

fn what_cannot_be_sent_is_skipped_and_counted(kind: Kind) {
    let mut world = strict(kind);
    let endpoints = [world.endpoint(), world.endpoint(), world.endpoint(), world.endpoint()];
    world.publish(events(3));
    for endpoint in endpoints {
        let leases = world.claim_all(endpoint);
        world.finish_all(&leases, 500);
    }
    let (id, matched) = start(&world, Replay, DeliveryQuery::default());
    world.change_state(endpoints[0], Disable);
    world.change_state(endpoints[1], Delete);
    world.change_state(endpoints[2], Pause);
    finish(&mut world);
    let record = bulk(&world, id);
    let skipped =
        BTreeMap::from([(SkipReason::EndpointDisabled, 3), (SkipReason::EndpointDeleted, 3)]);
    assert_eq!((matched, record.tally), (12, Tally { done: 6, skipped }));
    assert_eq!(record.status, BulkStatus::Done);
    assert_eq!(listed(&world, &with_status(StatusFilter::Dead)).len(), 6, "left as they are");
}

fn acknowledged_ones_stay_dead_and_replayable(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 4);
    let filter = with_status(StatusFilter::Dead);
    let ids = listed(&world, &filter);
    world.act(ids[0], Act::Acknowledge).unwrap();
    let noticed = world.now;
    world.advance(secs(9));
    let (id, matched) = start(&world, Acknowledge, filter.clone());
    assert_eq!(matched, 3, "one is known already");
    world.act(ids[1], Act::Replay).unwrap();
    finish(&mut world);
    let record = bulk(&world, id);
    let skipped = BTreeMap::from([(SkipReason::NotDead, 1)]);
    assert_eq!((record.kind, record.tally), (Acknowledge, Tally { done: 2, skipped }));
    let acknowledged_at = |id| match world.state(id) {
        State::Dead(Dead { acknowledged_at, .. }) => acknowledged_at,
        state => panic!("{state:?}"),
    };
    assert_eq!(acknowledged_at(ids[0]), Some(noticed));
    assert!(acknowledged_at(ids[2]) >= Some(record.created_at));
    assert_eq!(start(&world, Acknowledge, filter.clone()).1, 0);
    assert_eq!(start(&world, Replay, filter).1, 3);
    finish(&mut world);
    assert_eq!(due(&world), 4);
}

fn work_belongs_to_its_tenant(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 2);
    let stranger = world.add_tenant("stranger");
    let theirs = world.endpoint_for(&stranger, &["*"]);
    world.try_publish(publish_in(&stranger, events(3))).unwrap();
    let leases = world.claim_all(theirs);
    world.finish_all(&leases, 500);
    let (id, matched) = start(&world, Replay, DeliveryQuery::default());
    assert_eq!(matched, 2);
    let filter = DeliveryQuery { endpoint: Some(endpoint), ..DeliveryQuery::default() };
    let foreign = BulkRequest { tenant: stranger.clone(), ..request(&world, Replay, filter) };
    let not_found = Err(StoreError::Refused(Refusal::NotFound));
    assert_eq!(try_start(&world, foreign), not_found);
    assert_eq!(world.wait(world.store.bulk(stranger.clone(), id)), Ok(None));
    let cancelled = world.wait(world.store.cancel_bulk(stranger.clone(), id, world.now));
    assert_eq!(cancelled, Err(StoreError::Refused(Refusal::NotFound)));
    let page = PageRequest { limit: 9, after: None, scan_limit: 9 };
    assert!(world.wait(world.store.bulks(stranger.clone(), page)).unwrap().items.is_empty());
    finish(&mut world);
    assert_eq!(bulk(&world, id).status, BulkStatus::Done);
    let dead = with_status(StatusFilter::Dead);
    assert_eq!(world.deliveries_of(&stranger, dead).len(), 3, "none of theirs was touched");
    let elsewhere = ReplayId::from_parts(id.millis(), id.sequence(), id.tag() ^ 1, 0);
    assert_eq!(world.wait(world.store.bulk(world.tenant.clone(), elsewhere)), Ok(None));
}

fn a_key_begins_one(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    dead(&world, endpoint, 3);
    let wanted = request(&world, Replay, with_status(StatusFilter::Dead));
    let run = |world: &World, body: &str| {
        let verb = world.store.start_bulk(wanted.clone(), Some(claim("k", body)), world.now);
        world.wait(verb).unwrap()
    };
    let Claimed::Done(first) = run(&world, "{}") else { panic!("it is new") };
    finish(&mut world);
    let answer = crate::sketch::answer(&format!("{first:?}"));
    assert_eq!(run(&world, "{}"), Claimed::Replayed(answer));
    assert_eq!(run(&world, "x"), Claimed::Mismatch);
    assert_eq!((all(&world).len(), due(&world)), (1, 3));
}

fn lists_are_newest_first(kind: Kind) {
    let mut world = strict(kind);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(start(&world, Replay, DeliveryQuery::default()).0);
        world.advance(ms(3));
    }
    ids.reverse();
    let page = |after| {
        let page = PageRequest { limit: 2, after, scan_limit: 100 };
        let page = world.wait(world.store.bulks(world.tenant.clone(), page)).unwrap();
        let ids: Vec<ReplayId> = page.items.iter().map(|record| record.id).collect();
        (ids, page.next)
    };
    let (first, next) = page(None);
    let (second, after_second) = page(next);
    let (third, end) = page(after_second);
    assert_eq!([first, second, third].concat(), ids);
    assert_eq!(end, None);
    assert_eq!(page(next).0, ids[2..4]);
}

/// A bulk replay and the sweep of a disabled endpoint, both of many steps.
fn no_kind_of_work_waits_for_another(kind: Kind) {
    let mut world = strict(kind);
    let [replayed, disabled] = [world.endpoint(), world.endpoint_for(&world.tenant, &["gone"])];
    dead(&world, replayed, 2_000);
    for _ in 0..3 {
        world.publish((0..1_000).map(|_| event("gone", "1")).collect());
    }
    let filter = DeliveryQuery { endpoint: Some(replayed), ..with_status(StatusFilter::Dead) };
    let (id, _) = start(&world, Replay, filter);
    world.change_state(disabled, Disable);
    let cancelled = with_status(StatusFilter::Cancelled);
    world.advance(secs(1));
    for _ in 0..4 {
        assert_eq!(world.job_step(), JobStep::More);
        world.advance(secs(1));
    }
    assert!(bulk(&world, id).tally.done > 0, "the replay goes on");
    assert!(!listed(&world, &cancelled).is_empty(), "the sweep goes on");
    finish(&mut world);
    assert_eq!(bulk(&world, id).tally.done, 2_000);
    let gone = State::Cancelled(CancelReason::EndpointDisabled);
    let swept = world.deliveries_of(&world.tenant, cancelled);
    assert_eq!(swept.iter().filter(|record| record.state == gone).count(), 3_000);
}
