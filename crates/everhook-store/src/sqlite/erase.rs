//! A job: erasing what a deleted tenant had.
//!
//! The tenant left the catalog when it was deleted, and its number is given to nobody while this
//! runs; so nothing of its is added, and nobody else's is touched. The large tables have no index
//! by tenant, which every accepted event would pay for: the rows are walked once, a bounded number
//! at a time, up to what there was when their part began.

use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::command::VerbError;
use super::jobs::STEP_ROWS;
use super::keys::KeyEntry;
use super::row::{first_key, last_key};
use super::tx::Tx;
use crate::jobs::JobStep;

/// Rows looked at in one step, most of which may be others'.
const SCAN_ROWS: u32 = 4 * STEP_ROWS;

/// Tables with a `tenant`, in the order in which they are emptied. Keys come before what they lead
/// to, so that none ever leads to a row that is given to somebody else.
const PARTS: [&str; 8] = [
    "key_log",
    "idempotency_records",
    "bulks",
    "endpoints",
    "events",
    "receipts",
    "received_headers",
    "sources",
];
const KEYS: u8 = 0;
const BULKS: u8 = 2;
const EVENTS: u8 = 4;
const LAST: u8 = 7;

/// How far an erasure has come.
struct Erasure {
    tenant: i64,
    /// Which of [`PARTS`].
    part: u8,
    last_row: i64,
    end_row: i64,
}

/// Begins to erase a tenant that is deleted in this transaction.
pub(super) fn begin(tx: &mut Tx<'_>, tenant: i64) -> Result<(), VerbError> {
    tx.keep_marks()?;
    let end_row = newest_row(tx.connection, KEYS)?;
    write(tx.connection, &Erasure { tenant, part: KEYS, last_row: 0, end_row })?;
    tx.jobs_pending();
    Ok(())
}

/// An endpoint has at most one row in each of three tables.
const ROWS_OF_ENDPOINT: u32 = 3;

/// One step of the first erasure.
pub(super) fn step(tx: &mut Tx<'_>, _now: Timestamp) -> Result<JobStep, VerbError> {
    let erasure = tx
        .connection
        .prepare_cached(
            "SELECT tenant, part, last_row, end_row FROM erasures ORDER BY tenant LIMIT 1",
        )?
        .query_row([], |row| {
            Ok(Erasure {
                tenant: row.get(0)?,
                part: row.get(1)?,
                last_row: row.get(2)?,
                end_row: row.get(3)?,
            })
        })
        .optional()?;
    let Some(mut erasure) = erasure else { return Ok(JobStep::Idle) };
    let (rows, looked_at) = found(tx.connection, &erasure)?;
    erasure.last_row = match erasure.part {
        KEYS => forget_keys(tx, &rows, looked_at)?,
        BULKS => erase_each(tx, &rows, looked_at, erase_bulk)?,
        EVENTS => erase_each(tx, &rows, looked_at, erase_event)?,
        part => erase_rows(tx.connection, part, &rows, looked_at)?,
    };
    if erasure.last_row >= erasure.end_row {
        erasure.part += 1;
        if erasure.part > LAST {
            end(tx.connection, erasure.tenant)?;
            return Ok(JobStep::More);
        }
        (erasure.last_row, erasure.end_row) = (0, newest_row(tx.connection, erasure.part)?);
    }
    write(tx.connection, &erasure)?;
    Ok(JobStep::More)
}

/// The tenant's next rows of a part, at most [`STEP_ROWS`], and the last row that was looked at.
fn found(connection: &Connection, erasure: &Erasure) -> rusqlite::Result<(Vec<i64>, i64)> {
    let table = PARTS[usize::from(erasure.part)];
    let mut statement = connection.prepare_cached(&format!(
        "SELECT seq, tenant IS ?1 FROM {table} WHERE seq > ?2 AND seq <= ?3 ORDER BY seq LIMIT ?4"
    ))?;
    let mut found =
        statement.query(params![erasure.tenant, erasure.last_row, erasure.end_row, SCAN_ROWS])?;
    let (mut rows, mut looked_at, mut last) = (Vec::new(), 0, erasure.last_row);
    let most = if table == "endpoints" { STEP_ROWS / ROWS_OF_ENDPOINT } else { STEP_ROWS } as usize;
    while rows.len() < most
        && let Some(row) = found.next()?
    {
        last = row.get(0)?;
        looked_at += 1;
        if row.get(1)? {
            rows.push(last);
        }
    }
    let at_the_end = looked_at < SCAN_ROWS && rows.len() < most;
    Ok((rows, if at_the_end { erasure.end_row } else { last }))
}

/// Forgets keys, here and in memory.
fn forget_keys(tx: &mut Tx<'_>, rows: &[i64], looked_at: i64) -> Result<i64, VerbError> {
    let mut forgotten = Vec::with_capacity(rows.len());
    let mut statement = tx
        .connection
        .prepare_cached("DELETE FROM key_log WHERE seq = ?1 RETURNING key, ref, expires_at")?;
    for row in rows {
        forgotten.push(statement.query_row([row], |row| {
            let expires_at = Timestamp::from_millis(row.get(2)?);
            Ok((KeyHash(row.get(0)?), KeyEntry { target: row.get(1)?, expires_at }))
        })?);
    }
    tx.forget(forgotten);
    Ok(looked_at)
}

/// Erases rows that nothing hangs on.
fn erase_rows(
    connection: &Connection,
    part: u8,
    rows: &[i64],
    looked_at: i64,
) -> Result<i64, VerbError> {
    let table = PARTS[usize::from(part)];
    let mut statement =
        connection.prepare_cached(&format!("DELETE FROM {table} WHERE seq = ?1"))?;
    for row in rows {
        statement.execute([row])?;
    }
    if table == "endpoints" {
        for table in ["sweeps", "endpoint_health"] {
            let statement = format!("DELETE FROM {table} WHERE endpoint = ?1");
            let mut statement = connection.prepare_cached(&statement)?;
            for row in rows {
                statement.execute([row])?;
            }
        }
    }
    Ok(looked_at)
}

/// Erases rows with all that hangs on them, as far as one step may go; returns the last row that is
/// done with.
fn erase_each(
    tx: &mut Tx<'_>,
    rows: &[i64],
    looked_at: i64,
    erase: impl Fn(&mut Tx<'_>, i64, &mut u32) -> Result<bool, VerbError>,
) -> Result<i64, VerbError> {
    let mut left = STEP_ROWS;
    for row in rows {
        if !erase(tx, *row, &mut left)? {
            return Ok(row - 1);
        }
    }
    Ok(looked_at)
}

/// Erases work on many deliveries if `left` is enough for it, else a part of its deliveries' ids.
fn erase_bulk(tx: &mut Tx<'_>, bulk: i64, left: &mut u32) -> Result<bool, VerbError> {
    let erased = tx
        .connection
        .prepare_cached(
            "DELETE FROM bulk_members WHERE seq IN (SELECT seq FROM bulk_members \
             WHERE bulk = ?1 LIMIT ?2)",
        )?
        .execute(params![bulk, *left])?;
    *left = left.saturating_sub(u32::try_from(erased).unwrap_or(u32::MAX));
    if *left == 0 {
        return Ok(false);
    }
    *left -= 1;
    tx.connection.prepare_cached("DELETE FROM bulks WHERE seq = ?1")?.execute([bulk])?;
    Ok(true)
}

/// Erases an event if `left` is enough for it, else a part of what hangs on it.
fn erase_event(tx: &mut Tx<'_>, event: i64, left: &mut u32) -> Result<bool, VerbError> {
    let span = (first_key(event), last_key(event));
    for (table, key) in [("attempts", "delivery, number"), ("interruptions", "delivery, token")] {
        let erased = tx
            .connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} \
                 WHERE delivery BETWEEN ?1 AND ?2 LIMIT ?3)"
            ))?
            .execute(params![span.0, span.1, *left])?;
        *left = left.saturating_sub(u32::try_from(erased).unwrap_or(u32::MAX));
    }
    let deliveries: Vec<i64> = tx
        .connection
        .prepare_cached(
            "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries \
             WHERE id BETWEEN ?1 AND ?2 LIMIT ?3) RETURNING id",
        )?
        .query_map(params![span.0, span.1, *left], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    *left = left.saturating_sub(u32::try_from(deliveries.len()).unwrap_or(u32::MAX));
    tx.erased(deliveries);
    if *left == 0 {
        return Ok(false);
    }
    *left -= 1;
    tx.connection.prepare_cached("DELETE FROM events WHERE seq = ?1")?.execute([event])?;
    Ok(true)
}

/// Nothing is left of the tenant: its id is free again.
fn end(connection: &Connection, tenant: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM erasures WHERE tenant = ?1", [tenant])?;
    connection.execute("DELETE FROM tenants WHERE no = ?1", [tenant])?;
    Ok(())
}

fn newest_row(connection: &Connection, part: u8) -> rusqlite::Result<i64> {
    let table = PARTS[usize::from(part)];
    connection
        .prepare_cached(&format!("SELECT ifnull(max(seq), 0) FROM {table}"))?
        .query_row([], |row| row.get(0))
}

fn write(connection: &Connection, erasure: &Erasure) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO erasures (tenant, part, last_row, end_row) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT (tenant) DO UPDATE SET part = excluded.part, \
             last_row = excluded.last_row, end_row = excluded.end_row",
        )?
        .execute(params![erasure.tenant, erasure.part, erasure.last_row, erasure.end_row])?;
    Ok(())
}
