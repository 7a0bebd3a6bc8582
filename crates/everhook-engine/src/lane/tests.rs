use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::Token;
use everhook_domain::id::{DeliveryId, EndpointId};

use super::*;

const LANE: EndpointId = EndpointId::from_bits(1);
const LIMITS: Limits =
    Limits { open: true, slots: 8, per_second: None, failing_per_second: 100, handoff: 64 };

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn delivery(share: Share) -> LeasedDelivery {
    LeasedDelivery {
        id: DeliveryId::from_bits(1),
        endpoint: LANE,
        token: Token(1),
        until: None,
        number: 1,
        due_at: at(0),
        cause: Trigger::Schedule,
        share,
        body: Bytes::new(),
        headers: None,
    }
}

fn lane(limits: Limits) -> Lane {
    Lane::new(Arc::new(Room::new(limits.handoff)), limits)
}

fn hand_over(lane: &mut Lane, count: usize) -> usize {
    let hand = |_: &usize| lane.hand_over(delivery(Share::Fresh), Permit::new(()), at(0)).is_none();
    (0..count).filter(hand).count()
}

/// Lets the lane go on until it must wait; `b` begins, `a` asks for one of the table, and the last
/// letter says why it stopped.
fn steps(lane: &mut Lane, now: Timestamp) -> String {
    let others = Slots::new(1_000);
    let mut steps = String::new();
    loop {
        steps.push(match lane.next(&others, true, now) {
            Next::Start(_) => 'b',
            Next::Asked => 'a',
            Next::Wait(_) => return steps + "W",
            Next::Full => return steps + "F",
            Next::Starved => return steps + "S",
            Next::Idle => return steps + "I",
        });
    }
}

#[test]
fn the_queues_take_turns() {
    for (handed, fresh, retry, expected) in [
        (0, false, false, "I"),
        (3, false, false, "bbbI"),
        (9, false, false, "bbbbbbbbF"),
        (9, true, false, "babababaF"),
        (9, true, true, "baabaabaF"),
        (1, true, true, "baaaaaaaF"),
        (0, true, false, "aaaaI"),
        (0, false, true, "aaaaI"),
        (0, true, true, "aaaaaaaaI"),
    ] {
        let mut lane = lane(LIMITS);
        hand_over(&mut lane, handed);
        if fresh {
            lane.hint(Share::Fresh, at(0));
        }
        if retry {
            lane.hint(Share::Retry, at(0));
        }
        assert_eq!(steps(&mut lane, at(0)), expected, "{handed} {fresh} {retry}");
        let (fresh_asked, retry_asked) = lane.claim();
        if fresh && retry {
            assert!(fresh_asked.abs_diff(retry_asked) <= 1, "{fresh_asked} and {retry_asked}");
        }
    }
}

#[test]
fn a_claim_that_comes_back_full_doubles_the_next_one() {
    let mut lane = lane(Limits { slots: 20, ..LIMITS });
    lane.hint(Share::Fresh, at(0));
    for (asked, found) in [(4, 4), (8, 8), (16, 16), (20, 20), (20, 3), (4, 4), (8, 0), (4, 0)] {
        steps(&mut lane, at(0));
        assert_eq!(lane.claim(), (asked, 0));
        assert_eq!(steps(&mut lane, at(0)), "I", "one claim at a time");
        lane.claimed(Some(found));
    }
    assert_eq!(lane.held(), 0);
}

#[test]
fn what_is_not_due_is_waited_for() {
    let mut lane = lane(LIMITS);
    lane.hint(Share::Retry, at(500));
    lane.hint(Share::Retry, at(700));
    let others = Slots::new(1_000);
    assert!(matches!(lane.next(&others, true, at(499)), Next::Wait(until) if until == at(500)));
    assert!(matches!(lane.next(&others, false, at(500)), Next::Idle), "the store is away");
    assert!(matches!(lane.next(&others, true, at(500)), Next::Asked));
}

#[test]
fn a_closed_lane_does_nothing_and_gives_everything_up() {
    let mut lane = lane(LIMITS);
    assert_eq!(hand_over(&mut lane, 3), 3);
    lane.take_leased(delivery(Share::Retry), at(0));
    lane.limit(Limits { open: false, ..LIMITS });
    assert_eq!(steps(&mut lane, at(0)), "I");
    assert_eq!(lane.empty().len(), 4);
    assert_eq!(lane.held(), 0);
    assert_eq!(lane.gate(at(0)), Gate::Closed);
    assert_eq!(hand_over(&mut lane, 1), 0, "what was on its way is given up too");
}

#[test]
fn a_paced_lane_begins_in_time_and_holds_little() {
    let mut lane = lane(Limits { per_second: Some(50), ..LIMITS });
    assert_eq!(lane.gate(at(0)), Gate::Slow(4));
    assert_eq!(hand_over(&mut lane, 10), 4, "what starts within a tenth of a second");
    assert_eq!(steps(&mut lane, at(0)), "bW");
    assert_eq!(steps(&mut lane, at(15)), "W");
    assert_eq!(steps(&mut lane, at(16)), "bW");
    lane.hint(Share::Fresh, at(0));
    assert_eq!(lane.gate(at(20)), Gate::Closed, "the table comes first");
    assert_eq!(steps(&mut lane, at(20)), "aaaaW");
}

#[test]
fn a_failing_lane_is_narrow_and_paced_until_it_answers() {
    let mut lane = lane(LIMITS);
    let second = Duration::from_secs(1);
    for _ in 0..5 {
        hand_over(&mut lane, 1);
        assert_eq!(steps(&mut lane, at(0)), "bI");
        lane.ended(Some((false, second)), 0);
    }
    assert!(lane.is_failing());
    assert_eq!(lane.gate(at(0)), Gate::Closed);
    lane.hint(Share::Fresh, at(0));
    assert_eq!(steps(&mut lane, at(0)), "aaF", "a quarter of its slots");
    lane.ended(Some((true, second)), 0);
    assert!(!lane.is_failing());
    assert_eq!(lane.gate(at(0)), Gate::Slow(64), "but its answers take long");
    for _ in 0..40 {
        lane.ended(Some((true, Duration::ZERO)), 0);
    }
    assert_eq!(lane.gate(at(0)), Gate::Fast(64));
}

#[test]
fn a_failure_of_our_own_changes_no_health_but_is_waited_out() {
    let mut lane = lane(LIMITS);
    for _ in 0..9 {
        lane.ended(None, 0);
    }
    assert!(!lane.is_failing());
    lane.hold(at(1_000));
    hand_over(&mut lane, 1);
    lane.hint(Share::Fresh, at(0));
    assert_eq!(steps(&mut lane, at(999)), "W");
    assert_eq!(steps(&mut lane, at(1_000)), "aaaaI");
}

#[test]
fn a_suspect_takes_a_slot_and_a_place_in_the_pace_like_any_other() {
    let others = Slots::new(1_000);
    let mut lane = lane(Limits { slots: 1, per_second: Some(1), ..LIMITS });
    lane.hint(Share::Suspect, at(500));
    assert_eq!(lane.suspect_from(&others, at(0)), Some(at(500)));
    assert_eq!(hand_over(&mut lane, 1), 1);
    assert_eq!(steps(&mut lane, at(0)), "bI");
    assert_eq!(lane.suspect_from(&others, at(500)), None, "its only slot is taken");
    lane.ended(Some((true, Duration::ZERO)), 0);
    assert_eq!(lane.suspect_from(&others, at(500)), Some(at(1_000)), "so often a second");
    assert!(lane.take_leased(delivery(Share::Suspect), at(1_000)).is_some());
    assert_eq!(hand_over(&mut lane, 1), 1);
    assert_eq!(steps(&mut lane, at(1_500)), "W");
    assert_eq!(steps(&mut lane, at(2_005)), "F");
}

#[test]
fn what_is_leased_waits_when_the_limit_has_been_lowered() {
    let mut lane = lane(LIMITS);
    lane.take_leased(delivery(Share::Retry), at(0));
    lane.take_leased(delivery(Share::Retry), at(0));
    lane.limit(Limits { slots: 1, ..LIMITS });
    assert_eq!(steps(&mut lane, at(0)), "bF");
    lane.ended(Some((true, Duration::ZERO)), 0);
    assert_eq!(steps(&mut lane, at(0)), "bI");
}
