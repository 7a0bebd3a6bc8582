//! `lapse`: what becomes of leases whose owner is gone.

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{CancelReason, Dead, DeadReason, Due, Progress, State};
use everhook_domain::endpoint::EndpointVerb::Disable;
use everhook_store::{Act, Settled, Share, StorePolicy, Wanted};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, events, everything, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(an_interrupted_delivery_is_due_again_at_its_old_time),
        case(a_running_lease_does_not_lapse),
        case(lapsing_again_finds_nothing),
        case(new_leases_before_lapse_are_left_alone),
        case(leases_of_every_kind_and_number_lapse),
        case(what_was_settled_is_left_alone),
        case(a_lapsed_lease_is_stale),
        case(an_interrupted_retry_keeps_its_number),
        case(three_interruptions_make_a_suspect),
        case(twenty_interruptions_are_the_end),
        case(the_number_of_interruptions_is_a_setting),
        case(a_new_round_forgets_interruptions),
        case(what_was_to_be_cancelled_is),
        case(owed_replays_survive_an_interruption),
        case(what_is_due_again_is_hinted),
        case(a_clock_that_was_ahead_holds_nothing_up),
        case(a_retry_at_its_right_time_is_not_pulled_back),
        case(a_retry_far_off_by_replays_is_not_pulled_back),
    ]
}

/// Claims everything in a lane, then dies.
fn interrupt(world: &mut World, endpoint: everhook_domain::id::EndpointId) -> u64 {
    world.claim_all(endpoint);
    world.crash();
    world.lapse()
}

fn an_interrupted_delivery_is_due_again_at_its_old_time(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let due = Due { at: world.now, cause: Trigger::Schedule };
    world.advance(secs(2));
    assert_eq!(interrupt(&mut world, endpoint), 1);
    assert_eq!(world.state(delivery), State::Due(due));
    assert_eq!(world.progress(delivery), Progress { interruptions: 1, ..Progress::NEW });
    assert_eq!(world.attempts(delivery), []);
    let again = world.claim_one(endpoint);
    assert_eq!((again.id, again.number, again.due_at), (delivery, 1, due.at));
}

fn a_running_lease_does_not_lapse(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.lanes.give(endpoint, 1);
    world.publish(events(2));
    let claimed = world.claim_one(endpoint);
    let handed = world.lanes.handed().remove(0);
    assert_eq!(world.lapse(), 0);
    assert_eq!(world.finish(&claimed, 200), Settled::Recorded);
    assert_eq!(world.finish(&handed, 200), Settled::Recorded);
}

fn lapsing_again_finds_nothing(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(3));
    assert_eq!(interrupt(&mut world, endpoint), 3);
    let before = world.deliveries();
    assert_eq!((world.lapse(), world.lapse()), (0, 0));
    assert_eq!(world.deliveries(), before);
    world.crash();
    assert_eq!(world.lapse(), 0);
    assert_eq!(world.deliveries(), before);
}

fn new_leases_before_lapse_are_left_alone(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    world.publish(events(2));
    world.claim_all(one);
    world.crash();
    world.lanes.give(two, 1);
    world.publish(events(1));
    let mut kept = world.claim_all(two);
    kept.extend(world.lanes.handed());
    assert_eq!(kept.len(), 3);
    assert_eq!(world.lapse(), 2);
    for lease in &kept {
        assert_eq!(world.finish(lease, 200), Settled::Recorded);
    }
}

/// More than one transaction of it, at birth and claimed, and with settled ones in between.
fn leases_of_every_kind_and_number_lapse(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    world.lanes.give(one, 1_000);
    world.publish(events(700));
    let handed = world.lanes.handed();
    let claimed = world.claim_all(two);
    assert_eq!((handed.len(), claimed.len()), (700, 700));
    for lease in handed.iter().chain(&claimed).step_by(10) {
        world.finish(lease, 200);
    }
    world.crash();
    assert_eq!(world.lapse(), 1_260);
    let left = [one, two].map(|endpoint| world.claim_all(endpoint).len());
    assert_eq!(left, [630, 630]);
    assert!(world.deliveries().iter().all(|delivery| delivery.progress.interruptions <= 1));
}

fn what_was_settled_is_left_alone(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(4));
    let leases = world.claim_all(endpoint);
    world.finish(&leases[0], 200);
    world.finish(&leases[1], 500);
    world.release(&leases[2]);
    world.crash();
    assert_eq!(world.lapse(), 1);
    let interruptions = leases.iter().map(|lease| world.progress(lease.id).interruptions);
    assert_eq!(interruptions.collect::<Vec<_>>(), [0, 0, 0, 1]);
}

fn a_lapsed_lease_is_stale(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let old = world.claim_one(endpoint);
    world.crash();
    world.lapse();
    assert_eq!(world.finish(&old, 200), Settled::Stale);
    let new = world.claim_one(endpoint);
    assert_ne!(new.token, old.token);
    assert_eq!(world.finish(&old, 200), Settled::Stale);
    assert_eq!(world.finish(&new, 200), Settled::Recorded);
    assert_eq!(world.attempts(new.id).len(), 1);
}

fn an_interrupted_retry_keeps_its_number(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    world.send(endpoint, 500);
    world.advance(secs(60));
    let due_at = world.now;
    interrupt(&mut world, endpoint);
    let again = world.claim_one(endpoint);
    assert_eq!((again.number, again.due_at, again.share), (2, due_at, Share::Retry));
    world.finish(&again, 200);
    let numbers: Vec<u32> = world.attempts(delivery).iter().map(|a| a.number).collect();
    assert_eq!(numbers, [1, 2]);
}

fn three_interruptions_make_a_suspect(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    for share in [Share::Fresh, Share::Fresh, Share::Fresh, Share::Suspect, Share::Suspect] {
        let lease = world.claim_one(endpoint);
        assert_eq!(lease.share, share);
        world.crash();
        world.lapse();
    }
    let (leased, lane) = world.claim(Wanted { suspect: 0, ..everything(endpoint) });
    assert!(leased.is_empty() && lane.suspect.is_some());
    let lease = world.claim_one(endpoint);
    world.finish(&lease, 500);
    world.advance(secs(60));
    assert_eq!(world.claim_one(endpoint).share, Share::Suspect, "for the rest of the round");
}

fn twenty_interruptions_are_the_end(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    for _ in 0..19 {
        assert_eq!(interrupt(&mut world, endpoint), 1);
    }
    assert!(matches!(world.state(delivery), State::Due(_)));
    assert_eq!(interrupt(&mut world, endpoint), 1);
    let dead = Dead { reason: DeadReason::Interrupted, acknowledged_at: None };
    assert_eq!(world.state(delivery), State::Dead(dead));
    assert_eq!((world.claim_all(endpoint), world.attempts(delivery)), (vec![], vec![]));
    assert_eq!(world.progress(delivery).interruptions, 20);
}

fn the_number_of_interruptions_is_a_setting(kind: Kind) {
    let policy = StorePolicy { interruptions_max: 2, ..StorePolicy::default() };
    let mut world = World::with(kind, policy);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    interrupt(&mut world, endpoint);
    assert!(matches!(world.state(delivery), State::Due(_)));
    interrupt(&mut world, endpoint);
    assert!(matches!(world.state(delivery), State::Dead(_)));
}

fn a_new_round_forgets_interruptions(kind: Kind) {
    let policy = StorePolicy { interruptions_max: 4, ..StorePolicy::default() };
    let mut world = World::with(kind, policy);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    for _ in 0..4 {
        interrupt(&mut world, endpoint);
    }
    world.act(delivery, Act::Replay).unwrap();
    let progress = world.progress(delivery);
    assert_eq!((progress.round, progress.interruptions), (2, 0));
    let lease = world.claim_one(endpoint);
    assert_eq!((lease.share, lease.number), (Share::Fresh, 1));
}

fn what_was_to_be_cancelled_is(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(2));
    let leases = world.claim_all(endpoint);
    world.act(leases[0].id, Act::Cancel).unwrap();
    world.crash();
    world.change_state(endpoint, Disable);
    assert_eq!(world.lapse(), 2);
    assert_eq!(world.state(leases[0].id), State::Cancelled(CancelReason::Requested));
    assert_eq!(world.state(leases[1].id), State::Cancelled(CancelReason::EndpointDisabled));
}

fn owed_replays_survive_an_interruption(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    world.act(lease.id, Act::Replay).unwrap();
    world.crash();
    world.lapse();
    assert_eq!(world.progress(lease.id).owed, 1);
    world.send(endpoint, 200);
    world.send(endpoint, 200);
    assert_eq!(world.state(lease.id), State::Delivered);
    assert_eq!(world.attempts(lease.id).len(), 2);
}

fn what_is_due_again_is_hinted(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let at = world.now;
    interrupt(&mut world, endpoint);
    assert_eq!(world.lanes.hints(), [(endpoint, Share::Fresh, at)]);
}

/// The process before had a clock ten days ahead. Ours is right.
fn a_clock_that_was_ahead_holds_nothing_up(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let (right, ahead) = (world.now, secs(10 * 24 * 3_600));
    world.advance(ahead);
    world.publish(events(1));
    world.send(endpoint, 500);
    world.crash();
    world.now = right;
    world.lapse();
    let longest = StorePolicy::default().schedule.longest_gap();
    assert_eq!(world.due()[0].retry, Some(right + longest));
    let new = world.publish_one(event(TYPE, "1"));
    assert!(new.id.created_at() >= right + ahead, "the instant of acceptance never falls");
    assert_eq!(world.claim_one(endpoint).id, new.id.delivery(1), "but it is due at once");
}

fn a_retry_at_its_right_time_is_not_pulled_back(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    for gap in [60, 240, 1_500, 5_400, 14_400, 64_800] {
        world.send(endpoint, 500);
        let due = world.now + secs(gap);
        world.crash();
        world.lapse();
        assert_eq!(world.due()[0].retry, Some(due));
        world.now = due;
    }
}

fn a_retry_far_off_by_replays_is_not_pulled_back(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let last_due = world.now + secs(24 * 3_600);
    world.send(endpoint, 500);
    for _ in 0..5 {
        world.advance(secs(60));
        world.act(delivery, Act::Replay).expect("it is waiting");
        world.send(endpoint, 500);
    }
    world.crash();
    world.lapse();
    assert_eq!(world.due()[0].retry, Some(last_due), "more than the longest gap from now");
}
