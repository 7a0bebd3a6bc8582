//! Versions in your own PostgreSQL database, in your own transaction.

use std::error::Error;
use std::time::Duration;

use everhook_domain::time::millis;
pub use tokio_postgres;
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Client, GenericClient, Transaction};

use super::{Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, Version, decide};

/// The table that [`VersionGate`] needs; executing it again changes nothing.
pub const SCHEMA: &str = include_str!("postgres.sql");

/// The lock under which processes that start together make the table one after the other.
const MIGRATION_LOCK: i64 = 0x65_76_68_6f_6f_6b;

/// The present in whole milliseconds, in SQL.
macro_rules! now {
    () => {
        "floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
    };
}

/// The version gate of what is written to a PostgreSQL database.
#[derive(Clone, Copy, Debug)]
pub struct VersionGate {
    /// For how long the states of deleted objects are held.
    pub tombstones: Duration,
}

impl Default for VersionGate {
    fn default() -> Self {
        Self { tombstones: TOMBSTONES_KEPT }
    }
}

/// Makes the table where it is missing, in the first schema of the search path.
///
/// # Errors
/// The database is away, or the user may not.
pub async fn migrate(client: &mut Client) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    tx.batch_execute(&format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")).await?;
    tx.batch_execute(SCHEMA).await?;
    tx.commit().await
}

impl VersionGate {
    /// What this state is to the one that is held. If it is fresh, it is held from now on, and
    /// what it stands for is to be written in the same transaction: both are there after its
    /// commit, or neither is.
    ///
    /// Whatever the verdict, no other transaction gets a verdict on this object until this one has
    /// ended; so what is fetched after a conflict, in the transaction, is newer than what any
    /// other has fetched. Who advances several objects in one transaction does so in one order.
    ///
    /// # Errors
    /// The database failed: roll back.
    pub async fn advance_in(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
    ) -> Result<Verdict, tokio_postgres::Error> {
        self.step(tx, object, state, None).await
    }

    /// As [`Self::advance_in`], for the state that was fetched from the publisher because of a
    /// conflict with `held`.
    ///
    /// # Errors
    /// The database failed: roll back.
    pub async fn settle_in(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        held: &State,
        fetched: &State,
    ) -> Result<Verdict, tokio_postgres::Error> {
        self.step(tx, object, fetched, Some(held)).await
    }

    /// Forgets at most `limit` states of deleted objects whose time is over; returns how many.
    /// Never needed for a right answer: what is over counts as absent.
    ///
    /// # Errors
    /// The database failed.
    pub async fn clean(
        &self,
        client: &impl GenericClient,
        limit: u32,
    ) -> Result<usize, tokio_postgres::Error> {
        let cleaned = client
            .query_typed(
                concat!(
                    "DELETE FROM everhook_versions WHERE object IN
                         (SELECT object FROM everhook_versions WHERE expires_at <= ",
                    now!(),
                    " ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING 1"
                ),
                &[(&i64::from(limit), Type::INT8)],
            )
            .await?;
        Ok(cleaned.len())
    }

    async fn step(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
        settles: Option<&State>,
    ) -> Result<Verdict, tokio_postgres::Error> {
        loop {
            if self.insert(tx, object, state).await? {
                return Ok(Verdict::Fresh);
            }
            // Cleaned away between the two statements: it is absent after all.
            let Some(found) = lock(tx, object).await? else { continue };
            let verdict = decide(found.as_ref(), state, settles);
            if verdict == Verdict::Fresh {
                self.update(tx, object, state).await?;
            }
            return Ok(verdict);
        }
    }

    /// Whether nothing was held of the object, as is known at last when nobody else inserts it.
    async fn insert(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
    ) -> Result<bool, tokio_postgres::Error> {
        let insert = concat!(
            "INSERT INTO everhook_versions (object, version, content, expires_at)
             VALUES ($1, $2, $3, CASE WHEN $3 IS NULL THEN ",
            now!(),
            " + $4 END) ON CONFLICT (object) DO NOTHING RETURNING 1"
        );
        self.write(tx, insert, object, state).await
    }

    async fn update(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
    ) -> Result<bool, tokio_postgres::Error> {
        let update = concat!(
            "UPDATE everhook_versions SET version = $2, content = $3,
                 expires_at = CASE WHEN $3 IS NULL THEN ",
            now!(),
            " + $4 END WHERE object = $1 RETURNING 1"
        );
        self.write(tx, update, object, state).await
    }

    async fn write(
        &self,
        tx: &Transaction<'_>,
        sql: &str,
        object: &ObjectKey,
        state: &State,
    ) -> Result<bool, tokio_postgres::Error> {
        let content = match &state.content {
            Content::Of(hash) => Some(&hash[..]),
            Content::Deleted => None,
        };
        let rows = tx
            .query_typed(
                sql,
                &[
                    (&&object.0[..], Type::BYTEA),
                    (&state.version.0, Type::INT8),
                    (&content, Type::BYTEA),
                    (&millis(self.tombstones), Type::INT8),
                ],
            )
            .await?;
        Ok(!rows.is_empty())
    }
}

/// The state that is held, if its time is not over, in a row that nobody else changes now; `None`
/// without a row.
async fn lock(
    tx: &Transaction<'_>,
    object: &ObjectKey,
) -> Result<Option<Option<State>>, tokio_postgres::Error> {
    let rows = tx
        .query_typed(
            concat!(
                "SELECT version, content, coalesce(expires_at <= ",
                now!(),
                ", false) FROM everhook_versions WHERE object = $1 FOR UPDATE"
            ),
            &[(&&object.0[..], Type::BYTEA)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if row.try_get(2)? {
        return Ok(Some(None));
    }
    let content: Option<Hash> = row.try_get(1)?;
    let content = content.map_or(Content::Deleted, |hash| Content::Of(hash.0));
    Ok(Some(Some(State { version: Version(row.try_get(0)?), content })))
}

/// Thirty-two bytes, or the row cannot be read.
struct Hash([u8; 32]);

impl<'a> FromSql<'a> for Hash {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }
}
