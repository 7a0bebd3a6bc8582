//! What a handler holds while it runs under a key.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::idempotency::claim::{Token, derived_key};
use everhook_domain::key::KeyHash;

use crate::store::{Store, StoreError, Terms};

/// A handler's claim of its key, in the extensions of every request that runs under one.
///
/// Most handlers need nothing of it. Those that do say that nothing happened, name keys for the
/// calls that they make themselves, keep checkpoints, or finish the claim in their own transaction.
#[derive(Clone)]
pub struct Claim(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    key: KeyHash,
    token: Token,
    terms: Terms,
    answer_bytes_max: usize,
    rerun: bool,
    checkpoint: Option<Vec<u8>>,
    nothing: AtomicBool,
    lost: AtomicBool,
}

/// A claim could not be finished or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// The claim is somebody else's by now: whatever was done under it must be undone.
    #[error("the idempotency claim was lost to another request, or settled by an operator")]
    Lost,
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("record", &self.record()).finish_non_exhaustive()
    }
}

impl Claim {
    /// A claim that was just taken; `rerun` after an earlier handler was lost.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        (key, token): (KeyHash, Token),
        terms: Terms,
        answer_bytes_max: usize,
        rerun: Option<Option<Vec<u8>>>,
    ) -> Self {
        Self(Arc::new(Shared {
            store,
            key,
            token,
            terms,
            answer_bytes_max,
            rerun: rerun.is_some(),
            checkpoint: rerun.flatten(),
            nothing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
        }))
    }

    /// The record's id, as an operator names it.
    pub fn record(&self) -> RecordId {
        RecordId(self.0.key)
    }

    /// Whether an earlier handler began this request and was lost.
    pub fn is_rerun(&self) -> bool {
        self.0.rerun
    }

    /// Where an earlier handler said that this request can be resumed, under
    /// [`Lapse::Resume`](crate::Lapse::Resume).
    pub fn checkpoint(&self) -> Option<&[u8]> {
        self.0.checkpoint.as_deref()
    }

    /// Keeps where this request can be resumed. It replaces the last checkpoint, and is on the disk
    /// when this returns.
    ///
    /// # Errors
    /// The claim was lost: stop; or the store is away.
    pub async fn save_checkpoint(&self, checkpoint: &[u8]) -> Result<(), FinishError> {
        let Shared { store, key, token, terms, .. } = &*self.0;
        if store.renew(*key, *token, *terms, Some(checkpoint)).await? {
            Ok(())
        } else {
            self.lose();
            Err(FinishError::Lost)
        }
    }

    /// A key for a call to another service: the same whenever this step of this request runs again.
    pub fn derived_key(&self, step: &str) -> String {
        derived_key(self.0.key, step)
    }

    /// Says that this request has had no effect, so its key is free again and its answer is not
    /// remembered.
    pub fn nothing_happened(&self) {
        self.0.nothing.store(true, Ordering::Relaxed);
    }

    /// Whether the claim is known to be somebody else's by now: what is not done yet had better not
    /// be begun.
    pub fn is_lost(&self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn had_no_effect(&self) -> bool {
        self.0.nothing.load(Ordering::Relaxed)
    }

    pub(crate) fn lose(&self) {
        self.0.lost.store(true, Ordering::Relaxed);
    }

    pub(crate) fn key(&self) -> KeyHash {
        self.0.key
    }

    pub(crate) fn token(&self) -> Token {
        self.0.token
    }

    pub(crate) fn terms(&self) -> Terms {
        self.0.terms
    }

    /// The stored form of an answer, or its tombstone if it is too large.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn encode(&self, answer: &Answer) -> Vec<u8> {
        self.remembered(answer.clone()).encode()
    }

    pub(crate) fn remembered(&self, answer: Answer) -> Remembered {
        if answer.body.len() <= self.0.answer_bytes_max {
            Remembered::Answer(answer)
        } else {
            Remembered::Tombstone { status: answer.status }
        }
    }
}

/// Names a record to an operator: 32 hexadecimal digits, which reveal nothing of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordId(pub(crate) KeyHash);

/// The text is no record id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record id is 32 hexadecimal digits")]
pub struct InvalidRecordId;

impl RecordId {
    /// What the record is kept under.
    pub const fn key(self) -> KeyHash {
        self.0
    }
}

impl From<KeyHash> for RecordId {
    fn from(key: KeyHash) -> Self {
        Self(key)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for RecordId {
    type Err = InvalidRecordId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(InvalidRecordId);
        }
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = text.get(2 * at..2 * at + 2).ok_or(InvalidRecordId)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| InvalidRecordId)?;
        }
        Ok(Self(KeyHash(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_ids_are_read_as_they_are_shown() {
        let id = RecordId(KeyHash([0xab; 16]));
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "ab", &"g".repeat(32), &"a".repeat(33), &"é".repeat(16)] {
            assert_eq!(text.parse::<RecordId>(), Err(InvalidRecordId), "{text}");
        }
    }
}
