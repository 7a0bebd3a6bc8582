//! A job: erasing what a deleted tenant had.
//!
//! The tenant left the catalog when it was deleted, and its number is given to nobody while this
//! runs; so nothing of its is added, and nobody else's is touched. The large tables have no index
//! by tenant, which every accepted event would pay for: the rows are walked once, a bounded number
//! at a time, up to what there was when their part began.
//!
//! A step takes a span of rows that holds few enough of the tenant's, and one statement for each
//! table: one for each row would cost several times as much, and accepts wait for a step. What
//! hangs on the rows goes first, and a step that could not take all of it leaves the span as it is.

use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::claims;
use super::command::VerbError;
use super::jobs::STEP_ROWS;
use super::keys::{REMOVED, Removed};
use super::tx::Tx;
use crate::jobs::JobStep;

/// Rows looked at in one step, most of which may be others'.
const SCAN_ROWS: u32 = 4 * STEP_ROWS;
/// What rows of one step hold beside their page, in bytes, once more than one is taken: a long body
/// is a chain of pages, each of which is read to be given back.
const SPAN_BYTES: i64 = 2 << 20;

/// A table with `seq` and `tenant`.
struct Part {
    table: &'static str,
    /// The length of a row's body.
    bytes: &'static str,
    /// What goes before the rows themselves.
    hanging: &'static [Hanging],
}

/// Rows without a `tenant` that hang on those of a [`Part`].
struct Hanging {
    table: &'static str,
    key: &'static [&'static str],
    on: &'static str,
}

/// In the order in which they are emptied. Keys come before what they lead to, so that none ever
/// leads to a row that is given to somebody else.
const PARTS: [Part; 11] = [
    Part { table: "key_log", bytes: "0", hanging: &[] },
    Part { table: "idempotency_records", bytes: "length(body)", hanging: &[] },
    Part {
        table: "bulks",
        bytes: "0",
        hanging: &[Hanging {
            table: "bulk_members",
            key: &["seq"],
            on: "hanging.bulk = owner.seq",
        }],
    },
    Part {
        table: "endpoints",
        bytes: "0",
        hanging: &[
            Hanging { table: "sweeps", key: &["endpoint"], on: OF_ENDPOINT },
            Hanging { table: "endpoint_health", key: &["endpoint"], on: OF_ENDPOINT },
        ],
    },
    Part {
        table: "events",
        bytes: "length(body)",
        hanging: &[
            Hanging { table: "attempts", key: &["delivery", "number"], on: OF_EVENT },
            Hanging { table: "interruptions", key: &["delivery", "token"], on: OF_EVENT },
            Hanging {
                table: DELIVERIES,
                key: &["id"],
                on: "hanging.id BETWEEN owner.seq << 16 AND owner.seq << 16 | 65535",
            },
        ],
    },
    Part { table: "receipts", bytes: "0", hanging: &[] },
    Part { table: "received_headers", bytes: "length(headers)", hanging: &[] },
    Part { table: "sources", bytes: "0", hanging: &[] },
    Part { table: "messages", bytes: "length(body)", hanging: &[] },
    Part { table: "conversations", bytes: "0", hanging: &[] },
    // Behind the others, as an erasure may have begun before there were claims.
    Part { table: "claims", bytes: "ifnull(length(remembered), 0)", hanging: &[] },
];
const OF_ENDPOINT: &str = "hanging.endpoint = owner.seq";
/// A delivery's key is its event's, and its ordinal in the last 16 bits.
const OF_EVENT: &str = "hanging.delivery BETWEEN owner.seq << 16 AND owner.seq << 16 | 65535";
const DELIVERIES: &str = "deliveries";
const KEYS: u8 = 0;
const CLAIMS: u8 = 10;

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
    let Some(part) = PARTS.get(usize::from(erasure.part)) else {
        end(tx.connection, erasure.tenant)?;
        return Ok(JobStep::More);
    };
    let span = Span::of(tx.connection, part, &erasure)?;
    let whole = match erasure.part {
        KEYS => forget_keys(tx, &span)?,
        CLAIMS => erase_claims(tx, &span)?,
        _ => erase(tx, part, &span)?,
    };
    if whole {
        erasure.last_row = span.to;
    }
    if erasure.last_row >= erasure.end_row {
        erasure.part += 1;
        (erasure.last_row, erasure.end_row) = (0, newest_row(tx.connection, erasure.part)?);
    }
    write(tx.connection, &erasure)?;
    Ok(JobStep::More)
}

/// Rows of a part, among them at most [`STEP_ROWS`] of the tenant.
struct Span {
    tenant: i64,
    after: i64,
    to: i64,
}

impl Span {
    fn of(connection: &Connection, part: &Part, erasure: &Erasure) -> rusqlite::Result<Self> {
        let Erasure { tenant, last_row: after, end_row, .. } = *erasure;
        let mut statement = connection.prepare_cached(&format!(
            "SELECT seq, tenant IS ?1, {} FROM {} WHERE seq > ?2 AND seq <= ?3 \
             ORDER BY seq LIMIT ?4",
            part.bytes, part.table
        ))?;
        let mut found = statement.query(params![tenant, after, end_row, SCAN_ROWS])?;
        let (mut to, mut looked_at, mut own, mut bytes) = (after, 0, 0, 0);
        while let Some(row) = found.next()? {
            to = row.get(0)?;
            looked_at += 1;
            if row.get(1)? {
                own += 1;
                bytes += row.get::<_, i64>(2)?;
            }
            if own == STEP_ROWS || bytes > SPAN_BYTES {
                return Ok(Self { tenant, after, to });
            }
        }
        Ok(Self { tenant, after, to: if looked_at < SCAN_ROWS { end_row } else { to } })
    }
}

/// Forgets the keys of a span, here and in memory: all of them.
fn forget_keys(tx: &mut Tx<'_>, span: &Span) -> rusqlite::Result<bool> {
    let forgotten = tx
        .connection
        .prepare_cached(&format!(
            "DELETE FROM key_log WHERE seq > ?1 AND seq <= ?2 AND tenant = ?3 {REMOVED}"
        ))?
        .query_map([span.after, span.to, span.tenant], Removed::read)?
        .collect::<Result<_, _>>()?;
    tx.forget(forgotten);
    Ok(true)
}

/// Erases the claims of a span, and takes them out of their accounts: all of them.
fn erase_claims(tx: &mut Tx<'_>, span: &Span) -> rusqlite::Result<bool> {
    let condition = "seq > ?1 AND seq <= ?2 AND tenant = ?3";
    claims::remove(tx, condition, [span.after, span.to, span.tenant])?;
    Ok(true)
}

/// Erases the tenant's rows of a span with all that hangs on them, as far as one step may go.
/// Whether that is all of it.
fn erase(tx: &mut Tx<'_>, part: &Part, span: &Span) -> rusqlite::Result<bool> {
    let owner = part.table;
    let mut left = STEP_ROWS as usize;
    for Hanging { table, key, on } in part.hanging {
        let inner: Vec<_> = key.iter().map(|column| format!("hanging.{column}")).collect();
        let (first, key, inner) = (key[0], key.join(", "), inner.join(", "));
        let statement = format!(
            "DELETE FROM {table} WHERE ({key}) IN (SELECT {inner} \
             FROM {owner} AS owner CROSS JOIN {table} AS hanging ON {on} \
             WHERE owner.seq > ?1 AND owner.seq <= ?2 AND owner.tenant = ?3 LIMIT ?4) \
             RETURNING {first}"
        );
        let gone = delete(tx.connection, &statement, span, left)?;
        left = left.saturating_sub(gone.len());
        if *table == DELIVERIES {
            tx.erased(gone);
        }
        if left == 0 {
            // More may hang on these rows.
            return Ok(false);
        }
    }
    let statement = format!(
        "DELETE FROM {owner} WHERE seq IN (SELECT seq FROM {owner} \
         WHERE seq > ?1 AND seq <= ?2 AND tenant = ?3 LIMIT ?4) RETURNING seq"
    );
    Ok(delete(tx.connection, &statement, span, left)?.len() < left)
}

/// Deletes at most so many rows of a span. The first column of each key.
fn delete(
    connection: &Connection,
    statement: &str,
    span: &Span,
    limit: usize,
) -> rusqlite::Result<Vec<i64>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    connection
        .prepare_cached(statement)?
        .query_map([span.after, span.to, span.tenant, limit], |row| row.get(0))?
        .collect()
}

/// Nothing is left of the tenant: its id is free again.
fn end(connection: &Connection, tenant: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM erasures WHERE tenant = ?1", [tenant])?;
    connection.execute("DELETE FROM tenants WHERE no = ?1", [tenant])?;
    Ok(())
}

/// The newest row of a part; 0 where there is none, or no such part.
fn newest_row(connection: &Connection, part: u8) -> rusqlite::Result<i64> {
    let Some(Part { table, .. }) = PARTS.get(usize::from(part)) else { return Ok(0) };
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
