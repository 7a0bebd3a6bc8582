//! `act`: replays, cancellations and acknowledgements, state by state.

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled, Requested};
use everhook_domain::delivery::{Dead, DeadReason, Due, IllegalStep, State};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause};
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::schedule::Schedule;
use everhook_domain::time::Timestamp;
use everhook_store::{Act, Refusal, Settled, Share, StoreError, StorePolicy};

use crate::backend::Kind;
use crate::sketch::{TYPE, event, events, nobodys_delivery, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_replay_brings_a_waiting_one_forward),
        case(no_peer_7_replaying_twice_sends_twice),
        case(a_replay_of_one_in_flight_sends_once_more_after_success),
        case(a_replay_of_one_in_flight_sends_once_more_after_failure),
        case(a_replay_after_the_last_attempt_begins_a_round),
        case(a_replay_of_a_finished_one_begins_a_round),
        case(a_replay_at_an_endpoint_that_is_gone_is_refused),
        case(a_replay_at_a_paused_endpoint_waits),
        case(a_cancelled_one_is_not_sent),
        case(cancelling_one_in_flight_waits_for_its_result),
        case(cancelling_takes_back_replays),
        case(what_has_ended_cannot_be_cancelled),
        case(a_dead_one_can_be_acknowledged),
        case(only_a_dead_one_can_be_acknowledged),
        case(the_answer_is_what_is_read),
        case(an_unknown_delivery_is_not_found),
        case(a_replay_is_hinted),
        case(acts_survive_a_crash),
    ]
}

fn refused(step: IllegalStep) -> Option<StoreError> {
    Some(StoreError::Refused(Refusal::Step(step)))
}

fn due(at: Timestamp, cause: Trigger) -> State {
    State::Due(Due { at, cause })
}

/// A schedule of so many attempts, a minute apart.
fn short(steps: u64) -> StorePolicy {
    let schedule = Schedule::new((0..steps).map(|n| secs(60 * n)).collect()).unwrap();
    StorePolicy { schedule, ..StorePolicy::default() }
}

/// One delivery that has ended with each state in turn.
fn finals(world: &mut World, endpoint: EndpointId) -> [DeliveryId; 3] {
    let [delivered, dead, cancelled] = [200, 500, 0].map(|status| {
        world.publish(events(1));
        if status == 0 {
            let delivery = world.deliveries()[0].id;
            world.act(delivery, Act::Cancel).unwrap();
            return delivery;
        }
        let delivery = world.send(endpoint, status);
        while let State::Due(due) = world.state(delivery) {
            world.now = due.at;
            world.send(endpoint, status);
        }
        delivery
    });
    [delivered, dead, cancelled]
}

fn a_replay_brings_a_waiting_one_forward(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let anchor = world.now;
    world.publish(events(1));
    let delivery = world.send(endpoint, 500);
    world.advance(secs(10));
    let record = world.act(delivery, Act::Replay).unwrap();
    assert_eq!(record.state, due(world.now, Trigger::Replay));
    assert_eq!((record.progress.owed, record.progress.round), (0, 1));
    let lease = world.claim_one(endpoint);
    assert_eq!((lease.number, lease.cause), (2, Trigger::Replay));
    world.finish(&lease, 500);
    let later = due(anchor + secs(300), Trigger::Schedule);
    assert_eq!(world.state(delivery), later, "later offsets stay");
}

fn no_peer_7_replaying_twice_sends_twice(kind: Kind) {
    for status in [200, 500] {
        let world = World::new(kind);
        let endpoint = world.endpoint();
        let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
        world.act(delivery, Act::Replay).unwrap();
        assert_eq!(world.act(delivery, Act::Replay).unwrap().progress.owed, 1);
        assert_eq!(world.act(delivery, Act::Replay).unwrap().progress.owed, 2);
        for _ in 0..3 {
            assert_eq!(world.send(endpoint, status), delivery);
        }
        assert_eq!(world.claim_all(endpoint), []);
        let attempts = world.attempts(delivery);
        assert_eq!(attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(attempts.iter().all(|attempt| attempt.trigger == Trigger::Replay));
    }
}

fn a_replay_of_one_in_flight_sends_once_more_after_success(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    let record = world.act(lease.id, Act::Replay).unwrap();
    assert!(matches!(record.state, State::Leased(held) if held.token == lease.token));
    assert_eq!(world.finish(&lease, 200), Settled::Recorded);
    assert_eq!(world.state(lease.id), due(world.now, Trigger::Replay));
    let progress = world.progress(lease.id);
    assert_eq!((progress.round, progress.step, progress.owed), (2, 0, 0));
    let again = world.claim_one(endpoint);
    assert_eq!((again.number, again.cause, again.share), (2, Trigger::Replay, Share::Retry));
    world.finish(&again, 200);
    assert_eq!(world.state(lease.id), State::Delivered);
}

fn a_replay_of_one_in_flight_sends_once_more_after_failure(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    world.act(lease.id, Act::Replay).unwrap();
    world.finish(&lease, 500);
    assert_eq!(world.state(lease.id), due(world.now, Trigger::Replay));
    let progress = world.progress(lease.id);
    assert_eq!((progress.round, progress.step, progress.owed), (1, 1, 0));
    world.send(endpoint, 500);
    assert_eq!(world.state(lease.id), due(world.now + secs(300), Trigger::Schedule));
}

fn a_replay_after_the_last_attempt_begins_a_round(kind: Kind) {
    let world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    world.act(lease.id, Act::Replay).unwrap();
    world.finish(&lease, 500);
    assert_eq!(world.state(lease.id), due(world.now, Trigger::Replay));
    assert_eq!((world.progress(lease.id).round, world.progress(lease.id).step), (2, 0));
    world.send(endpoint, 500);
    assert!(matches!(world.state(lease.id), State::Dead(_)));
    let rounds: Vec<_> = world.attempts(lease.id).iter().map(|a| (a.number, a.round)).collect();
    assert_eq!(rounds, [(1, 1), (2, 2)]);
}

/// As the contract says of replays: a new round of the whole schedule, same id and bytes.
fn a_replay_of_a_finished_one_begins_a_round(kind: Kind) {
    let mut world = World::with(kind, short(3));
    let endpoint = world.endpoint();
    for delivery in finals(&mut world, endpoint) {
        let body = world.event(delivery.event()).body;
        let before = world.progress(delivery);
        world.advance(secs(3_600));
        let record = world.act(delivery, Act::Replay).unwrap();
        assert_eq!(record.state, due(world.now, Trigger::Replay));
        assert_eq!(record.progress.round, before.round + 1);
        assert_eq!((record.progress.number, record.progress.step), (before.number, 0));
        let anchor = world.now;
        for step in 0..3 {
            world.now = anchor + secs(60 * step);
            let lease = world.claim_one(endpoint);
            assert_eq!((lease.id, &lease.body), (delivery, &body));
            let cause = if step == 0 { Trigger::Replay } else { Trigger::Schedule };
            assert_eq!(
                (lease.number as u64, lease.cause),
                (before.number as u64 + 1 + step, cause)
            );
            world.finish(&lease, 503);
        }
        let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at: None };
        assert_eq!(world.state(delivery), State::Dead(dead));
    }
}

/// As in case 104: refused with the reason, and nothing is left half-way.
fn a_replay_at_an_endpoint_that_is_gone_is_refused(kind: Kind) {
    let mut world = World::with(kind, short(1));
    for (verb, reason) in [(Disable, EndpointDisabled), (Delete, EndpointDeleted)] {
        let endpoint = world.endpoint();
        world.publish(events(1));
        let leased = world.claim_one(endpoint).id;
        let finals = finals(&mut world, endpoint);
        world.publish(events(1));
        let waiting = world.deliveries()[0].id;
        world.change_state(endpoint, verb);
        for delivery in finals.into_iter().chain([leased, waiting]) {
            let before = world.delivery(delivery);
            let error = world.act(delivery, Act::Replay).err();
            assert_eq!(error, refused(IllegalStep::EndpointGone(reason)));
            assert_eq!(world.delivery(delivery), before);
        }
    }
}

fn a_replay_at_a_paused_endpoint_waits(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    let [_, dead, _] = finals(&mut world, endpoint);
    world.change_state(endpoint, Pause);
    world.act(dead, Act::Replay).unwrap();
    assert_eq!(world.state(dead), due(world.now, Trigger::Replay));
    world.change_state(endpoint, Enable);
    assert_eq!(world.claim_one(endpoint).id, dead);
}

fn a_cancelled_one_is_not_sent(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let record = world.act(delivery, Act::Cancel).unwrap();
    assert_eq!(record.state, State::Cancelled(Requested));
    assert_eq!((world.claim_all(endpoint), world.due()), (vec![], vec![]));
    world.publish(events(1));
    let delivery = world.send(endpoint, 500);
    world.act(delivery, Act::Cancel).unwrap();
    world.advance(secs(1_000_000));
    assert_eq!(world.claim_all(endpoint), []);
    assert_eq!(world.attempts(delivery).len(), 1, "its history stays");
}

fn cancelling_one_in_flight_waits_for_its_result(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(3));
    let leases = world.claim_all(endpoint);
    for lease in &leases {
        let record = world.act(lease.id, Act::Cancel).unwrap();
        assert!(matches!(record.state, State::Leased(_)));
        assert_eq!(record.progress.cancel, Some(Requested));
    }
    world.finish(&leases[0], 200);
    world.finish(&leases[1], 500);
    world.release(&leases[2]);
    let cancelled = State::Cancelled(Requested);
    let states = leases.iter().map(|lease| world.state(lease.id)).collect::<Vec<_>>();
    assert_eq!(states, [State::Delivered, cancelled, cancelled]);
    assert_eq!(world.attempts(leases[1].id).len(), 1);
    assert_eq!(world.due(), []);
}

fn cancelling_takes_back_replays(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(2));
    let [sent, wanted] = world.claim_all(endpoint).try_into().unwrap();
    for act in [Act::Replay, Act::Replay, Act::Cancel] {
        world.act(sent.id, act).unwrap();
        world.act(wanted.id, act).unwrap();
    }
    world.finish(&sent, 200);
    assert_eq!(world.state(sent.id), State::Delivered);
    world.act(wanted.id, Act::Replay).unwrap();
    world.finish(&wanted, 500);
    assert_eq!(world.state(wanted.id), due(world.now, Trigger::Replay), "the last word counts");
}

fn what_has_ended_cannot_be_cancelled(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    for delivery in finals(&mut world, endpoint) {
        let before = world.delivery(delivery);
        assert_eq!(world.act(delivery, Act::Cancel).err(), refused(IllegalStep::Ended));
        assert_eq!(world.delivery(delivery), before);
    }
}

fn a_dead_one_can_be_acknowledged(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    let [_, dead, _] = finals(&mut world, endpoint);
    world.advance(secs(5));
    let first = world.act(dead, Act::Acknowledge).unwrap();
    let acknowledged_at = Some(world.now);
    let expected = State::Dead(Dead { reason: DeadReason::Exhausted, acknowledged_at });
    assert_eq!(first.state, expected);
    world.advance(secs(5));
    assert_eq!(world.act(dead, Act::Acknowledge).unwrap().state, expected, "the first time stays");
    world.change_state(endpoint, Disable);
    world.act(dead, Act::Acknowledge).unwrap();
    world.run_jobs();
    world.change_state(endpoint, Enable);
    world.act(dead, Act::Replay).unwrap();
    world.send(endpoint, 500);
    let dead_again = Dead { reason: DeadReason::Exhausted, acknowledged_at: None };
    assert_eq!(world.state(dead), State::Dead(dead_again), "a new round, a new warning");
}

fn only_a_dead_one_can_be_acknowledged(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    let [delivered, _, cancelled] = finals(&mut world, endpoint);
    world.publish(events(1));
    let leased = world.claim_one(endpoint).id;
    world.publish(events(1));
    let waiting = world.deliveries()[0].id;
    for delivery in [delivered, cancelled, leased, waiting] {
        let before = world.delivery(delivery);
        assert_eq!(world.act(delivery, Act::Acknowledge).err(), refused(IllegalStep::NotDead));
        assert_eq!(world.delivery(delivery), before);
    }
}

fn the_answer_is_what_is_read(kind: Kind) {
    let mut world = World::with(kind, short(2));
    let endpoint = world.endpoint();
    let [_, dead, _] = finals(&mut world, endpoint);
    for act in [Act::Acknowledge, Act::Replay, Act::Replay, Act::Cancel] {
        let answer = world.act(dead, act).unwrap();
        assert_eq!(answer, world.delivery(dead).record);
    }
}

fn an_unknown_delivery_is_not_found(kind: Kind) {
    let world = World::new(kind);
    world.endpoint();
    let known = world.publish_one(event(TYPE, "1")).id;
    let tag = DeliveryId::from_parts(known.millis(), known.sequence(), known.tag() ^ 1, 1);
    let time = DeliveryId::from_parts(known.millis() + 1, known.sequence(), known.tag(), 1);
    for id in [
        nobodys_delivery(),
        known.delivery(2),
        known.delivery(0),
        tag,
        time,
        DeliveryId::from_bits(0),
        DeliveryId::from_bits(u128::MAX),
        DeliveryId::from_bits(u128::MAX >> 1),
    ] {
        for act in [Act::Replay, Act::Cancel, Act::Acknowledge] {
            let error = world.act(id, act).err();
            assert_eq!(error, Some(StoreError::Refused(Refusal::NotFound)), "{id}");
        }
    }
    assert_eq!(world.state(known.delivery(1)), due(world.now, Trigger::Schedule));
}

fn a_replay_is_hinted(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    let [_, dead, _] = finals(&mut world, endpoint);
    world.lanes.hints();
    world.act(dead, Act::Replay).unwrap();
    assert_eq!(world.lanes.hints(), [(endpoint, Share::Retry, world.now)]);
}

fn acts_survive_a_crash(kind: Kind) {
    let mut world = World::with(kind, short(1));
    let endpoint = world.endpoint();
    let [delivered, dead, cancelled] = finals(&mut world, endpoint);
    world.act(dead, Act::Acknowledge).unwrap();
    world.act(delivered, Act::Replay).unwrap();
    world.act(delivered, Act::Replay).unwrap();
    let all = [delivered, dead, cancelled];
    let before = all.map(|delivery| world.delivery(delivery));
    world.crash();
    world.lapse();
    assert_eq!(all.map(|delivery| world.delivery(delivery)), before);
}
