//! Keys in PostgreSQL: for any number of processes, on the database's clock.
//!
//! In the handler's own database, [`finish_in`] writes the answer in the handler's transaction, so
//! that effect and answer commit together. No verb here waits for such a transaction with a
//! connection that others need: a row that is locked counts as one that just changed.
//!
//! Locks are taken in one order, a key's row before its account's, and accounts in order.

mod pool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::answer::Answer;
use everhook_domain::idempotency::claim::{ClaimRecord, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::time::{Timestamp, millis};
pub use tokio_postgres;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Socket, Transaction};

use self::pool::Pool;
use super::row::{self, Row};
use super::{Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms};
use crate::claim::{Claim, FinishError};

/// The tables that [`PostgresStore::migrate`] makes where they are missing.
pub const SCHEMA: &str = include_str!("postgres.sql");

/// How many records of an account that are over are cleared away at a time to make room.
const CLEAN_STEP: u32 = 1_000;
/// The lock under which processes that start together make the tables one after the other.
const MIGRATION_LOCK: i64 = 0x65_76_68_6f_6f_6b;

/// The present in whole milliseconds, in SQL.
macro_rules! now {
    () => {
        "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
    };
}

/// Keys in PostgreSQL.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Arc<Pool>,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        let inner = std::error::Error::source(&error).map(ToString::to_string);
        Self(inner.map_or_else(|| error.to_string(), |inner| format!("{error}: {inner}")))
    }
}

type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl PostgresStore {
    /// A store on the primary that `config` names, through at most `connections_max` connections
    /// that are opened when they are needed. On a replica that lags, keys would run twice.
    pub fn new<T>(config: Config, tls: T, connections_max: usize) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self { pool: Arc::new(Pool::new(config, tls, connections_max.max(1))) }
    }

    /// Makes the tables where they are missing, in the first schema of the search path.
    ///
    /// # Errors
    /// The database is away, or the user may not.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let (mut client, _permit) = self.pool.take().await?;
        let tx = client.transaction().await?;
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        tx.batch_execute(&lock).await?;
        tx.batch_execute(SCHEMA).await?;
        tx.commit().await?;
        self.pool.give_back(client);
        Ok(())
    }

    async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let (client, _permit) = self.pool.take().await?;
        let rows = client.query_typed(sql, params).await?;
        self.pool.give_back(client);
        Ok(rows)
    }

    async fn clean_of(&self, account: Option<KeyHash>, limit: u32) -> Result<u32, StoreError> {
        let (mut client, _permit) = self.pool.take().await?;
        let cleaned = clean(&mut client, account, limit).await?;
        self.pool.give_back(client);
        Ok(cleaned)
    }
}

/// Finishes a claim in the handler's own transaction: the answer is remembered if, and only if,
/// `tx` commits. The last thing to do before the commit. The handler then answers with the same.
///
/// # Errors
/// The claim is no longer the handler's, or the database failed: roll back.
pub async fn finish_in(
    tx: &Transaction<'_>,
    claim: &Claim,
    answer: &Answer,
) -> Result<(), FinishError> {
    let remembered = claim.encode(answer);
    let changed = tx
        .query_typed(
            concat!(
                "UPDATE everhook_keys SET remembered = $3, checkpoint = NULL, expires_at = ",
                now!(),
                " + $4 WHERE key = $1 AND token = $2 AND remembered IS NULL RETURNING 1"
            ),
            &[
                (&&claim.key().0[..], Type::BYTEA),
                (&claim.token().0, Type::INT8),
                (&remembered, Type::BYTEA),
                (&millis(claim.terms().ttl), Type::INT8),
            ],
        )
        .await
        .map_err(StoreError::from)?;
    if changed.len() == 1 { Ok(()) } else { Err(FinishError::Lost) }
}

/// The columns of a claim that is taken, in the order of the statements that take it.
struct Columns<'a> {
    key: &'a [u8],
    account: &'a [u8],
    rule: i16,
    fingerprint: &'a [u8],
    token: i64,
    checkpoint: Option<&'a [u8]>,
    lease: i64,
    ttl: i64,
}

impl<'a> Columns<'a> {
    fn new(taking: &'a Taking, terms: Terms) -> Self {
        Self {
            key: &taking.key.0,
            account: &taking.account.0,
            rule: i16::from(taking.rule),
            fingerprint: &taking.fingerprint.0,
            token: taking.token.0,
            checkpoint: taking.checkpoint.as_deref(),
            lease: millis(terms.lease),
            ttl: millis(terms.ttl),
        }
    }

    fn params(&self) -> [Param<'_>; 8] {
        [
            (&self.key, Type::BYTEA),
            (&self.account, Type::BYTEA),
            (&self.rule, Type::INT2),
            (&self.fingerprint, Type::BYTEA),
            (&self.token, Type::INT8),
            (&self.checkpoint, Type::BYTEA),
            (&self.lease, Type::INT8),
            (&self.ttl, Type::INT8),
        ]
    }
}

/// Takes a key that was absent. The transaction is to be rolled back unless it is taken.
async fn insert(
    tx: &Transaction<'_>,
    taking: &Taking,
    terms: Terms,
    quota: Quota,
) -> Result<Taken, StoreError> {
    let inserted = tx
        .query_typed(
            concat!(
                "INSERT INTO everhook_keys (key, account, rule, fingerprint, token, checkpoint,
                     lease_until, expires_at)
                 VALUES ($1, $2, $3, $4, $5, $6, ",
                now!(),
                " + $7, ",
                now!(),
                " + $7 + $8) ON CONFLICT (key) DO NOTHING RETURNING 1"
            ),
            &Columns::new(taking, terms).params(),
        )
        .await?;
    if inserted.is_empty() {
        return Ok(Taken::Changed);
    }
    let counted = tx
        .query_typed(
            "INSERT INTO everhook_key_accounts AS a (account, keys, bytes) VALUES ($1, 1, 0)
             ON CONFLICT (account) DO UPDATE SET keys = a.keys + 1
                 WHERE a.keys < $2 AND a.bytes < $3
             RETURNING 1",
            &[
                (&&taking.account.0[..], Type::BYTEA),
                (&i64::try_from(quota.keys).unwrap_or(i64::MAX), Type::INT8),
                (&i64::try_from(quota.bytes).unwrap_or(i64::MAX), Type::INT8),
            ],
        )
        .await?;
    Ok(if counted.is_empty() { Taken::OverQuota } else { Taken::Yes })
}

/// Takes a key that was seen with a record that means nothing any more.
async fn replace(
    tx: &Transaction<'_>,
    taking: &Taking,
    seen: &ClaimRecord,
    terms: Terms,
) -> Result<Taken, StoreError> {
    let found = tx
        .query_typed(
            "SELECT bytes FROM everhook_keys WHERE key = $1 AND token = $2 AND expires_at = $3
             FOR UPDATE SKIP LOCKED",
            &[
                (&&taking.key.0[..], Type::BYTEA),
                (&seen.token.0, Type::INT8),
                (&seen.expires_at.as_millis(), Type::INT8),
            ],
        )
        .await?;
    let Some(found) = found.first() else { return Ok(Taken::Changed) };
    let bytes: i64 = found.try_get(0)?;
    tx.query_typed(
        concat!(
            "UPDATE everhook_keys SET account = $2, rule = $3, fingerprint = $4, token = $5,
                 checkpoint = $6, remembered = NULL, bytes = 0, lease_until = ",
            now!(),
            " + $7, expires_at = ",
            now!(),
            " + $7 + $8 WHERE key = $1"
        ),
        &Columns::new(taking, terms).params(),
    )
    .await?;
    tx.query_typed(
        "UPDATE everhook_key_accounts SET bytes = bytes - $2 WHERE account = $1",
        &[(&&taking.account.0[..], Type::BYTEA), (&bytes, Type::INT8)],
    )
    .await?;
    Ok(Taken::Yes)
}

async fn clean(
    client: &mut Client,
    account: Option<KeyHash>,
    limit: u32,
) -> Result<u32, StoreError> {
    let tx = client.transaction().await?;
    let account = account.map(|account| account.0.to_vec());
    let removed = tx
        .query_typed(
            concat!(
                "DELETE FROM everhook_keys WHERE key IN (SELECT key FROM everhook_keys
                     WHERE expires_at <= ",
                now!(),
                " AND ($1 IS NULL OR account = $1) ORDER BY expires_at LIMIT $2
                     FOR UPDATE SKIP LOCKED)
                 RETURNING account, bytes"
            ),
            &[(&account, Type::BYTEA), (&i64::from(limit), Type::INT8)],
        )
        .await?;
    uncount(&tx, &removed).await?;
    tx.commit().await?;
    Ok(u32::try_from(removed.len()).unwrap_or(u32::MAX))
}

/// Takes removed records, as rows of account and bytes, out of their accounts.
async fn uncount(tx: &Transaction<'_>, removed: &[tokio_postgres::Row]) -> Result<(), StoreError> {
    let mut counts: BTreeMap<Vec<u8>, (i64, i64)> = BTreeMap::new();
    for row in removed {
        let count = counts.entry(row.try_get(0)?).or_default();
        count.0 += 1;
        count.1 += row.try_get::<_, i64>(1)?;
    }
    for (account, (keys, bytes)) in &counts {
        tx.query_typed(
            "UPDATE everhook_key_accounts SET keys = keys - $2, bytes = bytes - $3
             WHERE account = $1",
            &[(account, Type::BYTEA), (keys, Type::INT8), (bytes, Type::INT8)],
        )
        .await?;
        tx.query_typed(
            "DELETE FROM everhook_key_accounts WHERE account = $1 AND keys = 0",
            &[(account, Type::BYTEA)],
        )
        .await?;
    }
    Ok(())
}

fn read(row: &tokio_postgres::Row) -> Result<Look, StoreError> {
    let now = Timestamp::from_millis(row.try_get(0)?);
    let Some(account) = row.try_get(1)? else {
        return Ok(Look { record: None, now });
    };
    let record = Row {
        account,
        rule: row.try_get::<_, i16>(2)?.into(),
        fingerprint: row.try_get(3)?,
        token: row.try_get(4)?,
        lease_until: row.try_get(5)?,
        expires_at: row.try_get(6)?,
        checkpoint: row.try_get(7)?,
        remembered: row.try_get(8)?,
    };
    Ok(Look { record: Some(record.record()?), now })
}

#[async_trait]
impl Store for PostgresStore {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        let sql = concat!(
            "SELECT ",
            now!(),
            ", account, rule, fingerprint, token, lease_until, expires_at, checkpoint,
                 remembered FROM (SELECT 1) AS one LEFT JOIN everhook_keys ON key = $1"
        );
        let rows = self.query(sql, &[(&&key.0[..], Type::BYTEA)]).await?;
        read(rows.first().ok_or_else(|| StoreError("no row".to_owned()))?)
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        loop {
            let (mut client, permit) = self.pool.take().await?;
            let tx = client.transaction().await?;
            let taken = match seen {
                Some(seen) => replace(&tx, taking, seen, terms).await?,
                None => insert(&tx, taking, terms, quota).await?,
            };
            match taken {
                Taken::Yes => tx.commit().await?,
                Taken::Changed | Taken::OverQuota => tx.rollback().await?,
            }
            self.pool.give_back(client);
            drop(permit);
            if taken != Taken::OverQuota
                || self.clean_of(Some(taking.account), CLEAN_STEP).await? == 0
            {
                return Ok(taken);
            }
        }
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        // A row that the handler's own transaction has locked is left alone: it is still its own.
        let sql = concat!(
            "WITH own AS (SELECT key FROM everhook_keys
                 WHERE key = $1 AND token = $2 AND remembered IS NULL FOR UPDATE SKIP LOCKED),
             renewed AS (UPDATE everhook_keys AS k SET lease_until = ",
            now!(),
            " + $3, expires_at = ",
            now!(),
            " + $3 + $4, checkpoint = coalesce($5, k.checkpoint)
                 FROM own WHERE k.key = own.key RETURNING 1)
             SELECT EXISTS (SELECT 1 FROM everhook_keys WHERE key = $1 AND token = $2)"
        );
        let params: [Param<'_>; 5] = [
            (&&key.0[..], Type::BYTEA),
            (&token.0, Type::INT8),
            (&millis(terms.lease), Type::INT8),
            (&millis(terms.ttl), Type::INT8),
            (&checkpoint, Type::BYTEA),
        ];
        let rows = self.query(sql, &params).await?;
        Ok(rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        let sql = concat!(
            "WITH own AS (SELECT key, bytes, remembered, remembered IS NULL AS open
                 FROM everhook_keys WHERE key = $1 AND token = $2 FOR UPDATE),
             kept AS (UPDATE everhook_keys AS k SET
                     remembered = coalesce(own.remembered, $3), checkpoint = NULL,
                     bytes = length(coalesce(own.remembered, $3)),
                     expires_at = CASE WHEN own.open THEN ",
            now!(),
            " + $4 ELSE k.expires_at END
                 FROM own WHERE k.key = own.key
                 RETURNING k.account, k.bytes - own.bytes AS more, own.open),
             counted AS (UPDATE everhook_key_accounts AS a SET bytes = a.bytes + kept.more
                 FROM kept WHERE a.account = kept.account)
             SELECT open FROM kept"
        );
        let params: [Param<'_>; 4] = [
            (&&key.0[..], Type::BYTEA),
            (&token.0, Type::INT8),
            (&remembered, Type::BYTEA),
            (&millis(ttl), Type::INT8),
        ];
        let rows = self.query(sql, &params).await?;
        Ok(match rows.first().map(|row| row.try_get(0)).transpose()? {
            Some(true) => Finished::Now,
            Some(false) => Finished::Before,
            None => Finished::Lost,
        })
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        let (mut client, _permit) = self.pool.take().await?;
        let tx = client.transaction().await?;
        let removed = tx
            .query_typed(
                "DELETE FROM everhook_keys WHERE key = $1 AND token = $2 AND remembered IS NULL
                 RETURNING account, bytes",
                &[(&&key.0[..], Type::BYTEA), (&token.0, Type::INT8)],
            )
            .await?;
        uncount(&tx, &removed).await?;
        tx.commit().await?;
        self.pool.give_back(client);
        Ok(!removed.is_empty())
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        let sql = concat!(
            "SELECT key, lease_until FROM everhook_keys
             WHERE remembered IS NULL AND lease_until <= ",
            now!(),
            " AND expires_at > ",
            now!(),
            " ORDER BY lease_until, key LIMIT $1"
        );
        let rows = self.query(sql, &[(&i64::from(limit), Type::INT8)]).await?;
        let lapsed = rows.iter().map(|row| {
            let since = Timestamp::from_millis(row.try_get(1)?);
            Ok(Lapsed { key: row::key(row.try_get(0)?)?, since })
        });
        lapsed.collect()
    }

    async fn clean(&self, limit: u32) -> Result<u32, StoreError> {
        self.clean_of(None, limit).await
    }
}
