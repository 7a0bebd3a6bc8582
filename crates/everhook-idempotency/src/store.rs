//! Where keys are kept: one trait, and a file for each database.
//!
//! A store compares and sets; what a record means is decided by
//! [`decide`](everhook_domain::idempotency::claim::decide). Each verb is one transaction and takes
//! the store's own clock, so that processes whose clocks differ agree. The conformance suite
//! (`tests/conformance`) is the definition; a store of your own passes it or is none.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::Fingerprint;
use everhook_domain::idempotency::claim::{ClaimRecord, Token};
pub use everhook_domain::idempotency::claim::{Finished, Quota, Taken, Terms};
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
mod row;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// What is stored under a key, and when it was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The record, over or not.
    pub record: Option<ClaimRecord>,
    /// The store's time.
    pub now: Timestamp,
}

/// A key that is to be taken.
#[derive(Clone, Debug)]
pub struct Taking {
    /// The key.
    pub key: KeyHash,
    /// Whose keys it is counted with.
    pub account: KeyHash,
    /// The account's name, for a store that shows its records to people; empty if nobody said.
    pub account_name: String,
    /// What the key is for, for such a store: the method, and the path without its query.
    pub subject: String,
    /// The rule of the fingerprint.
    pub rule: u8,
    /// What a second use is compared by.
    pub fingerprint: Fingerprint,
    /// The new claim's token.
    pub token: Token,
    /// The checkpoint that the claim goes on with.
    pub checkpoint: Option<Vec<u8>>,
}

/// An open claim whose lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lapsed {
    /// The key.
    pub key: KeyHash,
    /// When its lease ended.
    pub since: Timestamp,
}

/// The store could not do it. What it says is for the log, never for a client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store of idempotency keys: {0}")]
pub struct StoreError(pub String);

impl StoreError {
    /// From what a database says.
    pub fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Keeps keys. Every verb is atomic, also against other processes.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// What is stored under a key now. It may be over; nothing is changed.
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError>;

    /// Takes a key that is exactly as it was `seen` (same token, same end), or absent if nothing
    /// was seen. A key that was absent counts in its account, and is refused if that has no room
    /// after what is over has been cleared away.
    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError>;

    /// Gives an open claim a new lease from now, also after its last one, if it still has this
    /// token; and a new checkpoint, if there is one. A finished claim stays as it is. Whether the
    /// claim is still the caller's, open or finished.
    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError>;

    /// Finishes an open claim that still has this token: the encoded answer is kept for `ttl` from
    /// now. Counts in its account what is remembered, whoever finished it.
    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError>;

    /// Removes an open claim that still has this token, as if its request had never come. Whether
    /// it was removed.
    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError>;

    /// Open claims whose leases are over, longest first, at most `limit`.
    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError>;

    /// Removes at most `limit` records that are over; returns how many. Never needed for a right
    /// answer: what is over counts as absent.
    async fn clean(&self, limit: u32) -> Result<u32, StoreError>;
}
