//! The state machine of a delivery: what holds for any sequence of inputs.

use std::time::Duration;

use everhook_domain::attempt::{
    Attempt, AttemptOutcome, AttemptReport, ErrorClass, KeptResponse, Trigger,
};
use everhook_domain::delivery::{
    CancelReason, DeadReason, Due, Effect, Input, Lease, Policy, Progress, State, Token, step,
};
use everhook_domain::event::Nature;
use everhook_domain::schedule::{GAP_MIN, Schedule};
use everhook_domain::time::Timestamp;
use proptest::prelude::*;

const BEGINNING: Timestamp = Timestamp::from_millis(1_750_000_000_000);
const INTERRUPTIONS_MAX: u32 = 5;

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Something that happens to a delivery.
#[derive(Clone, Debug)]
enum Op {
    /// Time passes.
    Wait(u64),
    /// It is claimed when it is due, or, half a second too early, not.
    Claim {
        in_time: bool,
    },
    /// The attempt ends so many seconds after it began; another lease's, unless `own`.
    Finish {
        own: bool,
        success: bool,
        took: u64,
        retry_after: Option<u64>,
    },
    Release {
        own: bool,
    },
    Interrupt {
        own: bool,
    },
    Replay,
    Cancel(CancelReason),
    Acknowledge,
    /// The endpoint is set to this.
    Endpoint(Option<CancelReason>),
}

fn reason() -> impl Strategy<Value = CancelReason> {
    prop::sample::select(vec![
        CancelReason::Requested,
        CancelReason::EndpointDisabled,
        CancelReason::EndpointDeleted,
    ])
}

fn op() -> impl Strategy<Value = Op> {
    let own = prop::bool::weighted(0.9);
    let gone = prop::option::weighted(
        0.3,
        prop::sample::select(vec![CancelReason::EndpointDisabled, CancelReason::EndpointDeleted]),
    );
    prop_oneof![
        4 => prop::sample::select(vec![0, 1, 59, 61, 300, 4_000, 100_000]).prop_map(Op::Wait),
        9 => prop::bool::weighted(0.8).prop_map(|in_time| Op::Claim { in_time }),
        8 => (own, prop::bool::weighted(0.2), 0..15u64, prop::option::of(0..9_000u64))
            .prop_map(|(own, success, took, retry_after)| {
                Op::Finish { own, success, took, retry_after }
            }),
        1 => own.prop_map(|own| Op::Release { own }),
        2 => own.prop_map(|own| Op::Interrupt { own }),
        2 => Just(Op::Replay),
        1 => reason().prop_map(Op::Cancel),
        1 => Just(Op::Acknowledge),
        1 => gone.prop_map(Op::Endpoint),
    ]
}

fn nature() -> impl Strategy<Value = Nature> {
    prop::sample::select(vec![Nature::Ordinary, Nature::System, Nature::Test])
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop::collection::btree_set(1..90_000u64, 0..8).prop_map(|offsets| {
        let offsets = std::iter::once(0).chain(offsets).map(secs).collect();
        Schedule::new(offsets).unwrap_or_default()
    })
}

/// A delivery and its history.
struct World {
    nature: Nature,
    schedule: Schedule,
    honor_retry_after: bool,
    gone: Option<CancelReason>,
    now: Timestamp,
    state: State,
    progress: Progress,
    tokens: u64,
    attempts: Vec<Attempt>,
    interruptions: usize,
    /// How often its death was told of.
    told: usize,
}

impl World {
    fn new(schedule: Schedule, honor_retry_after: bool, nature: Nature) -> Self {
        let cause = match nature {
            Nature::Ordinary | Nature::System => Trigger::Schedule,
            Nature::Test => Trigger::Test,
        };
        Self {
            nature,
            schedule,
            honor_retry_after,
            gone: None,
            now: BEGINNING,
            state: State::Due(Due { at: BEGINNING, cause }),
            progress: Progress::NEW,
            tokens: 0,
            attempts: Vec::new(),
            interruptions: 0,
            told: 0,
        }
    }

    /// The token to present: the lease's own, or one that it never had.
    fn token(&self, own: bool) -> Token {
        match self.state {
            State::Leased(lease) if own => lease.token,
            _ => Token(u64::MAX),
        }
    }

    fn input(&mut self, op: &Op) -> Option<Input> {
        Some(match *op {
            Op::Wait(time) => {
                self.now = self.now + secs(time);
                return None;
            }
            Op::Endpoint(gone) => {
                self.gone = gone;
                return None;
            }
            Op::Claim { in_time } => {
                if let State::Due(due) = self.state {
                    let early = due.at.minus(Duration::from_millis(500));
                    self.now = if in_time { self.now.max(due.at) } else { self.now.min(early) };
                }
                self.tokens += 1;
                Input::Claimed { token: Token(self.tokens), until: None }
            }
            Op::Finish { own, success, took, retry_after } => {
                let started_at = self.now;
                self.now = self.now + secs(took);
                let outcome = outcome(success, retry_after);
                let duration = secs(took);
                let url = "https://example.org/".into();
                let report = Box::new(AttemptReport { started_at, duration, url, outcome });
                Input::Finished { token: self.token(own), report }
            }
            Op::Release { own } => Input::Released { token: self.token(own) },
            Op::Interrupt { own } => Input::Interrupted { token: self.token(own) },
            Op::Replay => Input::Replay,
            Op::Cancel(reason) => Input::Cancel(reason),
            Op::Acknowledge => Input::Acknowledge,
        })
    }

    /// Applies what happens and checks what holds for every single step.
    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let Some(input) = self.input(op) else { return Ok(()) };
        let policy = Policy {
            schedule: &self.schedule,
            interruptions_max: INTERRUPTIONS_MAX,
            honor_retry_after: self.honor_retry_after,
            endpoint_gone: self.gone,
            nature: self.nature,
        };
        let before = (self.state, self.progress);
        let stepped = step(self.state, self.progress, input.clone(), policy, self.now);
        let Ok((state, progress, effects)) = stepped else {
            // Nothing is given back, so nothing can change; a current lease's end is never refused.
            prop_assert!(!self.is_own_end(&input), "{input:?} was refused");
            return Ok(());
        };
        prop_assert!(!ends_a_lease(&input) || self.is_own_end(&input), "{input:?} was taken");
        let (mut died, told) = (false, self.told);
        for effect in effects {
            match effect {
                Effect::Attempt(attempt) => self.attempts.push(*attempt),
                Effect::Interruption { .. } => self.interruptions += 1,
                Effect::Dead(reason) => {
                    self.told += 1;
                    died = matches!(state, State::Dead(dead) if dead.reason == reason);
                }
            }
        }
        let dies = matches!(state, State::Dead(_)) && !matches!(before.0, State::Dead(_));
        let tells = dies && self.nature == Nature::Ordinary;
        prop_assert_eq!((self.told - told, died), (usize::from(tells), tells));
        (self.state, self.progress) = (state, progress);
        check_step(before, &input, (state, progress))?;
        self.check_sends(before, &input)
    }

    /// Whether the input ends the lease that there is.
    fn is_own_end(&self, input: &Input) -> bool {
        let token = match input {
            Input::Finished { token, .. }
            | Input::Released { token }
            | Input::Interrupted { token } => *token,
            Input::Claimed { .. } | Input::Replay | Input::Cancel(_) | Input::Acknowledge => {
                return false;
            }
        };
        matches!(self.state, State::Leased(lease) if lease.token == token)
    }

    /// A replay is one request more, whatever the result of the one before: twice is twice. Only a
    /// cancellation, an endpoint that is gone or the last interruption takes them back.
    fn check_sends(
        &self,
        (before, from): (State, Progress),
        input: &Input,
    ) -> Result<(), TestCaseError> {
        let wanted = sends_wanted(&before, &from);
        let sent = match (input, before) {
            (Input::Finished { .. }, State::Leased(lease)) => lease.due.cause == Trigger::Replay,
            _ => false,
        };
        let taken_back = match self.state {
            State::Cancelled(_) => true,
            State::Delivered => self.gone.is_some(),
            State::Dead(dead) => dead.reason == DeadReason::Interrupted,
            State::Due(_) | State::Leased(_) => matches!(input, Input::Cancel(_)),
        };
        let expected = match input {
            Input::Replay => wanted + 1,
            _ => wanted - u32::from(sent),
        };
        let left = sends_wanted(&self.state, &self.progress);
        prop_assert!(left == expected || taken_back, "{before:?} {from:?} + {input:?}: {left}");
        Ok(())
    }

    /// What holds of the whole history.
    fn check_history(&self) -> Result<(), TestCaseError> {
        let offsets = self.schedule.offsets();
        for (index, attempt) in self.attempts.iter().enumerate() {
            prop_assert_eq!(attempt.number as usize, index + 1);
        }
        prop_assert_eq!(self.progress.number as usize, self.attempts.len());
        for round in self.attempts.chunk_by(|one, next| one.round == next.round) {
            let most = if self.nature == Nature::Test { 1 } else { offsets.len() };
            prop_assert!(round.len() <= most, "{} attempts in a round", round.len());
            let anchor = round[0].report.started_at;
            for (place, pair) in round.windows(2).enumerate() {
                let [before, attempt] = pair else { unreachable!("windows of two") };
                if attempt.trigger != Trigger::Schedule {
                    continue;
                }
                let (offset, gap) = (offsets[place + 1], offsets[place + 1] - offsets[place]);
                let started = attempt.report.started_at;
                prop_assert!(started >= anchor + offset, "earlier than promised");
                let apart = started.since(before.report.started_at);
                prop_assert!(apart >= gap.min(GAP_MIN), "too close to the one before");
            }
        }
        let rounds: Vec<u32> = self.attempts.iter().map(|attempt| attempt.round).collect();
        prop_assert!(rounds.is_sorted());
        Ok(())
    }
}

fn outcome(success: bool, retry_after: Option<u64>) -> AttemptOutcome {
    if !success && retry_after.is_none() {
        return AttemptOutcome::failed(ErrorClass::Timeout, "no answer");
    }
    let status = if success { 200 } else { 503 };
    let response =
        KeptResponse { status, headers: Vec::new(), body: String::new(), truncated: false };
    AttemptOutcome::answered(response, retry_after.map(secs))
}

const fn ends_a_lease(input: &Input) -> bool {
    matches!(input, Input::Finished { .. } | Input::Released { .. } | Input::Interrupted { .. })
}

const fn is_final(state: &State) -> bool {
    matches!(state, State::Delivered | State::Dead(_) | State::Cancelled(_))
}

/// What every single step keeps to.
fn check_step(
    (before, from): (State, Progress),
    input: &Input,
    (after, to): (State, Progress),
) -> Result<(), TestCaseError> {
    let finished = matches!(input, Input::Finished { .. });
    prop_assert_eq!(to.number, from.number + u32::from(finished), "only an attempt counts");
    prop_assert!(to.round == from.round || to.round == from.round + 1);
    if to.round > from.round {
        prop_assert_eq!((to.step, to.shift, to.interruptions), (0, Duration::ZERO, 0));
        prop_assert_eq!((to.anchor, to.last_start), (None, None));
    } else {
        prop_assert_eq!(to.step, from.step + u32::from(finished));
        prop_assert!(to.shift >= from.shift && from.anchor.is_none_or(|a| to.anchor == Some(a)));
        let interrupted = u32::from(matches!(input, Input::Interrupted { .. }));
        prop_assert_eq!(to.interruptions, from.interruptions + interrupted);
    }
    if is_final(&before) {
        match input {
            Input::Replay => prop_assert_eq!(to.round, from.round + 1),
            Input::Acknowledge => prop_assert!(matches!(after, State::Dead(_)) && to == from),
            other => prop_assert!(false, "{before:?} took {other:?}"),
        }
    }
    if let (State::Leased(lease), State::Leased(still)) = (before, after) {
        prop_assert_eq!(lease, still, "a lease does not change");
    }
    if matches!(before, State::Leased(_)) && !matches!(after, State::Leased(_)) {
        prop_assert!(ends_a_lease(input), "only its end ends a lease");
    }
    if is_final(&after) {
        prop_assert_eq!((to.owed, to.cancel), (0, None));
    }
    if let State::Due(_) = after {
        prop_assert!(to.interruptions < INTERRUPTIONS_MAX);
        prop_assert_eq!(to.cancel, None);
    }
    Ok(())
}

/// Requests that were asked for by replays and have not been sent.
fn sends_wanted(state: &State, progress: &Progress) -> u32 {
    let now = match state {
        State::Due(due) | State::Leased(Lease { due, .. }) => due.cause == Trigger::Replay,
        State::Delivered | State::Dead(_) | State::Cancelled(_) => false,
    };
    progress.owed + u32::from(now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_sequence_keeps_the_rules(
        schedule in schedule(),
        honor_retry_after: bool,
        nature in nature(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(schedule, honor_retry_after, nature);
        for op in &ops {
            world.apply(op)?;
        }
        world.check_history()?;
    }

    /// Whatever has happened: tried again and again, a delivery ends.
    #[test]
    fn every_delivery_ends(
        schedule in schedule(),
        ops in prop::collection::vec(op(), 0..60),
        success: bool,
        interrupted: bool,
    ) {
        let mut world = World::new(schedule, false, Nature::Ordinary);
        for op in &ops {
            world.apply(op)?;
        }
        let rounds = world.progress.owed as usize + 2;
        let most = rounds * (world.schedule.offsets().len() + INTERRUPTIONS_MAX as usize);
        let end = if interrupted {
            Op::Interrupt { own: true }
        } else {
            Op::Finish { own: true, success, took: 1, retry_after: None }
        };
        let before = world.attempts.len() + world.interruptions;
        while !is_final(&world.state) {
            world.gone = None;
            if let State::Due(_) = world.state {
                world.apply(&Op::Claim { in_time: true })?;
            }
            world.apply(&end)?;
            prop_assert!(world.attempts.len() + world.interruptions - before <= most);
        }
        world.check_history()?;
    }

    /// Being down for any time, at any point, never makes a delivery dead sooner: a round that
    /// nobody stops has all its attempts.
    #[test]
    fn lateness_costs_no_attempt(
        schedule in schedule(),
        late in prop::collection::vec(0..200_000u64, 8),
        interrupted in prop::collection::vec(any::<bool>(), 8),
    ) {
        let mut world = World::new(schedule, false, Nature::Ordinary);
        let mut left = INTERRUPTIONS_MAX - 1;
        for (late, interrupted) in late.into_iter().zip(interrupted) {
            if is_final(&world.state) {
                break;
            }
            if interrupted && left > 0 {
                left -= 1;
                world.apply(&Op::Claim { in_time: true })?;
                world.apply(&Op::Interrupt { own: true })?;
            }
            if let State::Due(due) = world.state {
                world.now = world.now.max(due.at) + secs(late);
            }
            world.apply(&Op::Claim { in_time: true })?;
            let end = Op::Finish { own: true, success: false, took: 10, retry_after: None };
            world.apply(&end)?;
        }
        prop_assert!(matches!(world.state, State::Dead(_)));
        prop_assert_eq!(world.attempts.len(), world.schedule.offsets().len());
        world.check_history()?;
    }
}
