//! The inbox in PostgreSQL, for any number of processes and workers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Timestamp, millis};
use tokio::sync::Notify;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Transaction};

use super::{Dead, Inbox, Job, Letter, Stored, headers, in_order};
use crate::store::postgres::{Param, PostgresStore};
use crate::store::{StoreError, Token};
use crate::verify::EventKey;

/// The table that [`PostgresInbox::migrate`] makes where it is missing.
pub const SCHEMA: &str = include_str!("postgres.sql");

/// An inbox in PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresInbox {
    database: PostgresStore,
    arrived: Arc<Notify>,
}

impl PostgresInbox {
    /// An inbox in the database of this store, through its connections.
    pub fn new(database: PostgresStore) -> Self {
        Self { database, arrived: Arc::default() }
    }

    /// Makes the table where it is missing, in the first schema of the search path.
    ///
    /// # Errors
    /// The database is away, or the user may not.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.database.make(SCHEMA).await
    }

    /// Runs a statement that changes the row of an event, or none.
    async fn change(&self, sql: &str, params: &[Param<'_>]) -> Result<bool, StoreError> {
        Ok(!self.database.query(sql, params).await?.is_empty())
    }
}

const FINISH: &str = "UPDATE webhook_inbox SET due_at = NULL, body = '', headers = '[]',
         reason = NULL, processed_at = coalesce(processed_at, clock_timestamp())
     WHERE id = $1 AND lease_token = $2 AND dead_at IS NULL RETURNING 1";

/// Marks a job as processed in the transaction of its work: both commit, or neither. `false`: it is
/// another's by now; roll back.
///
/// # Errors
/// The database failed: roll back.
pub async fn finish_in(tx: &Transaction<'_>, job: &Job) -> Result<bool, StoreError> {
    let params: [Param<'_>; 2] = [(&job.key.as_str(), Type::TEXT), (&job.token.0, Type::INT8)];
    Ok(!tx.query_typed(FINISH, &params).await?.is_empty())
}

async fn store(tx: &(impl GenericClient + Sync), letter: &Letter) -> Result<Stored, StoreError> {
    let guard_is_known = match &letter.guard {
        Some(guard) => {
            let sql = "INSERT INTO webhook_inbox
                     (id, source, event_type, headers, body, received_at, processed_at)
                 VALUES ($1, $2, '', '[]', '', clock_timestamp(), clock_timestamp())
                 ON CONFLICT (id) DO NOTHING RETURNING 1";
            let params: [Param<'_>; 2] =
                [(&guard.as_str(), Type::TEXT), (&guard.source(), Type::TEXT)];
            tx.query_typed(sql, &params).await?.is_empty()
        }
        None => false,
    };
    let id = (&letter.key.as_str() as _, Type::TEXT);
    if guard_is_known {
        let sql = "SELECT 1 FROM webhook_inbox WHERE id = $1";
        let is_there = !tx.query_typed(sql, &[id]).await?.is_empty();
        return Ok(if is_there { Stored::Duplicate } else { Stored::Captured });
    }
    let sql = "INSERT INTO webhook_inbox
             (id, source, event_type, headers, body, received_at, due_at)
         VALUES ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp())
         ON CONFLICT (id) DO NOTHING RETURNING 1";
    let params: [Param<'_>; 5] = [
        id,
        (&letter.key.source(), Type::TEXT),
        (&letter.event_type, Type::TEXT),
        (&letter.headers.to_stored(), Type::TEXT),
        (&&letter.body[..], Type::BYTEA),
    ];
    let is_new = !tx.query_typed(sql, &params).await?.is_empty();
    Ok(if is_new { Stored::New } else { Stored::Duplicate })
}

fn job(row: &tokio_postgres::Row, token: Token) -> Result<Job, StoreError> {
    Ok(Job {
        key: EventKey::stored(row.try_get(0)?, row.try_get(1)?),
        event_type: row.try_get(2)?,
        headers: headers(row.try_get(3)?),
        body: row.try_get::<_, Vec<u8>>(4)?.into(),
        attempt: count(row.try_get(5)?),
        received_at: Timestamp::from_millis(row.try_get(6)?),
        token,
    })
}

fn count(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or_default()
}

#[async_trait]
impl Inbox for PostgresInbox {
    async fn store(&self, letters: &[Letter]) -> Result<Vec<Stored>, StoreError> {
        let stored = self.database.in_transaction(async |tx| {
            let mut stored = vec![Stored::Duplicate; letters.len()];
            for (index, letter) in in_order(letters) {
                stored[index] = store(tx, letter).await?;
            }
            Ok(stored)
        });
        let stored = stored.await?;
        self.arrived.notify_one();
        Ok(stored)
    }

    async fn take(&self, token: Token, lease: Duration) -> Result<Option<Job>, StoreError> {
        let sql = "UPDATE webhook_inbox SET attempts = attempts + 1, lease_token = $1,
                 due_at = clock_timestamp() + $2 * interval '1 millisecond'
             WHERE id = (SELECT id FROM webhook_inbox WHERE due_at <= clock_timestamp()
                 ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id, source, event_type, headers, body, attempts,
                 floor(extract(epoch from received_at) * 1000)::bigint";
        let params: [Param<'_>; 2] = [(&token.0, Type::INT8), (&millis(lease), Type::INT8)];
        let rows = self.database.query(sql, &params).await?;
        rows.first().map(|row| job(row, token)).transpose()
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_inbox SET due_at = CASE WHEN processed_at IS NULL
                 THEN clock_timestamp() + $3 * interval '1 millisecond' END
             WHERE id = $1 AND lease_token = $2 AND dead_at IS NULL RETURNING 1";
        let params: [Param<'_>; 3] =
            [(&key.as_str(), Type::TEXT), (&token.0, Type::INT8), (&millis(lease), Type::INT8)];
        self.change(sql, &params).await
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let params: [Param<'_>; 2] = [(&key.as_str(), Type::TEXT), (&token.0, Type::INT8)];
        self.change(FINISH, &params).await
    }

    async fn retry(
        &self,
        key: &EventKey,
        token: Token,
        after: Duration,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_inbox SET lease_token = NULL, reason = $4,
                 due_at = clock_timestamp() + $3 * interval '1 millisecond'
             WHERE id = $1 AND lease_token = $2
                 AND processed_at IS NULL AND dead_at IS NULL RETURNING 1";
        let params: [Param<'_>; 4] = [
            (&key.as_str(), Type::TEXT),
            (&token.0, Type::INT8),
            (&millis(after), Type::INT8),
            (&text(reason), Type::TEXT),
        ];
        self.change(sql, &params).await
    }

    async fn bury(&self, key: &EventKey, token: Token, reason: &str) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_inbox SET due_at = NULL, lease_token = NULL, reason = $3,
                 dead_at = clock_timestamp()
             WHERE id = $1 AND lease_token = $2
                 AND processed_at IS NULL AND dead_at IS NULL RETURNING 1";
        let params: [Param<'_>; 3] =
            [(&key.as_str(), Type::TEXT), (&token.0, Type::INT8), (&text(reason), Type::TEXT)];
        self.change(sql, &params).await
    }

    async fn dead(&self, limit: u32) -> Result<Vec<Dead>, StoreError> {
        let sql = "SELECT id, source, event_type, attempts,
                 floor(extract(epoch from dead_at) * 1000)::bigint, reason
             FROM webhook_inbox WHERE dead_at IS NOT NULL
             ORDER BY dead_at DESC, id LIMIT $1";
        let rows = self.database.query(sql, &[(&i64::from(limit), Type::INT8)]).await?;
        let dead = rows.iter().map(|row| {
            Ok(Dead {
                key: EventKey::stored(row.try_get(0)?, row.try_get(1)?),
                event_type: row.try_get(2)?,
                attempts: count(row.try_get(3)?),
                dead_at: Timestamp::from_millis(row.try_get(4)?),
                reason: row.try_get(5)?,
            })
        });
        dead.collect()
    }

    async fn revive(&self, key: &EventKey) -> Result<bool, StoreError> {
        let sql =
            "UPDATE webhook_inbox SET due_at = clock_timestamp(), dead_at = NULL, attempts = 0
             WHERE id = $1 AND dead_at IS NOT NULL RETURNING 1";
        let revived = self.change(sql, &[(&key.as_str(), Type::TEXT)]).await?;
        self.arrived.notify_one();
        Ok(revived)
    }

    async fn due_in(&self) -> Result<Option<Duration>, StoreError> {
        let sql = "SELECT ceil(extract(epoch from min(due_at) - clock_timestamp()) * 1000)::bigint
             FROM webhook_inbox WHERE due_at IS NOT NULL";
        let rows = self.database.query(sql, &[]).await?;
        let due_in: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
        Ok(due_in.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM webhook_inbox WHERE id IN (SELECT id FROM webhook_inbox
                 WHERE processed_at IS NOT NULL
                     AND received_at <= clock_timestamp() - $1 * interval '1 millisecond'
                 ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             RETURNING 1";
        let params: [Param<'_>; 2] = [(&millis(keep), Type::INT8), (&i64::from(limit), Type::INT8)];
        Ok(self.database.query(sql, &params).await?.len() as u64)
    }

    fn arrived(&self) -> &Notify {
        &self.arrived
    }
}

/// Without the one character that PostgreSQL has in no text.
fn text(reason: &str) -> String {
    reason.replace('\0', "\u{fffd}")
}
