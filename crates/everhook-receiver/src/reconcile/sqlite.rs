//! Progress in a SQLite file.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::progress::Columns;
use super::{Progress, ProgressError, ProgressStore};

const SCHEMA: &str = include_str!("sqlite.sql");
/// How long a verb waits for another writer of the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Progress in a SQLite file: of its own, or the one that objects are in.
#[derive(Clone)]
pub struct SqliteProgress(Arc<Mutex<Connection>>);

impl fmt::Debug for SqliteProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteProgress").finish_non_exhaustive()
    }
}

impl From<rusqlite::Error> for ProgressError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(error)
    }
}

impl SqliteProgress {
    /// Opens the file, which is made if it is not there, with a connection of its own.
    ///
    /// # Errors
    /// The file cannot be opened or written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ProgressError> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Runs a verb as one transaction, away from the threads that serve requests.
    async fn run<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&Transaction<'_>) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, ProgressError> {
        let connection = Arc::clone(&self.0);
        let ran = tokio::task::spawn_blocking(move || {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = verb(&tx)?;
            tx.commit()?;
            Ok(value)
        });
        ran.await.map_err(ProgressError::new)?
    }
}

fn put(tx: &Transaction<'_>, name: &str, columns: &Columns) -> Result<(), rusqlite::Error> {
    tx.execute(
        "INSERT OR REPLACE INTO everhook_reconcilers
             (name, complete_until, stage, pass_from, pass_until, cursor)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            name,
            columns.complete_until,
            columns.stage,
            columns.pass_from,
            columns.pass_until,
            columns.cursor,
        ],
    )?;
    Ok(())
}

#[async_trait]
impl ProgressStore for SqliteProgress {
    async fn load(&self, name: &str) -> Result<Progress, ProgressError> {
        let name = name.to_owned();
        let find = "SELECT complete_until, stage, pass_from, pass_until, cursor
             FROM everhook_reconcilers WHERE name = ?1";
        self.run(move |tx| {
            let found = tx.query_row(find, [name], |row| {
                Ok(Columns {
                    complete_until: row.get(0)?,
                    stage: row.get(1)?,
                    pass_from: row.get(2)?,
                    pass_until: row.get(3)?,
                    cursor: row.get(4)?,
                })
            });
            Ok(found.optional()?.unwrap_or_default().progress())
        })
        .await
    }

    async fn begin(
        &self,
        name: &str,
        progress: &Progress,
        unseen: &[String],
    ) -> Result<(), ProgressError> {
        let (name, columns, unseen) = (name.to_owned(), Columns::of(progress), unseen.to_vec());
        self.run(move |tx| {
            put(tx, &name, &columns)?;
            tx.execute("DELETE FROM everhook_reconciler_unseen WHERE name = ?1", [&name])?;
            let sql = "INSERT OR IGNORE INTO everhook_reconciler_unseen VALUES (?1, ?2)";
            let mut insert = tx.prepare_cached(sql)?;
            unseen.iter().try_for_each(|id| insert.execute([&name, id]).map(drop))
        })
        .await
    }

    async fn save(
        &self,
        name: &str,
        progress: &Progress,
        seen: &[String],
    ) -> Result<(), ProgressError> {
        let (name, columns, seen) = (name.to_owned(), Columns::of(progress), seen.to_vec());
        self.run(move |tx| {
            put(tx, &name, &columns)?;
            let sql = "DELETE FROM everhook_reconciler_unseen WHERE name = ?1 AND id = ?2";
            let mut delete = tx.prepare_cached(sql)?;
            seen.iter().try_for_each(|id| delete.execute([&name, id]).map(drop))
        })
        .await
    }

    async fn unseen(&self, name: &str, limit: u32) -> Result<Vec<String>, ProgressError> {
        let name = name.to_owned();
        self.run(move |tx| {
            let sql =
                "SELECT id FROM everhook_reconciler_unseen WHERE name = ?1 ORDER BY id LIMIT ?2";
            let mut find = tx.prepare_cached(sql)?;
            find.query_map(params![name, limit], |row| row.get(0))?.collect()
        })
        .await
    }
}
