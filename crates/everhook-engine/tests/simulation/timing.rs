//! When attempts start: never before the promised offset, and at it when nothing is in the way.
//!
//! Due times are computed here anew, from what the receivers saw: the start of a round's first
//! attempt is its anchor, lateness over a minute shifts what follows, and two attempts are at least
//! as far apart as their offsets, up to a minute.

use everhook_domain::attempt::Trigger;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::health::FAILING_FROM;
use everhook_domain::id::EndpointId;
use everhook_domain::time::millis;

use crate::book::{Book, Deed, Request};
use crate::delivery::{Case, Matched};
use crate::world::World;

/// How late an attempt may start when nothing is in the way.
const LATE_MAX_MS: i64 = 250;
/// Lateness up to this much shifts nothing; and the least gap between attempts, if offsets allow.
const MINUTE_MS: i64 = 60_000;
/// The most that an answer may move an attempt.
const RETRY_AFTER_MAX_MS: i64 = 3_600_000;
/// How long recording a failure may take when commits fail.
const RECORDING_MAX_MS: i64 = 90_000;
/// How long what an endpoint that fails comes to waits for others of its kind.
const PATIENCE_MS: i64 = 100;
/// Interrupted so often, a delivery is tried alone, and others wait for it.
const SUSPECT_FROM: usize = 3;
/// A lane that fails may hold one in so many of its slots, or begin one in so many milliseconds.
const FAILING_PART: usize = 4;
const FAILING_PACE_MS: i64 = 11;

/// What kept attempts from starting, besides their own time.
pub(crate) struct Disturbances {
    everywhere: Vec<(i64, i64)>,
    /// From then on some delivery may be a suspect.
    suspects_from_ms: Option<i64>,
    lanes: Vec<(EndpointId, Lane)>,
}

#[derive(Default)]
struct Lane {
    /// Paused, disabled, or all its slots taken.
    closed: Vec<(i64, i64)>,
    /// When requests started.
    starts: Vec<i64>,
}

impl Disturbances {
    /// What the book holds.
    pub(crate) fn of(world: &World, book: &Book) -> Self {
        let mut everywhere = book.disturbances.clone();
        everywhere.sort_unstable();
        let crashes = book.ends.iter().flatten().filter(|end| !end.clean);
        let third = crashes.map(|end| end.order).nth(SUSPECT_FROM - 1);
        let suspects_from_ms = third.map(|order| {
            let later = book.requests.iter().filter(|request| request.order >= order);
            later.map(|request| request.at_ms).min().unwrap_or(i64::MAX)
        });
        let ids = book.endpoints.iter().filter_map(|endpoint| endpoint.id);
        let lanes = ids.map(|id| (id, lane(world, book, id))).collect();
        Self { everywhere, suspects_from_ms, lanes }
    }

    /// Until when an attempt may start that is due at `due_ms`, if nothing new gets in the way.
    fn latest(&self, endpoint: EndpointId, due_ms: i64) -> i64 {
        let lane = self.lanes.iter().find(|(id, _)| *id == endpoint).map(|(_, lane)| lane);
        let closed = lane.map_or(&[][..], |lane| &lane.closed);
        let mut from = due_ms;
        loop {
            let mut latest = from.saturating_add(LATE_MAX_MS);
            if let Some(lane) = lane {
                let others = lane.starts.iter().filter(|at| (from..=latest).contains(at)).count();
                let pace_ms = FAILING_PACE_MS * i64::try_from(others).unwrap_or(0);
                latest = latest.saturating_add(pace_ms);
            }
            let in_the_way = self.everywhere.iter().chain(closed);
            let until = in_the_way
                .filter(|(begin, end)| *begin <= latest && *end > from)
                .map(|(_, end)| *end)
                .max();
            match until {
                Some(until) => from = until,
                None => return latest,
            }
        }
    }
}

fn lane(world: &World, book: &Book, id: EndpointId) -> Lane {
    let mut closed = Vec::new();
    let Some(index) = book.index_of(id) else { return Lane::default() };
    let states = &book.endpoints[index].states;
    for (place, (_, from, state)) in states.iter().enumerate() {
        if *state != EndpointState::Enabled {
            let until = states.get(place + 1).map_or(i64::MAX, |(_, until, _)| *until);
            closed.push((*from, until));
        }
    }
    let requests: Vec<&Request> = book.requests.iter().filter(|sent| sent.endpoint == id).collect();
    let limit = world.profile.receivers[index].in_flight.unwrap_or(u32::MAX);
    let limit = limit.min(world.profile.settings.endpoint_in_flight_max) as usize;
    closed.extend(full(&requests, limit));
    Lane { closed, starts: requests.iter().map(|request| request.at_ms).collect() }
}

/// How long it may take until a failure is recorded, which may need several tries.
fn recording_max(case: &Case<'_>) -> i64 {
    let tries_ms = if case.book.disturbances.is_empty() { 0 } else { RECORDING_MAX_MS };
    tries_ms + case.world.profile.store_ms + PATIENCE_MS
}

/// When all slots of a lane were taken, or, while it failed, a part of them.
fn full(requests: &[&Request], limit: usize) -> Vec<(i64, i64)> {
    let mut moments: Vec<(u64, i64, isize, Option<bool>)> = Vec::new();
    for request in requests {
        moments.push((request.order, request.at_ms, 1, None));
        if let Some(end) = &request.end {
            moments.push((end.order, end.at_ms, -1, end.success()));
        }
    }
    moments.sort_unstable();
    let (mut taken, mut failures, mut since) = (0_usize, 0, None);
    let mut spans = Vec::new();
    for (_, at_ms, change, success) in moments {
        taken = taken.saturating_add_signed(change);
        if let Some(success) = success {
            failures = if success { 0 } else { failures + 1 };
        }
        let part = if failures >= FAILING_FROM { FAILING_PART } else { 1 };
        let is_full = taken >= (limit / part).max(1);
        match (since, is_full) {
            (None, true) => since = Some(at_ms),
            (Some(from), false) => {
                spans.push((from, at_ms));
                since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }
    spans
}

/// Checks when a delivery's requests started.
pub(crate) fn check(
    case: &Case<'_>,
    matched: &Matched,
    disturbances: &Disturbances,
) -> Result<(), String> {
    let mut round = Round::default();
    let mut before: Option<&Request> = None;
    for (attempt, place) in case.detail.attempts.iter().zip(&matched.0) {
        let request = case.sent[*place];
        if attempt.round != round.number {
            round = Round { number: attempt.round, ..Round::default() };
        }
        let due = round.due(case, attempt.trigger, request, before)?;
        // The first request of this number, which may have been interrupted, started at its time.
        let same = case.sent.iter().filter(|sent| sent.number == attempt.number && !sent.zombie);
        for sent in same.clone() {
            due.check_not_early(case, sent)?;
        }
        if let Some(first) = same.min_by_key(|sent| sent.order) {
            due.check_in_time(case, first, disturbances)?;
        }
        round.take(&due, request);
        before = Some(request);
    }
    Ok(())
}

/// A round as far as it is known.
#[derive(Default)]
struct Round {
    number: u32,
    step: usize,
    /// Start of the first attempt: steady, and virtual milliseconds.
    anchor: Option<(i64, i64)>,
    last: Option<(i64, i64)>,
    /// How far lateness has shifted the rest: at least, and at most.
    shift_ms: (i64, i64),
}

/// When an attempt may start.
struct Due {
    /// Not before this, by the steady clock.
    steady_ms: i64,
    /// Not before this, by the clock that nobody sets.
    virtual_ms: i64,
    /// Due at this at the latest, in virtual milliseconds.
    latest_ms: i64,
    /// The least and the most that it can be called late by, from its start.
    base_ms: (i64, i64),
}

impl Round {
    fn due(
        &self,
        case: &Case<'_>,
        trigger: Trigger,
        request: &Request,
        before: Option<&Request>,
    ) -> Result<Due, String> {
        let ended_ms =
            before.and_then(|before| before.end.as_ref()).map_or(i64::MIN, |end| end.at_ms);
        let created = case.detail.record.created_at.as_millis();
        match (trigger, self.anchor) {
            (Trigger::Schedule, Some(anchor)) => self.scheduled(case, anchor, before, ended_ms),
            (Trigger::Schedule | Trigger::Test, None) if self.number == 1 => {
                // Steady and virtual time differ by a constant where being in time is checked.
                let offset_ms = request.steady.as_millis() - request.at_ms;
                Ok(Due {
                    steady_ms: i64::MIN,
                    virtual_ms: i64::MIN,
                    latest_ms: created - offset_ms,
                    base_ms: (created, created),
                })
            }
            (Trigger::Schedule | Trigger::Test, _) => {
                Err(format!("#{} begins round {} by {trigger:?}", request.number, self.number))
            }
            (Trigger::Replay, _) => {
                let acts = case.acts(Deed::Replay).filter(|act| act.from < request.order);
                let last = acts.max_by_key(|act| act.to);
                let last = last.ok_or_else(|| format!("#{} before any replay", request.number))?;
                let earliest = before.map_or(created, |before| before.steady.as_millis());
                let latest = before
                    .and_then(|before| before.end.as_ref())
                    .map_or(0, |end| end.steady.as_millis() + recording_max(case))
                    .max(last.to_steady.as_millis());
                Ok(Due {
                    steady_ms: i64::MIN,
                    virtual_ms: i64::MIN,
                    latest_ms: last.to_ms.max(ended_ms),
                    base_ms: (latest, earliest),
                })
            }
        }
    }

    fn scheduled(
        &self,
        case: &Case<'_>,
        anchor: (i64, i64),
        before: Option<&Request>,
        ended_ms: i64,
    ) -> Result<Due, String> {
        let offsets = case.world.profile.policy.schedule.offsets();
        let (Some(offset), Some(last)) = (offsets.get(self.step), self.last) else {
            return Err(format!("more attempts than offsets in round {}", self.number));
        };
        let offset_ms = millis(*offset);
        let gap_ms = offset_ms - self.step.checked_sub(1).map_or(0, |step| millis(offsets[step]));
        let gap_ms = gap_ms.min(MINUTE_MS);
        let at =
            |anchor: i64, last: i64, shift: i64| (anchor + shift + offset_ms).max(last + gap_ms);
        let (least, most) = self.shift_ms;
        let mut steady_ms = at(anchor.0, last.0, least);
        let mut virtual_ms = at(anchor.1, last.1, least);
        let mut latest_ms = at(anchor.1, last.1, most).max(ended_ms);
        let mut latest_steady_ms = at(anchor.0, last.0, most);
        let end = before.and_then(|before| before.end.as_ref());
        let asked = end.and_then(|end| Some((end, millis(end.outcome.as_ref()?.retry_after?))));
        if let Some((end, wait_ms)) = asked.filter(|_| case.world.profile.policy.honor_retry_after)
        {
            let moved = |due: i64, end: i64| due.max((end + wait_ms).min(due + RETRY_AFTER_MAX_MS));
            steady_ms = moved(steady_ms, end.steady.as_millis());
            // Pulled back at start to the longest gap, because the clock was ahead, it comes by the
            // schedule and not by what the answer asked for.
            if case.world.profile.back_ms == 0 {
                virtual_ms = moved(virtual_ms, end.at_ms);
            }
            // Counted from when the failure was recorded.
            let recording_ms = recording_max(case);
            latest_ms = moved(latest_ms, end.at_ms + recording_ms);
            latest_steady_ms = moved(latest_steady_ms, end.steady.as_millis() + recording_ms);
        }
        Ok(Due { steady_ms, virtual_ms, latest_ms, base_ms: (latest_steady_ms, steady_ms) })
    }

    fn take(&mut self, due: &Due, request: &Request) {
        let start = (request.steady.as_millis(), request.at_ms);
        if self.anchor.is_some() {
            let late =
                |base: i64| Some(start.0 - base).filter(|late| *late > MINUTE_MS).unwrap_or(0);
            self.shift_ms.0 += late(due.base_ms.0);
            self.shift_ms.1 += late(due.base_ms.1);
        }
        self.anchor.get_or_insert(start);
        self.last = Some(start);
        self.step += 1;
    }
}

impl Due {
    fn check_not_early(&self, case: &Case<'_>, sent: &Request) -> Result<(), String> {
        // A clock set back, and read by a new process, shows less time than has passed; one set
        // forward shows more.
        let steady_early = self.steady_ms.saturating_sub(sent.steady.as_millis());
        let virtual_early = self.virtual_ms.saturating_sub(sent.at_ms);
        // At start, what is further off than the longest gap is pulled back when a clock was ahead,
        // and a replay may have left it further off than that.
        let profile = &case.world.profile;
        let pulled = profile.back_ms > 0 && case.acts(Deed::Replay).next().is_some();
        if steady_early > 0 && virtual_early > profile.forward_ms && !pulled {
            return Err(format!("#{} started {steady_early} ms early", sent.number));
        }
        Ok(())
    }

    fn check_in_time(
        &self,
        case: &Case<'_>,
        sent: &Request,
        disturbances: &Disturbances,
    ) -> Result<(), String> {
        let index = case.book.index_of(case.endpoint()).unwrap_or_default();
        let suspicious = disturbances.suspects_from_ms.is_some_and(|from| sent.at_ms >= from);
        if !case.world.profile.timely || case.book.endpoints[index].paced || suspicious {
            return Ok(());
        }
        let latest_ms = disturbances.latest(case.endpoint(), self.latest_ms);
        if sent.at_ms > latest_ms {
            let late_ms = sent.at_ms - self.latest_ms;
            return Err(format!("#{} started {late_ms} ms late", sent.number));
        }
        Ok(())
    }
}
