//! `settle`: how leases end.

use everhook_domain::attempt::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, ErrorClass, KeptResponse, Trigger,
};
use everhook_domain::delivery::CancelReason::{EndpointDeleted, EndpointDisabled};
use everhook_domain::delivery::{Dead, DeadReason, Due, State, Token};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable};
use everhook_domain::schedule::Schedule;
use everhook_store::{Act, Settled, Settlement, SettlementResult, Share, StorePolicy, Wanted};

use crate::backend::Kind;
use crate::sketch::{
    TYPE, answered, event, events, finished, ms, nobodys_delivery, released, report, secs,
};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_success_delivers),
        case(an_attempt_is_kept_as_reported),
        case(a_failure_is_due_by_the_schedule),
        case(the_schedule_is_a_setting),
        case(a_late_start_moves_the_rest_of_the_round),
        case(retry_after_moves_the_next_attempt_only_if_told_to),
        case(a_released_lease_counts_nothing),
        case(a_stale_result_changes_nothing),
        case(a_result_that_comes_too_late_is_kept),
        case(recording_twice_is_harmless),
        case(each_of_a_batch_stands_for_itself),
        case(no_peer_6_two_endpoints_of_one_event_keep_separate_state),
        case(a_test_is_sent_once_and_gives_no_warning),
        case(a_failure_at_an_endpoint_that_is_gone_cancels),
        case(a_success_at_an_endpoint_that_is_gone_counts),
        case(a_release_at_an_endpoint_that_is_gone_cancels),
        case(what_is_due_again_is_hinted),
        case(results_survive_a_crash),
    ]
}

fn a_success_delivers(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    for status in [200, 201, 202, 204, 206, 299] {
        world.publish(events(1));
        let delivery = world.send(endpoint, status);
        assert_eq!(world.state(delivery), State::Delivered, "{status}");
        let progress = world.progress(delivery);
        assert_eq!((progress.number, progress.step, progress.round), (1, 1, 1));
        assert_eq!(world.attempts(delivery).len(), 1);
    }
    assert_eq!((world.claim_all(endpoint), world.due()), (vec![], vec![]));
}

/// Every outcome there is, in all its parts.
fn outcomes() -> Vec<AttemptOutcome> {
    let response = KeptResponse {
        status: 503,
        headers: vec![("retry-after".into(), "7".into()), ("x".into(), "\\xff ä".into())],
        body: "zu spät \u{1f600}".into(),
        truncated: true,
    };
    let mut outcomes = vec![
        AttemptOutcome::answered(response.clone(), Some(secs(7))),
        AttemptOutcome { resent: true, ..answered(200) },
        // Headers in time, but the wrong protocol after them.
        AttemptOutcome {
            response: Some(response),
            error: Some(AttemptError { class: ErrorClass::Protocol, detail: "odd".into() }),
            retry_after: None,
            resent: true,
        },
    ];
    outcomes.extend(ErrorClass::ALL.map(|class| AttemptOutcome::failed(class, "it broke")));
    outcomes
}

fn an_attempt_is_kept_as_reported(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    for outcome in outcomes() {
        world.publish(events(1));
        let (leased, _) = world.claim(Wanted { endpoint, fresh: 1, retry: 0, suspect: 0, held: 0 });
        let success = outcome.is_success();
        let report = AttemptReport {
            started_at: world.now,
            duration: ms(10_007),
            url: "https://example.org/hook?a=%C3%A4".into(),
            outcome,
        };
        world.advance(ms(10_008));
        let settled = world.settle(vec![Settlement {
            delivery: leased[0].id,
            token: leased[0].token,
            result: SettlementResult::Finished(Box::new(report.clone())),
        }]);
        assert_eq!(settled, [Settled::Recorded]);
        let expected = Attempt { number: 1, round: 1, trigger: Trigger::Schedule, report };
        let detail = world.delivery(leased[0].id);
        assert_eq!(detail.attempts, [expected]);
        assert_eq!(matches!(detail.record.state, State::Delivered), success);
    }
}

/// As in case 7: every attempt counts, at the promised offsets from the first, then dead.
fn a_failure_is_due_by_the_schedule(kind: Kind) {
    for status in [300, 400, 403, 404, 410, 500] {
        let mut world = World::new(kind);
        let endpoint = world.endpoint();
        let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
        let anchor = world.now;
        for (number, offset) in (1..).zip([60, 300, 1_800, 7_200, 21_600, 86_400]) {
            assert_eq!(world.send(endpoint, status), delivery);
            let at = anchor + secs(offset);
            let due = State::Due(Due { at, cause: Trigger::Schedule });
            assert_eq!((world.state(delivery), world.progress(delivery).number), (due, number));
            world.now = at.minus(ms(1));
            assert_eq!(world.claim_all(endpoint), []);
            world.now = at;
        }
        world.send(endpoint, status);
        let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at: None };
        assert_eq!(world.state(delivery), State::Dead(dead));
        let numbers: Vec<u32> = world.attempts(delivery).iter().map(|a| a.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
        world.advance(secs(1_000_000));
        assert_eq!((world.claim_all(endpoint), world.due()), (vec![], vec![]));
    }
}

fn the_schedule_is_a_setting(kind: Kind) {
    let schedule = Schedule::new(vec![secs(0), secs(2), secs(3)]).unwrap();
    let mut world = World::with(kind, StorePolicy { schedule, ..StorePolicy::default() });
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    world.send(endpoint, 500);
    world.advance(secs(2));
    world.send(endpoint, 500);
    let standing = world.state(delivery);
    // A shorter list from now on: the due time stands, one more try, then dead.
    let schedule = Schedule::new(vec![secs(0)]).unwrap();
    world.restart_with(StorePolicy { schedule, ..StorePolicy::default() });
    assert_eq!(world.state(delivery), standing);
    world.advance(secs(1));
    world.send(endpoint, 500);
    assert!(matches!(world.state(delivery), State::Dead(_)));
    assert_eq!(world.attempts(delivery).len(), 3);
}

fn a_late_start_moves_the_rest_of_the_round(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let delivery = world.publish_one(event(TYPE, "1")).id.delivery(1);
    let anchor = world.now;
    world.send(endpoint, 500);
    let late = secs(3_600);
    world.now = anchor + secs(60) + late;
    world.send(endpoint, 500);
    let at = anchor + secs(300) + late;
    assert_eq!(world.state(delivery), State::Due(Due { at, cause: Trigger::Schedule }));
    let progress = world.progress(delivery);
    assert_eq!((progress.anchor, progress.shift), (Some(anchor), late));
    assert_eq!(progress.last_start, Some(world.now));
}

fn retry_after_moves_the_next_attempt_only_if_told_to(kind: Kind) {
    for (honor_retry_after, wait, expected) in
        [(false, 600, 60), (true, 600, 600), (true, 10, 60), (true, 1_000_000, 3_660)]
    {
        let policy = StorePolicy { honor_retry_after, ..StorePolicy::default() };
        let world = World::with(kind, policy);
        let endpoint = world.endpoint();
        world.publish(events(1));
        let lease = world.claim_one(endpoint);
        let outcome = AttemptOutcome { retry_after: Some(secs(wait)), ..answered(503) };
        let result = SettlementResult::Finished(report(world.now, outcome));
        world.settle(vec![Settlement { delivery: lease.id, token: lease.token, result }]);
        let due = Due { at: world.now + secs(expected), cause: Trigger::Schedule };
        assert_eq!(world.state(lease.id), State::Due(due));
    }
}

fn a_released_lease_counts_nothing(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let before = world.delivery_of(world.publish_one(event(TYPE, "1")).id);
    world.advance(secs(1));
    let lease = world.claim_one(endpoint);
    assert_eq!(world.release(&lease), Settled::Recorded);
    assert_eq!(world.delivery(before.id).record, before);
    assert_eq!(world.attempts(before.id), []);
    let again = world.claim_one(endpoint);
    assert_eq!((again.number, again.due_at, again.share), (1, lease.due_at, Share::Fresh));
    assert_ne!(again.token, lease.token);
}

fn a_stale_result_changes_nothing(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let old = world.claim_one(endpoint);
    world.release(&old);
    let due = world.delivery(old.id);
    assert_eq!(world.finish(&old, 200), Settled::Stale);
    assert_eq!(world.delivery(old.id), due);
    let lease = world.claim_one(endpoint);
    let leased = world.delivery(lease.id);
    assert_eq!((world.finish(&old, 200), world.release(&old)), (Settled::Stale, Settled::Stale));
    assert_eq!(world.delivery(old.id), leased);
    world.finish(&lease, 500);
    let failed = world.delivery(lease.id);
    for token in [old.token, lease.token, Token(0), Token(u64::MAX >> 1)] {
        let settlement = Settlement { token, ..finished(&lease, world.now, 200) };
        assert_eq!(world.settle(vec![settlement]), [Settled::Stale]);
    }
    assert_eq!(world.delivery(lease.id), failed);
}

fn a_result_that_comes_too_late_is_kept(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let mut old = Vec::new();
    for _ in 0..3 {
        old.push(world.claim_one(endpoint));
        world.crash();
        world.lapse();
    }
    assert_eq!(world.finish(&old[0], 204), Settled::Stale);
    assert_eq!(world.finish(&old[1], 500), Settled::Stale);
    assert_eq!(world.release(&old[2]), Settled::Stale);
    assert_eq!((world.attempts(old[0].id), world.progress(old[0].id).number), (vec![], 0));
    let kept = world.late_outcomes(old[0].id);
    assert_eq!(kept, ["status 204", "status: the endpoint answered with status 500"]);
}

fn recording_twice_is_harmless(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    for status in [200, 500] {
        world.publish(events(1));
        let lease = world.claim_one(endpoint);
        let twice = vec![finished(&lease, world.now, status), finished(&lease, world.now, status)];
        assert_eq!(world.settle(twice), [Settled::Recorded, Settled::Stale]);
        let recorded = world.delivery(lease.id);
        assert_eq!(world.finish(&lease, status), Settled::Stale);
        assert_eq!(world.delivery(lease.id), recorded);
        assert_eq!(recorded.attempts.len(), 1);
    }
}

fn each_of_a_batch_stands_for_itself(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(4));
    let leases = world.claim_all(endpoint);
    world.finish(&leases[1], 200);
    let nobodys = Settlement { delivery: nobodys_delivery(), ..released(&leases[0]) };
    let batch = vec![
        finished(&leases[3], world.now, 200),
        nobodys,
        finished(&leases[1], world.now, 500),
        released(&leases[0]),
        finished(&leases[2], world.now, 500),
    ];
    use Settled::{Recorded, Stale};
    assert_eq!(world.settle(batch), [Recorded, Stale, Stale, Recorded, Recorded]);
    assert!(matches!(world.state(leases[0].id), State::Due(due) if due.at == world.now));
    assert_eq!(world.state(leases[1].id), State::Delivered);
    assert!(matches!(world.state(leases[2].id), State::Due(due) if due.at > world.now));
    assert_eq!(world.state(leases[3].id), State::Delivered);
    assert_eq!(world.settle(vec![]), []);
}

fn no_peer_6_two_endpoints_of_one_event_keep_separate_state(kind: Kind) {
    let mut world = World::new(kind);
    let [one, two] = [world.endpoint(), world.endpoint()];
    let accepted = world.publish_one(event(TYPE, "1"));
    world.send(one, 500);
    world.advance(secs(10));
    let second = world.send(two, 503);
    let due = |world: &World| {
        let made = world.deliveries_for(accepted.id);
        made.iter().map(|delivery| (delivery.state, delivery.progress.number)).collect::<Vec<_>>()
    };
    let schedule = |at| State::Due(Due { at, cause: Trigger::Schedule });
    let (first_at, second_at) = (world.now + secs(50), world.now + secs(60));
    assert_eq!(due(&world), [(schedule(first_at), 1), (schedule(second_at), 1)]);
    world.now = first_at;
    world.send(one, 200);
    assert_eq!(due(&world), [(State::Delivered, 2), (schedule(second_at), 1)]);
    assert_eq!(world.attempts(second).len(), 1);
}

fn a_test_is_sent_once_and_gives_no_warning(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let failed = world.publish_test(endpoint).unwrap().id.delivery(1);
    world.send(endpoint, 500);
    let dead = Dead { reason: DeadReason::Exhausted, acknowledged_at: Some(world.now) };
    assert_eq!(world.state(failed), State::Dead(dead));
    assert_eq!(world.attempts(failed)[0].trigger, Trigger::Test);
    let delivered = world.publish_test(endpoint).unwrap().id.delivery(1);
    world.send(endpoint, 200);
    assert_eq!(world.state(delivered), State::Delivered);
    assert_eq!(world.due(), []);
}

fn a_failure_at_an_endpoint_that_is_gone_cancels(kind: Kind) {
    for (verb, reason) in [(Disable, EndpointDisabled), (Delete, EndpointDeleted)] {
        for jobs_first in [false, true] {
            let world = World::new(kind);
            let endpoint = world.endpoint();
            world.publish(events(1));
            let lease = world.claim_one(endpoint);
            world.change_state(endpoint, verb);
            if jobs_first {
                world.run_jobs();
            }
            assert!(matches!(world.state(lease.id), State::Leased(_)));
            assert_eq!(world.finish(&lease, 500), Settled::Recorded);
            assert_eq!(world.state(lease.id), State::Cancelled(reason));
            assert_eq!(world.attempts(lease.id).len(), 1, "the attempt is kept");
        }
    }
}

/// What was disabled while a request was under way stays cancelled, though enabled again by then.
fn a_success_at_an_endpoint_that_is_gone_counts(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(2));
    let leases = world.claim_all(endpoint);
    world.act(leases[0].id, Act::Replay).unwrap();
    world.change_state(endpoint, Disable);
    world.run_jobs();
    assert_eq!(world.finish(&leases[0], 200), Settled::Recorded);
    assert_eq!(world.state(leases[0].id), State::Delivered);
    world.change_state(endpoint, Enable);
    assert_eq!(world.finish(&leases[1], 500), Settled::Recorded);
    assert_eq!(world.state(leases[1].id), State::Cancelled(EndpointDisabled));
    assert_eq!(world.due(), []);
}

fn a_release_at_an_endpoint_that_is_gone_cancels(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    let lease = world.claim_one(endpoint);
    world.change_state(endpoint, Disable);
    assert_eq!(world.release(&lease), Settled::Recorded);
    assert_eq!(world.state(lease.id), State::Cancelled(EndpointDisabled));
    assert_eq!(world.attempts(lease.id), []);
}

fn what_is_due_again_is_hinted(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(2));
    let leases = world.claim_all(endpoint);
    world.lanes.hints();
    world.finish(&leases[0], 500);
    world.release(&leases[1]);
    let hints = world.lanes.hints();
    let retry = (endpoint, Share::Retry, world.now + secs(60));
    assert_eq!(hints, [retry, (endpoint, Share::Fresh, world.now)]);
}

fn results_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(4));
    for (lease, status) in world.claim_all(endpoint).iter().zip([200, 404, 200, 503]) {
        world.finish(lease, status);
    }
    let before: Vec<_> =
        world.deliveries().iter().map(|delivery| world.delivery(delivery.id)).collect();
    world.crash();
    assert_eq!(world.lapse(), 0);
    let after: Vec<_> =
        world.deliveries().iter().map(|delivery| world.delivery(delivery.id)).collect();
    assert_eq!(after, before);
}
