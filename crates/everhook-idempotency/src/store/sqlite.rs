//! Keys in a SQLite file: of their own, or the one that the handler writes to.
//!
//! In the handler's own file, [`finish_in`] writes the answer in the handler's transaction, so that
//! effect and answer commit together. The clock is the machine's, which all processes on the file
//! share.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::answer::Answer;
use everhook_domain::idempotency::claim::{ClaimRecord, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;
pub use rusqlite;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::row::{self, Row};
use super::{Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms};
use crate::claim::{Claim, FinishError};

/// The tables that [`SqliteStore`] makes where they are missing.
pub const SCHEMA: &str = include_str!("sqlite.sql");

/// How long a verb waits for another writer of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How many records of an account that are over are cleared away at a time to make room.
const CLEAN_STEP: u32 = 1_000;
/// The present in whole milliseconds.
const NOW: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

fn now(tx: &Connection) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_millis(tx.prepare_cached(NOW)?.query_row([], |row| row.get(0))?))
}

/// Keys in a SQLite file.
#[derive(Clone)]
pub struct SqliteStore {
    writer: Arc<Mutex<Connection>>,
    /// So that looking need not wait for whoever writes the file.
    reader: Arc<Mutex<Connection>>,
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
        let connect = || -> Result<Connection, StoreError> {
            let connection = Connection::open(&path)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            Ok(connection)
        };
        let mut writer = connect()?;
        let tx = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(SCHEMA)?;
        tx.commit()?;
        let reader = connect()?;
        Ok(Self { writer: Arc::new(Mutex::new(writer)), reader: Arc::new(Mutex::new(reader)) })
    }

    async fn write<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(Arc::clone(&self.writer), TransactionBehavior::Immediate, verb).await
    }

    async fn read<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        run(Arc::clone(&self.reader), TransactionBehavior::Deferred, verb).await
    }
}

/// Runs a verb as one transaction, away from the threads that serve requests.
async fn run<T: Send + 'static>(
    connection: Arc<Mutex<Connection>>,
    behavior: TransactionBehavior,
    verb: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let ran = tokio::task::spawn_blocking(move || {
        let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        let tx = connection.transaction_with_behavior(behavior)?;
        let value = verb(&tx)?;
        tx.commit()?;
        Ok(value)
    });
    ran.await.map_err(StoreError::new)?
}

/// Finishes a claim in the handler's own transaction: the answer is remembered if, and only if,
/// `tx` commits. The last thing to do before the commit. The handler then answers with the same.
///
/// # Errors
/// The claim is no longer the handler's, or the database failed: roll back.
pub fn finish_in(tx: &Connection, claim: &Claim, answer: &Answer) -> Result<(), FinishError> {
    let expires_at = now(tx)? + claim.terms().ttl;
    let changed = tx
        .execute(
            "UPDATE everhook_keys SET remembered = ?3, checkpoint = NULL, expires_at = ?4
             WHERE key = ?1 AND token = ?2 AND remembered IS NULL",
            params![claim.key().0, claim.token().0, claim.encode(answer), expires_at.as_millis(),],
        )
        .map_err(StoreError::from)?;
    if changed == 1 { Ok(()) } else { Err(FinishError::Lost) }
}

fn find(tx: &Transaction<'_>, key: KeyHash) -> Result<Option<ClaimRecord>, StoreError> {
    let found = tx
        .prepare_cached(
            "SELECT account, rule, fingerprint, token, lease_until, expires_at, checkpoint,
                 remembered FROM everhook_keys WHERE key = ?1",
        )?
        .query_row([key.0], |row| {
            Ok(Row {
                account: row.get(0)?,
                rule: row.get(1)?,
                fingerprint: row.get(2)?,
                token: row.get(3)?,
                lease_until: row.get(4)?,
                expires_at: row.get(5)?,
                checkpoint: row.get(6)?,
                remembered: row.get(7)?,
            })
        })
        .optional()?;
    found.map(Row::record).transpose()
}

/// Removes records and takes them out of their accounts; returns how many.
fn remove(tx: &Transaction<'_>, keys: &[Vec<u8>]) -> Result<u32, StoreError> {
    for key in keys {
        let (account, bytes): (Vec<u8>, i64) = tx
            .prepare_cached("DELETE FROM everhook_keys WHERE key = ?1 RETURNING account, bytes")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        tx.execute(
            "UPDATE everhook_key_accounts SET keys = keys - 1, bytes = bytes - ?2
             WHERE account = ?1",
            params![account, bytes],
        )?;
        tx.execute("DELETE FROM everhook_key_accounts WHERE account = ?1 AND keys = 0", [account])?;
    }
    Ok(u32::try_from(keys.len()).unwrap_or(u32::MAX))
}

fn over(
    tx: &Transaction<'_>,
    account: Option<KeyHash>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let sql = match account {
        Some(_) => {
            "SELECT key FROM everhook_keys WHERE account = ?3 AND expires_at <= ?1
             ORDER BY expires_at LIMIT ?2"
        }
        None => {
            "SELECT key FROM everhook_keys WHERE expires_at <= ?1 AND ?3 IS NULL
             ORDER BY expires_at LIMIT ?2"
        }
    };
    let account = account.map(|account| account.0);
    let mut statement = tx.prepare_cached(sql)?;
    let rows = statement.query_map(params![now.as_millis(), limit, account], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn has_room(tx: &Transaction<'_>, account: KeyHash, quota: Quota) -> Result<bool, StoreError> {
    let usage: Option<(i64, i64)> = tx
        .prepare_cached("SELECT keys, bytes FROM everhook_key_accounts WHERE account = ?1")?
        .query_row([account.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (keys, bytes) = usage.unwrap_or_default();
    let below = |used: i64, max: u64| u64::try_from(used).is_ok_and(|used| used < max);
    Ok(below(keys, quota.keys) && below(bytes, quota.bytes))
}

fn take(
    tx: &Transaction<'_>,
    taking: &Taking,
    seen: Option<&ClaimRecord>,
    (terms, quota): (Terms, Quota),
) -> Result<Taken, StoreError> {
    let now = now(tx)?;
    let mark = |record: &ClaimRecord| (record.token, record.expires_at);
    if find(tx, taking.key)?.as_ref().map(mark) != seen.map(mark) {
        return Ok(Taken::Changed);
    }
    if seen.is_some() {
        remove(tx, &[taking.key.0.to_vec()])?;
    } else {
        while !has_room(tx, taking.account, quota)? {
            if remove(tx, &over(tx, Some(taking.account), now, CLEAN_STEP)?)? == 0 {
                return Ok(Taken::OverQuota);
            }
        }
    }
    let lease_until = now + terms.lease;
    tx.execute(
        "INSERT INTO everhook_keys
             (key, account, rule, fingerprint, token, lease_until, expires_at, checkpoint)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            taking.key.0,
            taking.account.0,
            taking.rule,
            taking.fingerprint.0,
            taking.token.0,
            lease_until.as_millis(),
            (lease_until + terms.ttl).as_millis(),
            taking.checkpoint,
        ],
    )?;
    tx.execute(
        "INSERT INTO everhook_key_accounts (account, keys, bytes) VALUES (?1, 1, 0)
         ON CONFLICT (account) DO UPDATE SET keys = keys + 1",
        [taking.account.0],
    )?;
    Ok(Taken::Yes)
}

fn is_own(tx: &Transaction<'_>, key: KeyHash, token: Token) -> Result<bool, StoreError> {
    Ok(tx
        .prepare_cached("SELECT 1 FROM everhook_keys WHERE key = ?1 AND token = ?2")?
        .exists(params![key.0, token.0])?)
}

/// Counts what a claim remembers in its account, once.
fn count(tx: &Transaction<'_>, key: KeyHash) -> Result<(), StoreError> {
    tx.execute(
        "UPDATE everhook_key_accounts SET bytes = bytes +
             (SELECT length(remembered) - bytes FROM everhook_keys WHERE key = ?1)
         WHERE account = (SELECT account FROM everhook_keys WHERE key = ?1)",
        [key.0],
    )?;
    tx.execute("UPDATE everhook_keys SET bytes = length(remembered) WHERE key = ?1", [key.0])?;
    Ok(())
}

#[async_trait]
impl Store for SqliteStore {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        self.read(move |tx| {
            // In this order: what is found is from before the instant that it is judged at.
            let record = find(tx, key)?;
            Ok(Look { record, now: now(tx)? })
        })
        .await
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        let (taking, seen) = (taking.clone(), seen.cloned());
        self.write(move |tx| take(tx, &taking, seen.as_ref(), (terms, quota))).await
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let checkpoint = checkpoint.map(<[u8]>::to_vec);
        self.write(move |tx| {
            let lease_until = now(tx)? + terms.lease;
            tx.execute(
                "UPDATE everhook_keys SET lease_until = ?3, expires_at = ?4,
                     checkpoint = coalesce(?5, checkpoint)
                 WHERE key = ?1 AND token = ?2 AND remembered IS NULL",
                params![
                    key.0,
                    token.0,
                    lease_until.as_millis(),
                    (lease_until + terms.ttl).as_millis(),
                    checkpoint,
                ],
            )?;
            is_own(tx, key, token)
        })
        .await
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        let remembered = remembered.to_vec();
        self.write(move |tx| {
            let changed = tx.execute(
                "UPDATE everhook_keys SET remembered = ?3, checkpoint = NULL, expires_at = ?4
                 WHERE key = ?1 AND token = ?2 AND remembered IS NULL",
                params![key.0, token.0, remembered, (now(tx)? + ttl).as_millis()],
            )?;
            if !is_own(tx, key, token)? {
                return Ok(Finished::Lost);
            }
            count(tx, key)?;
            Ok(if changed == 1 { Finished::Now } else { Finished::Before })
        })
        .await
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        self.write(move |tx| {
            let own = tx
                .prepare_cached(
                    "SELECT 1 FROM everhook_keys
                     WHERE key = ?1 AND token = ?2 AND remembered IS NULL",
                )?
                .exists(params![key.0, token.0])?;
            Ok(own && remove(tx, &[key.0.to_vec()])? == 1)
        })
        .await
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare_cached(
                "SELECT key, lease_until FROM everhook_keys
                 WHERE remembered IS NULL AND lease_until <= ?1 AND expires_at > ?1
                 ORDER BY lease_until, key LIMIT ?2",
            )?;
            let rows = statement.query_map(params![now(tx)?.as_millis(), limit], |row| {
                Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)?))
            })?;
            let mut lapsed = Vec::new();
            for found in rows {
                let (key, since) = found?;
                lapsed.push(Lapsed { key: row::key(key)?, since: Timestamp::from_millis(since) });
            }
            Ok(lapsed)
        })
        .await
    }

    async fn clean(&self, limit: u32) -> Result<u32, StoreError> {
        self.write(move |tx| remove(tx, &over(tx, None, now(tx)?, limit)?)).await
    }
}
