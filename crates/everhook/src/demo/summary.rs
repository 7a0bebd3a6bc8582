//! What the demo saw, and whether it is what it promised.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::api::Delivery;
use super::receiver::{Arrival, Temper};
use super::story::ATTEMPTS;

/// What was seen on the way.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// New events.
    pub(crate) accepted: usize,
    /// Events that had been seen before.
    pub(crate) duplicates: usize,
    /// Requests at the receiver, in order.
    pub(crate) arrivals: Vec<Arrival>,
    /// Dead deliveries, as they were.
    pub(crate) dead: Vec<Delivery>,
    /// Replays.
    pub(crate) replays: usize,
}

/// The end of the demo.
#[derive(Debug)]
pub(crate) struct Summary {
    /// New events.
    accepted: usize,
    /// Events that had been seen before.
    duplicates: usize,
    /// Deliveries that the receiver has taken.
    delivered: usize,
    /// Attempts after the first one, by the schedule.
    retries: usize,
    /// Deliveries that were dead for a while.
    dead: usize,
    /// Replays.
    replays: usize,
    /// What was promised, and whether it was seen.
    checks: Vec<(&'static str, bool)>,
}

impl Summary {
    /// The summary of what was seen, with how the deliveries stand in the end.
    pub(crate) fn new(seen: Seen, deliveries: &[Delivery]) -> Self {
        let Seen { accepted, duplicates, arrivals, dead, replays } = &seen;
        let delivered = deliveries.iter().filter(|delivery| delivery.status == "delivered").count();
        let retry = |arrival: &&Arrival| (2..=ATTEMPTS).contains(&arrival.attempt);
        Self {
            accepted: *accepted,
            duplicates: *duplicates,
            delivered,
            retries: arrivals.iter().filter(retry).count(),
            dead: dead.len(),
            replays: *replays,
            checks: vec![
                ("every request was signed and its bytes never changed", all_in_order(arrivals)),
                ("the same source event ID made one event", *duplicates == 1),
                ("what failed once was tried again and delivered", flaky_was_retried(arrivals)),
                ("what failed every time was dead after its schedule", one_died(dead)),
                ("the replay of the dead one was delivered", replay_arrived(arrivals, dead)),
                (
                    "every event was delivered in the end",
                    delivered == deliveries.len() && delivered == *accepted,
                ),
            ],
        }
    }

    /// Whether everything that was promised was seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.checks.iter().all(|(_, seen)| *seen)
    }

    /// For people.
    pub(crate) fn as_text(&self) -> String {
        let Self { accepted, duplicates, delivered, retries, dead, replays, .. } = self;
        let mut text = format!(
            "{accepted} events accepted, {duplicates} duplicate, {delivered} delivered, {retries} \
             retries, {dead} dead, {replays} replayed\n"
        );
        for (what, seen) in &self.checks {
            let mark = if *seen { "yes" } else { "NOT SEEN" };
            let _infallible = writeln!(text, "  {mark}: {what}");
        }
        text
    }

    /// For scripts.
    pub(crate) fn as_json(&self) -> Value {
        let check = |(what, seen): &(&str, bool)| json!({ "what": what, "seen": seen });
        json!({
            "ok": self.is_complete(),
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "delivered": self.delivered,
            "retries": self.retries,
            "dead": self.dead,
            "replays": self.replays,
            "checks": self.checks.iter().map(check).collect::<Vec<_>>(),
        })
    }
}

fn all_in_order(arrivals: &[Arrival]) -> bool {
    !arrivals.is_empty() && arrivals.iter().all(|arrival| arrival.fault.is_none())
}

fn flaky_was_retried(arrivals: &[Arrival]) -> bool {
    let flaky = |arrival: &&Arrival| arrival.temper == Temper::Flaky;
    let mut first = arrivals.iter().filter(flaky).filter(|arrival| arrival.attempt == 1).peekable();
    let taken_later = |event: &str| {
        let second = |arrival: &&Arrival| arrival.event == event && arrival.attempt == 2;
        arrivals.iter().filter(flaky).filter(second).any(|arrival| arrival.status.is_success())
    };
    first.peek().is_some() && first.all(|arrival| taken_later(&arrival.event))
}

fn one_died(dead: &[Delivery]) -> bool {
    let [dead] = dead else { return false };
    dead.reason == "exhausted" && dead.attempts == u64::from(ATTEMPTS)
}

fn replay_arrived(arrivals: &[Arrival], dead: &[Delivery]) -> bool {
    let [dead] = dead else { return false };
    let replay =
        |arrival: &&Arrival| arrival.event == dead.event && arrival.attempt == ATTEMPTS + 1;
    arrivals.iter().filter(replay).any(|arrival| arrival.status.is_success())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn arrival(temper: Temper, event: &str, attempt: u32, status: StatusCode) -> Arrival {
        let (event, event_type) = (event.to_owned(), "t".to_owned());
        Arrival { temper, event, event_type, attempt, status, fault: None }
    }

    fn delivery(event: &str, status: &str, reason: &str, attempts: u64) -> Delivery {
        let text = str::to_owned;
        Delivery {
            id: text("dlv"),
            event: text(event),
            event_type: text("t"),
            status: text(status),
            reason: text(reason),
            attempts,
        }
    }

    /// A demo in which all went well.
    fn seen() -> (Seen, Vec<Delivery>) {
        let (ok, error) = (StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR);
        let arrivals = vec![
            arrival(Temper::Flaky, "a", 1, error),
            arrival(Temper::Flaky, "a", 2, ok),
            arrival(Temper::Broken, "b", 1, error),
            arrival(Temper::Broken, "b", 2, error),
            arrival(Temper::Broken, "b", 3, error),
            arrival(Temper::Broken, "b", 4, ok),
        ];
        let dead = vec![delivery("b", "dead", "exhausted", 3)];
        let seen = Seen { accepted: 2, duplicates: 1, arrivals, dead, replays: 1 };
        let ended = vec![delivery("a", "delivered", "", 2), delivery("b", "delivered", "", 4)];
        (seen, ended)
    }

    fn missing(change: impl FnOnce(&mut Seen, &mut Vec<Delivery>)) -> Vec<&'static str> {
        let (mut seen, mut deliveries) = seen();
        change(&mut seen, &mut deliveries);
        let summary = Summary::new(seen, &deliveries);
        let missing: Vec<_> =
            summary.checks.iter().filter(|(_, seen)| !seen).map(|(what, _)| *what).collect();
        assert_eq!(summary.is_complete(), missing.is_empty());
        missing
    }

    #[test]
    fn only_what_was_seen_counts() {
        assert_eq!(missing(|_, _| {}), [""; 0]);
        let one = |change: fn(&mut Seen, &mut Vec<Delivery>)| {
            let missing = missing(change);
            assert_eq!(missing.len(), 1, "{missing:?}");
            missing[0]
        };
        let faulty = one(|seen, _| seen.arrivals[0].fault = Some("stale".into()));
        assert!(faulty.contains("signed"));
        assert!(one(|seen, _| seen.duplicates = 0).contains("source event ID"));
        assert!(one(|seen, _| drop(seen.arrivals.remove(1))).contains("tried again"));
        assert!(one(|seen, _| seen.dead[0].reason = "interrupted".into()).contains("schedule"));
        assert!(one(|seen, _| drop(seen.arrivals.pop())).contains("replay"));
        assert!(one(|_, all| all[0].status = "due".into()).contains("in the end"));
    }

    #[test]
    fn a_summary_for_scripts() {
        let (seen, deliveries) = seen();
        let json = Summary::new(seen, &deliveries).as_json();
        assert_eq!(json["ok"], true);
        assert_eq!((&json["retries"], &json["delivered"]), (&json!(3), &json!(2)));
    }
}
