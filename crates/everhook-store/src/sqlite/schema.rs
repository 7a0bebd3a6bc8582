//! Opening the database: settings, identity, migrations.

use everhook_domain::fault::{self, Plant};
use rusqlite::Connection;

use crate::seal::MissingKey;

/// "EVHK": marks the file as ours.
const APPLICATION_ID: i64 = 0x4556_484b;
/// Releases before it can lose the WAL under rare timing.
const SQLITE_VERSION_MIN: i32 = 3_051_003;
const PAGE_BYTES: u32 = 8_192;
/// A checkpoint begins when the WAL holds this many pages (16 MiB).
const CHECKPOINT_PAGES: u32 = 2_048;
/// Pages beyond it come from the operating system's cache, at no measured cost. Four times as much
/// was slower: when SQLite moves pages within a level of a tree, its commit walks all that it has
/// cached, and each page that was long not used costs up to 20 µs on a virtual machine. That held
/// back every accept of 200 ms.
const WRITER_CACHE_KIB: u32 = 16_384;
const READER_CACHE_KIB: u32 = 4_096;
/// The WAL file is cut back to this when it is reset.
const WAL_BYTES_KEPT: i64 = 64 << 20;

/// One script a version; the index is the version before it.
const MIGRATIONS: &[&str] = &[
    include_str!("0001_initial.sql"),
    include_str!("0002_bulk.sql"),
    include_str!("0003_tenants.sql"),
    include_str!("0004_system_events.sql"),
    include_str!("0005_receiving.sql"),
    include_str!("0006_claims.sql"),
    include_str!("0007_conversations.sql"),
];

/// Why a database cannot be opened. Written for the operator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// SQLite says no.
    #[error("the database cannot be opened: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The library is too old.
    #[error("SQLite {found} is too old: this build must link 3.51.3 or newer")]
    OldLibrary {
        /// The linked version.
        found: &'static str,
    },
    /// Another program's database.
    #[error("the file is a SQLite database, but not one of Everhook's")]
    Foreign,
    /// Written by a newer version.
    #[error(
        "the database has schema {found}, this version knows schemas up to {known}: run the newer \
         version of Everhook, or restore a backup made before the upgrade"
    )]
    Newer {
        /// The schema of the file.
        found: i64,
        /// The newest that this version knows.
        known: i64,
    },
    /// Something stored is sealed under a key that was not given.
    #[error(transparent)]
    MissingKey(#[from] MissingKey),
    /// Something stored has no meaning for this version.
    #[error("the database holds something that this version cannot use: {0}")]
    Unusable(String),
}

/// Prepares the writing connection: settings, then migrations in one transaction each.
pub(super) fn prepare_writer(connection: &Connection) -> Result<(), OpenError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(OpenError::OldLibrary { found: rusqlite::version() });
    }
    connection.set_prepared_statement_cache_capacity(64);
    // Both take effect only in a database that is still empty.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    let application_id: i64 = pragma(connection, "application_id")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application_id != APPLICATION_ID && (application_id != 0 || tables != 0) {
        return Err(OpenError::Foreign);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let sync = if fault::planted(Plant::NoSync) { "OFF" } else { "FULL" };
    connection.pragma_update(None, "synchronous", sync)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
    connection.pragma_update(None, "cache_size", -i64::from(WRITER_CACHE_KIB))?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    migrate(connection)
}

/// Prepares a reading connection.
pub(super) fn prepare_reader(connection: &Connection) -> Result<(), OpenError> {
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
    connection.pragma_update(None, "mmap_size", 0)?;
    Ok(())
}

fn migrate(connection: &Connection) -> Result<(), OpenError> {
    let found: i64 = pragma(connection, "user_version")?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(OpenError::Newer { found, known });
    }
    for (before, script) in (0..).zip(MIGRATIONS).skip_while(|(before, _)| *before < found) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(script)?;
        transaction.pragma_update(None, "user_version", before + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_database_is_ours_and_opens_again() {
        let connection = Connection::open_in_memory().expect("memory");
        prepare_writer(&connection).expect("new");
        prepare_writer(&connection).expect("again");
        assert_eq!(pragma(&connection, "page_size"), Ok(i64::from(PAGE_BYTES)));
        assert_eq!(pragma(&connection, "synchronous"), Ok(2));
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let connection = Connection::open_in_memory().expect("memory");
        prepare_writer(&connection).expect("new");
        connection.pragma_update(None, "user_version", 99).expect("set");
        let error = prepare_writer(&connection).expect_err("newer");
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }

    #[test]
    fn another_programs_database_is_refused() {
        let connection = Connection::open_in_memory().expect("memory");
        connection.execute_batch("CREATE TABLE other (a)").expect("set");
        assert!(matches!(prepare_writer(&connection), Err(OpenError::Foreign)));
    }
}
