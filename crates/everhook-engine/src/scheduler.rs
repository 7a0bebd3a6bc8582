//! Which delivery begins next: decisions only, no waiting, no I/O.
//!
//! Lanes that may have something to do stand in a ring and take turns, one attempt a turn. A lane
//! that must wait stands elsewhere: by time in the timer, or among the starved until any attempt
//! ends, or nowhere, until an event of its own brings it back. So a wake-up looks only at lanes
//! that something happened to, and the timer holds lanes, not deliveries.
//!
//! Everything here is a copy of what the table holds, plus what is leased to this process. A crash
//! loses it, and the next process reads it anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::budget::Budget;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Directory, LaneDue, LeasedDelivery, Permit, Settlement, SettlementResult, Share, Wanted,
};

use crate::intake::Intake;
use crate::lane::{Lane, Limits, Next, Starting};
use crate::settings::EngineSettings;
use crate::slots::Slots;
use crate::suspects::Suspects;
use crate::weights::Weights;

/// How long nothing is asked of a lane whose claim found nothing although something is due there.
const EMPTY_PAUSE: Duration = Duration::from_millis(100);

/// How a delivery that had begun has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its lane.
    pub(crate) endpoint: EndpointId,
    /// Which share of the lane it was in.
    pub(crate) share: Share,
    /// What it weighed, if it had been claimed.
    pub(crate) claimed_bytes: usize,
    /// Whether the attempt succeeded, and its length; `None`: there was none.
    pub(crate) attempt: Option<(bool, Duration)>,
    /// Nothing begins in the lane before that, because we failed there ourselves.
    pub(crate) hold_until: Option<Timestamp>,
}

/// A lane, and where it stands.
#[derive(Debug)]
struct Standing {
    lane: Lane,
    in_ring: bool,
    starved: bool,
    timer: Option<Timestamp>,
}

/// All lanes of this node.
pub(crate) struct Scheduler {
    settings: EngineSettings,
    intake: Arc<Intake>,
    directory: Arc<Directory>,
    lanes: BTreeMap<EndpointId, Standing>,
    ring: VecDeque<EndpointId>,
    starved: Vec<EndpointId>,
    timer: BTreeSet<(Timestamp, EndpointId)>,
    slots: Slots,
    weights: Weights,
    started: usize,
    suspects: Suspects,
    suspect_due: BTreeSet<(Timestamp, EndpointId)>,
    suspect_wanted: Option<EndpointId>,
    asking: BTreeSet<EndpointId>,
    /// The lanes that the claim under way asks for.
    claiming: Option<Vec<Wanted>>,
    /// Hints that came while the table was being asked: its answer may be older.
    late_hints: Option<Vec<(EndpointId, Share, Timestamp)>>,
    given_up: Vec<Settlement>,
}

impl Scheduler {
    /// No lanes yet.
    pub(crate) fn new(settings: &EngineSettings, intake: Arc<Intake>, now: Timestamp) -> Self {
        Self {
            slots: Slots::new(settings.in_flight_max),
            weights: Weights::new(settings.half_of_bytes()),
            settings: settings.clone(),
            intake,
            directory: Arc::default(),
            lanes: BTreeMap::new(),
            ring: VecDeque::new(),
            starved: Vec::new(),
            timer: BTreeSet::new(),
            started: 0,
            suspects: Suspects::new(now),
            suspect_due: BTreeSet::new(),
            suspect_wanted: None,
            asking: BTreeSet::new(),
            claiming: None,
            late_hints: None,
            given_up: Vec::new(),
        }
    }

    /// The endpoints may have changed: lanes open, close and change their limits.
    pub(crate) fn refresh(&mut self, directory: Arc<Directory>, now: Timestamp) {
        self.directory = directory;
        let ids: Vec<_> = self.lanes.keys().copied().collect();
        for id in ids {
            let limits = self.limits(id);
            self.update(id, now, |lane, given_up| {
                lane.limit(limits);
                if !limits.open {
                    given_up.append(&mut lane.empty());
                }
            });
        }
        let directory = Arc::clone(&self.directory);
        let known =
            |id| directory.endpoint(id).is_some_and(|ep| ep.state != EndpointState::Deleted);
        self.lanes.retain(|id, standing| known(*id) || !standing.lane.is_empty());
        self.intake.retain(known);
    }

    /// Something is due.
    pub(crate) fn hint(
        &mut self,
        endpoint: EndpointId,
        share: Share,
        at: Timestamp,
        now: Timestamp,
    ) {
        if let Some(late) = &mut self.late_hints {
            late.push((endpoint, share, at));
        }
        self.update(endpoint, now, |lane, _| lane.hint(share, at));
    }

    /// Deliveries were handed over, leased.
    pub(crate) fn hand_over(&mut self, handed: Vec<(LeasedDelivery, Permit)>, now: Timestamp) {
        for (delivery, permit) in handed {
            self.update(delivery.endpoint, now, |lane, given_up| {
                given_up.extend(lane.hand_over(delivery, permit, now));
            });
        }
    }

    /// The table is being asked for everything that is due.
    pub(crate) fn asking_all(&mut self) {
        self.late_hints.get_or_insert_default();
    }

    /// All that is due, by the table.
    pub(crate) fn all_due(&mut self, dues: Vec<LaneDue>, now: Timestamp) {
        let mut dues: BTreeMap<_, _> = dues.into_iter().map(|due| (due.endpoint, due)).collect();
        let ids: BTreeSet<_> = self.lanes.keys().chain(dues.keys()).copied().collect();
        for id in ids {
            let due = dues.remove(&id);
            self.update(id, now, |lane, _| lane.set_due(due));
        }
        self.apply_late_hints(now);
    }

    /// What begins now. `claims` says whether the store may be asked for more.
    pub(crate) fn decide(&mut self, claims: bool, now: Timestamp) -> Vec<Starting> {
        self.ring_due(now);
        self.look_at_suspects(claims, now);
        let mut starting = Vec::new();
        if self.suspects.holds_others(now) {
            return starting;
        }
        while let Some(id) = self.ring.pop_front() {
            let Some(standing) = self.lanes.get_mut(&id) else { continue };
            standing.in_ring = false;
            let lane = &mut standing.lane;
            self.slots.remove(lane.held(), lane.is_failing());
            let next = lane.next(&self.slots, claims && self.weights.may_ask(id), now);
            self.slots.add(lane.held(), lane.is_failing());
            match next {
                Next::Start(start) => {
                    self.started += 1;
                    starting.push(*start);
                    self.enter_ring(id);
                }
                Next::Asked => {
                    self.asking.insert(id);
                    self.enter_ring(id);
                }
                Next::Wait(at) => self.set_timer(id, at),
                Next::Starved if standing.starved => {}
                Next::Starved => {
                    standing.starved = true;
                    self.starved.push(id);
                }
                Next::Full => {}
                Next::Idle => standing.lane.set_gate(now),
            }
        }
        starting
    }

    /// What to claim now and within which budget, if anything and if no claim is under way.
    pub(crate) fn claim(&mut self) -> Option<(Vec<Wanted>, Budget)> {
        if self.claiming.is_some() {
            return None;
        }
        let mut wanted = Vec::new();
        for endpoint in std::mem::take(&mut self.asking) {
            let Some(standing) = self.lanes.get_mut(&endpoint) else { continue };
            let (fresh, retry) = standing.lane.claim();
            if fresh + retry > 0 {
                let held = standing.lane.claimed_bytes();
                wanted.push(Wanted { endpoint, fresh, retry, suspect: 0, held });
            }
        }
        if let Some(endpoint) = self.suspect_wanted.take() {
            match wanted.iter_mut().find(|wanted| wanted.endpoint == endpoint) {
                Some(wanted) => wanted.suspect = 1,
                None => {
                    let held = self.lanes.get(&endpoint).map_or(0, |s| s.lane.claimed_bytes());
                    wanted.push(Wanted { endpoint, fresh: 0, retry: 0, suspect: 1, held });
                }
            }
        }
        if wanted.is_empty() {
            return None;
        }
        let budget = self.weights.claim(&mut wanted, |wanted| wanted.endpoint);
        self.claiming = Some(wanted.clone());
        self.late_hints.get_or_insert_default();
        Some((wanted, budget))
    }

    /// The claim's answer. Gives what begins at once: a suspect.
    pub(crate) fn claimed(
        &mut self,
        leased: Vec<LeasedDelivery>,
        dues: Vec<LaneDue>,
        now: Timestamp,
    ) -> Option<Starting> {
        let claiming = self.claiming.take().unwrap_or_default();
        let suspect_claimed = claiming.iter().any(|wanted| wanted.suspect > 0);
        let nothing = leased.is_empty();
        let mut found: BTreeMap<EndpointId, u32> = BTreeMap::new();
        for delivery in &leased {
            *found.entry(delivery.endpoint).or_default() += 1;
        }
        let mut dues: BTreeMap<_, _> = dues.into_iter().map(|due| (due.endpoint, due)).collect();
        for wanted in claiming {
            let (due, found) =
                (dues.remove(&wanted.endpoint), found.get(&wanted.endpoint).copied());
            let too_heavy = due.and_then(|due| due.too_heavy);
            self.weights.left(wanted.endpoint, too_heavy, found.is_some());
            self.update(wanted.endpoint, now, |lane, _| {
                lane.claimed(Some(found.unwrap_or(0)));
                lane.set_due(due);
                if nothing && too_heavy.is_none() && lane.is_overdue(now) {
                    lane.hold(now + EMPTY_PAUSE);
                }
            });
        }
        let mut suspect = None;
        for delivery in leased {
            self.update(delivery.endpoint, now, |lane, given_up| {
                if lane.is_open() {
                    suspect = lane.take_leased(delivery, now).or(suspect.take());
                } else {
                    given_up.push(delivery);
                }
            });
        }
        self.apply_late_hints(now);
        self.look_again();
        if suspect_claimed {
            let found = suspect.as_ref().map(|starting| starting.delivery.endpoint);
            self.suspects.claimed(found, now);
        }
        self.started += usize::from(suspect.is_some());
        suspect
    }

    /// The claim failed: nothing was leased. All that is due is to be asked for again.
    pub(crate) fn claim_failed(&mut self, now: Timestamp) {
        for wanted in self.claiming.take().unwrap_or_default() {
            self.update(wanted.endpoint, now, |lane, _| lane.claimed(None));
            if wanted.suspect > 0 {
                self.suspects.claimed(None, now);
            }
        }
        self.apply_late_hints(now);
    }

    /// Whether the last attempts at this endpoint failed.
    pub(crate) fn is_failing(&self, endpoint: EndpointId) -> bool {
        self.lanes.get(&endpoint).is_some_and(|standing| standing.lane.is_failing())
    }

    /// One that had begun has ended.
    pub(crate) fn ended(&mut self, ended: Ended, now: Timestamp) {
        self.started = self.started.saturating_sub(1);
        if ended.share == Share::Suspect {
            self.suspects.ended(ended.endpoint, now);
        }
        self.update(ended.endpoint, now, |lane, given_up| {
            lane.ended(ended.attempt, ended.claimed_bytes);
            if let Some(until) = ended.hold_until {
                lane.hold(until);
            }
            if lane.is_failing() {
                given_up.append(&mut lane.empty_handed());
            }
        });
    }

    /// Gives up everything that has not begun.
    pub(crate) fn empty(&mut self, now: Timestamp) {
        let ids: Vec<_> = self.lanes.keys().copied().collect();
        for id in ids {
            self.update(id, now, |lane, given_up| given_up.append(&mut lane.empty()));
        }
    }

    /// The leases that are given back, to be recorded.
    pub(crate) fn take_given_up(&mut self) -> Vec<Settlement> {
        std::mem::take(&mut self.given_up)
    }

    /// When to decide again if nothing happens before; `None`: never. `claims` as in
    /// [`Self::decide`].
    pub(crate) fn wake_at(&self, claims: bool, now: Timestamp) -> Option<Timestamp> {
        let lanes = self.timer.first().map(|(at, _)| *at);
        let suspect = self.first_suspect(now).filter(|_| claims);
        let suspects = self.suspects.wake_at(suspect, now);
        [lanes, suspects].into_iter().flatten().min()
    }

    /// Changes a lane, which is made if there is none; then it looks for work again.
    fn update(
        &mut self,
        id: EndpointId,
        now: Timestamp,
        change: impl FnOnce(&mut Lane, &mut Vec<LeasedDelivery>),
    ) {
        if !self.lanes.contains_key(&id) {
            let lane = Lane::new(self.intake.room_of(id), self.limits(id));
            self.lanes.insert(id, Standing { lane, in_ring: false, starved: false, timer: None });
        }
        let Some(Standing { lane, .. }) = self.lanes.get_mut(&id) else { return };
        let suspect_due = lane.suspect_due().filter(|_| lane.is_open());
        let before = (lane.held(), lane.is_failing());
        let bytes_before = lane.claimed_bytes();
        let mut given_up = Vec::new();
        change(lane, &mut given_up);
        lane.set_gate(now);
        let after = (lane.held(), lane.is_failing());
        self.slots.remove(before.0, before.1);
        self.slots.add(after.0, after.1);
        let (bytes_after, waits) = (lane.claimed_bytes(), lane.is_waiting(now));
        let now_due = lane.suspect_due().filter(|_| lane.is_open());
        if suspect_due != now_due {
            suspect_due.map(|at| self.suspect_due.remove(&(at, id)));
            now_due.map(|at| self.suspect_due.insert((at, id)));
        }
        self.given_up.extend(given_up.into_iter().map(released));
        if after.0 < before.0 || after.1 != before.1 {
            self.feed_starved();
        }
        self.weigh(id, (bytes_before, bytes_after), waits);
        self.enter_ring(id);
    }

    /// Counts what a lane holds. Where bytes came free, or nobody waits for them any more, those
    /// in line look again.
    fn weigh(&mut self, id: EndpointId, (before, after): (usize, usize), waits: bool) {
        self.weights.change(id, before, after);
        self.intake.set_claimed_bytes(self.weights.held());
        let gone = !waits && self.weights.forget(id);
        if after < before || gone {
            self.look_again();
        }
    }

    /// Those that wait for bytes may have some now.
    fn look_again(&mut self) {
        for id in self.weights.line() {
            self.enter_ring(id);
        }
    }

    /// Slots came free: those who waited for them come first.
    fn feed_starved(&mut self) {
        for id in std::mem::take(&mut self.starved) {
            if let Some(standing) = self.lanes.get_mut(&id) {
                standing.starved = false;
            }
            self.enter_ring(id);
        }
    }

    fn look_at_suspects(&mut self, claims: bool, now: Timestamp) {
        if !claims && self.suspect_wanted.take().is_some() {
            self.suspects.claimed(None, now);
        }
        if self.suspect_wanted.is_none() {
            let due = self.first_suspect(now).filter(|_| claims);
            self.suspect_wanted = self.suspects.poll(due, self.started, now);
        }
    }

    fn limits(&self, id: EndpointId) -> Limits {
        let settings = &self.settings;
        let endpoint = self.directory.endpoint(id);
        let own = endpoint.map(|endpoint| &endpoint.settings);
        let slots = own.and_then(|own| own.max_in_flight).unwrap_or(u32::MAX);
        let rates =
            [own.and_then(|own| own.requests_per_second), settings.endpoint_requests_per_second];
        Limits {
            open: endpoint.is_some_and(|endpoint| endpoint.state == EndpointState::Enabled),
            slots: slots.min(settings.endpoint_in_flight_max).max(1),
            per_second: rates.into_iter().flatten().min(),
            failing_per_second: settings.failing_requests_per_second,
            handoff: settings.lane_handoff_max,
        }
    }

    fn enter_ring(&mut self, id: EndpointId) {
        if let Some(standing) = self.lanes.get_mut(&id)
            && !standing.in_ring
        {
            standing.in_ring = true;
            self.ring.push_back(id);
        }
    }

    fn set_timer(&mut self, id: EndpointId, at: Timestamp) {
        if let Some(standing) = self.lanes.get_mut(&id) {
            if let Some(before) = standing.timer.replace(at) {
                self.timer.remove(&(before, id));
            }
            self.timer.insert((at, id));
        }
    }

    /// Lanes whose time has come enter the ring.
    fn ring_due(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.timer.first().copied().filter(|(at, _)| *at <= now) {
            self.timer.remove(&(at, id));
            if let Some(standing) = self.lanes.get_mut(&id) {
                standing.timer = None;
            }
            self.enter_ring(id);
        }
    }

    /// The lane whose suspect is next of those that have a slot, and from when on it may begin.
    fn first_suspect(&self, now: Timestamp) -> Option<(Timestamp, EndpointId)> {
        let may_begin = |(_, id): &(Timestamp, EndpointId)| {
            let lane = &self.lanes.get(id).filter(|_| self.weights.may_ask(*id))?.lane;
            let mut others = self.slots;
            others.remove(lane.held(), lane.is_failing());
            Some((lane.suspect_from(&others, now)?, *id))
        };
        let end = (now, EndpointId::from_bits(u128::MAX));
        let due = self.suspect_due.range(..=end).filter_map(may_begin);
        // Of those that are not due yet only the first matters, for the time of waking.
        let later = self.suspect_due.range((Bound::Excluded(end), Bound::Unbounded));
        self.suspects.next(due.chain(later.filter_map(may_begin).take(1)), now)
    }

    fn apply_late_hints(&mut self, now: Timestamp) {
        for (endpoint, share, at) in self.late_hints.take().unwrap_or_default() {
            self.update(endpoint, now, |lane, _| lane.hint(share, at));
        }
    }
}

/// A lease that is given back.
pub(crate) fn released(delivery: LeasedDelivery) -> Settlement {
    Settlement { delivery: delivery.id, token: delivery.token, result: SettlementResult::Released }
}

#[cfg(test)]
mod tests;
