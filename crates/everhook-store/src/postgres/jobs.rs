//! `step`: long work, one step of one kind at a time.

use super::failure::VerbError;
use super::tx::Tx;
use super::{bulk, erase, keys, sweep};
use crate::jobs::JobStep;

/// Rows touched in one step.
pub(super) const STEP_ROWS: i64 = 500;

/// A kind of work: does a step and says [`JobStep::More`], or does nothing and says why.
#[derive(Clone, Copy)]
enum Kind {
    Sweep,
    Bulk,
    Erase,
    ForgetExpired,
}

/// All kinds, in the order of their turns.
const KINDS: [Kind; 4] = [Kind::Sweep, Kind::Bulk, Kind::Erase, Kind::ForgetExpired];

/// One step of the first kind that has work, beginning with the one whose turn it is; `turn` counts
/// the steps.
pub(super) async fn step(tx: &mut Tx, turn: usize) -> Result<JobStep, VerbError> {
    let mut left = JobStep::Idle;
    for kind in KINDS.iter().cycle().skip(turn % KINDS.len()).take(KINDS.len()) {
        left = left.and(match kind {
            Kind::Sweep => sweep::step(tx).await?,
            Kind::Bulk => bulk::step(tx).await?,
            Kind::Erase => erase::step(tx).await?,
            Kind::ForgetExpired => forget_expired(tx).await?,
        });
        if left == JobStep::More {
            break;
        }
    }
    Ok(left)
}

/// Forgets keys, idempotency records and claims that have expired.
async fn forget_expired(tx: &mut Tx) -> Result<JobStep, VerbError> {
    let more = keys::prune(tx, STEP_ROWS).await?;
    Ok(if more { JobStep::More } else { JobStep::Idle })
}
