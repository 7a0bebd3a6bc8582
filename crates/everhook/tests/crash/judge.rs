//! The judge itself: a right history is right, and each thing that can be wrong with it is seen.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::support::api::{Attempt, Delivery};
use crate::support::check::{Broken, Evidence, Life, violations};
use crate::support::load::Accepted;
use crate::support::now;
use crate::support::orders::{Planned, Sort};
use crate::support::receiver::{Arrival, Arrivals, Target};
use crate::support::server::LEASE;

const EVENT: &str = "evt_1";

/// The history of one event with one delivery, which a kill cut off once.
struct History {
    accepted: Vec<Accepted>,
    arrivals: Vec<Arrival>,
    delivery: Delivery,
    lives: Vec<Life>,
}

fn arrival(life: usize, number: u32, at: Instant) -> Arrival {
    let data = planned().data();
    let body = format!(r#"{{"id":"{EVENT}","data":{data}}}"#).into_bytes();
    Arrival { life, number, body: body.into(), ids_agree: true, at, answered_at: Some(at) }
}

fn planned() -> Planned {
    Planned { source_id: "order-1".to_owned(), sort: Sort::Plain }
}

fn attempt(number: u32, started_at: &str) -> Attempt {
    Attempt { number, started_at: started_at.to_owned(), status_code: Some(200) }
}

/// On the wire at the first death, sent again at once after the restart, delivered.
fn right() -> History {
    let died = now();
    let ready = died + Duration::from_millis(100);
    let mut first = arrival(1, 1, died);
    first.answered_at = None;
    History {
        accepted: vec![Accepted {
            planned: planned(),
            event: EVENT.to_owned(),
            deliveries: 1,
            life: 1,
        }],
        arrivals: vec![first, arrival(2, 1, ready)],
        delivery: Delivery {
            id: "dlv_1".to_owned(),
            event_id: EVENT.to_owned(),
            endpoint_id: "ep_1".to_owned(),
            status: "delivered".to_owned(),
            reason: None,
            round: 1,
            attempt_count: 1,
            interruptions: 1,
            created_at: "2026-01-01T00:00:00.000Z".to_owned(),
            attempts: vec![attempt(1, "2026-01-01T00:00:00.000Z")],
        },
        lives: vec![
            Life::default(),
            Life { ready: Some(died), died: Some(died) },
            Life { ready: Some(ready), died: None },
        ],
    }
}

/// Judges the right history after this was done to it.
fn check(wrong: impl FnOnce(&mut History), expected: &[Broken]) {
    let mut history = right();
    wrong(&mut history);
    let History { accepted, arrivals, delivery, lives } = history;
    let arrivals: Arrivals = HashMap::from([((EVENT.to_owned(), Target::Ready), arrivals)]);
    let deliveries = [(delivery, Target::Ready)];
    let evidence = Evidence {
        accepted: &accepted,
        arrivals: &arrivals,
        deliveries: &deliveries,
        lives: &lives,
    };
    let found = violations(&evidence);
    let broken: Vec<_> = found.iter().map(|violation| violation.broken).collect();
    assert_eq!(broken, expected, "{found:?}");
}

#[test]
fn what_is_right_passes() {
    check(|_| (), &[]);
    let answered_as_it_died = |h: &mut History| h.arrivals[0].answered_at = h.lives[1].died;
    check(answered_as_it_died, &[]);
}

#[test]
fn what_is_wrong_is_found() {
    use Broken::{Changed, Doubled, Late, Lost, Numbers, Repeated, Uncounted, Unfinished, Wrong};
    check(|h| h.delivery.event_id = "evt_2".to_owned(), &[Lost, Lost, Numbers]);
    check(|h| h.delivery.status = "due".to_owned(), &[Unfinished]);
    check(|h| h.delivery.status = "dead".to_owned(), &[Wrong]);
    check(|h| h.accepted[0].deliveries = 0, &[Wrong]);
    check(|h| h.arrivals[1].answered_at = None, &[Lost]);
    check(|h| h.arrivals[1].ids_agree = false, &[Changed]);
    check(|h| h.arrivals[1].body = (*b"{}").into(), &[Changed]);
    check(|h| h.accepted[0].planned.source_id = "order-2".to_owned(), &[Changed]);
    check(|h| h.delivery.interruptions = 0, &[Uncounted]);
    check(|h| h.delivery.attempts[0].status_code = None, &[Wrong]);
    check(|h| h.delivery.attempt_count = 2, &[Numbers, Numbers]);
    check(|h| h.delivery.round = 2, &[Numbers]);
    check(|h| h.arrivals[1].number = 2, &[Numbers]);
    check(|h| h.arrivals[1].life = 1, &[Repeated]);
    check(|h| h.arrivals[1].at += Duration::from_millis(2_001), &[Late]);
    let long_recorded = |h: &mut History| {
        h.arrivals[0].answered_at = Some(h.arrivals[0].at - (LEASE + Duration::from_secs(1)));
    };
    check(long_recorded, &[Repeated]);
    let another_event = |h: &mut History| {
        let again = Accepted { event: "evt_2".to_owned(), ..h.accepted[0].clone() };
        h.accepted.push(again);
    };
    check(another_event, &[Lost, Doubled]);
}

#[test]
fn an_attempt_before_its_time_is_found() {
    let two = |second: &'static str| {
        move |h: &mut History| {
            h.delivery.attempts.push(attempt(2, second));
            h.delivery.attempt_count = 2;
        }
    };
    // That there is a second attempt at all is another matter.
    check(two("2026-01-01T00:00:00.060Z"), &[Broken::Numbers]);
    check(two("2026-01-01T00:00:00.059Z"), &[Broken::Numbers, Broken::Early]);
}
