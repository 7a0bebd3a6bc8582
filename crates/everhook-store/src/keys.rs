//! Idempotency records: claims that are made first and finished later, and what is shown of all
//! records.
//!
//! A verb of our own API needs no claim beforehand: its key commits with its effect
//! ([`Claim`]). What runs elsewhere, behind the proxy or at a user of the claim API,
//! claims its key first. What a record means is decided by
//! [`decide`](everhook_domain::idempotency::claim::decide); the store looks, and takes a key *that
//! is as it was seen*.

use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::id::RecordId;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{
    ClaimRecord, Finished, IllegalSettlement, Quota, Taken, Terms, Token,
};
use everhook_domain::idempotency::{Answer, Fingerprint};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;
use crate::reading::{Page, PageRequest};

/// Where the work of a record is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordOrigin {
    /// By our own API.
    Api,
    /// Behind the proxy.
    Proxy,
    /// At a user of the claim API.
    Claim,
}

impl RecordOrigin {
    const ALL: [Self; 3] = [Self::Api, Self::Proxy, Self::Claim];

    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Proxy => "proxy",
            Self::Claim => "claim",
        }
    }

    /// The origin with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == word)
    }
}

/// What a record is called where people look at it: of the key there is only a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordName {
    /// Where the work is done.
    pub origin: RecordOrigin,
    /// Whose key it is.
    pub account: String,
    /// What it is for: a method and a path without its query, or the scope of a claim.
    pub subject: String,
}

/// A key that is to be claimed.
#[derive(Clone, Debug)]
pub struct Taking {
    /// Whose it is: the record goes with the tenant. One that does not exist is refused.
    pub tenant: TenantId,
    /// The key, with tenant, account and whatever else it is unique within in it.
    pub key: KeyHash,
    /// What it is counted with.
    pub account: KeyHash,
    /// How it is shown.
    pub name: RecordName,
    /// The rule of the fingerprint.
    pub rule: u8,
    /// What a second use is compared by.
    pub fingerprint: Fingerprint,
    /// The new claim's token.
    pub token: Token,
    /// The checkpoint that the claim goes on with.
    pub checkpoint: Option<Vec<u8>>,
}

/// A claim, by whoever made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldClaim {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is claimed.
    pub key: KeyHash,
    /// What it was claimed with.
    pub token: Token,
}

/// What is stored of a claim, over or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredClaim {
    /// Its id: the same through all claims of one key until it is over.
    pub id: RecordId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What is under the key.
    pub key: KeyHash,
    /// What it means.
    pub record: ClaimRecord,
}

/// An idempotency record as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its id; the time in it is when its key was first claimed, or its work was done.
    pub id: RecordId,
    /// How it is shown.
    pub name: RecordName,
    /// How far it has come.
    pub state: RecordState,
    /// When its key is forgotten.
    pub expires_at: Timestamp,
}

/// How far an idempotency record has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Claimed until this instant, unless the lease is renewed.
    InProgress {
        /// The end of the lease.
        lease_until: Timestamp,
    },
    /// Its owner was not heard of since: nobody knows whether the work was done.
    Unknown {
        /// The end of the lease.
        since: Timestamp,
    },
    /// Done.
    Completed {
        /// The status that was answered.
        status: u16,
        /// Whether the answer can be given again.
        replayable: bool,
    },
}

/// Which idempotency records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordQuery {
    /// Of this origin.
    pub origin: Option<RecordOrigin>,
    /// How far they have come, by the word that is shown.
    pub state: Option<RecordStateWord>,
}

/// A [`RecordState`] without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordStateWord {
    /// [`RecordState::InProgress`].
    InProgress,
    /// [`RecordState::Unknown`].
    Unknown,
    /// [`RecordState::Completed`].
    Completed,
}

/// What is known of a record whose work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) status: u16,
    pub(crate) replayable: bool,
}

impl Completed {
    /// Of what is remembered, in its stored form.
    pub(crate) fn read(remembered: &[u8]) -> Result<Self, StoreError> {
        match Remembered::decode(remembered) {
            Ok(remembered) => Ok(Self::of(&remembered)),
            Err(unreadable) => Err(StoreError::Failed(unreadable.to_string())),
        }
    }

    /// Of what is remembered.
    pub(crate) const fn of(remembered: &Remembered) -> Self {
        match remembered {
            Remembered::Answer(answer) => Self { status: answer.status, replayable: true },
            Remembered::Tombstone { status } => Self { status: *status, replayable: false },
        }
    }
}

impl RecordState {
    /// Of a record that is live.
    pub(crate) fn of(completed: Option<Completed>, lease_until: Timestamp, now: Timestamp) -> Self {
        match completed {
            Some(Completed { status, replayable }) => Self::Completed { status, replayable },
            None if lease_until > now => Self::InProgress { lease_until },
            None => Self::Unknown { since: lease_until },
        }
    }

    /// Whether an operator may say how it ended.
    pub(crate) const fn may_be_settled(&self) -> Result<(), IllegalSettlement> {
        match self {
            Self::InProgress { .. } => Err(IllegalSettlement::InProgress),
            Self::Unknown { .. } => Ok(()),
            Self::Completed { .. } => Err(IllegalSettlement::Completed),
        }
    }

    /// Whether an operator may free its key.
    pub(crate) const fn may_be_forgotten(&self) -> Result<(), IllegalSettlement> {
        match self {
            Self::InProgress { .. } => Err(IllegalSettlement::InProgress),
            Self::Unknown { .. } | Self::Completed { .. } => Ok(()),
        }
    }
}

impl RecordQuery {
    /// Whether claims can be among what is wanted, and records of our own API, which are all
    /// completed.
    pub(crate) fn sides(&self) -> (bool, bool) {
        let claims = self.origin != Some(RecordOrigin::Api);
        let api = self.origin.is_none_or(|origin| origin == RecordOrigin::Api)
            && self.state.is_none_or(|state| state == RecordStateWord::Completed);
        (claims, api)
    }

    /// Whether a record is wanted.
    pub(crate) fn wants(&self, record: &KeyRecord) -> bool {
        self.origin.is_none_or(|origin| origin == record.name.origin)
            && self.state.is_none_or(|state| state == RecordStateWord::of(&record.state))
    }
}

impl RecordStateWord {
    const ALL: [Self; 3] = [Self::InProgress, Self::Unknown, Self::Completed];

    /// Of this state.
    pub const fn of(state: &RecordState) -> Self {
        match state {
            RecordState::InProgress { .. } => Self::InProgress,
            RecordState::Unknown { .. } => Self::Unknown,
            RecordState::Completed { .. } => Self::Completed,
        }
    }

    /// The word used in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Unknown => "unknown",
            Self::Completed => "completed",
        }
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Claims of keys, and all idempotency records. Every verb is atomic; `now` is the time on which
/// leases and lifetimes end, exactly at their instant.
#[async_trait]
pub trait Keys: Send + Sync {
    /// What is claimed under a key. It may be over; nothing is changed.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn look(&self, tenant: TenantId, key: KeyHash)
    -> Result<Option<StoredClaim>, StoreError>;

    /// The same by the record's id.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn look_at(
        &self,
        tenant: TenantId,
        id: RecordId,
    ) -> Result<Option<StoredClaim>, StoreError>;

    /// Claims a key that is exactly as it was `seen` (same token, same end), or absent if nothing
    /// was seen. One that was live keeps its id; any other counts in its account, and is refused
    /// if that has no room. What is over takes no room, whether it was cleared away or not.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was claimed. `Refused(NotFound)`: no such tenant.
    async fn take(
        &self,
        taking: Taking,
        seen: Option<(Token, Timestamp)>,
        terms: Terms,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Taken, StoreError>;

    /// Gives an open claim a new lease from now, also after its last one, if it still has this
    /// token and is not over; and a new checkpoint, if there is one. A finished claim stays as it
    /// is. Whether the claim is still the caller's, open or finished.
    ///
    /// # Errors
    /// [`StoreError`]; it is as it was.
    async fn renew(
        &self,
        claim: HeldClaim,
        terms: Terms,
        checkpoint: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Finishes an open claim that still has this token and is not over: what is remembered, as it
    /// is encoded, is kept for `ttl` from now, and counted in its account.
    ///
    /// # Errors
    /// [`StoreError`]; it is as it was.
    async fn finish(
        &self,
        claim: HeldClaim,
        remembered: Vec<u8>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Finished, StoreError>;

    /// Removes an open claim that still has this token, as if it had never been made. Whether it
    /// was removed.
    ///
    /// # Errors
    /// [`StoreError`]; it is as it was.
    async fn release(&self, claim: HeldClaim) -> Result<bool, StoreError>;

    /// A tenant's idempotency records that are live at `now`, of our own API too, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn records(
        &self,
        tenant: TenantId,
        query: RecordQuery,
        page: PageRequest,
        now: Timestamp,
    ) -> Result<Page<KeyRecord>, StoreError>;

    /// One of them. What it remembers is not told: an answer may hold a secret.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn record(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<Option<KeyRecord>, StoreError>;

    /// Settles a claim whose outcome is unknown: from now on its key is answered with this, for the
    /// store's [`StorePolicy::idempotency_ttl`](crate::StorePolicy). Its owner has lost it.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such record; `Refused(Record(…))`: it is completed, or its lease is
    /// not over. Nothing has changed.
    async fn resolve(
        &self,
        tenant: TenantId,
        id: RecordId,
        answer: Answer,
        claim: Option<Claim<KeyRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<KeyRecord>, StoreError>;

    /// Remembers the answer of a request that changes nothing else here, as that of any verb is
    /// remembered: who is first with its key is right for all.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is remembered.
    async fn remember(&self, claim: Claim<()>, now: Timestamp) -> Result<Claimed<()>, StoreError>;

    /// Forgets a record: its key is new. One whose lease is not over is refused.
    ///
    /// # Errors
    /// As [`Keys::resolve`].
    async fn forget(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<(), StoreError>;
}
