//! Receipts: which events were received, which were processed, and who is at work on one.
//!
//! That an event was received and that it was processed are two facts. Between them stands a claim:
//! short, by its lease, and named by a token, beside a record that is remembered for days. So a
//! handler that fails gives its event back at once, and one that dies gives it back by its lease.
//!
//! A store never decides by the caller's clock, only by its own.

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::Timestamp;

use crate::verify::EventKey;

/// A store that is away, or could not do what was asked. What it holds no secret of can be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store failed: {0}")]
pub struct StoreError(pub String);

impl StoreError {
    /// The store failed in this way.
    pub fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// What names a claim: drawn at random for each, so that nobody acts under another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub i64);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system gives no random numbers.
    #[expect(clippy::disallowed_methods, reason = "the one place where this crate draws")]
    pub fn draw() -> Result<Self, StoreError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(StoreError::new)?;
        Ok(Self(i64::from_be_bytes(bytes)))
    }
}

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A claim that is not renewed.
    pub lease: Duration,
    /// A receipt, from when its event was first received. One that is this old is as if it were not
    /// there, unless somebody is at work on it.
    pub keep: Duration,
}

/// What came of asking for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours: it was never received, or was and came to nothing.
    Yes,
    /// Somebody is at work on it.
    InProgress,
    /// It was processed.
    Processed,
}

/// What is remembered of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// When it was first received.
    pub received_at: Timestamp,
    /// When it was processed, if it was.
    pub processed_at: Option<Timestamp>,
}

/// A store of receipts. Each verb is one atomic step, done when it returns; after an error it may
/// have been done.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync {
    /// Claims an event: of all who ask at the same time, on any number of processes, one gets it,
    /// until its lease ends or it is finished or released. An event that was received before and
    /// not processed is claimed like a new one, and stays received when it first was.
    ///
    /// # Errors
    /// The store is away.
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError>;

    /// Lets a claim last for `lease` from now. `false`: it is no longer the token's.
    ///
    /// # Errors
    /// The store is away.
    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError>;

    /// Marks the event of a claim as processed; a second time changes nothing. A claim whose lease
    /// has ended can be finished as long as nobody else has claimed the event. `false`: somebody
    /// has, and nothing is changed.
    ///
    /// # Errors
    /// The store is away.
    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError>;

    /// Gives a claim back: the next to ask gets the event. `false`: it is no longer the token's.
    ///
    /// # Errors
    /// The store is away.
    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError>;

    /// What is remembered of an event.
    ///
    /// # Errors
    /// The store is away.
    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError>;

    /// Deletes at most `limit` receipts that are older than `keep` and that nobody is at work on;
    /// returns how many. It only makes room, and is not needed where the store forgets by itself.
    ///
    /// # Errors
    /// The store is away.
    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError>;
}
