//! The stores that the suite runs on, and how each is opened, thrown away and opened again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use everhook_domain::id::DeliveryId;
use everhook_domain::time::SystemClock;
use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};
use everhook_store::{Handoff, Store, StorePolicy};
use rusqlite::Connection;

/// Numbers the databases of this process.
static DATABASES: AtomicU64 = AtomicU64::new(0);

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SQLite in memory, whose commands run inside the call.
    Memory,
    /// SQLite in a file, with its writer thread and reading connections.
    File,
}

impl Kind {
    pub(crate) const ALL: &[Self] = &[Self::Memory, Self::File];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "sqlite_memory",
            Self::File => "sqlite_file",
        }
    }

    /// How long a lease outlives its owner.
    pub(crate) const fn lease(self) -> Duration {
        match self {
            // Embedded, the owner's death is known without a clock.
            Self::Memory | Self::File => Duration::ZERO,
        }
    }
}

/// One database, and the store that is open on it.
pub(crate) enum Backend {
    Memory { connection: Option<Connection>, open: Option<Arc<SqliteStore>> },
    File { path: PathBuf, open: Option<Arc<SqliteStore>> },
}

impl Backend {
    /// An empty database.
    pub(crate) fn new(kind: Kind) -> Self {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        match kind {
            Kind::Memory => {
                Self::Memory { connection: Some(Connection::open_in_memory().unwrap()), open: None }
            }
            Kind::File => {
                let name = format!("conformance-{}-{number}", std::process::id());
                let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
                std::fs::create_dir_all(&folder).unwrap();
                Self::File { path: folder.join("everhook.db"), open: None }
            }
        }
    }

    /// Opens the database, as the one process that uses it.
    pub(crate) fn open(
        &mut self,
        policy: &StorePolicy,
        handoff: Arc<dyn Handoff>,
    ) -> Arc<dyn Store> {
        // Results wait for nobody here: the cases would only get slower.
        let group_commit = GroupCommit { linger: Duration::ZERO, ..GroupCommit::default() };
        let options = SqliteOptions {
            policy: policy.clone(),
            handoff,
            clock: Arc::new(SystemClock::start()),
            new_tag: 7,
            group_commit,
        };
        let (store, open) = match self {
            Self::Memory { connection, open } => {
                (SqliteStore::on_connection(connection.take().unwrap(), options), open)
            }
            Self::File { path, open } => (SqliteStore::open(path, options), open),
        };
        let store = Arc::new(store.unwrap());
        *open = Some(Arc::clone(&store));
        store
    }

    /// Throws the open store away. What it had committed is still there.
    pub(crate) fn crash(&mut self) {
        match self {
            Self::Memory { connection, open } => {
                *connection = open.take().and_then(|store| store.into_connection());
            }
            Self::File { open, .. } => open.take().unwrap().close(),
        }
    }

    /// Copies the only endpoint until there are so many. The store is closed.
    pub(crate) fn multiply_endpoint(&self, count: usize) {
        let statement = "
            WITH RECURSIVE n (seq) AS (VALUES (2) UNION ALL SELECT seq + 1 FROM n WHERE seq < ?1)
            INSERT INTO endpoints SELECT n.seq, tenant, state, version, created_at, updated_at,
                settings, secrets FROM endpoints, n";
        self.with_connection(|connection| {
            assert_eq!(connection.execute(statement, [count as i64]), Ok(count - 1));
        });
    }

    /// What came in for ended leases of a delivery, which no verb shows yet. The store is closed.
    pub(crate) fn late_outcomes(&self, delivery: DeliveryId) -> Vec<String> {
        let statement = "SELECT outcome FROM interruptions WHERE delivery = ?1 ORDER BY token";
        let key = delivery.sequence() << 16 | u64::from(delivery.ordinal());
        self.with_connection(|connection| {
            let mut statement = connection.prepare(statement).unwrap();
            let rows = statement.query_map([key as i64], |row| row.get::<_, Option<String>>(0));
            rows.unwrap().filter_map(Result::unwrap).collect()
        })
    }

    fn with_connection<T>(&self, run: impl FnOnce(&Connection) -> T) -> T {
        match self {
            Self::Memory { connection, .. } => run(connection.as_ref().unwrap()),
            Self::File { path, .. } => run(&Connection::open(path).unwrap()),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        if let Self::File { path, open } = self {
            if let Some(store) = open.take() {
                store.close();
            }
            // A leftover is harmless and must not hide what the test has to say.
            let _left = path.parent().map(std::fs::remove_dir_all);
        }
    }
}
