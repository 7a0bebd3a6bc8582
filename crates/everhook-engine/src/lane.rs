//! A lane: everything that waits for, or is on its way to, one endpoint.
//!
//! Three queues feed it: deliveries handed over, those in the table that were never tried, and
//! those that were. The lane takes from them in turns, so none of them stands before another. What
//! is leased but not begun is held here; how much waits in the table is not known, only since when.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::health::Health;
use everhook_domain::time::Timestamp;
use everhook_store::{LaneDue, LeasedDelivery, Permit, Share};

use crate::pace::Pace;
use crate::room::{Begun, Gate, Room};
use crate::slots::Slots;

/// A paced lane claims what it can start within this time, so that claims stay few.
const CLAIM_AHEAD: Duration = Duration::from_millis(100);
/// How many are claimed first; doubles while claims come back full.
const APPETITE_FIRST: u32 = 4;
/// Attempts that take longer on average make a lane slow: waiting for its room is not worth it.
const SLOW: Duration = Duration::from_millis(100);
/// A failing lane may hold this part of the slots that it may hold otherwise.
const FAILING_PART: u32 = 4;

/// What a lane takes from, in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Handed,
    Fresh,
    Retry,
}

const QUEUES: [Queue; 3] = [Queue::Handed, Queue::Fresh, Queue::Retry];

/// What is set for the endpoint, with the installation's limits applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Whether it takes requests now: enabled, not paused.
    pub(crate) open: bool,
    /// Attempts under way at most.
    pub(crate) slots: u32,
    /// Attempts begun in a second at most.
    pub(crate) per_second: Option<u32>,
    /// As above while it fails.
    pub(crate) failing_per_second: u32,
    /// Handed-over deliveries that may wait.
    pub(crate) handoff: u32,
}

/// A delivery that begins now, with what is given back when it ends.
#[derive(Debug)]
pub(crate) struct Starting {
    /// The delivery.
    pub(crate) delivery: LeasedDelivery,
    /// The place it had in its lane's room, if it was handed over.
    pub(crate) place: Option<(Permit, Begun)>,
}

/// What a lane does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Begin this one.
    Start(Box<Starting>),
    /// A slot was set aside for a claim.
    Asked,
    /// Nothing before that.
    Wait(Timestamp),
    /// All slots that it may have are taken: its next end goes on.
    Full,
    /// Others hold too many slots: any end may go on.
    Starved,
    /// Nothing to do.
    Idle,
}

/// The part of a lane that lies in the table, one share.
#[derive(Debug, Default)]
struct Shelf {
    due: Option<Timestamp>,
    /// Slots set aside for the next claim.
    asked: u32,
    /// Slots set aside for the claim under way.
    claiming: u32,
    /// Leased, not begun.
    ready: VecDeque<LeasedDelivery>,
}

impl Shelf {
    fn held(&self) -> usize {
        self.ready.len() + self.asked as usize + self.claiming as usize
    }
}

/// One endpoint's lane.
#[derive(Debug)]
pub(crate) struct Lane {
    room: Arc<Room>,
    limits: Limits,
    pace: Option<Pace>,
    health: Health,
    /// Smoothed length of an attempt.
    length: Duration,
    handed: VecDeque<(LeasedDelivery, Permit)>,
    fresh: Shelf,
    retry: Shelf,
    suspect_due: Option<Timestamp>,
    started: usize,
    /// What those weigh that were claimed and have not ended.
    claimed_bytes: usize,
    appetite: u32,
    turn: usize,
    hold_until: Option<Timestamp>,
}

impl Lane {
    /// A lane that nothing is known of.
    pub(crate) fn new(room: Arc<Room>, limits: Limits) -> Self {
        Self {
            room,
            limits,
            pace: limits.per_second.map(Pace::new),
            health: Health::default(),
            length: Duration::ZERO,
            handed: VecDeque::new(),
            fresh: Shelf::default(),
            retry: Shelf::default(),
            suspect_due: None,
            started: 0,
            claimed_bytes: 0,
            appetite: APPETITE_FIRST,
            turn: 0,
            hold_until: None,
        }
    }

    /// Whether it takes requests.
    pub(crate) const fn is_open(&self) -> bool {
        self.limits.open
    }

    /// Whether its last attempts failed.
    pub(crate) const fn is_failing(&self) -> bool {
        self.health.is_failing()
    }

    /// Slots that it holds: begun, leased or set aside.
    pub(crate) fn held(&self) -> usize {
        self.started + self.fresh.held() + self.retry.held()
    }

    /// What those weigh that were claimed and have not ended.
    pub(crate) const fn claimed_bytes(&self) -> usize {
        self.claimed_bytes
    }

    /// When its earliest suspect is due.
    pub(crate) const fn suspect_due(&self) -> Option<Timestamp> {
        self.suspect_due
    }

    /// From when on its earliest suspect may begin; `None` while all slots that it may have are
    /// taken. `others` are the slots that other lanes hold.
    pub(crate) fn suspect_from(&self, others: &Slots, now: Timestamp) -> Option<Timestamp> {
        let due = self.suspect_due.filter(|_| self.limits.open && self.has_slot(others))?;
        let paced_until = self.pace.and_then(|pace| pace.blocked(now));
        [Some(due), paced_until, self.hold_until].into_iter().flatten().max()
    }

    /// Whether nothing waits in it and nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.held() == 0
            && self.handed.is_empty()
            && self.suspect_due.is_none()
            && self.fresh.due.is_none()
            && self.retry.due.is_none()
    }

    /// Applies what is set for the endpoint.
    pub(crate) fn limit(&mut self, limits: Limits) {
        self.limits = limits;
        self.set_pace();
    }

    /// Something is due at `at`.
    pub(crate) fn hint(&mut self, share: Share, at: Timestamp) {
        let due = match share {
            Share::Fresh => &mut self.fresh.due,
            Share::Retry => &mut self.retry.due,
            Share::Suspect => &mut self.suspect_due,
        };
        *due = Some(due.map_or(at, |due| due.min(at)));
    }

    /// What the table says is due; `None`: nothing.
    pub(crate) fn set_due(&mut self, due: Option<LaneDue>) {
        self.fresh.due = due.and_then(|due| due.fresh);
        self.retry.due = due.and_then(|due| due.retry);
        self.suspect_due = due.and_then(|due| due.suspect);
    }

    /// Takes a handed-over delivery; gives it back when there is no good place for it here.
    pub(crate) fn hand_over(
        &mut self,
        delivery: LeasedDelivery,
        permit: Permit,
        now: Timestamp,
    ) -> Option<LeasedDelivery> {
        let limit = self.gate(now).limit() as usize;
        if self.handed.len() >= limit {
            return Some(delivery);
        }
        self.handed.push_back((delivery, permit));
        None
    }

    /// Takes what a claim leased. A suspect begins at once.
    pub(crate) fn take_leased(
        &mut self,
        delivery: LeasedDelivery,
        now: Timestamp,
    ) -> Option<Starting> {
        self.claimed_bytes += delivery.body.len();
        match delivery.share {
            Share::Fresh => self.fresh.ready.push_back(delivery),
            Share::Retry => self.retry.ready.push_back(delivery),
            Share::Suspect => {
                self.note_start(now);
                return Some(Starting { delivery, place: None });
            }
        }
        None
    }

    /// What it does next at `now`. `others` are the slots that other lanes hold; `claims` says
    /// whether the store may be asked.
    pub(crate) fn next(&mut self, others: &Slots, claims: bool, now: Timestamp) -> Next {
        if !self.limits.open {
            return Next::Idle;
        }
        if let Some(until) = self.hold_until.filter(|until| now < *until) {
            return Next::Wait(until);
        }
        let paced_until = self.pace.and_then(|pace| pace.blocked(now));
        let (mut wants_slot, mut wants_pace) = (false, false);
        for step in 0..QUEUES.len() {
            let turn = (self.turn + step) % QUEUES.len();
            let queue = QUEUES[turn];
            let Some(work) = self.work_in(queue, claims, now) else { continue };
            // A suspect, or a lower limit, may have taken the place of what is leased already.
            let crowded = work.begins && self.started >= self.slots();
            if work.begins && paced_until.is_some() {
                wants_pace = true;
            } else if crowded || (work.needs_slot && !self.has_slot(others)) {
                wants_slot = true;
            } else {
                self.turn = turn + 1;
                return if work.begins { self.begin(queue, now) } else { self.ask(queue) };
            }
        }
        match paced_until.filter(|_| wants_pace) {
            Some(until) => Next::Wait(until),
            None if wants_slot && self.held() < self.slots() => Next::Starved,
            None if wants_slot => Next::Full,
            None => self.next_due(now).map_or(Next::Idle, Next::Wait),
        }
    }

    fn work_in(&self, queue: Queue, claims: bool, now: Timestamp) -> Option<Work> {
        let shelf = match queue {
            Queue::Handed if self.handed.is_empty() => return None,
            Queue::Handed => return Some(Work { begins: true, needs_slot: true }),
            Queue::Fresh => &self.fresh,
            Queue::Retry => &self.retry,
        };
        if !shelf.ready.is_empty() {
            return Some(Work { begins: true, needs_slot: false });
        }
        (claims && self.may_ask(shelf, now)).then_some(Work { begins: false, needs_slot: true })
    }

    fn begin(&mut self, queue: Queue, now: Timestamp) -> Next {
        let starting = match queue {
            Queue::Handed => self.handed.pop_front().map(|(delivery, permit)| {
                let begun = Arc::clone(&self.room).begin();
                Starting { delivery, place: Some((permit, begun)) }
            }),
            Queue::Fresh | Queue::Retry => {
                let ready = self.shelf(queue).ready.pop_front();
                ready.map(|delivery| Starting { delivery, place: None })
            }
        };
        let Some(starting) = starting else { return Next::Idle };
        self.note_start(now);
        Next::Start(Box::new(starting))
    }

    fn note_start(&mut self, now: Timestamp) {
        self.started += 1;
        self.room.note_start(now);
        if let Some(pace) = &mut self.pace {
            pace.begin(now);
        }
    }

    fn ask(&mut self, queue: Queue) -> Next {
        self.shelf(queue).asked += 1;
        Next::Asked
    }

    fn may_ask(&self, shelf: &Shelf, now: Timestamp) -> bool {
        let claiming = self.fresh.claiming + self.retry.claiming > 0;
        let ahead = self.pace.map_or(u32::MAX, |pace| pace.budget(CLAIM_AHEAD));
        !claiming
            && shelf.asked < self.appetite.min(ahead)
            && shelf.due.is_some_and(|due| due <= now)
    }

    fn has_slot(&self, others: &Slots) -> bool {
        self.held() < self.slots() && others.allow(self.held(), self.is_failing())
    }

    fn slots(&self) -> usize {
        let part = if self.is_failing() { FAILING_PART } else { 1 };
        (self.limits.slots / part).max(1) as usize
    }

    fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        // What is due already waits for a claim, whose answer goes on.
        let dues = [self.fresh.due, self.retry.due];
        dues.into_iter().flatten().filter(|due| now < *due).min()
    }

    /// What is to be claimed, fresh and retry; the slots stay set aside until the claim is
    /// answered.
    pub(crate) fn claim(&mut self) -> (u32, u32) {
        for shelf in [&mut self.fresh, &mut self.retry] {
            shelf.claiming = std::mem::take(&mut shelf.asked);
        }
        (self.fresh.claiming, self.retry.claiming)
    }

    /// The claim has been answered with so many deliveries, or not at all: its slots are free.
    pub(crate) fn claimed(&mut self, found: Option<u32>) {
        let asked = self.fresh.claiming + self.retry.claiming;
        (self.fresh.claiming, self.retry.claiming) = (0, 0);
        self.appetite = match found {
            Some(found) if found >= asked => (self.appetite * 2).min(self.limits.slots.max(1)),
            Some(_) | None => APPETITE_FIRST,
        };
    }

    /// Whether something that a claim could take is due.
    pub(crate) fn is_overdue(&self, now: Timestamp) -> bool {
        [self.fresh.due, self.retry.due].into_iter().flatten().any(|due| due <= now)
    }

    /// Whether it takes requests and something is due in its part of the table.
    pub(crate) fn is_waiting(&self, now: Timestamp) -> bool {
        let suspect = self.suspect_due.is_some_and(|due| due <= now);
        self.is_open() && (suspect || self.is_overdue(now))
    }

    /// Nothing begins here before `until`.
    pub(crate) fn hold(&mut self, until: Timestamp) {
        self.hold_until = Some(until);
    }

    /// One that had begun has ended: with an attempt of that result and length, or without. If it
    /// had been claimed, its bytes are free.
    pub(crate) fn ended(&mut self, attempt: Option<(bool, Duration)>, claimed_bytes: usize) {
        self.started = self.started.saturating_sub(1);
        self.claimed_bytes = self.claimed_bytes.saturating_sub(claimed_bytes);
        if let Some((success, length)) = attempt {
            self.length = (self.length * 7 + length) / 8;
            (self.health, _) = self.health.observe(success);
            self.room.set_failing(self.is_failing());
            self.set_pace();
        }
    }

    /// Gives up everything that has not begun, because it may not begin here for some time.
    pub(crate) fn empty(&mut self) -> Vec<LeasedDelivery> {
        (self.fresh.asked, self.retry.asked) = (0, 0);
        let ready = self.fresh.ready.drain(..).chain(self.retry.ready.drain(..));
        let mut given_up: Vec<_> = ready.collect();
        self.claimed_bytes -= given_up.iter().map(|delivery| delivery.body.len()).sum::<usize>();
        given_up.extend(self.empty_handed());
        given_up
    }

    /// Gives up what was handed over and has not begun.
    pub(crate) fn empty_handed(&mut self) -> Vec<LeasedDelivery> {
        self.handed.drain(..).map(|(delivery, _permit)| delivery).collect()
    }

    /// What the lane answers to offers now.
    pub(crate) fn gate(&self, now: Timestamp) -> Gate {
        let handoff = self.limits.handoff;
        if !self.limits.open || self.is_failing() || self.hold_until.is_some_and(|at| now < at) {
            return Gate::Closed;
        }
        match self.pace {
            // What waits in the table comes first: there will be no room here for long.
            Some(_) if self.fresh.due.is_some_and(|due| due <= now) => Gate::Closed,
            Some(pace) => Gate::Slow(pace.budget(CLAIM_AHEAD).min(handoff)),
            None if self.length > SLOW => Gate::Slow(handoff),
            None => Gate::Fast(handoff),
        }
    }

    /// Tells publishers what the lane answers now.
    pub(crate) fn set_gate(&self, now: Timestamp) {
        self.room.set(self.gate(now));
    }

    fn set_pace(&mut self) {
        let failing = self.is_failing().then_some(self.limits.failing_per_second);
        let per_second = [self.limits.per_second, failing].into_iter().flatten().min();
        self.pace = match (per_second, self.pace) {
            (None, _) => None,
            (Some(limit), Some(pace)) if pace.per_second() == limit => Some(pace),
            (Some(limit), Some(pace)) => Some(pace.limited_to(limit)),
            (Some(limit), None) => Some(Pace::new(limit)),
        };
    }

    fn shelf(&mut self, queue: Queue) -> &mut Shelf {
        if queue == Queue::Fresh { &mut self.fresh } else { &mut self.retry }
    }
}

/// What taking from a queue means.
#[derive(Clone, Copy, Debug)]
struct Work {
    /// An attempt begins; else a slot is set aside for a claim.
    begins: bool,
    /// It takes a slot that the lane does not hold yet.
    needs_slot: bool,
}

#[cfg(test)]
mod tests;
