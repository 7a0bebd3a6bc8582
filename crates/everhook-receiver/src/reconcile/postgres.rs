//! Progress in PostgreSQL.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::progress::Columns;
use super::{Progress, ProgressError, ProgressStore};

/// The tables that [`PostgresProgress`] needs; executing it again changes nothing.
const SCHEMA: &str = include_str!("postgres.sql");
/// The lock under which processes that start together make them one after the other.
const MIGRATION_LOCK: i64 = 0x65_76_68_6f_6f_6b;

/// Progress in PostgreSQL, over one connection. When that ends, every verb fails until another
/// one is made; the pass then goes on where it was.
#[derive(Clone)]
pub struct PostgresProgress(Arc<Client>);

impl fmt::Debug for PostgresProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresProgress").finish_non_exhaustive()
    }
}

impl From<tokio_postgres::Error> for ProgressError {
    fn from(error: tokio_postgres::Error) -> Self {
        let inner = std::error::Error::source(&error).map(ToString::to_string);
        Self(inner.map_or_else(|| error.to_string(), |inner| format!("{error}: {inner}")))
    }
}

impl PostgresProgress {
    /// Progress behind this connection. Makes the tables where they are missing.
    ///
    /// # Errors
    /// The database is away, or the user may not.
    pub async fn new(client: Arc<Client>) -> Result<Self, ProgressError> {
        // Statements that are sent together are one transaction.
        let lock = format!("SELECT pg_advisory_xact_lock({MIGRATION_LOCK})");
        client.batch_execute(&format!("{lock};\n{SCHEMA}")).await?;
        Ok(Self(client))
    }

    /// Keeps progress, together with what another statement does with `ids`.
    async fn put(
        &self,
        ids_too: &str,
        name: &str,
        progress: &Progress,
        ids: &[String],
    ) -> Result<(), ProgressError> {
        let columns = Columns::of(progress);
        let sql = format!(
            "{ids_too} INSERT INTO everhook_reconcilers
                 (name, complete_until, stage, pass_from, pass_until, cursor)
             VALUES ($1, $3, $4, $5, $6, $7) ON CONFLICT (name) DO UPDATE SET
                 complete_until = $3, stage = $4, pass_from = $5, pass_until = $6, cursor = $7"
        );
        let params: [(&(dyn ToSql + Sync), Type); 7] = [
            (&name, Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
            (&columns.complete_until, Type::INT8),
            (&columns.stage, Type::INT8),
            (&columns.pass_from, Type::INT8),
            (&columns.pass_until, Type::INT8),
            (&columns.cursor, Type::TEXT),
        ];
        self.0.query_typed(&sql, &params).await?;
        Ok(())
    }
}

#[async_trait]
impl ProgressStore for PostgresProgress {
    async fn load(&self, name: &str) -> Result<Progress, ProgressError> {
        let find = "SELECT complete_until, stage, pass_from, pass_until, cursor
             FROM everhook_reconcilers WHERE name = $1";
        let rows = self.0.query_typed(find, &[(&name, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(Progress::default()) };
        let columns = Columns {
            complete_until: row.try_get(0)?,
            stage: row.try_get(1)?,
            pass_from: row.try_get(2)?,
            pass_until: row.try_get(3)?,
            cursor: row.try_get(4)?,
        };
        Ok(columns.progress())
    }

    async fn begin(
        &self,
        name: &str,
        progress: &Progress,
        unseen: &[String],
    ) -> Result<(), ProgressError> {
        // Ids that are to be looked for again stay: one statement does not change a row twice.
        let ids_too = "WITH gone AS (DELETE FROM everhook_reconciler_unseen
                 WHERE name = $1 AND id <> ALL ($2)),
             new AS (INSERT INTO everhook_reconciler_unseen (name, id)
                 SELECT $1, unnest($2) ON CONFLICT DO NOTHING)";
        self.put(ids_too, name, progress, unseen).await
    }

    async fn save(
        &self,
        name: &str,
        progress: &Progress,
        seen: &[String],
    ) -> Result<(), ProgressError> {
        let ids_too = "WITH gone AS (DELETE FROM everhook_reconciler_unseen
                 WHERE name = $1 AND id = ANY ($2))";
        self.put(ids_too, name, progress, seen).await
    }

    async fn unseen(&self, name: &str, limit: u32) -> Result<Vec<String>, ProgressError> {
        let find = "SELECT id FROM everhook_reconciler_unseen WHERE name = $1
             ORDER BY id LIMIT $2";
        let params: [(&(dyn ToSql + Sync), Type); 2] =
            [(&name, Type::TEXT), (&i64::from(limit), Type::INT8)];
        let rows = self.0.query_typed(find, &params).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
