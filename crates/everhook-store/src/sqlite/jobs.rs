//! `step`: long work, one step of one kind at a time.

use everhook_domain::time::Timestamp;

use super::command::{Verb, VerbError};
use super::tx::Tx;
use super::{bulk, claims, erase, keys, record, sweep};
use crate::jobs::JobStep;

/// Rows touched in one step.
pub(super) const STEP_ROWS: u32 = 500;

/// A kind of work: does a step and says [`JobStep::More`], or does nothing and says why.
type Kind = fn(&mut Tx<'_>, Timestamp) -> Result<JobStep, VerbError>;

/// All kinds, in the order of their turns.
const KINDS: [Kind; 4] = [sweep::step, bulk::step, erase::step, forget_expired];

/// One step of the first kind that has work, beginning with the one whose turn it is.
pub(super) struct StepVerb {
    /// Counts the steps.
    pub(super) turn: usize,
    pub(super) now: Timestamp,
}

impl Verb for StepVerb {
    type Output = JobStep;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let mut left = JobStep::Idle;
        for kind in KINDS.iter().cycle().skip(self.turn % KINDS.len()).take(KINDS.len()) {
            left = left.and(kind(tx, self.now)?);
            if left == JobStep::More {
                break;
            }
        }
        Ok(left)
    }
}

/// Forgets keys, idempotency records and claims that have expired.
fn forget_expired(tx: &mut Tx<'_>, now: Timestamp) -> Result<JobStep, VerbError> {
    let pruned = keys::prune(tx.connection, now, STEP_ROWS)?;
    let answers = record::prune_answers(tx.connection, now, STEP_ROWS)?;
    let claims = claims::prune(tx, now, STEP_ROWS)?;
    if answers + claims > 0 {
        tx.keep_marks()?;
    }
    let full = STEP_ROWS as usize;
    let more = pruned.len() == full || answers == full || claims == full;
    tx.forget(pruned);
    Ok(if more { JobStep::More } else { JobStep::Idle })
}
