//! A verb under an idempotency claim: the record commits with the effect.
//!
//! The key's row is taken before the effect and given its answer after it, in one transaction: a
//! second request waits for that row, and then finds the answer, or, after a rollback, nothing.

use everhook_domain::idempotency::{self, Verdict};

use super::failure::VerbError;
use super::number::Bits;
use super::tx::Tx;
use super::{accounts, record};
use crate::claim::{Claim, Claimed};

/// Takes the claim's key; or what was answered under it before.
pub(super) async fn earlier<T>(
    tx: &mut Tx,
    claim: Option<&Claim<T>>,
) -> Result<Option<Claimed<T>>, VerbError> {
    let Some(claim) = claim else { return Ok(None) };
    tx.tenant(&claim.tenant)?;
    let key = Bits::from(claim.key);
    let expires_at = tx.now + tx.rules.policy.idempotency_ttl;
    let quota = tx.rules.policy.idempotency_quota;
    // Requests at the same instant may pass it by as many as there are.
    let has_room = accounts::has_room(tx, &claim.tenant, claim.account, quota, 0).await?;
    loop {
        let times = (tx.now, expires_at);
        if has_room && record::take_key(&mut tx.connection, &claim.tenant, key, times).await? {
            return Ok(None);
        }
        let stored = record::answer(&mut tx.connection, key).await?;
        match idempotency::verdict(stored, claim.fingerprint, tx.now) {
            Verdict::Replay(answer) => return Ok(Some(Claimed::Replayed(answer))),
            Verdict::Mismatch => return Ok(Some(Claimed::Mismatch)),
            Verdict::New if !has_room => return Ok(Some(Claimed::OverQuota)),
            // It was cleared away between the two looks: now it can be taken.
            Verdict::New => {}
        }
    }
}

/// Remembers the answer of a verb whose key was taken by [`earlier`].
pub(super) async fn done<T>(
    tx: &mut Tx,
    claim: Option<&Claim<T>>,
    outcome: T,
) -> Result<Claimed<T>, VerbError> {
    if let Some(claim) = claim {
        let answer = (claim.render)(&outcome);
        record::set_answer(tx, claim, &answer).await?;
    }
    Ok(Claimed::Done(outcome))
}
