//! Catch-up: what an endpoint missed while it was disabled.

use everhook_domain::bulk::BulkKind::{CatchUp, Replay};
use everhook_domain::bulk::{BulkStatus, SkipReason};
use everhook_domain::delivery::{CancelReason, Due, IllegalStep, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause};
use everhook_domain::id::{EndpointId, ReplayId};
use everhook_domain::time::Timestamp;
use everhook_store::{
    Act, BulkRequest, Change, DeliveryQuery, JobStep, Refusal, StatusFilter, StoreError,
};

use crate::backend::Kind;
use crate::bulk::{bulk, due, finish, request, strict, try_start, with_status};
use crate::sketch::{event, events, ms, publish_in, secs, settings};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_was_missed_is_made_and_what_was_cancelled_is_sent),
        case(nothing_else_is_touched),
        case(it_is_paced_bounded_and_survives_a_crash),
        case(a_disabled_or_deleted_endpoint_cannot_catch_up),
        case(disabling_ends_it),
        case(it_shares_nothing_with_a_replay),
        case(what_a_replay_has_is_left_out_and_told),
    ]
}

fn wanted(world: &World, endpoint: EndpointId, from: Timestamp) -> BulkRequest {
    let (endpoint, from) = (Some(endpoint), Some(from));
    request(world, CatchUp, DeliveryQuery { endpoint, from, ..DeliveryQuery::default() })
}

fn catch_up(world: &World, endpoint: EndpointId, from: Timestamp) -> ReplayId {
    let started = try_start(world, wanted(world, endpoint, from)).unwrap();
    assert_eq!(started.matched, None);
    started.id.unwrap()
}

fn what_was_missed_is_made_and_what_was_cancelled_is_sent(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let before = world.now;
    let cancelled = world.publish(events(2));
    world.change_state(endpoint, Disable);
    finish(&mut world);
    world.advance(secs(5));
    let missed = world.publish(events(3));
    world.advance(secs(5));
    world.change_state(endpoint, Enable);
    let id = catch_up(&world, endpoint, before);
    // Accepted after the call: it has its own.
    world.publish(events(1));
    finish(&mut world);
    let record = bulk(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Done, 5));
    assert_eq!((record.kind, record.tally.skipped_total()), (CatchUp, 0));
    for event in cancelled.iter().chain(&missed) {
        let delivery = world.delivery_of(event.id);
        assert!(matches!(delivery.state, State::Due(Due { .. })), "{delivery:?}");
    }
    assert_eq!(world.delivery_of(cancelled[0].id).progress.round, 2);
    assert_eq!(world.delivery_of(missed[0].id).progress.round, 1);
    assert!(world.delivery_of(missed[0].id).created_at >= record.created_at);
    let sent = world.claim_all(endpoint);
    assert_eq!(sent.len(), 6);
    assert_eq!(sent[0].body, world.event(sent[0].id.event()).body, "the same bytes");
    world.finish_all(&sent, 200);
    // A second one doubles nothing.
    let again = catch_up(&world, endpoint, before);
    finish(&mut world);
    assert_eq!((bulk(&world, again).tally.done, due(&world)), (0, 0));
}

fn nothing_else_is_touched(kind: Kind) {
    let mut world = strict(kind);
    let [endpoint, other] = [world.endpoint(), world.endpoint()];
    let stranger = world.add_tenant("stranger");
    let too_early = world.publish_one(event("a", "1"));
    world.change_state(endpoint, Disable);
    world.change_state(other, Disable);
    finish(&mut world);
    world.advance(secs(1));
    let from = world.now;
    world.try_publish(publish_in(&stranger, events(4))).unwrap();
    let not_wanted = world.publish_one(event("b", "1"));
    world.change_state(endpoint, Enable);
    world.change_state(other, Enable);
    let [delivered, dead, requested] = [(); 3].map(|()| world.publish_one(event("a", "1")).id);
    let leases = world.claim_all(endpoint);
    world.finish(&leases[0], 200);
    world.finish(&leases[1], 500);
    world.release(&leases[2]);
    world.act(leases[2].id, Act::Cancel).unwrap();
    let changed = Change::UpdateEndpoint {
        tenant: world.tenant.clone(),
        endpoint,
        expected_version: 3,
        settings: settings(&["a"]),
    };
    world.change(changed).unwrap();
    let before = world.deliveries();
    let id = catch_up(&world, endpoint, from);
    finish(&mut world);
    assert_eq!((bulk(&world, id).tally.done, world.deliveries()), (0, before));
    assert_eq!(world.deliveries_for(not_wanted.id), []);
    let state = |event| world.deliveries_for(event)[0].state;
    let gone = State::Cancelled(CancelReason::EndpointDisabled);
    assert_eq!(state(too_early.id), gone);
    assert_eq!(state(delivered), State::Delivered);
    assert!(matches!(state(dead), State::Dead(_)));
    assert_eq!(state(requested), State::Cancelled(CancelReason::Requested));
}

fn it_is_paced_bounded_and_survives_a_crash(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let from = world.now;
    world.change_state(endpoint, Disable);
    finish(&mut world);
    world.publish(events(700));
    world.publish(events(600));
    world.change_state(endpoint, Enable);
    world.change_state(endpoint, Pause);
    let slow = BulkRequest { rate_per_second: 800, ..wanted(&world, endpoint, from) };
    let id = try_start(&world, slow).unwrap().id.unwrap();
    let begun = world.now;
    world.run_jobs();
    assert_eq!(due(&world), 1);
    assert_eq!(world.job_step(), JobStep::NotBefore(begun + ms(2)));
    for _ in 0..2 {
        world.advance(secs(1));
        let before = due(&world);
        assert_eq!(world.job_step(), JobStep::More);
        assert!(due(&world) - before <= 500);
        world.crash();
    }
    assert_eq!(bulk(&world, id).tally.done, due(&world) as u64);
    finish(&mut world);
    let record = bulk(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Done, 1_300));
    assert_eq!((due(&world), world.deliveries().len()), (1_300, 1_300));
    assert!(record.ended_at > Some(begun + secs(1)), "no faster than its pace");
}

fn a_disabled_or_deleted_endpoint_cannot_catch_up(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let refused = |reason| Err(StoreError::Refused(IllegalStep::EndpointGone(reason).into()));
    world.change_state(endpoint, Disable);
    finish(&mut world);
    let call = |world: &World| try_start(world, wanted(world, endpoint, world.now));
    assert_eq!(call(&world), refused(CancelReason::EndpointDisabled));
    world.change_state(endpoint, Delete);
    finish(&mut world);
    assert_eq!(call(&world), refused(CancelReason::EndpointDeleted));
    let unknown = EndpointId::from_parts(1, 2, 3, 0);
    let unknown = try_start(&world, wanted(&world, unknown, world.now));
    assert_eq!(unknown, Err(StoreError::Refused(Refusal::NotFound)));
}

fn disabling_ends_it(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let from = world.now;
    world.change_state(endpoint, Disable);
    finish(&mut world);
    world.publish(events(5));
    world.change_state(endpoint, Enable);
    let slow = BulkRequest { rate_per_second: 1, ..wanted(&world, endpoint, from) };
    let id = try_start(&world, slow).unwrap().id.unwrap();
    world.run_jobs();
    world.change_state(endpoint, Disable);
    finish(&mut world);
    let record = bulk(&world, id);
    assert_eq!((record.status, record.tally.done), (BulkStatus::Cancelled, 1));
    assert_eq!((due(&world), world.deliveries().len()), (0, 1));
    // It can be asked for anew once the endpoint is back.
    world.change_state(endpoint, Enable);
    catch_up(&world, endpoint, from);
    finish(&mut world);
    assert_eq!((due(&world), world.deliveries().len()), (5, 5));
}

fn it_shares_nothing_with_a_replay(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let from = world.now;
    world.publish(events(10));
    world.change_state(endpoint, Disable);
    finish(&mut world);
    world.change_state(endpoint, Enable);
    let cancelled = || with_status(StatusFilter::Cancelled);
    let newer = world.deliveries()[4].id.event();
    let one = DeliveryQuery { event: Some(newer), ..cancelled() };
    let slow = BulkRequest { rate_per_second: 1, ..request(&world, Replay, one) };
    assert_eq!(try_start(&world, slow).unwrap().matched, Some(1));
    catch_up(&world, endpoint, from);
    let rest = try_start(&world, request(&world, Replay, cancelled())).unwrap();
    assert_eq!(rest.matched, Some(0), "the catch-up and the first replay have them all");
    finish(&mut world);
    let once = |record: &everhook_store::DeliveryRecord| {
        (record.progress.round, record.progress.owed) == (2, 0)
    };
    assert_eq!(due(&world), 10);
    assert!(world.deliveries().iter().all(once));
}

fn what_a_replay_has_is_left_out_and_told(kind: Kind) {
    let mut world = strict(kind);
    let endpoint = world.endpoint();
    let from = world.now;
    world.publish(events(10));
    world.change_state(endpoint, Disable);
    finish(&mut world);
    world.change_state(endpoint, Enable);
    let all = request(&world, Replay, with_status(StatusFilter::Cancelled));
    try_start(&world, BulkRequest { rate_per_second: 1, ..all }).unwrap();
    let id = catch_up(&world, endpoint, from);
    while bulk(&world, id).status == BulkStatus::Running {
        if let JobStep::NotBefore(at) = world.job_step() {
            world.now = at;
        }
    }
    let tally = bulk(&world, id).tally;
    let left_out = tally.skipped.get(&SkipReason::InBulkReplay).copied().unwrap_or(0);
    // The replay may have sent the first one before the catch-up came to it.
    assert!(tally.done == 0 && (9..=10).contains(&left_out), "{tally:?}");
}
