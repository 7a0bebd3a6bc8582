//! `claim` and `due`: who gets what to send, and what waits.

use std::collections::HashSet;

use everhook_domain::attempt::Trigger;
use everhook_domain::budget::Budget;
use everhook_domain::endpoint::EndpointVerb::Disable;
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::time::Timestamp;
use everhook_store::{LaneDue, LeasedDelivery, Share, Wanted};

use crate::backend::Kind;
use crate::sketch::{AMPLE, TYPE, event, events, everything, ms, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_is_leased_is_told_in_full),
        case(the_oldest_comes_first),
        case(nothing_is_leased_before_its_time),
        case(at_most_as_many_as_wanted),
        case(the_shares_do_not_wait_for_each_other),
        case(a_lease_keeps_others_away),
        case(only_the_lanes_asked_for),
        case(the_next_due_times_are_told),
        case(due_tells_the_earliest_of_every_lane),
        case(large_bodies_all_come_in_the_end),
        case(no_lane_gets_more_than_the_budget_allows),
        case(what_the_budget_does_not_allow_is_left_and_told),
        case(one_that_is_larger_than_the_budget_comes_alone),
        case(a_disabled_endpoint_gets_nothing),
        case(fifty_at_once_never_get_the_same),
        case(publishing_and_claiming_at_once_lose_nothing),
    ]
}

fn ids(leased: &[LeasedDelivery]) -> Vec<DeliveryId> {
    leased.iter().map(|leased| leased.id).collect()
}

const fn lane(endpoint: EndpointId, due: [Option<Timestamp>; 3]) -> LaneDue {
    let [fresh, retry, suspect] = due;
    LaneDue { endpoint, fresh, retry, suspect, too_heavy: None }
}

/// Crashes until the oldest fresh delivery is to be tried alone: three leases without a result.
fn make_suspect(world: &mut World, endpoint: EndpointId) {
    for _ in 0..3 {
        let (leased, _) = world.claim(Wanted { endpoint, fresh: 1, retry: 0, suspect: 0, held: 0 });
        assert_eq!(leased.len(), 1);
        world.crash();
        assert_eq!(world.lapse(), 1);
    }
}

fn what_is_leased_is_told_in_full(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let accepted = world.publish_one(event(TYPE, r#"{"z":1, "a":[2.50]}"#));
    let due_at = world.now;
    world.advance(ms(70));
    let (mut leased, lane) = world.claim(everything(endpoint));
    let leased = leased.remove(0);
    assert_eq!((leased.id, leased.endpoint), (accepted.id.delivery(1), endpoint));
    assert_eq!((leased.number, leased.due_at), (1, due_at));
    assert_eq!((leased.cause, leased.share), (Trigger::Schedule, Share::Fresh));
    assert_eq!(leased.body, world.event(accepted.id).body);
    assert!(leased.until.is_none_or(|until| until > world.now));
    assert_eq!(lane, self::lane(endpoint, [None; 3]));
}

fn the_oldest_comes_first(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.extend(world.publish(events(2)).iter().map(|event| event.id.delivery(1)));
        world.advance(ms(1));
    }
    assert_eq!(ids(&world.claim_all(endpoint)), expected);
}

fn nothing_is_leased_before_its_time(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    world.send(endpoint, 500);
    let again_at = world.now + secs(60);
    world.now = again_at.minus(ms(1));
    let (leased, due) = world.claim(everything(endpoint));
    assert_eq!((leased, due.retry), (vec![], Some(again_at)));
    world.now = again_at;
    assert_eq!(world.claim_all(endpoint).len(), 1, "at exactly its time");
}

fn at_most_as_many_as_wanted(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let accepted = world.publish(events(10));
    let mut got = Vec::new();
    for (fresh, expected) in [(0, 0), (3, 3), (1, 1), (5, 5), (5, 1), (5, 0)] {
        let (leased, _) = world.claim(Wanted { endpoint, fresh, retry: 9, suspect: 9, held: 0 });
        assert_eq!(leased.len(), expected);
        got.extend(ids(&leased));
    }
    assert_eq!(got, accepted.iter().map(|event| event.id.delivery(1)).collect::<Vec<_>>());
}

/// A new event never waits behind an old one's retries.
fn the_shares_do_not_wait_for_each_other(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    let suspect = world.publish_one(event(TYPE, "1")).id.delivery(1);
    make_suspect(&mut world, endpoint);
    let retried = world.publish(events(3)).iter().map(|e| e.id.delivery(1)).collect::<Vec<_>>();
    let (leased, _) = world.claim(Wanted { endpoint, fresh: 3, retry: 0, suspect: 0, held: 0 });
    world.finish_all(&leased, 500);
    world.advance(secs(60));
    let fresh = world.publish(events(3)).iter().map(|e| e.id.delivery(1)).collect::<Vec<_>>();
    let none = Wanted { endpoint, fresh: 0, retry: 0, suspect: 0, held: 0 };
    for (wanted, expected, share, number) in [
        (Wanted { fresh: 2, ..none }, &fresh[..2], Share::Fresh, 1),
        (Wanted { retry: 2, ..none }, &retried[..2], Share::Retry, 2),
        (Wanted { suspect: 1, ..none }, &[suspect][..], Share::Suspect, 1),
        (Wanted { suspect: 9, ..none }, &[][..], Share::Suspect, 1),
        (Wanted { retry: 9, ..none }, &retried[2..], Share::Retry, 2),
        (Wanted { fresh: 9, ..none }, &fresh[2..], Share::Fresh, 1),
    ] {
        let (leased, _) = world.claim(wanted);
        assert_eq!(ids(&leased), expected, "{wanted:?}");
        assert!(leased.iter().all(|l| (l.share, l.number) == (share, number)), "{leased:?}");
    }
}

fn a_lease_keeps_others_away(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(4));
    assert_eq!(world.claim_all(endpoint).len(), 4);
    assert_eq!(world.claim_all(endpoint), []);
    world.advance(ms(500));
    assert_eq!(world.claim_all(endpoint), []);
    assert_eq!(world.due(), []);
}

fn only_the_lanes_asked_for(kind: Kind) {
    let world = World::new(kind);
    let [one, two, three] = [world.endpoint(), world.endpoint(), world.endpoint()];
    world.publish(events(2));
    let wanted = vec![everything(three), everything(one)];
    let (leased, lanes) = world.wait(world.store.claim(wanted, AMPLE, world.now)).unwrap();
    let told: Vec<_> = lanes.iter().map(|lane| lane.endpoint).collect();
    assert_eq!((leased.len(), told), (4, vec![three, one]));
    assert!(leased.iter().all(|leased| leased.endpoint != two));
    assert_eq!(world.claim_all(two).len(), 2);
    assert_eq!(world.wait(world.store.claim(vec![], AMPLE, world.now)), Ok((vec![], vec![])));
}

fn the_next_due_times_are_told(kind: Kind) {
    let mut world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(1));
    world.send(endpoint, 500);
    let retry = Some(world.now + secs(60));
    world.advance(ms(5));
    world.publish(events(2));
    let (first, fresh) =
        (Wanted { endpoint, fresh: 1, retry: 9, suspect: 9, held: 0 }, Some(world.now));
    assert_eq!(world.claim(first).1, lane(endpoint, [fresh, retry, None]));
    assert_eq!(world.claim(first).1, lane(endpoint, [None, retry, None]));
    let unused = world.endpoint();
    assert_eq!(world.claim(everything(unused)).1, lane(unused, [None; 3]));
}

fn due_tells_the_earliest_of_every_lane(kind: Kind) {
    let mut world = World::new(kind);
    assert_eq!(world.due(), []);
    let [one, two] = [world.endpoint(), world.endpoint()];
    world.publish(events(2));
    let first = Some(world.now);
    make_suspect(&mut world, one);
    let other = world.add_tenant("other");
    let three = world.endpoint_for(&other, &["*"]);
    world.try_publish(publish_in(&other, events(1))).unwrap();
    world.send(three, 500);
    let retry = Some(world.now + secs(60));
    world.advance(secs(1));
    world.try_publish(publish_in(&other, events(2))).unwrap();
    let expected = [
        lane(one, [first, None, first]),
        lane(two, [first, None, None]),
        lane(three, [Some(world.now), retry, None]),
    ];
    assert_eq!(world.due(), expected);
    assert_eq!(world.due(), expected, "it takes nothing");
    world.claim_all(two);
    let lanes: Vec<_> = world.due().iter().map(|lane| lane.endpoint).collect();
    assert_eq!(lanes, [one, three], "what is leased is not due");
}

/// One answer may be bounded by its bytes, but nothing is left behind by that.
fn large_bodies_all_come_in_the_end(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    let data = format!("\"{}\"", "x".repeat(1 << 20));
    for _ in 0..12 {
        world.publish_one(event(TYPE, &data));
    }
    let mut got = 0;
    loop {
        let leased = world.claim_all(endpoint);
        if leased.is_empty() {
            break;
        }
        got += leased.len();
    }
    assert_eq!(got, 12);
}

/// Publishes so many events for everybody, whose bodies weigh this much each.
fn publish_weighing(world: &World, count: usize, bytes: usize) -> Vec<DeliveryId> {
    let empty = world.publish_one(event("empty", r#""""#));
    let rest = bytes - world.event(empty.id).body.len() + "empty".len() - TYPE.len();
    let data = format!("\"{}\"", "x".repeat(rest));
    let accepted = world.publish(vec![event(TYPE, &data); count]);
    assert_eq!(world.event(accepted[0].id).body.len(), bytes);
    accepted.iter().map(|event| event.id.delivery(1)).collect()
}

fn weights(leased: &[LeasedDelivery], lane: EndpointId) -> Vec<usize> {
    leased.iter().filter(|l| l.endpoint == lane).map(|l| l.body.len()).collect()
}

fn no_lane_gets_more_than_the_budget_allows(kind: Kind) {
    for (taken, held, expected) in [
        (0, [0, 0], [5, 3]),
        (3_000, [0, 0], [4, 2]),
        (3_000, [3_000, 0], [2, 3]),
        (5_000, [0, 5_000], [3, 0]),
        (9_000, [0, 9_000], [1, 0]),
        (9_001, [0, 0], [0, 0]),
    ] {
        let world = World::new(kind);
        let lanes = [(); 2].map(|()| world.endpoint_for(&world.tenant, &[TYPE]));
        publish_weighing(&world, 8, 1_000);
        let budget = Budget::new(10_000).with(taken);
        let wanted = [0, 1].map(|lane| Wanted { held: held[lane], ..everything(lanes[lane]) });
        let claim = world.store.claim(wanted.to_vec(), budget, world.now);
        let (leased, dues) = world.wait(claim).unwrap();
        let got = lanes.map(|lane| weights(&leased, lane).len());
        assert_eq!(got, expected, "{taken} taken, {held:?} by them");
        let told: Vec<_> = dues.iter().map(|due| (due.fresh, due.too_heavy)).collect();
        assert_eq!(told, [(Some(world.now), Some(1_000)); 2], "what is left waits as before");
    }
}

fn what_the_budget_does_not_allow_is_left_and_told(kind: Kind) {
    let mut world = World::new(kind);
    let lane = world.endpoint_for(&world.tenant, &[TYPE]);
    let large = publish_weighing(&world, 1, 9_000);
    let small = publish_weighing(&world, 3, 500);
    let claim = |world: &World, wanted: Wanted, taken| {
        let budget = Budget::new(10_000).with(taken);
        world.wait(world.store.claim(vec![wanted], budget, world.now)).unwrap()
    };
    let (leased, dues) = claim(&world, everything(lane), 2_000);
    assert_eq!((ids(&leased), dues[0].too_heavy), (vec![], Some(9_000)), "the oldest comes first");
    let (leased, dues) = claim(&world, everything(lane), 1_000);
    assert_eq!((ids(&leased), dues[0].too_heavy), (large, Some(500)));
    world.finish_all(&leased, 500);
    world.advance(secs(60));
    let (leased, dues) = claim(&world, everything(lane), 2_000);
    assert_eq!((ids(&leased), dues[0].too_heavy), (small, Some(9_000)), "another share goes on");
    assert_eq!(world.due()[0].too_heavy, None);
}

fn one_that_is_larger_than_the_budget_comes_alone(kind: Kind) {
    let world = World::new(kind);
    let lane = world.endpoint_for(&world.tenant, &[TYPE]);
    let large = publish_weighing(&world, 2, 9_000);
    for (taken, expected) in [(1, &[][..]), (0, &large[..1]), (9_000, &[]), (0, &large[1..])] {
        let budget = Budget::new(1_000).with(taken);
        let claim = world.store.claim(vec![everything(lane)], budget, world.now);
        let (leased, _) = world.wait(claim).unwrap();
        assert_eq!(ids(&leased), expected, "{taken} taken");
    }
}

fn a_disabled_endpoint_gets_nothing(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.publish(events(3));
    world.change_state(endpoint, Disable);
    assert_eq!(world.claim_all(endpoint), [], "though no job has run yet");
}

fn fifty_at_once_never_get_the_same(kind: Kind) {
    let world = World::new(kind);
    let endpoints = [world.endpoint(), world.endpoint()];
    world.publish(events(300));
    let leased = world.at_once(50, |number, store, now| {
        let wanted: Vec<_> = endpoints
            .iter()
            .map(|endpoint| Wanted { endpoint: *endpoint, fresh: 7, retry: 7, suspect: 1, held: 0 })
            .collect();
        let wanted = if number % 2 == 0 { wanted } else { wanted.into_iter().rev().collect() };
        async move {
            let mut got = Vec::new();
            loop {
                let (leased, _) = store.claim(wanted.clone(), AMPLE, now).await.unwrap();
                if leased.is_empty() {
                    return got;
                }
                got.extend(leased);
            }
        }
    });
    let leased: Vec<_> = leased.into_iter().flatten().collect();
    let distinct: HashSet<_> = leased.iter().map(|leased| leased.id).collect();
    let tokens: HashSet<_> = leased.iter().map(|leased| leased.token).collect();
    assert_eq!((leased.len(), distinct.len(), tokens.len()), (600, 600, 600));
}

fn publishing_and_claiming_at_once_lose_nothing(kind: Kind) {
    let world = World::new(kind);
    let endpoint = world.endpoint();
    world.lanes.give(endpoint, 60);
    let tenant = world.tenant.clone();
    let claimed = world.at_once(40, |number, store, now| {
        let publish = publish_in(&tenant, events(5));
        async move {
            if number % 2 == 0 {
                store.publish(publish, None, now).await.unwrap();
                return Vec::new();
            }
            store.claim(vec![everything(endpoint)], AMPLE, now).await.unwrap().0
        }
    });
    let mut leased = claimed.into_iter().flatten().collect::<Vec<_>>();
    leased.extend(world.claim_all(endpoint));
    leased.extend(world.lanes.handed());
    let distinct: HashSet<_> = leased.iter().map(|leased| leased.id).collect();
    assert_eq!((leased.len(), distinct.len()), (100, 100));
}
