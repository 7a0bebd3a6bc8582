//! Suspects: deliveries that were under way at several deaths of the process.
//!
//! One of them may be the cause, so each is tried alone: nothing else is started while what is on
//! the wire comes home, for [`QUIET`] at most, then the suspect starts, and the others follow when
//! it has ended or after another [`QUIET`]. Slow endpoints are not waited for: what kills a process
//! does so when a request is made or its answer is read, not while nothing happens.
//!
//! A process begins with a pause that is long enough for the innocent ones to be sent first,
//! however often the process before it died. The pause between two suspects is short whatever
//! became of the first one: an answer of any kind, or none in time, shows that this process has
//! survived it, and an endpoint that fails is no reason to keep other suspects waiting. Nothing of
//! this outlives the process, and nothing has to: the table counts the interruptions, and their
//! limit in a round ends a delivery that goes on killing, so that the suspects behind it get their
//! turn.

use std::time::Duration;

use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;

/// How long others wait before and after the start of a suspect.
const QUIET: Duration = Duration::from_millis(100);
/// The pause after the start of the process.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// The pause between two suspects, in which the others may start.
const PAUSE_BETWEEN: Duration = Duration::from_millis(100);

/// Where the trying of suspects stands on this node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspects {
    phase: Phase,
    next_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// None is being tried.
    Idle,
    /// Others have stopped starting, until then at most.
    Quiet { until: Timestamp },
    /// One has been asked for.
    Claiming,
    /// One is under way; others may start from then on.
    Running { others_from: Timestamp },
}

impl Suspects {
    /// None is tried within the first pause.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { phase: Phase::Idle, next_at: now + PAUSE_FIRST }
    }

    /// Whether nothing else may start at `now`.
    pub(crate) fn holds_others(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Idle => false,
            Phase::Quiet { .. } | Phase::Claiming => true,
            Phase::Running { others_from } => now < others_from,
        }
    }

    /// Moves on. `due` is the lane whose suspect has waited longest, and since when it is due; the
    /// answer is that lane when a suspect is to be claimed from it now. `in_flight` counts what is
    /// on the wire.
    pub(crate) fn poll(
        &mut self,
        due: Option<(Timestamp, EndpointId)>,
        in_flight: usize,
        now: Timestamp,
    ) -> Option<EndpointId> {
        let Some((at, endpoint)) = due else {
            if matches!(self.phase, Phase::Quiet { .. }) {
                self.phase = Phase::Idle;
            }
            return None;
        };
        if self.phase == Phase::Idle && at <= now && self.next_at <= now {
            self.phase = Phase::Quiet { until: now + QUIET };
        }
        match self.phase {
            Phase::Quiet { until } if in_flight == 0 || until <= now => {
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
            Phase::Running { others_from } => Some(others_from).filter(|from| now < *from),
        }
    }

    /// The claim has come back, with a suspect or without.
    pub(crate) fn claimed(&mut self, found: bool, now: Timestamp) {
        if self.phase == Phase::Claiming {
            self.phase = match found {
                true => Phase::Running { others_from: now + QUIET },
                false => Phase::Idle,
            };
            // Whatever kept it back, looking again at once would be a busy loop.
            self.next_at = now + PAUSE_BETWEEN;
        }
    }

    /// The suspect's attempt has ended, and the process has not.
    pub(crate) fn ended(&mut self, now: Timestamp) {
        self.phase = Phase::Idle;
        self.next_at = now + PAUSE_BETWEEN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: EndpointId = EndpointId::from_bits(1);

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
        suspects.claimed(true, at(1_020));
        assert!(suspects.holds_others(at(1_119)));
        assert!(!suspects.holds_others(at(1_120)), "a slow suspect holds nobody up");
        assert_eq!(suspects.poll(due(0), 0, at(5_000)), None, "still under way");
        suspects.ended(at(5_000));
        assert!(!suspects.holds_others(at(5_000)));
        assert_eq!(suspects.wake_at(due(0), at(5_000)), Some(at(5_100)));
    }

    #[test]
    fn slow_endpoints_are_not_waited_for() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 1, at(1_000)), None);
        assert_eq!(suspects.wake_at(due(0), at(1_000)), Some(at(1_100)));
        assert_eq!(suspects.poll(due(0), 1, at(1_100)), Some(LANE));
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
                suspects.claimed(true, now);
                now = now + Duration::from_millis(7);
                suspects.ended(now);
            }
            assert_eq!(pauses[0], 1_000);
            assert!(pauses[1..].iter().all(|pause| *pause == 100), "{pauses:?}");
        }
    }

    #[test]
    fn a_claim_that_finds_none_lets_the_others_go_on() {
        let mut suspects = Suspects::new(at(0));
        assert_eq!(suspects.poll(due(0), 0, at(2_000)), Some(LANE));
        suspects.claimed(false, at(2_001));
        assert!(!suspects.holds_others(at(2_001)));
        assert_eq!(suspects.poll(due(0), 0, at(2_001)), None, "not at once again");
        assert_eq!(suspects.poll(due(0), 1, at(3_000)), None);
        assert!(suspects.holds_others(at(3_000)));
        assert_eq!(suspects.poll(None, 0, at(3_000)), None, "its endpoint was paused");
        assert!(!suspects.holds_others(at(3_000)));
    }
}
