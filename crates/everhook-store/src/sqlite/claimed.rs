//! A verb under an idempotency claim: the record commits with the effect.

use everhook_domain::idempotency::{self, IdempotencyRecord, Verdict};
use everhook_domain::time::Timestamp;

use super::command::VerbError;
use super::keys::KeyEntry;
use super::record::{self, NewRecord};
use super::tx::Tx;
use crate::claim::{Claim, Claimed};

/// Runs `effect` unless the claim's key is live, and remembers its answer.
pub(super) fn run<T>(
    tx: &mut Tx<'_>,
    claim: Option<&Claim<T>>,
    now: Timestamp,
    effect: impl FnOnce(&mut Tx<'_>) -> Result<T, VerbError>,
) -> Result<Claimed<T>, VerbError> {
    let Some(claim) = claim else { return effect(tx).map(Claimed::Done) };
    let tenant = tx.tenant(&claim.tenant)?;
    let stored = match tx.key(&claim.key, now) {
        Some(entry) => record::answer(tx.connection, entry.target)?,
        None => None,
    };
    match idempotency::verdict(stored, claim.fingerprint, now) {
        Verdict::Replay(answer) => return Ok(Claimed::Replayed(answer)),
        Verdict::Mismatch => return Ok(Claimed::Mismatch),
        Verdict::New => {}
    }
    if !tx.has_room(&claim.account, tx.policy.idempotency_quota, now) {
        return Ok(Claimed::OverQuota);
    }
    let outcome = effect(tx)?;
    let expires_at = now + tx.policy.idempotency_ttl;
    let record = IdempotencyRecord {
        fingerprint: claim.fingerprint,
        expires_at,
        answer: (claim.render)(&outcome),
    };
    let (target, created_at) = tx.next_event(now);
    let new = NewRecord {
        sequence: target,
        created_at,
        tenant,
        key: claim.key,
        account: &claim.account_name,
        subject: &claim.subject,
        record: &record,
    };
    let bytes = record::insert_answer(tx.connection, &new)?;
    let entry = KeyEntry { target, expires_at };
    tx.remember(tenant, (claim.key, entry), Some((claim.account, bytes)))?;
    Ok(Claimed::Done(outcome))
}
