//! Suspects: deliveries that were under way at several deaths of the process.
//!
//! One of them may be the cause, so each is tried alone: nothing else is started while what is on
//! the wire comes home, for [`QUIET`] at most, then the suspect starts, and the others follow when
//! it has ended or after another [`QUIET`]. Slow endpoints are not waited for: what kills a process
//! does so when a request is made or its answer is read, not while nothing happens.
//!
//! An endpoint has one suspect under way at a time, and endpoints take turns: one that hangs keeps
//! its own suspects waiting and nobody else's, and what dies with a late answer is one an endpoint.
//!
//! A process begins with a pause that is long enough for the innocent ones to be sent first,
//! however often the process before it died. Between two suspects the others have at least as long
//! as they were held, whatever became of the first one: an answer of any kind, or none in time,
//! shows that this process has survived it. Nothing of this outlives the process, and nothing has
//! to: the table counts the interruptions, and their limit in a round ends a delivery that goes on
//! killing, so that the suspects behind it get their turn.

use std::collections::BTreeSet;
use std::time::Duration;

use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;

/// How long others wait before and after the start of a suspect.
const QUIET: Duration = Duration::from_millis(100);
/// The pause after the start of the process.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The least pause between two suspects, in which the others may start.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The pause after a claim that found none: looking again at once would be a busy loop.
const PAUSE_EMPTY: Duration = Duration::from_millis(100);

/// Where the trying of suspects stands on this node.
#[derive(Clone, Debug)]
pub(crate) struct Suspects {
    phase: Phase,
    next_at: Timestamp,
    /// The endpoints that have one under way.
    under_way: BTreeSet<EndpointId>,
    /// Whose turn it was last.
    last: Option<EndpointId>,
    /// Since when the others are held, or were last.
    held_since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None is being tried.
    Idle,
    /// Others have stopped starting, until then at most.
    Quiet { until: Timestamp },
    /// One has been asked for.
    Claiming,
    /// One of this endpoint has begun; others may start when it has ended, or from then on.
    Running { endpoint: EndpointId, others_from: Timestamp },
}

impl Suspects {
    /// None is tried within the first pause.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            phase: Phase::Idle,
            next_at: now + PAUSE_FIRST,
            under_way: BTreeSet::new(),
            last: None,
            held_since: now,
        }
    }

    /// Whether nothing else may start at `now`.
    pub(crate) fn holds_others(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Idle => false,
            Phase::Quiet { .. } | Phase::Claiming => true,
            Phase::Running { others_from, .. } => now < others_from,
        }
    }

    /// Whose suspect is next, of endpoints and the instants from which on theirs may begin: of
    /// those that may begin now the one whose turn it is, else the first that may.
    pub(crate) fn next(
        &self,
        waiting: impl Iterator<Item = (Timestamp, EndpointId)>,
        now: Timestamp,
    ) -> Option<(Timestamp, EndpointId)> {
        waiting
            .filter(|(_, endpoint)| !self.under_way.contains(endpoint))
            .min_by_key(|(at, endpoint)| (*at.max(&now), Some(*endpoint) <= self.last, *endpoint))
    }

    /// Moves on. `due` is what [`Self::next`] says; the answer is that endpoint when a suspect of
    /// it is to be claimed now. `in_flight` counts what is on the wire.
    pub(crate) fn poll(
        &mut self,
        due: Option<(Timestamp, EndpointId)>,
        in_flight: usize,
        now: Timestamp,
    ) -> Option<EndpointId> {
        if let Phase::Running { others_from, .. } = self.phase
            && others_from <= now
        {
            self.release_others(others_from);
        }
        let Some((at, endpoint)) = due else {
            if matches!(self.phase, Phase::Quiet { .. }) {
                self.phase = Phase::Idle;
            }
            return None;
        };
        if self.phase == Phase::Idle && at <= now && self.next_at <= now {
            self.held_since = now;
            self.phase = Phase::Quiet { until: now + QUIET };
        }
        match self.phase {
            // Slow suspects are on the wire as well, and are not waited for.
            Phase::Quiet { until } if in_flight <= self.under_way.len() || until <= now => {
                self.phase = Phase::Claiming;
                Some(endpoint)
            }
            Phase::Idle | Phase::Quiet { .. } | Phase::Claiming | Phase::Running { .. } => None,
        }
    }

    /// When [`Self::poll`] or [`Self::holds_others`] will answer otherwise by time alone.
    pub(crate) fn wake_at(
        &self,
        due: Option<(Timestamp, EndpointId)>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        match self.phase {
            Phase::Idle => due.map(|(at, _)| at.max(self.next_at)),
            Phase::Quiet { until } => Some(until),
            Phase::Claiming => None,
            Phase::Running { others_from, .. } => Some(others_from.max(now)),
        }
    }

    /// The claim has come back, with a suspect of this endpoint or without.
    pub(crate) fn claimed(&mut self, found: Option<EndpointId>, now: Timestamp) {
        if self.phase != Phase::Claiming {
            return;
        }
        match found {
            Some(endpoint) => {
                self.under_way.insert(endpoint);
                self.last = Some(endpoint);
                self.phase = Phase::Running { endpoint, others_from: now + QUIET };
            }
            None => {
                self.phase = Phase::Idle;
                self.next_at = now + PAUSE_EMPTY;
            }
        }
    }

    /// The attempt of this endpoint's suspect has ended, and the process has not.
    pub(crate) fn ended(&mut self, ended: EndpointId, now: Timestamp) {
        self.under_way.remove(&ended);
        if matches!(self.phase, Phase::Running { endpoint, .. } if endpoint == ended) {
            self.release_others(now);
        }
    }

    /// The others may start again, for as long as they were held at least.
    fn release_others(&mut self, at: Timestamp) {
        self.phase = Phase::Idle;
        self.next_at = at + at.since(self.held_since).max(PAUSE_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: EndpointId = EndpointId::from_bits(1);
    const OTHER: EndpointId = EndpointId::from_bits(2);
    const THIRD: EndpointId = EndpointId::from_bits(3);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn due(ms: i64) -> Option<(Timestamp, EndpointId)> {
        Some((at(ms), LANE))
    }

    #[test]
    fn starts_alone_after_a_first_pause() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 0, at(999)), None);
        assert_eq!(suspects.wake_at(due(0), at(999)), Some(at(1_000)));
        assert_eq!(suspects.poll(due(0), 5, at(1_000)), None, "others are on the wire");
        assert!(suspects.holds_others(at(1_000)));
        assert_eq!(suspects.poll(due(0), 0, at(1_010)), Some(LANE));
        assert_eq!(suspects.poll(due(0), 0, at(1_011)), None, "one at a time");
        suspects.claimed(Some(LANE), at(1_020));
        assert!(suspects.holds_others(at(1_024)));
        suspects.ended(LANE, at(1_025));
        assert!(!suspects.holds_others(at(1_025)));
        let pause = suspects.wake_at(due(0), at(1_025));
        assert_eq!(pause, Some(at(1_050)), "as long as the others were held");
    }

    #[test]
    fn slow_endpoints_are_not_waited_for() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 1, at(1_000)), None);
        assert_eq!(suspects.wake_at(due(0), at(1_000)), Some(at(1_100)));
        assert_eq!(suspects.poll(due(0), 1, at(1_100)), Some(LANE));
        suspects.claimed(Some(LANE), at(1_100));
        assert!(suspects.holds_others(at(1_199)));
        assert!(!suspects.holds_others(at(1_200)), "a slow suspect holds nobody up");
    }

    #[test]
    fn a_slow_suspect_keeps_its_own_endpoints_others_waiting_and_nobody_elses() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 0, at(1_000)), Some(LANE));
        suspects.claimed(Some(LANE), at(1_000));
        let waiting = || [(at(0), LANE), (at(5), OTHER)].into_iter();
        assert_eq!(suspects.next(waiting().take(1), at(2_000)), None, "one an endpoint");
        let next = suspects.next(waiting(), at(2_000));
        assert_eq!(next, Some((at(5), OTHER)));
        assert_eq!(suspects.poll(next, 1, at(2_000)), Some(OTHER), "the slow one is on the wire");
        suspects.claimed(Some(OTHER), at(2_000));
        suspects.ended(LANE, at(2_001));
        assert!(suspects.holds_others(at(2_001)), "another's end is not the end of this one");
        suspects.ended(OTHER, at(2_002));
        assert!(!suspects.holds_others(at(2_002)));
    }

    #[test]
    fn endpoints_take_turns() {
        let mut suspects = Suspects::new(at(0));
        let mut now = at(1_000);
        let mut turns = Vec::new();
        for _ in 0..6 {
            let all = [(at(0), LANE), (at(0), OTHER), (at(7), THIRD)].into_iter();
            let next = suspects.next(all, now);
            let turn = suspects.poll(next, 0, now);
            turns.extend(turn);
            suspects.claimed(turn, now);
            suspects.ended(turn.expect("a turn"), now);
            now = now + PAUSE_MIN;
        }
        assert_eq!(turns, [LANE, OTHER, THIRD, LANE, OTHER, THIRD]);
        let later = [(at(9_000), LANE), (at(8_000), OTHER)].into_iter();
        assert_eq!(suspects.next(later, now), Some((at(8_000), OTHER)), "the first that may");
    }

    #[test]
    fn the_pause_is_long_after_a_start_only() {
        for _process in 0..3 {
            let mut suspects = Suspects::new(at(0));
            let mut now = at(0);
            let mut pauses = Vec::new();
            for _ in 0..20 {
                let next = suspects.wake_at(due(0), now).expect("idle");
                pauses.push(next.since(now).as_millis());
                now = next;
                assert_eq!(suspects.poll(due(0), 0, now), Some(LANE));
                suspects.claimed(Some(LANE), now);
                now = now + Duration::from_millis(7);
                suspects.ended(LANE, now);
            }
            assert_eq!(pauses[0], 1_000);
            assert!(pauses[1..].iter().all(|pause| *pause == 10), "{pauses:?}");
        }
    }

    #[test]
    fn a_claim_that_finds_none_lets_the_others_go_on() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 0, at(2_000)), Some(LANE));
        suspects.claimed(None, at(2_001));
        assert!(!suspects.holds_others(at(2_001)));
        assert_eq!(suspects.poll(due(0), 0, at(2_001)), None, "not at once again");
        assert_eq!(suspects.poll(due(0), 1, at(3_000)), None);
        assert!(suspects.holds_others(at(3_000)));
        assert_eq!(suspects.poll(None, 0, at(3_000)), None, "its endpoint was paused");
        assert!(!suspects.holds_others(at(3_000)));
    }
}
