//! An endpoint's states: what each verb makes of them and of deliveries, due and in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled};
use everhook_domain::delivery::State;
use everhook_domain::endpoint::EndpointState::{Deleted, Disabled, Enabled, Paused};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause, Resume};
use everhook_domain::endpoint::IllegalVerb;
use everhook_store::{Change, DeliveryQuery, JobStep, PageRequest, Refusal, StatusFilter};

use crate::backend::Kind;
use crate::directory::{endpoint, refused, whole};
use crate::sketch::{TYPE, event, events, publish_in, secs};
use crate::world::{World, done};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_state_is_changed),
        case(pausing_is_no_way_around_enabling),
        case(disabling_cancels_what_is_due),
        case(enabling_waits_for_the_cancelling),
        case(a_large_backlog_is_cancelled_in_steps_between_which_others_publish),
        case(where_nothing_is_due_nothing_is_waited_for),
        case(deleting_during_the_cancelling_is_allowed),
        case(pausing_touches_no_delivery),
        case(a_race_of_pausing_and_disabling_ends_disabled),
        case(nothing_is_made_for_an_endpoint_after_it_was_disabled),
    ]
}

fn a_state_is_changed(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.endpoint();
    let mut version = 1;
    for (verb, state) in [
        (Pause, Paused),
        (Enable, Enabled),
        (Pause, Paused),
        (Resume, Enabled),
        (Disable, Disabled),
        (Enable, Enabled),
        (Pause, Paused),
        (Disable, Disabled),
        (Delete, Deleted),
    ] {
        world.advance(secs(1));
        let changed = world.try_change_state(id, verb).unwrap();
        version += 1;
        assert_eq!((changed.state, changed.version), (state, version));
        assert_eq!((changed.updated_at, endpoint(&world, id).state), (world.now, state));
        if state != Deleted {
            world.advance(secs(1));
            let unchanged = world.try_change_state(id, verb).unwrap();
            assert_eq!(whole(&unchanged), whole(&changed), "it is so already");
        }
    }
}

fn pausing_is_no_way_around_enabling(kind: Kind) {
    let world = World::new(kind);
    let id = world.endpoint();
    world.change_state(id, Disable);
    let before = endpoint(&world, id);
    for verb in [Pause, Resume] {
        let error = world.try_change_state(id, verb).map(drop);
        assert_eq!(error, refused(Refusal::Endpoint(IllegalVerb::Disabled)));
    }
    assert_eq!(whole(&endpoint(&world, id)), whole(&before));
}

/// As in case 10: nothing leaves after the disable or delete, and the history stays.
fn disabling_cancels_what_is_due(kind: Kind) {
    for (verb, reason) in [(Disable, EndpointDisabled), (Delete, EndpointDeleted)] {
        let mut world = World::new(kind);
        let [gone, stays] = [world.endpoint(), world.endpoint()];
        world.publish(events(5));
        let failed = world.claim_all(gone);
        world.finish(&failed[0], 500);
        world.finish(&failed[1], 200);
        world.release_all(&failed[2..4]);
        world.change_state(gone, verb);
        assert_eq!(world.claim_all(gone), []);
        world.run_jobs();
        let states = failed.iter().map(|lease| world.state(lease.id)).collect::<Vec<_>>();
        let cancelled = State::Cancelled(reason);
        assert_eq!(states[..4], [cancelled, State::Delivered, cancelled, cancelled]);
        assert!(matches!(states[4], State::Leased(_)));
        world.finish(&failed[4], 500);
        assert_eq!(world.state(failed[4].id), cancelled);
        assert_eq!(world.attempts(failed[0].id).len(), 1);
        world.advance(secs(1_000_000));
        assert_eq!(world.claim_all(gone), []);
        assert_eq!(world.claim_all(stays).len(), 5, "nobody else's");
    }
}

fn enabling_waits_for_the_cancelling(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.endpoint();
    world.publish(events(700));
    world.change_state(id, Disable);
    assert_eq!(world.try_change_state(id, Enable).map(drop), refused(Refusal::StillCancelling));
    world.change_state(id, Disable);
    assert_eq!(world.job_step(), JobStep::More);
    assert_eq!(world.try_change_state(id, Enable).map(drop), refused(Refusal::StillCancelling));
    world.crash();
    assert_eq!(world.try_change_state(id, Enable).map(drop), refused(Refusal::StillCancelling));
    world.run_jobs();
    world.change_state(id, Enable);
    assert_eq!(world.claim_all(id), [], "what was cancelled stays so");
    world.publish(events(1));
    assert_eq!(world.claim_all(id).len(), 1);
}

/// Accepting goes on between any two steps, and each of them touches a bounded number of rows.
fn a_large_backlog_is_cancelled_in_steps_between_which_others_publish(kind: Kind) {
    const ROWS: usize = 20_000;
    const STEP_ROWS: usize = 500;
    let world = World::new(kind);
    let gone = world.endpoint();
    for _ in 0..ROWS / 1_000 {
        world.publish(events(1_000));
    }
    let stays = world.endpoint();
    world.change_state(gone, Disable);
    // What is cancelled rises by id: what a step did is at the head of the list.
    let query = DeliveryQuery { status: Some(StatusFilter::Cancelled), ..DeliveryQuery::default() };
    let page = PageRequest { limit: 2 * STEP_ROWS, after: None, scan_limit: 2 * STEP_ROWS };
    let (mut newest, mut cancelled, mut steps) = (None, 0, 0);
    loop {
        let more = world.job_step() == JobStep::More;
        let list = world.store.deliveries(world.tenant.clone(), query.clone(), page);
        let head = world.wait(list).unwrap().items;
        let touched = head.iter().take_while(|delivery| Some(delivery.id) != newest).count();
        assert!(touched <= STEP_ROWS, "{touched} in step {steps}");
        newest = head.first().map(|delivery| delivery.id);
        cancelled += touched;
        if !more {
            break;
        }
        if cancelled < ROWS {
            let error = world.try_change_state(gone, Enable).map(drop);
            assert_eq!(error, refused(Refusal::StillCancelling));
        }
        assert_eq!(world.publish_one(event(TYPE, "1")).deliveries, 1);
        world.send(stays, 200);
        steps += 1;
    }
    assert_eq!(cancelled, ROWS);
    assert!(steps >= ROWS / STEP_ROWS, "{steps}");
    world.change_state(gone, Enable);
    assert_eq!(world.due(), []);
}

/// Neither what has ended nor what is being sent keeps an endpoint from being enabled again; and
/// what was being sent when it was disabled is not tried again.
fn where_nothing_is_due_nothing_is_waited_for(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.endpoint();
    world.publish(events(3));
    let claimed = world.claim_all(id);
    world.finish(&claimed[0], 200);
    world.lanes.give(id, 1);
    let born = world.publish_one(event(TYPE, "1"));
    let born = world.lanes.handed().into_iter().find(|lease| lease.id.event() == born.id).unwrap();
    for _ in 0..2 {
        world.change_state(id, Disable);
        world.change_state(id, Enable);
    }
    assert_eq!((world.lanes.job_hints(), world.job_step()), (0, JobStep::Idle));
    for lease in [&claimed[1], &born] {
        world.finish(lease, 500);
        assert_eq!(world.state(lease.id), State::Cancelled(EndpointDisabled));
    }
    world.finish(&claimed[2], 200);
    assert_eq!(world.state(claimed[2].id), State::Delivered, "a success wins");
    world.publish(events(1));
    world.advance(secs(1_000_000));
    assert_eq!(world.claim_all(id).len(), 1, "only what is new");
}

fn deleting_during_the_cancelling_is_allowed(kind: Kind) {
    let world = World::new(kind);
    let id = world.endpoint();
    world.publish(events(1));
    world.change_state(id, Disable);
    world.change_state(id, Delete);
    world.run_jobs();
    assert_eq!(world.deliveries()[0].state, State::Cancelled(EndpointDeleted));
}

fn pausing_touches_no_delivery(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.endpoint();
    world.publish(events(4));
    let leases = world.claim_all(id);
    world.finish(&leases[0], 500);
    world.finish(&leases[1], 200);
    world.release(&leases[2]);
    let before = world.deliveries();
    world.change_state(id, Pause);
    world.run_jobs();
    assert_eq!(world.deliveries(), before);
    assert_eq!(world.finish(&leases[3], 500), everhook_store::Settled::Recorded);
    world.advance(secs(59));
    world.change_state(id, Enable);
    assert_eq!(world.claim_one(id).id, leases[2].id);
    world.advance(secs(1));
    assert_eq!(world.claim_all(id).len(), 2);
}

/// Whatever the order, the disabling holds: a pause that was decided before it does not undo it.
fn a_race_of_pausing_and_disabling_ends_disabled(kind: Kind) {
    for _ in 0..3 {
        let world = World::new(kind);
        let id = world.endpoint();
        let tenant = world.tenant.clone();
        let outcomes = world.at_once(12, |number, store, now| {
            let verb = if number == 5 { Disable } else { [Pause, Resume][number % 2] };
            let change = Change::ActOnEndpoint { tenant: tenant.clone(), endpoint: id, verb };
            async move { store.change(change, None, now).await.map(drop) }
        });
        for outcome in outcomes {
            let too_late = refused(Refusal::Endpoint(IllegalVerb::Disabled));
            assert!(outcome.is_ok() || outcome == too_late, "{outcome:?}");
        }
        assert_eq!(endpoint(&world, id).state, Disabled);
    }
}

/// Events are published all the while; none that was accepted after the answer to the disabling
/// makes a delivery, and none that was made before escapes the cancelling.
fn nothing_is_made_for_an_endpoint_after_it_was_disabled(kind: Kind) {
    let world = World::new(kind);
    let id = world.endpoint();
    let tenant = world.tenant.clone();
    let disable = Change::ActOnEndpoint { tenant: tenant.clone(), endpoint: id, verb: Disable };
    let (answered, mut later) = (Arc::new(AtomicBool::new(false)), 0);
    let publishing = world.at_once(60, |number, store, now| {
        let (publish, disable) = (publish_in(&tenant, events(1)), disable.clone());
        let answered = Arc::clone(&answered);
        async move {
            if number == 20 {
                store.change(disable, None, now).await.unwrap();
                answered.store(true, Ordering::SeqCst);
            }
            let after = answered.load(Ordering::SeqCst);
            let published = store.publish(publish, None, now).await.unwrap();
            (after, done(published)[0].deliveries)
        }
    });
    for (after, deliveries) in publishing {
        assert!(!(after && deliveries > 0));
        later += usize::from(after);
    }
    assert!(later > 0);
    world.run_jobs();
    assert_eq!(world.due(), []);
}
