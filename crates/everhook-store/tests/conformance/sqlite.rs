//! SQLite, in memory and in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::time::{SystemClock, Timestamp};
use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};
use everhook_store::{Handoff, Sealer, Store, StorePolicy};
use rusqlite::Connection;

use crate::backend::{Backend, Kind, RowOf};

/// In memory: commands run inside the call, one by one.
pub(crate) const MEMORY: Kind = Kind {
    name: "sqlite_memory",
    lease: Duration::ZERO,
    own: Vec::new,
    interleavings: 400,
    create: |_, _| Box::new(Memory { connection: Connection::open_in_memory().ok(), open: None }),
};

/// In a file: with a writer thread, batches and reading connections.
pub(crate) const FILE: Kind = Kind {
    name: "sqlite_file",
    lease: Duration::ZERO,
    own: crate::sealing::lasting_cases,
    interleavings: 12,
    create: |number, _| {
        let name = format!("conformance-{}-{number}", std::process::id());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Box::new(File { folder, open: None })
    },
};

struct Memory {
    connection: Option<Connection>,
    open: Option<Arc<SqliteStore>>,
}

struct File {
    folder: PathBuf,
    open: Option<Arc<SqliteStore>>,
}

fn options(policy: StorePolicy, handoff: Arc<dyn Handoff>, sealer: Sealer) -> SqliteOptions {
    // Results wait for nobody here: the cases would only get slower.
    let group_commit = GroupCommit { linger: Duration::ZERO, ..GroupCommit::default() };
    let clock = Arc::new(SystemClock::start());
    SqliteOptions { policy, handoff, clock, new_tag: 7, group_commit, sealer }
}

impl Backend for Memory {
    fn open(
        &mut self,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        sealer: Sealer,
        _: Timestamp,
    ) -> Result<Arc<dyn Store>, String> {
        let connection = self.connection.take().unwrap();
        let store = SqliteStore::on_connection(connection, options(policy, handoff, sealer));
        let store = store.map_err(|error| error.to_string())?;
        Ok(Arc::clone(self.open.insert(Arc::new(store))) as _)
    }

    fn crash(&mut self) {
        self.connection = self.open.take().and_then(|store| store.into_connection());
    }

    fn multiply_endpoint(&self, count: usize) {
        multiply_endpoint(self.connection.as_ref().unwrap(), count);
    }

    fn store_as(&self, row: RowOf, column: &str, text: &str) {
        store_as(self.connection.as_ref().unwrap(), row, column, text);
    }

    fn rows(&self) -> BTreeMap<String, i64> {
        rows(self.connection.as_ref().unwrap())
    }

    fn stored(&self, row: RowOf) -> [String; 2] {
        stored(self.connection.as_ref().unwrap(), row)
    }

    fn late_outcomes(&self, delivery: DeliveryId) -> Vec<String> {
        late_outcomes(self.connection.as_ref().unwrap(), delivery)
    }
}

impl File {
    fn path(&self) -> PathBuf {
        self.folder.join("everhook.db")
    }
}

impl Backend for File {
    fn open(
        &mut self,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        sealer: Sealer,
        _: Timestamp,
    ) -> Result<Arc<dyn Store>, String> {
        let store = SqliteStore::open(&self.path(), options(policy, handoff, sealer));
        let store = store.map_err(|error| error.to_string())?;
        Ok(Arc::clone(self.open.insert(Arc::new(store))) as _)
    }

    fn crash(&mut self) {
        self.open.take().unwrap().close();
    }

    fn multiply_endpoint(&self, count: usize) {
        multiply_endpoint(&Connection::open(self.path()).unwrap(), count);
    }

    fn store_as(&self, row: RowOf, column: &str, text: &str) {
        store_as(&Connection::open(self.path()).unwrap(), row, column, text);
    }

    fn rows(&self) -> BTreeMap<String, i64> {
        rows(&Connection::open(self.path()).unwrap())
    }

    fn stored(&self, row: RowOf) -> [String; 2] {
        stored(&Connection::open(self.path()).unwrap(), row)
    }

    fn late_outcomes(&self, delivery: DeliveryId) -> Vec<String> {
        late_outcomes(&Connection::open(self.path()).unwrap(), delivery)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(store) = self.open.take() {
            store.close();
        }
        // A leftover is harmless and must not hide what the test has to say.
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

fn multiply_endpoint(connection: &Connection, count: usize) {
    let statement = "
        WITH RECURSIVE n (seq) AS (VALUES (2) UNION ALL SELECT seq + 1 FROM n WHERE seq < ?1)
        INSERT INTO endpoints (seq, tenant, state, version, created_at, updated_at, settings,
            secrets)
            SELECT n.seq, tenant, state, version, created_at, updated_at,
            settings, secrets FROM endpoints, n";
    assert_eq!(connection.execute(statement, [count as i64]), Ok(count - 1));
}

fn store_as(connection: &Connection, row: RowOf, column: &str, text: &str) {
    let statement = format!("UPDATE {} SET {column} = ?2 WHERE seq = ?1", row.table);
    let changed = connection.execute(&statement, (number(row), text));
    assert_eq!(changed, Ok(1));
}

fn rows(connection: &Connection) -> BTreeMap<String, i64> {
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'meta'";
    let mut statement = connection.prepare(tables).unwrap();
    let tables = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let count = |table: String| {
        let statement = format!("SELECT count(*) FROM {table}");
        let rows = connection.query_row(&statement, [], |row| row.get(0)).unwrap();
        (table, rows)
    };
    tables.map(|table| count(table.unwrap())).collect()
}

fn number(row: RowOf) -> i64 {
    EndpointId::from_bits(row.bits).sequence() as i64
}

fn stored(connection: &Connection, row: RowOf) -> [String; 2] {
    let statement = format!("SELECT settings, secrets FROM {} WHERE seq = ?1", row.table);
    let read = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?]);
    connection.query_row(&statement, [number(row)], read).unwrap()
}

fn late_outcomes(connection: &Connection, delivery: DeliveryId) -> Vec<String> {
    let statement = "SELECT outcome FROM interruptions WHERE delivery = ?1 ORDER BY token";
    let key = delivery.sequence() << 16 | u64::from(delivery.ordinal());
    let mut statement = connection.prepare(statement).unwrap();
    let rows = statement.query_map([key as i64], |row| row.get::<_, Option<String>>(0));
    rows.unwrap().filter_map(Result::unwrap).collect()
}
