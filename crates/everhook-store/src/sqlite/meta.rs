//! Single numbers of the database: its tag, the epoch, the lease floor, and how far sequences and
//! time had come when something was removed.

use rusqlite::{Connection, OptionalExtension, params};

/// The highest sequence of an event, claim or idempotency record, when something was removed.
pub(super) const LAST_SEQUENCE: &str = "last_sequence";
/// The latest instant that went with such a sequence, when something was removed.
pub(super) const LAST_CREATED_AT: &str = "last_created_at";
/// The highest number of an endpoint, when something was removed.
pub(super) const LAST_ENDPOINT: &str = "last_endpoint";
/// The highest number of a source, when something was removed.
pub(super) const LAST_SOURCE: &str = "last_source";

/// A number kept in the table `meta`.
pub(super) fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Sets a number in the table `meta`.
pub(super) fn set_meta(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO meta (name, value) VALUES (?1, ?2) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![name, value])?;
    Ok(())
}
