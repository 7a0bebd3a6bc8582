//! What a key means for a request whose handler claims it first and answers later.
//!
//! A claim is *open* while its handler runs and *finished* when there is something to give again.
//! An open claim has a lease; one whose lease is over says that nobody knows what became of the
//! handler, and [`Lapse`] says what that means. A claim has a token: whoever presents another one
//! changes nothing, so a handler that was thought dead cannot overwrite what came after it.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::answer::Remembered;
use super::fingerprint::{self, Fingerprint};
use crate::digest;
use crate::key::KeyHash;
use crate::time::Timestamp;

/// What is stored under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The account that it is counted with.
    pub account: KeyHash,
    /// The rule of the fingerprint.
    pub rule: u8,
    /// What the first request was compared by.
    pub fingerprint: Fingerprint,
    /// Whose claim it is.
    pub token: Token,
    /// When the record ends; at exactly this instant it is over, open or finished.
    pub expires_at: Timestamp,
    /// How far it has come.
    pub state: ClaimState,
}

/// Tells one claim of a key from every other: random, so that none comes twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub i64);

impl Token {
    /// Another token, which nobody was given: whoever settles a claim that is not its own leaves
    /// its owner without one.
    pub const fn nobodys(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// How far a claim has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The handler runs, or was running when it was heard of last.
    Open {
        /// Until when nobody else may take the key; at exactly this instant the lease is over.
        lease_until: Timestamp,
        /// Where the handler said that it can be resumed.
        checkpoint: Option<Vec<u8>>,
    },
    /// The handler has ended.
    Finished(Remembered),
}

/// What a lease that is over means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lapse {
    /// Nobody knows whether the work was done: it is not run again until somebody settles it.
    #[default]
    Unknown,
    /// The next request runs the handler again: for one whose effect commits together with its
    /// key, or is harmless twice.
    Rerun,
    /// As [`Lapse::Rerun`], and the handler is told where it can go on.
    Resume,
}

/// Which answers are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Every final answer of a handler that began, failures too.
    #[default]
    Final,
    /// Successes (2xx); anything else frees the key.
    SuccessOnly,
}

/// How long a claim lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lease of an open claim, from when it is taken or renewed.
    pub lease: Duration,
    /// How long a record is kept: from the end of its lease, or from when it was finished.
    pub ttl: Duration,
}

/// What an account may have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Keys that are live.
    pub keys: u64,
    /// Bytes of remembered answers; while they are this many or more, no new key is taken.
    pub bytes: u64,
}

/// What came of taking a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The claim is made.
    Yes,
    /// The key is no longer as it was seen: look again.
    Changed,
    /// The account has as much as it may have.
    OverQuota,
}

/// What came of finishing a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// It is remembered.
    Now,
    /// This very claim was finished already: by the handler's own transaction, or by a try of this
    /// verb whose result was lost.
    Before,
    /// The claim is somebody else's, or was settled, or is gone.
    Lost,
}

/// What a key means for the request that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing live under this key: claim it and run.
    New,
    /// The last handler was lost, and the work may run again: claim it and run.
    Reclaim {
        /// Where it can go on, under [`Lapse::Resume`].
        checkpoint: Option<Vec<u8>>,
    },
    /// The first request still runs.
    InProgress,
    /// It has ended: give this.
    Completed(Remembered),
    /// Another request used this key.
    Mismatch,
    /// It began and nobody knows how it ended.
    Unknown,
}

/// What a request with this fingerprint gets, given what is stored under its key.
///
/// A record whose fingerprint was made by another rule cannot be compared; its key alone counts.
pub fn decide(
    record: Option<&ClaimRecord>,
    fingerprint: Fingerprint,
    lapse: Lapse,
    now: Timestamp,
) -> Decision {
    let Some(record) = record.filter(|record| record.expires_at > now) else {
        return Decision::New;
    };
    if record.rule == fingerprint::RULE && record.fingerprint != fingerprint {
        return Decision::Mismatch;
    }
    match &record.state {
        ClaimState::Finished(remembered) => Decision::Completed(remembered.clone()),
        ClaimState::Open { lease_until, .. } if *lease_until > now => Decision::InProgress,
        ClaimState::Open { checkpoint, .. } => match lapse {
            Lapse::Unknown => Decision::Unknown,
            Lapse::Rerun => Decision::Reclaim { checkpoint: None },
            Lapse::Resume => Decision::Reclaim { checkpoint: checkpoint.clone() },
        },
    }
}

impl ClaimRecord {
    /// Whether it is open and its lease is over: what an operator may settle.
    pub fn has_lapsed(&self, now: Timestamp) -> bool {
        match self.state {
            ClaimState::Open { lease_until, .. } => lease_until <= now && self.expires_at > now,
            ClaimState::Finished(_) => false,
        }
    }
}

/// Why a record cannot be settled or forgotten by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalSettlement {
    /// Its work is done, and its answer is known.
    #[error("it is completed: what it answers is known")]
    Completed,
    /// Its owner is at work, as far as anybody knows.
    #[error("it is in progress: its lease is not over, and its owner may still finish it")]
    InProgress,
}

/// Whether an answer of this status is remembered; if not, the key is free again.
///
/// What a request is refused with before its handler begins says nothing about the work: 401, 403,
/// 405, 408, 413, 415, 425, 429. (A router's 404 cannot be told from a handler's: the layer belongs
/// inside the router.)
pub fn is_remembered(policy: Policy, status: u16) -> bool {
    match (policy, status) {
        (_, 401 | 403 | 405 | 408 | 413 | 415 | 425 | 429) => false,
        (Policy::Final, _) => true,
        (Policy::SuccessOnly, status) => (200..300).contains(&status),
    }
}

/// A key for a call that the handler itself makes: the same one whenever this step is tried again.
pub fn derived_key(key: KeyHash, step: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(b"everhook derived key");
    hash.update(key.0);
    hash.update(step.as_bytes());
    digest::hex(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::idempotency::Answer;

    const NOW: i64 = 1_000;

    fn print(body: &[u8]) -> Fingerprint {
        Fingerprint::new(b"application/json", body)
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn record(expires: i64, state: ClaimState) -> ClaimRecord {
        let fingerprint = print(b"{}");
        let (rule, token) = (fingerprint::RULE, Token(1));
        ClaimRecord {
            account: KeyHash([0; 16]),
            rule,
            fingerprint,
            token,
            expires_at: at(expires),
            state,
        }
    }

    fn open(lease: i64) -> ClaimState {
        ClaimState::Open { lease_until: at(lease), checkpoint: Some(b"c".to_vec()) }
    }

    fn answer() -> Remembered {
        Remembered::Answer(Answer { status: 201, headers: vec![], body: b"{}".to_vec() })
    }

    fn check(record: Option<&ClaimRecord>, body: &[u8], lapse: Lapse, expected: &Decision) {
        let decided = decide(record, print(body), lapse, at(NOW));
        assert_eq!(decided, *expected, "{record:?} {lapse:?}");
    }

    #[test]
    fn decisions() {
        use Decision::{Completed, InProgress, Mismatch, New, Reclaim, Unknown};
        let finished = || ClaimState::Finished(answer());
        let tombstone = Remembered::Tombstone { status: 200 };
        let (free, point) =
            (Reclaim { checkpoint: None }, Reclaim { checkpoint: Some(b"c".to_vec()) });
        for (stored, expected) in [
            // By lapse: unknown, rerun, resume.
            (None, [New, New, New]),
            (Some(record(2_000, open(1_001))), [InProgress, InProgress, InProgress]),
            (Some(record(2_000, open(1_000))), [Unknown, free.clone(), point.clone()]),
            (Some(record(2_000, open(0))), [Unknown, free, point]),
            (Some(record(1_000, open(0))), [New, New, New]),
            (Some(record(1_001, finished())), [(); 3].map(|()| Completed(answer()))),
            (Some(record(1_000, finished())), [New, New, New]),
            (
                Some(record(1_001, ClaimState::Finished(tombstone.clone()))),
                [(); 3].map(|()| Completed(tombstone.clone())),
            ),
        ] {
            for (lapse, expected) in
                [Lapse::Unknown, Lapse::Rerun, Lapse::Resume].iter().zip(expected)
            {
                check(stored.as_ref(), b"{}", *lapse, &expected);
                let other = if expected == New { New } else { Mismatch };
                check(stored.as_ref(), b"{} ", *lapse, &other);
            }
        }
    }

    #[test]
    fn a_fingerprint_of_another_rule_is_not_compared() {
        let mut other = record(2_000, ClaimState::Finished(answer()));
        other.rule = fingerprint::RULE + 1;
        check(Some(&other), b"{} ", Lapse::Unknown, &Decision::Completed(answer()));
    }

    #[test]
    fn what_may_be_settled() {
        for (record, expected) in [
            (record(2_000, open(1_001)), false),
            (record(2_000, open(1_000)), true),
            (record(1_000, open(1_000)), false),
            (record(2_000, ClaimState::Finished(answer())), false),
        ] {
            assert_eq!(record.has_lapsed(at(NOW)), expected, "{record:?}");
        }
    }

    #[test]
    fn case_050_what_is_remembered() {
        for (status, whole, success) in [
            (200, true, true),
            (201, true, true),
            (204, true, true),
            (303, true, false),
            (400, true, false),
            (401, false, false),
            (403, false, false),
            (404, true, false),
            (405, false, false),
            (408, false, false),
            (409, true, false),
            (413, false, false),
            (415, false, false),
            (422, true, false),
            (425, false, false),
            (429, false, false),
            (500, true, false),
            (503, true, false),
        ] {
            assert_eq!(is_remembered(Policy::Final, status), whole, "{status}");
            assert_eq!(is_remembered(Policy::SuccessOnly, status), success, "{status}");
        }
    }

    #[test]
    fn derived_keys_differ_by_key_and_step() {
        let (a, b) = (KeyHash([1; 16]), KeyHash([2; 16]));
        assert_eq!(derived_key(a, "charge"), derived_key(a, "charge"));
        assert_ne!(derived_key(a, "charge"), derived_key(a, "mail"));
        assert_ne!(derived_key(a, "charge"), derived_key(b, "charge"));
        assert_eq!(derived_key(a, "").len(), 32);
    }
}
