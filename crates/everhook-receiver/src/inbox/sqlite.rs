//! The inbox in a SQLite file, for one machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Timestamp, millis};
use rusqlite::{OptionalExtension, Transaction, params};
use tokio::sync::Notify;

use super::{Dead, Inbox, Job, Letter, Stored, headers, in_order};
use crate::store::sqlite::{SqliteStore, now};
use crate::store::{StoreError, Token};
use crate::verify::EventKey;

/// The table that [`SqliteInbox`] makes where it is missing.
pub const SCHEMA: &str = include_str!("sqlite.sql");

/// An inbox in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteInbox {
    file: SqliteStore,
    arrived: Arc<Notify>,
}

impl SqliteInbox {
    /// Opens the file, which is made if it is not there, with a connection of its own. What is
    /// committed is on the disk (`synchronous = FULL`); the journal mode stays as it is.
    ///
    /// # Errors
    /// The file cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self { file: SqliteStore::open_with(path, SCHEMA)?, arrived: Arc::default() })
    }
}

/// Marks a job as processed in the transaction of its work: both commit, or neither. `false`: it is
/// another's by now; roll back.
///
/// # Errors
/// The database failed: roll back.
pub fn finish_in(tx: &Transaction<'_>, job: &Job) -> Result<bool, StoreError> {
    finish(tx, &job.key, job.token)
}

fn finish(tx: &Transaction<'_>, key: &EventKey, token: Token) -> Result<bool, StoreError> {
    let changed = tx.execute(
        "UPDATE webhook_inbox SET due_at = NULL, body = x'', headers = '[]', reason = NULL,
             processed_at = coalesce(processed_at, ?3)
         WHERE id = ?1 AND lease_token = ?2 AND dead_at IS NULL",
        params![key.as_str(), token.0, now(tx)?],
    )?;
    Ok(changed == 1)
}

fn store(tx: &Transaction<'_>, letters: &[Letter]) -> Result<Vec<Stored>, StoreError> {
    let now = now(tx)?;
    let mut stored = vec![Stored::Duplicate; letters.len()];
    for (index, letter) in in_order(letters) {
        let guard_is_known = match &letter.guard {
            Some(guard) => {
                let made = tx.execute(
                    "INSERT INTO webhook_inbox
                         (id, source, event_type, headers, body, received_at, processed_at)
                     VALUES (?1, ?2, '', '[]', x'', ?3, ?3) ON CONFLICT (id) DO NOTHING",
                    params![guard.as_str(), guard.source(), now],
                )?;
                made == 0
            }
            None => false,
        };
        let sql = "SELECT 1 FROM webhook_inbox WHERE id = ?1";
        if tx.prepare_cached(sql)?.exists([letter.key.as_str()])? {
            continue;
        }
        if guard_is_known {
            stored[index] = Stored::Captured;
            continue;
        }
        tx.execute(
            "INSERT INTO webhook_inbox
                 (id, source, event_type, headers, body, received_at, due_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            params![
                letter.key.as_str(),
                letter.key.source(),
                letter.event_type,
                letter.headers.to_stored(),
                &letter.body[..],
                now
            ],
        )?;
        stored[index] = Stored::New;
    }
    Ok(stored)
}

fn job(row: &rusqlite::Row<'_>, token: Token) -> Result<Job, rusqlite::Error> {
    Ok(Job {
        key: EventKey::stored(row.get(0)?, row.get(1)?),
        event_type: row.get(2)?,
        headers: headers(&row.get::<_, String>(3)?),
        body: row.get::<_, Vec<u8>>(4)?.into(),
        attempt: row.get(5)?,
        received_at: Timestamp::from_millis(row.get(6)?),
        token,
    })
}

#[async_trait]
impl Inbox for SqliteInbox {
    async fn store(&self, letters: &[Letter]) -> Result<Vec<Stored>, StoreError> {
        let letters = letters.to_vec();
        let stored = self.file.write(move |tx| store(tx, &letters)).await?;
        self.arrived.notify_one();
        Ok(stored)
    }

    async fn take(&self, token: Token, lease: Duration) -> Result<Option<Job>, StoreError> {
        self.file
            .write(move |tx| {
                let now = now(tx)?;
                let found: Option<String> = tx
                    .prepare_cached(
                        "SELECT id FROM webhook_inbox WHERE due_at <= ?1 ORDER BY due_at LIMIT 1",
                    )?
                    .query_row([now], |row| row.get(0))
                    .optional()?;
                let Some(id) = found else { return Ok(None) };
                let due_at = now.saturating_add(millis(lease));
                let taken = tx
                    .prepare_cached(
                        "UPDATE webhook_inbox
                         SET attempts = attempts + 1, lease_token = ?2, due_at = ?3 WHERE id = ?1
                         RETURNING id, source, event_type, headers, body, attempts, received_at",
                    )?
                    .query_row(params![id, token.0, due_at], |row| job(row, token))?;
                Ok(Some(taken))
            })
            .await
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let key = key.clone();
        self.file
            .write(move |tx| {
                let changed = tx.execute(
                    "UPDATE webhook_inbox
                     SET due_at = CASE WHEN processed_at IS NULL THEN ?3 END
                     WHERE id = ?1 AND lease_token = ?2 AND dead_at IS NULL",
                    params![key.as_str(), token.0, now(tx)?.saturating_add(millis(lease))],
                )?;
                Ok(changed == 1)
            })
            .await
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let key = key.clone();
        self.file.write(move |tx| finish(tx, &key, token)).await
    }

    async fn retry(
        &self,
        key: &EventKey,
        token: Token,
        after: Duration,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let (key, reason) = (key.clone(), reason.to_owned());
        self.file
            .write(move |tx| {
                let due_at = now(tx)?.saturating_add(millis(after));
                let changed = tx.execute(
                    "UPDATE webhook_inbox SET due_at = ?3, lease_token = NULL, reason = ?4
                     WHERE id = ?1 AND lease_token = ?2
                         AND processed_at IS NULL AND dead_at IS NULL",
                    params![key.as_str(), token.0, due_at, reason],
                )?;
                Ok(changed == 1)
            })
            .await
    }

    async fn bury(&self, key: &EventKey, token: Token, reason: &str) -> Result<bool, StoreError> {
        let (key, reason) = (key.clone(), reason.to_owned());
        self.file
            .write(move |tx| {
                let changed = tx.execute(
                    "UPDATE webhook_inbox
                     SET due_at = NULL, lease_token = NULL, dead_at = ?3, reason = ?4
                     WHERE id = ?1 AND lease_token = ?2
                         AND processed_at IS NULL AND dead_at IS NULL",
                    params![key.as_str(), token.0, now(tx)?, reason],
                )?;
                Ok(changed == 1)
            })
            .await
    }

    async fn dead(&self, limit: u32) -> Result<Vec<Dead>, StoreError> {
        self.file
            .write(move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT id, source, event_type, attempts, dead_at, reason FROM webhook_inbox
                     WHERE dead_at IS NOT NULL ORDER BY dead_at DESC, id LIMIT ?1",
                )?;
                let rows = statement.query_map([limit], |row| {
                    Ok(Dead {
                        key: EventKey::stored(row.get(0)?, row.get(1)?),
                        event_type: row.get(2)?,
                        attempts: row.get(3)?,
                        dead_at: Timestamp::from_millis(row.get(4)?),
                        reason: row.get(5)?,
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    async fn revive(&self, key: &EventKey) -> Result<bool, StoreError> {
        let key = key.clone();
        let revived = self
            .file
            .write(move |tx| {
                let changed = tx.execute(
                    "UPDATE webhook_inbox SET due_at = ?2, dead_at = NULL, attempts = 0
                     WHERE id = ?1 AND dead_at IS NOT NULL",
                    params![key.as_str(), now(tx)?],
                )?;
                Ok(changed == 1)
            })
            .await?;
        self.arrived.notify_one();
        Ok(revived)
    }

    async fn due_in(&self) -> Result<Option<Duration>, StoreError> {
        self.file
            .write(move |tx| {
                let sql = "SELECT min(due_at) FROM webhook_inbox WHERE due_at IS NOT NULL";
                let due_at: Option<i64> = tx.query_row(sql, [], |row| row.get(0))?;
                let now = Timestamp::from_millis(now(tx)?);
                Ok(due_at.map(|due_at| Timestamp::from_millis(due_at).since(now)))
            })
            .await
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.file
            .write(move |tx| {
                let pruned = tx.execute(
                    "DELETE FROM webhook_inbox WHERE id IN (SELECT id FROM webhook_inbox
                         WHERE processed_at IS NOT NULL AND received_at <= ?1
                         ORDER BY received_at LIMIT ?2)",
                    params![now(tx)?.saturating_sub(millis(keep)), limit],
                )?;
                Ok(pruned as u64)
            })
            .await
    }

    fn arrived(&self) -> &Notify {
        &self.arrived
    }
}
