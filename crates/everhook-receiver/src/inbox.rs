//! A durable inbox: events are stored before their sender gets its 2xx, and worked on afterwards,
//! with retries of their own.
//!
//! | a crash | what is left | what becomes of the event |
//! | --- | --- | --- |
//! | before it is stored | nothing | its sender had no 2xx, and sends it again |
//! | after that, before the 2xx | the event | the next attempt is a duplicate; it is worked on |
//! | a worker, until its handler ends | the event, leased | worked on when the lease ends |
//! | a worker, before the mark | the same, and all of its work | **worked on again** |
//! | a worker, after the mark | processed | nothing more |
//!
//! With `finish_in` of an inbox the mark commits with the work, and the fourth line is the third.
//!
//! Each take counts as an attempt, a crashed one too, so an event that kills its worker every time
//! is dead in the end like one that fails. Dead events stay until somebody revives them.

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "tower")]
mod service;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod worker;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::time::Timestamp;
use http::HeaderMap;
use tokio::sync::Notify;

use crate::store::{StoreError, Token};
use crate::verify::EventKey;

#[cfg(feature = "tower")]
pub use service::InboxService;
pub use worker::{Worker, WorkerSettings};

/// An event that is to be stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Letter {
    /// What identifies it.
    pub key: EventKey,
    /// Its second key, if it has one: see [`Event::guard`](crate::Event::guard).
    pub guard: Option<EventKey>,
    /// Its type.
    pub event_type: String,
    /// The headers that came with it, without those of the connection and credentials.
    pub headers: ForwardedHeaders,
    /// Its bytes.
    pub body: Bytes,
}

impl fmt::Debug for Letter {
    /// Without the payload, which stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Letter");
        debug.field("key", &self.key).field("event_type", &self.event_type);
        debug.finish_non_exhaustive()
    }
}

/// What became of an event that was to be stored. Each is a success for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It was new, and is stored.
    New,
    /// It is there already, processed or not.
    Duplicate,
    /// Its signed bytes came before, under another id: it is not stored.
    Captured,
}

/// An event in the hands of a worker.
#[derive(Clone)]
pub struct Job {
    /// What identifies it.
    pub key: EventKey,
    /// Its type.
    pub event_type: String,
    /// The headers that came with it.
    pub headers: HeaderMap,
    /// Its bytes.
    pub body: Bytes,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When it was received.
    pub received_at: Timestamp,
    /// What names this attempt.
    pub token: Token,
}

impl fmt::Debug for Job {
    /// Without the payload, which stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Job");
        debug.field("key", &self.key).field("event_type", &self.event_type);
        debug.field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// An event that nobody works on any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dead {
    /// What identifies it.
    pub key: EventKey,
    /// Its type.
    pub event_type: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it died.
    pub dead_at: Timestamp,
    /// Why its last attempt failed.
    pub reason: String,
}

/// An inbox. Each verb is one transaction, done when it returns; the clock is the database's.
#[async_trait]
pub trait Inbox: fmt::Debug + Send + Sync {
    /// Stores the events of a request, all or none; what became of each, in order. Of all who store
    /// one event at the same time, one stores it.
    ///
    /// # Errors
    /// The database is away: nothing is stored.
    async fn store(&self, letters: &[Letter]) -> Result<Vec<Stored>, StoreError>;

    /// Takes the event that is due for longest, for `lease`; nobody else gets it until then.
    /// `None`: none is due.
    ///
    /// # Errors
    /// The database is away.
    async fn take(&self, token: Token, lease: Duration) -> Result<Option<Job>, StoreError>;

    /// Lets a lease last for `lease` from now. `false`: the event is no longer the token's.
    ///
    /// # Errors
    /// The database is away.
    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError>;

    /// Marks an event as processed; a second time changes nothing. Its key stays, its bytes go.
    /// `false`: it is no longer the token's, and nothing is changed.
    ///
    /// # Errors
    /// The database is away.
    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError>;

    /// Gives an event back, to be taken again `after` this time. `false`: it is no longer the
    /// token's.
    ///
    /// # Errors
    /// The database is away.
    async fn retry(
        &self,
        key: &EventKey,
        token: Token,
        after: Duration,
        reason: &str,
    ) -> Result<bool, StoreError>;

    /// Gives an event up: it is dead. `false`: it is no longer the token's.
    ///
    /// # Errors
    /// The database is away.
    async fn bury(&self, key: &EventKey, token: Token, reason: &str) -> Result<bool, StoreError>;

    /// Dead events, the last to die first, at most `limit`.
    ///
    /// # Errors
    /// The database is away.
    async fn dead(&self, limit: u32) -> Result<Vec<Dead>, StoreError>;

    /// Makes a dead event due, with all of its attempts before it. `false`: there is no such one.
    ///
    /// # Errors
    /// The database is away.
    async fn revive(&self, key: &EventKey) -> Result<bool, StoreError>;

    /// How long it is until an event is due: nothing when one is, `None` when none ever will be.
    ///
    /// # Errors
    /// The database is away.
    async fn due_in(&self) -> Result<Option<Duration>, StoreError>;

    /// Deletes at most `limit` keys of processed events that were received `keep` ago or earlier;
    /// returns how many. Until then they are duplicates.
    ///
    /// # Errors
    /// The database is away.
    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError>;

    /// Told when this very value has stored something: a hint for workers of the same process.
    fn arrived(&self) -> &Notify;
}

/// The order in which the events of a request are stored, so that two requests with the same events
/// do not wait for each other.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn in_order(letters: &[Letter]) -> Vec<(usize, &Letter)> {
    let mut order: Vec<_> = letters.iter().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.key.cmp(&other.key));
    order
}

/// The headers of a stored event; none if they cannot be read.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn headers(stored: &str) -> HeaderMap {
    let headers = ForwardedHeaders::from_stored(stored).unwrap_or_default();
    let mut map = HeaderMap::new();
    for (name, value) in headers.iter() {
        map.append(name, value.clone());
    }
    map
}
