//! Connections: a bounded number, each with its prepared statements, reused while they are whole.
//!
//! A connection goes back only when its transaction has ended. One whose verb was given up half-way
//! (the caller went away) is dropped, and PostgreSQL rolls back what it had begun.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::failure::VerbError;

/// How long connecting may take, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections to one database.
pub(super) struct Pool {
    config: Config,
    permits: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Session>>>,
    /// What moves the bytes of each connection. Ends with the pool.
    drivers: Mutex<JoinSet<()>>,
}

/// A connection with what was prepared on it.
struct Session {
    client: Client,
    statements: HashMap<String, Statement>,
}

/// A connection that a verb has for itself.
pub(super) struct Connection {
    session: Session,
    idle: Arc<Mutex<Vec<Session>>>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// A pool that has not connected yet.
    pub(super) fn new(mut config: Config, connections_max: usize) -> Self {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        Self {
            config,
            permits: Arc::new(Semaphore::new(connections_max)),
            idle: Arc::default(),
            drivers: Mutex::default(),
        }
    }

    /// A connection, waited for while all are in use.
    pub(super) async fn take(&self) -> Result<Connection, VerbError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| VerbError::Unavailable("the store is closed".into()))?;
        let session = match self.idle() {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Connection { session, idle: Arc::clone(&self.idle), _permit: permit })
    }

    fn idle(&self) -> Option<Session> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|session| !session.client.is_closed())
    }

    async fn connect(&self) -> Result<Session, VerbError> {
        let (client, connection) = self.config.connect(NoTls).await?;
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async {
            // How a connection ended is told to whoever uses it next.
            let _ended = connection.await;
        });
        Ok(Session { client, statements: HashMap::new() })
    }
}

impl Connection {
    /// Gives the connection back; no transaction may be open.
    pub(super) fn give_back(self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(self.session);
    }

    /// Runs statements without parameters; returns the last one's first value, as text.
    pub(super) async fn batch(&self, statements: &str) -> Result<Option<String>, VerbError> {
        use tokio_postgres::SimpleQueryMessage::Row;
        let messages = self.session.client.simple_query(statements).await?;
        Ok(messages.into_iter().rev().find_map(|message| match message {
            Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }))
    }

    /// Runs a statement and returns its rows.
    pub(super) async fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, VerbError> {
        let statement = self.prepare(sql).await?;
        Ok(self.session.client.query(&statement, params).await?)
    }

    /// Runs a statement and returns its first row.
    pub(super) async fn first(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<Row>, VerbError> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// Runs a statement and returns how many rows it touched.
    pub(super) async fn execute(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, VerbError> {
        let statement = self.prepare(sql).await?;
        Ok(self.session.client.execute(&statement, params).await?)
    }

    async fn prepare(&mut self, sql: &str) -> Result<Statement, VerbError> {
        if let Some(statement) = self.session.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.session.client.prepare(sql).await?;
        self.session.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}
