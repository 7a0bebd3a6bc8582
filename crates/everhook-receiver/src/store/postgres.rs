//! Receipts in PostgreSQL: for any number of processes, on the database's clock.
//!
//! In your own database, [`claim_in`] makes the receipt in the transaction of the work: both are
//! there, or neither is, and no instant exists at which a crash could part them.

mod pool;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Timestamp, millis};
pub use tokio_postgres;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, GenericClient, Socket, Transaction};

use self::pool::Pool;
use super::{Claimed, Receipt, Store, StoreError, Terms, Token};
use crate::verify::EventKey;

/// The table that [`PostgresStore::migrate`] makes where it is missing.
pub const SCHEMA: &str = include_str!("postgres.sql");

/// The lock under which processes that start together make tables one after the other.
const MIGRATION_LOCK: i64 = 0x65_76_68_6f_6f_6c;
/// How often a row that is deleted while it is looked at is looked for again.
const LOOKS_MAX: u32 = 16;

/// Receipts in PostgreSQL.
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

pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl PostgresStore {
    /// A store on the primary that `config` names, through at most `connections_max` connections
    /// that are opened when they are needed. On a replica that lags, events would run twice.
    pub fn new<T>(config: Config, tls: T, connections_max: usize) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self { pool: Arc::new(Pool::new(config, tls, connections_max.max(1))) }
    }

    /// Makes the table where it is missing, in the first schema of the search path.
    ///
    /// # Errors
    /// The database is away, or the user may not.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        self.make(SCHEMA).await
    }

    pub(crate) async fn make(&self, schema: &str) -> Result<(), StoreError> {
        let (mut client, _permit) = self.pool.take().await?;
        let tx = client.transaction().await?;
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        tx.batch_execute(&lock).await?;
        tx.batch_execute(schema).await?;
        tx.commit().await?;
        self.pool.give_back(client);
        Ok(())
    }

    /// Runs statements in one transaction, which is rolled back if they fail.
    pub(crate) async fn in_transaction<T>(
        &self,
        verb: impl AsyncFnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (mut client, _permit) = self.pool.take().await?;
        let tx = client.transaction().await?;
        let value = verb(&tx).await?;
        tx.commit().await?;
        self.pool.give_back(client);
        Ok(value)
    }

    pub(crate) async fn query(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<tokio_postgres::Row>, StoreError> {
        let (client, _permit) = self.pool.take().await?;
        let rows = client.query_typed(sql, params).await?;
        self.pool.give_back(client);
        Ok(rows)
    }
}

/// How the row of an event is made or taken: by a claim, or as processed at once.
struct Taking<'a> {
    key: &'a EventKey,
    keep: i64,
    /// Token and milliseconds of a lease; `None`: processed when the transaction commits.
    lease: Option<(i64, i64)>,
}

/// Takes an event, in one statement if it is new.
async fn take(
    client: &(impl GenericClient + Sync),
    taking: Taking<'_>,
) -> Result<Claimed, StoreError> {
    let Taking { key, keep, lease } = taking;
    let (token, lease_ms) = lease.unzip();
    let (id, source) = (key.as_str(), key.source());
    let own: [Param<'_>; 4] =
        [(&id, Type::TEXT), (&source, Type::TEXT), (&token, Type::INT8), (&lease_ms, Type::INT8)];
    let again: [Param<'_>; 4] =
        [(&id, Type::TEXT), (&keep, Type::INT8), (&token, Type::INT8), (&lease_ms, Type::INT8)];
    for _ in 0..LOOKS_MAX {
        let made = client.query_typed(INSERT, &own).await?;
        if !made.is_empty() {
            return Ok(Claimed::Yes);
        }
        // What is old is as if it were not there, and what nobody is at work on is free.
        let taken = client.query_typed(TAKE_AGAIN, &again).await?;
        if !taken.is_empty() {
            return Ok(Claimed::Yes);
        }
        let found = client.query_typed(LOOK, &again[..1]).await?;
        if let Some(found) = found.first() {
            let is_processed = found.try_get(0)?;
            return Ok(if is_processed { Claimed::Processed } else { Claimed::InProgress });
        }
    }
    Ok(Claimed::InProgress)
}

const INSERT: &str =
    "INSERT INTO webhook_events (id, source, received_at, processed_at, lease_token, lease_until)
     VALUES ($1, $2, clock_timestamp(), CASE WHEN $3 IS NULL THEN clock_timestamp() END, $3,
         clock_timestamp() + $4 * interval '1 millisecond')
     ON CONFLICT (id) DO NOTHING RETURNING 1";

const TAKE_AGAIN: &str = "UPDATE webhook_events SET
         received_at = CASE WHEN received_at <= clock_timestamp() - $2 * interval '1 millisecond'
             THEN clock_timestamp() ELSE received_at END,
         processed_at = CASE WHEN $3 IS NULL THEN clock_timestamp() END,
         lease_token = $3, lease_until = clock_timestamp() + $4 * interval '1 millisecond'
     WHERE id = $1
         AND (lease_until IS NULL OR lease_until <= clock_timestamp())
         AND (processed_at IS NULL
             OR received_at <= clock_timestamp() - $2 * interval '1 millisecond')
     RETURNING 1";

const LOOK: &str = "SELECT processed_at IS NOT NULL FROM webhook_events WHERE id = $1";

/// Makes the receipt of an event in the transaction of its work: both commit, or neither.
/// [`Claimed::Yes`]: do the work in `tx` and commit; anything else: roll back, and answer as for a
/// duplicate, or so that the event comes again where somebody else is at work on it. `keep` is how
/// long receipts count, of a verifier [`keep`](crate::Verifier::keep).
///
/// Of two transactions that ask for one event at the same time the second waits for the first, as
/// long as its own `lock_timeout` allows. One that is `REPEATABLE READ` or stricter then fails, and
/// the event comes again.
///
/// # Errors
/// The database failed: roll back.
pub async fn claim_in(
    tx: &Transaction<'_>,
    key: &EventKey,
    keep: Duration,
) -> Result<Claimed, StoreError> {
    take(tx, Taking { key, keep: millis(keep), lease: None }).await
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError> {
        let (client, _permit) = self.pool.take().await?;
        let lease = Some((token.0, millis(terms.lease)));
        let claimed = take(&client, Taking { key, keep: millis(terms.keep), lease }).await?;
        self.pool.give_back(client);
        Ok(claimed)
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_events SET lease_until = CASE WHEN processed_at IS NULL
                 THEN clock_timestamp() + $3 * interval '1 millisecond' END
             WHERE id = $1 AND lease_token = $2 RETURNING 1";
        let (id, lease) = (key.as_str(), millis(lease));
        let params: [Param<'_>; 3] =
            [(&id, Type::TEXT), (&token.0, Type::INT8), (&lease, Type::INT8)];
        Ok(!self.query(sql, &params).await?.is_empty())
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_events SET lease_until = NULL,
                 processed_at = coalesce(processed_at, clock_timestamp())
             WHERE id = $1 AND lease_token = $2 RETURNING 1";
        let params: [Param<'_>; 2] = [(&key.as_str(), Type::TEXT), (&token.0, Type::INT8)];
        Ok(!self.query(sql, &params).await?.is_empty())
    }

    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let sql = "UPDATE webhook_events SET lease_token = NULL, lease_until = NULL
             WHERE id = $1 AND lease_token = $2 AND processed_at IS NULL RETURNING 1";
        let params: [Param<'_>; 2] = [(&key.as_str(), Type::TEXT), (&token.0, Type::INT8)];
        Ok(!self.query(sql, &params).await?.is_empty())
    }

    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError> {
        let sql = "SELECT floor(extract(epoch from received_at) * 1000)::bigint,
                 floor(extract(epoch from processed_at) * 1000)::bigint
             FROM webhook_events WHERE id = $1";
        let rows = self.query(sql, &[(&key.as_str(), Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let processed_at: Option<i64> = row.try_get(1)?;
        Ok(Some(Receipt {
            received_at: Timestamp::from_millis(row.try_get(0)?),
            processed_at: processed_at.map(Timestamp::from_millis),
        }))
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let sql = "DELETE FROM webhook_events WHERE id IN (SELECT id FROM webhook_events
                 WHERE received_at <= clock_timestamp() - $1 * interval '1 millisecond'
                     AND (lease_until IS NULL OR lease_until <= clock_timestamp())
                 ORDER BY received_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             RETURNING 1";
        let params: [Param<'_>; 2] = [(&millis(keep), Type::INT8), (&i64::from(limit), Type::INT8)];
        Ok(self.query(sql, &params).await?.len() as u64)
    }
}
