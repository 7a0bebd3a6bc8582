//! The state machine of a delivery: one pure function, [`step`].
//!
//! "When" is a column, not a state: new, retrying and postponed deliveries are all
//! [`State::Due`]. Every result is fenced: it names the lease it was made under, and a result from
//! another lease changes nothing. The store calls [`step`] inside a transaction and executes the
//! effects it returns; nothing else decides what becomes of a delivery.
//!
//! A lease that ended without a result is an *interruption*: the same numbered attempt is due again
//! at its old time (so the lateness it causes counts as ours), and it uses no step of the schedule.

use std::time::Duration;

use crate::attempt::{Attempt, AttemptReport, Trigger};
use crate::event::Nature;
use crate::fault::{self, Plant};
use crate::schedule::{self, Schedule};
use crate::time::Timestamp;

/// Interruptions in one round from which on a delivery is tried alone.
pub const SUSPECT_FROM: u32 = 3;
/// `Retry-After` never moves an attempt by more than this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);

/// Fences the results of a lease: unique within a store for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// A delivery that waits for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Not before this.
    pub at: Timestamp,
    /// What makes the coming attempt happen.
    pub cause: Trigger,
}

/// A delivery that somebody is sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Fences the result.
    pub token: Token,
    /// When it lapses; `None` where the owner's death is known without a clock.
    pub until: Option<Timestamp>,
    /// What it was before, and is again if the lease ends without a result.
    pub due: Due,
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for its time.
    Due(Due),
    /// Being sent.
    Leased(Lease),
    /// The endpoint took it.
    Delivered,
    /// Given up; kept, shown, replayable.
    Dead(Dead),
    /// Not wanted any more.
    Cancelled(CancelReason),
}

/// A delivery that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Why.
    pub reason: DeadReason,
    /// When somebody, or a rule, took note of it: no more warning.
    pub acknowledged_at: Option<Timestamp>,
}

/// Why a delivery was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadReason {
    /// The schedule is used up.
    Exhausted,
    /// Too many leases in one round ended without a result.
    Interrupted,
}

impl DeadReason {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Why a delivery was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelReason {
    /// Somebody cancelled it.
    Requested,
    /// Its endpoint was disabled.
    EndpointDisabled,
    /// Its endpoint was deleted.
    EndpointDeleted,
}

impl CancelReason {
    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::EndpointDisabled => "endpoint_disabled",
            Self::EndpointDeleted => "endpoint_deleted",
        }
    }
}

/// How far a delivery has come. All zero and empty, with round 1, for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The run of the schedule, from 1.
    pub round: u32,
    /// The highest number an attempt has had, through all rounds.
    pub number: u32,
    /// Steps of the schedule used in this round.
    pub step: u32,
    /// Start of the round's first attempt.
    pub anchor: Option<Timestamp>,
    /// Lateness of our making in this round.
    pub shift: Duration,
    /// Start of the last numbered attempt of this round.
    pub last_start: Option<Timestamp>,
    /// Leases of this round that ended without a result.
    pub interruptions: u32,
    /// Replays asked for while one was already under way.
    pub owed: u32,
    /// A cancellation that waits for the lease to end.
    pub cancel: Option<CancelReason>,
}

impl Progress {
    /// A delivery that was never tried.
    pub const NEW: Self = Self {
        round: 1,
        number: 0,
        step: 0,
        anchor: None,
        shift: Duration::ZERO,
        last_start: None,
        interruptions: 0,
        owed: 0,
        cancel: None,
    };

    /// The number that the next attempt carries.
    pub const fn next_number(&self) -> u32 {
        self.number + 1
    }

    /// Whether it must be tried alone, so that a payload which kills the process takes no other
    /// delivery with it.
    pub const fn is_suspect(&self) -> bool {
        self.interruptions >= SUSPECT_FROM
    }

    /// The start of the next round.
    #[must_use]
    const fn next_round(self) -> Self {
        Self {
            round: self.round + 1,
            number: self.number,
            owed: self.owed,
            cancel: self.cancel,
            ..Self::NEW
        }
    }
}

/// What happens to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Somebody begins to send it.
    Claimed {
        /// Fences the result.
        token: Token,
        /// When the lease lapses.
        until: Option<Timestamp>,
    },
    /// The lease is given back: nothing was tried.
    Released {
        /// The lease's token.
        token: Token,
    },
    /// The attempt has ended.
    Finished {
        /// The lease's token.
        token: Token,
        /// What it came to.
        report: Box<AttemptReport>,
    },
    /// The lease ended without a result.
    Interrupted {
        /// The lease's token.
        token: Token,
    },
    /// Send it, or send it again.
    Replay,
    /// Do not send it any more.
    Cancel(CancelReason),
    /// Take note that it is dead.
    Acknowledge,
}

/// What the store must write besides the new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// One numbered attempt.
    Attempt(Box<Attempt>),
    /// One lease that ended without a result.
    Interruption {
        /// The lease's token.
        token: Token,
    },
    /// The system event that tells that it was given up.
    Dead(DeadReason),
}

/// What the step depends on besides the delivery itself.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// When attempts are due.
    pub schedule: &'a Schedule,
    /// Interruptions in one round that make a delivery dead.
    pub interruptions_max: u32,
    /// Whether an answer's `Retry-After` may move the next attempt.
    pub honor_retry_after: bool,
    /// Why the endpoint takes no requests; `None` while it does (a paused one does: later).
    pub endpoint_gone: Option<CancelReason>,
    /// What the delivery's event is.
    pub nature: Nature,
}

/// Why a step was refused. Nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalStep {
    /// The result belongs to a lease that has ended.
    #[error("the lease has ended")]
    Stale,
    /// The delivery is not due.
    #[error("the delivery is not due")]
    NotDue,
    /// The delivery has already ended.
    #[error("the delivery has already ended")]
    Ended,
    /// Only a dead delivery can be acknowledged.
    #[error("the delivery is not dead")]
    NotDead,
    /// The endpoint takes no requests any more.
    #[error("the endpoint takes no requests ({})", .0.as_str())]
    EndpointGone(CancelReason),
}

/// The new state, the new progress, and what to write besides.
pub type Stepped = (State, Progress, Vec<Effect>);

/// What becomes of a delivery.
///
/// # Errors
/// [`IllegalStep`] says why the input does not apply; the delivery stays as it is.
pub fn step(
    state: State,
    progress: Progress,
    input: Input,
    policy: Policy<'_>,
    now: Timestamp,
) -> Result<Stepped, IllegalStep> {
    match input {
        Input::Claimed { token, until } => claimed(state, progress, token, until, policy, now),
        Input::Released { token } => {
            let lease = fenced(state, token)?;
            Ok(match progress.cancel.or(policy.endpoint_gone) {
                Some(reason) => cancelled(progress, reason, Vec::new()),
                None => (State::Due(lease.due), progress, Vec::new()),
            })
        }
        Input::Finished { token, report } => {
            let lease = fenced(state, token)?;
            Ok(finished(lease, progress, *report, policy, now))
        }
        Input::Interrupted { token } => {
            let lease = fenced(state, token)?;
            Ok(interrupted(lease, progress, policy, now))
        }
        Input::Replay => replay(state, progress, policy, now),
        Input::Cancel(reason) => match state {
            State::Due(_) => Ok(cancelled(progress, reason, Vec::new())),
            State::Leased(_) => {
                // The first reason stands: it may have been answered already.
                let cancel = progress.cancel.or(Some(reason));
                let progress = Progress { owed: 0, cancel, ..progress };
                Ok((state, progress, Vec::new()))
            }
            State::Delivered | State::Dead(_) | State::Cancelled(_) => Err(IllegalStep::Ended),
        },
        Input::Acknowledge => match state {
            State::Dead(Dead { reason, acknowledged_at }) => {
                let acknowledged_at = acknowledged_at.or(Some(now));
                Ok((State::Dead(Dead { reason, acknowledged_at }), progress, Vec::new()))
            }
            State::Due(_) | State::Leased(_) | State::Delivered | State::Cancelled(_) => {
                Err(IllegalStep::NotDead)
            }
        },
    }
}

/// The lease, if the result was made under it.
fn fenced(state: State, token: Token) -> Result<Lease, IllegalStep> {
    match state {
        State::Leased(lease) if lease.token == token || fault::planted(Plant::NoTokenCompare) => {
            Ok(lease)
        }
        State::Leased(_)
        | State::Due(_)
        | State::Delivered
        | State::Dead(_)
        | State::Cancelled(_) => Err(IllegalStep::Stale),
    }
}

fn claimed(
    state: State,
    progress: Progress,
    token: Token,
    until: Option<Timestamp>,
    policy: Policy<'_>,
    now: Timestamp,
) -> Result<Stepped, IllegalStep> {
    match state {
        State::Due(due) if due.at <= now => match policy.endpoint_gone {
            Some(reason) => Err(IllegalStep::EndpointGone(reason)),
            None => Ok((State::Leased(Lease { token, until, due }), progress, Vec::new())),
        },
        State::Due(_)
        | State::Leased(_)
        | State::Delivered
        | State::Dead(_)
        | State::Cancelled(_) => Err(IllegalStep::NotDue),
    }
}

fn cancelled(progress: Progress, reason: CancelReason, effects: Vec<Effect>) -> Stepped {
    let progress = Progress { owed: 0, cancel: None, ..progress };
    (State::Cancelled(reason), progress, effects)
}

/// Given up: told of, unless it is an event of our own. A test is born acknowledged.
fn dead(
    (reason, now): (DeadReason, Timestamp),
    progress: Progress,
    mut effects: Vec<Effect>,
    policy: Policy<'_>,
) -> Stepped {
    if policy.nature.is_told_of() {
        effects.push(Effect::Dead(reason));
    }
    let acknowledged_at = (policy.nature == Nature::Test).then_some(now);
    (State::Dead(Dead { reason, acknowledged_at }), progress, effects)
}

fn replay(
    state: State,
    progress: Progress,
    policy: Policy<'_>,
    now: Timestamp,
) -> Result<Stepped, IllegalStep> {
    if let Some(reason) = policy.endpoint_gone {
        return Err(IllegalStep::EndpointGone(reason));
    }
    let at_once = State::Due(Due { at: now, cause: Trigger::Replay });
    // One that is already on its way goes on, and one more follows: twice is twice.
    let one_more = Progress { owed: progress.owed + 1, cancel: None, ..progress };
    Ok(match state {
        State::Due(Due { cause: Trigger::Replay, .. }) | State::Leased(_) => {
            (state, one_more, Vec::new())
        }
        State::Due(Due { cause: Trigger::Schedule | Trigger::Test, .. }) => {
            (at_once, progress, Vec::new())
        }
        State::Delivered | State::Dead(_) | State::Cancelled(_) => {
            (at_once, progress.next_round(), Vec::new())
        }
    })
}

fn interrupted(lease: Lease, progress: Progress, policy: Policy<'_>, now: Timestamp) -> Stepped {
    let mut progress = Progress { interruptions: progress.interruptions + 1, ..progress };
    if fault::planted(Plant::InterruptionCounts) {
        progress.number += 1;
    }
    let effects = vec![Effect::Interruption { token: lease.token }];
    if let Some(reason) = progress.cancel.or(policy.endpoint_gone) {
        return cancelled(progress, reason, effects);
    }
    if progress.interruptions >= policy.interruptions_max {
        let progress = Progress { owed: 0, ..progress };
        return dead((DeadReason::Interrupted, now), progress, effects, policy);
    }
    (State::Due(lease.due), progress, effects)
}

fn finished(
    lease: Lease,
    progress: Progress,
    report: AttemptReport,
    policy: Policy<'_>,
    now: Timestamp,
) -> Stepped {
    let started = report.started_at;
    let late = schedule::shift_for(lease.due.at, started);
    let after = Progress {
        number: progress.next_number(),
        step: progress.step + 1,
        anchor: progress.anchor.or(Some(started)),
        // Before the anchor is set there is nothing to shift.
        shift: if progress.anchor.is_some() { progress.shift + late } else { progress.shift },
        last_start: Some(started),
        ..progress
    };
    let success = report.outcome.is_success();
    let retry_after = report.outcome.retry_after.filter(|_| policy.honor_retry_after);
    let attempt =
        Attempt { number: after.number, round: after.round, trigger: lease.due.cause, report };
    let effects = vec![Effect::Attempt(Box::new(attempt))];
    // A round of a test is one attempt, whatever has caused that.
    let next = match policy.nature {
        Nature::Ordinary | Nature::System => next_due(&after, policy.schedule, retry_after, now),
        Nature::Test => None,
    };
    let at_once = State::Due(Due { at: now, cause: Trigger::Replay });

    if !success && let Some(reason) = after.cancel.or(policy.endpoint_gone) {
        return cancelled(after, reason, effects);
    }
    let owes = after.owed > 0 && policy.endpoint_gone.is_none();
    let paid = Progress { owed: after.owed.saturating_sub(1), cancel: None, ..after };
    if success {
        return if owes {
            (at_once, paid.next_round(), effects)
        } else {
            (State::Delivered, Progress { owed: 0, cancel: None, ..after }, effects)
        };
    }
    match next {
        None if owes => (at_once, paid.next_round(), effects),
        Some(_) if owes => (at_once, paid, effects),
        Some(at) => (State::Due(Due { at, cause: Trigger::Schedule }), after, effects),
        None => dead((DeadReason::Exhausted, now), after, effects, policy),
    }
}

/// When the next step of the round is due, or `None` if there is none.
fn next_due(
    progress: &Progress,
    schedule: &Schedule,
    retry_after: Option<Duration>,
    now: Timestamp,
) -> Option<Timestamp> {
    let (anchor, last_start) = (progress.anchor?, progress.last_start?);
    let mut due = schedule.due(progress.step, anchor, progress.shift, last_start)?;
    if fault::planted(Plant::StepEarly) {
        due = due.minus(Duration::from_secs(1));
    }
    Some(match retry_after {
        Some(wait) => due.max((now + wait).min(due + RETRY_AFTER_MAX)),
        None => due,
    })
}
