//! Receipts in a SQLite file: of their own, or the one that the handler writes to.
//!
//! In the handler's own file, [`claim_in`] makes the receipt in the transaction of the work. The
//! clock is the machine's, which all processes on the file share.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Timestamp, millis};
pub use rusqlite;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{Claimed, Receipt, Store, StoreError, Terms, Token};
use crate::verify::EventKey;

/// The table that [`SqliteStore`] makes where it is missing.
pub const SCHEMA: &str = include_str!("sqlite.sql");

/// How long a verb waits for another writer of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The present in whole milliseconds.
const NOW: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

pub(crate) fn now(tx: &Connection) -> Result<i64, StoreError> {
    Ok(tx.prepare_cached(NOW)?.query_row([], |row| row.get(0))?)
}

/// Receipts in a SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    connection: Arc<Mutex<Connection>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(error)
    }
}

impl SqliteStore {
    /// Opens the file, which is made if it is not there, with a connection of its own. What is
    /// committed is on the disk (`synchronous = FULL`); the journal mode stays as it is.
    ///
    /// # Errors
    /// The file cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SCHEMA)
    }

    pub(crate) fn open_with(path: impl AsRef<Path>, schema: &str) -> Result<Self, StoreError> {
        let mut connection = Connection::open(&path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(schema)?;
        tx.commit()?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Runs a verb as one transaction, away from the threads that serve requests.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connection = Arc::clone(&self.connection);
        let ran = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = verb(&tx)?;
            tx.commit()?;
            Ok(value)
        });
        ran.await.map_err(StoreError::new)?
    }
}

/// Makes the receipt of an event in the transaction of its work: both commit, or neither.
/// [`Claimed::Yes`]: do the work in `tx` and commit; anything else: roll back, and answer as for a
/// duplicate, or so that the event comes again where somebody else is at work on it. `keep` is how
/// long receipts count, of a verifier [`keep`](crate::Verifier::keep).
///
/// The transaction should be `IMMEDIATE`, so that it waits for another writer at its beginning.
///
/// # Errors
/// The database failed: roll back.
pub fn claim_in(
    tx: &Transaction<'_>,
    key: &EventKey,
    keep: Duration,
) -> Result<Claimed, StoreError> {
    take(tx, key, millis(keep), None)
}

/// Takes an event: by a claim of this token and lease, or as processed at once.
fn take(
    tx: &Transaction<'_>,
    key: &EventKey,
    keep: i64,
    lease: Option<(i64, i64)>,
) -> Result<Claimed, StoreError> {
    let now = now(tx)?;
    let found: Option<(i64, bool, bool)> = tx
        .prepare_cached(
            "SELECT received_at, processed_at IS NOT NULL, coalesce(lease_until > ?2, FALSE)
             FROM webhook_events WHERE id = ?1",
        )?
        .query_row(params![key.as_str(), now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    if found.is_some_and(|(_, _, is_leased)| is_leased) {
        return Ok(Claimed::InProgress);
    }
    let found = found.filter(|(received_at, ..)| now.saturating_sub(*received_at) < keep);
    if found.is_some_and(|(_, is_processed, _)| is_processed) {
        return Ok(Claimed::Processed);
    }
    let received_at = found.map_or(now, |(received_at, ..)| received_at);
    let processed_at = lease.is_none().then_some(now);
    let lease_until = lease.map(|(_, lease)| now.saturating_add(lease));
    tx.prepare_cached(
        "INSERT OR REPLACE INTO webhook_events
             (id, source, received_at, processed_at, lease_token, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        key.as_str(),
        key.source(),
        received_at,
        processed_at,
        lease.map(|(token, _)| token),
        lease_until
    ])?;
    Ok(Claimed::Yes)
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError> {
        let (key, lease) = (key.clone(), Some((token.0, millis(terms.lease))));
        self.write(move |tx| take(tx, &key, millis(terms.keep), lease)).await
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |tx| {
            let lease_until = now(tx)?.saturating_add(millis(lease));
            let changed = tx.execute(
                "UPDATE webhook_events
                 SET lease_until = CASE WHEN processed_at IS NULL THEN ?3 END
                 WHERE id = ?1 AND lease_token = ?2",
                params![key.as_str(), token.0, lease_until],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE webhook_events
                 SET lease_until = NULL, processed_at = coalesce(processed_at, ?3)
                 WHERE id = ?1 AND lease_token = ?2",
                params![key.as_str(), token.0, now(tx)?],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE webhook_events SET lease_token = NULL, lease_until = NULL
                 WHERE id = ?1 AND lease_token = ?2 AND processed_at IS NULL",
                params![key.as_str(), token.0],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError> {
        let key = key.clone();
        self.write(move |tx| {
            let sql = "SELECT received_at, processed_at FROM webhook_events WHERE id = ?1";
            let found = tx.query_row(sql, [key.as_str()], |row| {
                Ok(Receipt {
                    received_at: Timestamp::from_millis(row.get(0)?),
                    processed_at: row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis),
                })
            });
            Ok(found.optional()?)
        })
        .await
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.write(move |tx| {
            let now = now(tx)?;
            let pruned = tx.execute(
                "DELETE FROM webhook_events WHERE id IN (SELECT id FROM webhook_events
                     WHERE received_at <= ?1 AND coalesce(lease_until <= ?2, TRUE)
                     ORDER BY received_at LIMIT ?3)",
                params![now.saturating_sub(millis(keep)), now, limit],
            )?;
            Ok(pruned as u64)
        })
        .await
    }
}
