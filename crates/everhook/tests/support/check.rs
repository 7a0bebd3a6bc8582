//! The judge: compares what was answered 2xx, what arrived and what the API tells.
//!
//! An endpoint's answers are fixed, so the whole history of every delivery can be foretold: how
//! many numbered attempts it has, what each came to, and how it ends. A request more than that is
//! right only if a kill cut off the one before it.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use everhook_domain::time::Timestamp;

use super::api::{Attempt, Delivery};
use super::load::Accepted;
use super::receiver::{Arrival, Arrivals, Target};
use super::server::{LEASE, SCHEDULE_MS};

/// What was answered longer than a lease before a kill was not on the wire any more. Its result
/// waited 10 ms for company; the rest is for a machine with other things to do.
const RECORDED_WITHIN: Duration = LEASE;
/// A delivery that was interrupted so often is tried alone, which takes longer than a lease.
pub(crate) const SUSPECT_FROM: u32 = 3;
/// A delivery that was interrupted so often in a round is dead.
const INTERRUPTIONS_MAX: u32 = 20;

/// What kind of promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Broken {
    /// Accepted, and not delivered.
    Lost,
    /// One source event ID, two events.
    Doubled,
    /// Neither delivered nor dead when it should be.
    Unfinished,
    /// Sent again although it was not on the wire when the process died.
    Repeated,
    /// Sent more often than its attempts and interruptions say.
    Uncounted,
    /// Id or bytes are not the same on all attempts.
    Changed,
    /// Attempt numbers are not 1, 2, 3 to at most the length of the schedule.
    Numbers,
    /// An attempt before its time.
    Early,
    /// Recovered later than one lease after the restart.
    Late,
    /// Something is told that was not so.
    Wrong,
    /// The server does not start on what it finds.
    Unusable,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// Which.
    pub(crate) broken: Broken,
    /// By what.
    pub(crate) what: String,
}

impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.broken, self.what)
    }
}

/// A process from its start to its death.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// When it was ready, if it ever was.
    pub(crate) ready: Option<Instant>,
    /// When it was seen to be dead.
    pub(crate) died: Option<Instant>,
}

/// What is compared.
pub(crate) struct Evidence<'a> {
    /// What was answered 2xx.
    pub(crate) accepted: &'a [Accepted],
    /// What the receiver saw, from the beginning.
    pub(crate) arrivals: &'a Arrivals,
    /// What the API tells of the deliveries in question, with their attempts.
    pub(crate) deliveries: &'a [(Delivery, Target)],
    /// Every process, by its number.
    pub(crate) lives: &'a [Life],
}

/// A delivery, by its event and its target.
type Key<'a> = (&'a str, Target);

/// Everything that is wrong.
pub(crate) fn violations(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut judge = Judge { evidence, found: Vec::new() };
    let known: HashMap<Key<'_>, &Delivery> =
        evidence.deliveries.iter().map(|(d, target)| ((d.event_id.as_str(), *target), d)).collect();
    let mut accepted_in = HashMap::new();
    for accepted in evidence.accepted {
        judge.accepted(accepted, &known);
        for target in accepted.planned.sort.targets() {
            accepted_in.insert((accepted.event.as_str(), *target), accepted.life);
        }
    }
    judge.one_event_each();
    for (delivery, target) in evidence.deliveries {
        let key = (delivery.event_id.clone(), *target);
        let arrivals = evidence.arrivals.get(&key).map_or(&[][..], Vec::as_slice);
        let case = Case { delivery, target: *target, arrivals };
        judge.end(&case);
        judge.attempts(&case);
        judge.requests(&case);
        judge.repeats(&case);
        let accepted_in = accepted_in.get(&(delivery.event_id.as_str(), *target)).copied();
        judge.recovery(&case, accepted_in);
    }
    judge.found
}

/// One delivery and what arrived for it.
struct Case<'a> {
    delivery: &'a Delivery,
    target: Target,
    arrivals: &'a [Arrival],
}

impl Case<'_> {
    fn foretold(&self) -> Foretold {
        let last = u32::try_from(SCHEDULE_MS.len()).expect("seven");
        if self.target == Target::Fatal {
            // The first attempt never comes to a result.
            return Foretold { attempts: 0, numbers: 1, end: ("dead", Some("interrupted")) };
        }
        let event = &self.delivery.event_id;
        let success = (1..=last).find(|number| is_success(self.target.status(event, *number)));
        match success {
            Some(number) => {
                Foretold { attempts: number, numbers: number, end: ("delivered", None) }
            }
            None => Foretold { attempts: last, numbers: last, end: ("dead", Some("exhausted")) },
        }
    }
}

/// What must become of a delivery.
struct Foretold {
    /// Its numbered attempts.
    attempts: u32,
    /// The numbers on the wire: one more where the last attempt never came to a result.
    numbers: u32,
    /// Status and reason.
    end: (&'static str, Option<&'static str>),
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Delivery { id, status, attempt_count, interruptions, .. } = self.delivery;
        let wire: Vec<_> =
            self.arrivals.iter().map(|a| format!("{}@{}", a.number, a.life)).collect();
        write!(
            f,
            "{id} to {:?} ({status}, attempts {attempt_count}, interruptions {interruptions}, \
             number@life on the wire {wire:?})",
            self.target
        )
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

struct Judge<'a> {
    evidence: &'a Evidence<'a>,
    found: Vec<Violation>,
}

impl Judge<'_> {
    fn note(&mut self, broken: Broken, what: impl Into<String>) {
        self.found.push(Violation { broken, what: what.into() });
    }

    /// What was promised with the 2xx is there.
    fn accepted(&mut self, accepted: &Accepted, known: &HashMap<Key<'_>, &Delivery>) {
        let Accepted { planned, event, deliveries, life } = accepted;
        let targets = planned.sort.targets();
        if *deliveries != targets.len() {
            let expected = targets.len();
            self.note(Broken::Wrong, format!("{event}: {deliveries} deliveries, not {expected}"));
        }
        for target in targets {
            if !known.contains_key(&(event.as_str(), *target)) {
                let what = format!(
                    "{} was accepted as {event} in life {life} and has no delivery to {target:?}",
                    planned.source_id
                );
                self.note(Broken::Lost, what);
            }
        }
    }

    /// A source event ID has one event, in the answers and at the receiver; its bytes are the
    /// publisher's, the same every time.
    fn one_event_each(&mut self) {
        let mut events: HashMap<String, &str> = HashMap::new();
        let mut bytes: HashMap<&str, &[u8]> = HashMap::new();
        for accepted in self.evidence.accepted {
            let event = accepted.event.as_str();
            let first = *events.entry(accepted.planned.source_id.clone()).or_insert(event);
            if first != event {
                self.note(Broken::Doubled, format!("{first} and {event} are one"));
            }
        }
        for ((event, _), arrivals) in self.evidence.arrivals {
            for arrival in arrivals {
                let first = *bytes.entry(event).or_insert(&arrival.body);
                if first != &*arrival.body || !arrival.ids_agree {
                    let body = String::from_utf8_lossy(&arrival.body);
                    self.note(Broken::Changed, format!("{event} came as {body}"));
                }
            }
        }
        for (event, body) in &bytes {
            let body = String::from_utf8_lossy(body);
            let Some(source_id) = body.split(r#""source":""#).nth(1) else { continue };
            let source_id = source_id.split('"').next().unwrap_or_default();
            if *events.entry(source_id.to_owned()).or_insert(event) != *event {
                self.note(Broken::Doubled, format!("{source_id} came as {event} too"));
            }
        }
        for accepted in self.evidence.accepted {
            let Some(body) = bytes.get(accepted.event.as_str()) else { continue };
            if !accepted.planned.is_brought_by(&String::from_utf8_lossy(body)) {
                self.note(
                    Broken::Changed,
                    format!("{}: not the publisher's bytes", accepted.event),
                );
            }
        }
    }

    /// It has ended, and as it must.
    fn end(&mut self, case: &Case<'_>) {
        let Foretold { attempts, end, .. } = case.foretold();
        let Delivery { status, reason, attempt_count, interruptions, .. } = case.delivery;
        if !case.delivery.has_ended() {
            return self.note(Broken::Unfinished, case.to_string());
        }
        if (status.as_str(), reason.as_deref()) != end {
            self.note(Broken::Wrong, format!("must end as {end:?}: {case}"));
        }
        if reason.as_deref() == Some("interrupted") && *interruptions != INTERRUPTIONS_MAX {
            self.note(Broken::Wrong, format!("dead after so few interruptions: {case}"));
        }
        let arrived = case.arrivals.iter().any(|arrival| {
            let status = case.target.status(&case.delivery.event_id, arrival.number);
            arrival.answered_at.is_some() && is_success(status)
        });
        if end.0 == "delivered" && !arrived {
            self.note(Broken::Lost, format!("it never arrived: {case}"));
        }
        if *attempt_count != attempts {
            self.note(Broken::Numbers, format!("{attempts} attempts are right: {case}"));
        }
    }

    /// Its numbered attempts are 1, 2, 3, each with the answer that was given, none too early.
    fn attempts(&mut self, case: &Case<'_>) {
        let Delivery { attempts, attempt_count, round, event_id, .. } = case.delivery;
        let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.number).collect();
        let right: Vec<_> = (1..=*attempt_count).collect();
        if numbers != right || right.len() > SCHEDULE_MS.len() || *round != 1 {
            self.note(Broken::Numbers, format!("attempts {numbers:?}, round {round}: {case}"));
        }
        for attempt in attempts {
            let answer = case.target.status(event_id, attempt.number);
            if attempt.status_code != Some(answer) {
                self.note(Broken::Wrong, format!("{attempt:?} was answered {answer}: {case}"));
            }
        }
        let started = |attempt: &Attempt| Timestamp::parse(&attempt.started_at).expect("RFC 3339");
        let Some(first) = attempts.first().map(started) else { return };
        for (attempt, offset) in attempts.iter().zip(SCHEDULE_MS) {
            if started(attempt) < first + Duration::from_millis(offset) {
                self.note(Broken::Early, format!("{attempt:?}: {case}"));
            }
        }
    }

    /// Each request belongs to a numbered attempt or to an interruption, in order.
    fn requests(&mut self, case: &Case<'_>) {
        let Delivery { attempt_count, interruptions, .. } = case.delivery;
        let numbers: Vec<_> = case.arrivals.iter().map(|arrival| arrival.number).collect();
        let mut distinct = numbers.clone();
        distinct.dedup();
        if distinct != (1..=case.foretold().numbers).collect::<Vec<_>>() {
            self.note(Broken::Numbers, format!("on the wire: {case}"));
        }
        if numbers.len() > (attempt_count + interruptions) as usize {
            self.note(Broken::Uncounted, case.to_string());
        }
    }

    /// A request is repeated only if a kill cut off the one before, and never beside it.
    fn repeats(&mut self, case: &Case<'_>) {
        for pair in case.arrivals.windows(2) {
            let [first, second] = pair else { continue };
            let died = self.evidence.lives[first.life].died;
            let killed = died.filter(|_| first.life < second.life);
            let right = match (first.answered_at, killed) {
                (None, killed) => killed.is_some(),
                (Some(answered), Some(died)) => {
                    first.number < second.number || answered + RECORDED_WITHIN >= died
                }
                (Some(answered), None) => first.number < second.number && answered <= second.at,
            };
            if !right {
                let when = died.map(|died| died.saturating_duration_since(first.at));
                self.note(Broken::Repeated, format!("the first {when:?} before a kill: {case}"));
            }
        }
    }

    /// What a kill cut off, or kept from starting, goes on within one lease of the restart.
    fn recovery(&mut self, case: &Case<'_>, accepted_in: Option<usize>) {
        if case.delivery.interruptions >= SUSPECT_FROM {
            return;
        }
        let begun = accepted_in.zip(case.arrivals.first());
        let cut_off = case.arrivals.windows(2).filter_map(|pair| match pair {
            [first, second] if first.number == second.number => Some((first.life, second)),
            _ => None,
        });
        for (life, next) in begun.into_iter().chain(cut_off) {
            if let Some(deadline) = self.recovered_by(life, next.life)
                && next.at > deadline
            {
                let late = next.at - deadline;
                self.note(Broken::Late, format!("{late:?} later than a lease: {case}"));
            }
        }
    }

    /// One lease after the first restart after `life` that held so long. `None` without a restart.
    fn recovered_by(&self, life: usize, next: usize) -> Option<Instant> {
        self.evidence.lives.get(life + 1..=next)?.iter().find_map(|life| {
            let deadline = life.ready? + LEASE;
            life.died.is_none_or(|died| died >= deadline).then_some(deadline)
        })
    }
}

/// The requests that were repeated: how many, and the longest time between the answer to one and
/// the death that kept its result from the disk.
pub(crate) fn repeats(arrivals: &Arrivals, lives: &[Life]) -> (usize, Duration) {
    let pairs = arrivals.values().flat_map(|arrivals| arrivals.windows(2));
    let repeated = pairs.filter(|pair| pair[0].number == pair[1].number);
    let unrecorded = repeated.map(|pair| {
        let died = lives[pair[0].life].died.zip(pair[0].answered_at);
        died.map_or(Duration::ZERO, |(died, answered)| died.saturating_duration_since(answered))
    });
    unrecorded.fold((0, Duration::ZERO), |(count, longest), one| (count + 1, longest.max(one)))
}

/// A few of many violations, for a message.
pub(crate) fn some(violations: &[Violation]) -> String {
    let shown: Vec<_> = violations.iter().take(12).map(|v| format!("  {v:?}")).collect();
    format!("{} broken promises:\n{}", violations.len(), shown.join("\n"))
}
