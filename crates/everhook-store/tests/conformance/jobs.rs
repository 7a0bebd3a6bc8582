//! `step`: long work in small steps.

use everhook_domain::delivery::{CancelReason, State};
use everhook_domain::endpoint::EndpointVerb::{Disable, Enable};
use everhook_store::{Claimed, DeliveryQuery, JobStep, StatusFilter, StorePolicy};

use crate::backend::Kind;
use crate::sketch::{claim, event, events, keyed, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(without_work_a_step_is_idle),
        case(a_step_is_bounded),
        case(a_job_goes_on_after_a_crash),
        case(a_job_touches_nothing_else),
        case(several_jobs_all_end),
        case(what_comes_back_during_a_job_is_cancelled_too),
        case(pruning_never_forgets_a_live_key),
        case(pruning_ends),
    ]
}

/// The most rows of one step.
const STEP_ROWS: usize = 500;

fn cancelled(world: &World) -> usize {
    let query = DeliveryQuery { status: Some(StatusFilter::Cancelled), ..DeliveryQuery::default() };
    world.deliveries_of(&world.tenant, query).len()
}

fn without_work_a_step_is_idle(kind: Kind) {
    let world = World::new(kind);
    assert_eq!((world.job_step(), world.job_step()), (JobStep::Idle, JobStep::Idle));
    world.endpoint();
    world.publish(events(3));
    let before = world.deliveries();
    assert_eq!(world.job_step(), JobStep::Idle);
    assert_eq!(world.deliveries(), before);
}

fn a_step_is_bounded(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1_000));
    world.publish(events(100));
    world.change_state(endpoint, Disable);
    let mut before = 0;
    while world.job_step() == JobStep::More {
        let after = cancelled(&world);
        assert!(after - before <= STEP_ROWS, "{before} to {after}");
        before = after;
    }
    assert_eq!(cancelled(&world), 1_100);
    assert_eq!(world.job_step(), JobStep::Idle);
}

fn a_job_goes_on_after_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(900));
    world.change_state(endpoint, Disable);
    assert_eq!(world.job_step(), JobStep::More);
    let before = cancelled(&world);
    assert!(before > 0 && before < 900);
    world.crash();
    assert_eq!(cancelled(&world), before);
    world.run_jobs();
    assert_eq!(cancelled(&world), 900);
    world.change_state(endpoint, Enable);
}

fn a_job_touches_nothing_else(kind: Kind) {
    let mut world = World::new(kind);
    let [gone, stays] = [world.endpoint(), world.endpoint()];
    let id = world.publish_one(event("a", "1")).id;
    world.send(stays, 500);
    world.advance(secs(7));
    world.publish(events(3));
    let delivered = world.claim_all(gone);
    world.finish(&delivered[0], 200);
    world.finish(&delivered[1], 500);
    let to = |world: &World, endpoint| {
        let query = DeliveryQuery { endpoint: Some(endpoint), ..DeliveryQuery::default() };
        world.deliveries_of(&world.tenant, query)
    };
    let before = to(&world, stays);
    world.change_state(gone, Disable);
    world.run_jobs();
    assert_eq!(to(&world, stays), before);
    assert_eq!(world.state(id.delivery(1)), State::Delivered);
    assert_eq!(cancelled(&world), 1, "the leased ones end when their leases do");
}

fn several_jobs_all_end(kind: Kind) {
    let world = World::new(kind);
    let endpoints = [world.endpoint(), world.endpoint(), world.endpoint()];
    world.publish(events(300));
    for endpoint in endpoints {
        world.change_state(endpoint, Disable);
    }
    world.run_jobs();
    assert_eq!((cancelled(&world), world.due()), (900, vec![]));
    for endpoint in endpoints {
        world.change_state(endpoint, Enable);
    }
}

/// A lease that ends between two steps of the job makes nothing due that nobody cancels.
fn what_comes_back_during_a_job_is_cancelled_too(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(700));
    let leases = world.claim_all(endpoint);
    world.release_all(&leases[..600]);
    world.change_state(endpoint, Disable);
    assert_eq!(world.job_step(), JobStep::More);
    world.release(&leases[600]);
    world.finish(&leases[601], 500);
    world.run_jobs();
    world.change_state(endpoint, Enable);
    for lease in &leases[602..] {
        world.finish(lease, 500);
        assert_eq!(world.state(lease.id), State::Cancelled(CancelReason::EndpointDisabled));
    }
    assert_eq!((cancelled(&world), world.due()), (700, vec![]));
}

/// A key that was used again after its end is as good as new, whatever is cleared away behind it.
fn pruning_never_forgets_a_live_key(kind: Kind) {
    let policy = StorePolicy { idempotency_ttl: secs(3_600), ..StorePolicy::default() };
    let mut world = World::with(kind, policy);
    let begun = world.now;
    let run = |world: &World| {
        let publish = publish_in(&world.tenant, vec![event("a", "1")]);
        let verb = world.store.publish(publish, Some(claim("k", "{}")), world.now);
        matches!(world.wait(verb), Ok(Claimed::Done(_)))
    };
    world.publish_one(keyed("day-long", "1"));
    assert!(run(&world));
    world.now = begun + secs(2 * 3_600);
    world.run_jobs();
    world.now = begun + secs(23 * 3_600 + 1_800);
    assert!(run(&world), "its hour is over");
    world.now = begun + secs(24 * 3_600 + 1);
    world.run_jobs();
    assert!(!run(&world), "it has half an hour left");
    world.crash();
    assert!(!run(&world));
    assert!(!world.publish_one(keyed("day-long", "1")).duplicate);
}

fn pruning_ends(kind: Kind) {
    let mut world = World::new(kind);
    for batch in 0..3 {
        let keys = (0..600).map(|n| keyed(&format!("{batch}-{n}"), "1")).collect();
        world.publish(keys);
        for n in 0..3 {
            let key = claim(&format!("{batch}-{n}"), "{}");
            let publish = publish_in(&world.tenant, vec![]);
            let published = world.wait(world.store.publish(publish, Some(key), world.now));
            assert_eq!(published, Ok(Claimed::Done(vec![])));
        }
    }
    world.advance(secs(2 * 24 * 3_600));
    let mut steps = 1;
    while world.job_step() == JobStep::More {
        steps += 1;
    }
    assert!((4..10).contains(&steps), "{steps}");
    assert_eq!(world.job_step(), JobStep::Idle);
    let again = publish_in(&world.tenant, vec![keyed("0-0", "2")]);
    let published = world.wait(world.store.publish(again, Some(claim("0-0", "x")), world.now));
    assert!(matches!(published, Ok(Claimed::Done(done)) if !done[0].duplicate));
}
