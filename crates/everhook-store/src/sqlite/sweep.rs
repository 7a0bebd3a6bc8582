//! A job: cancelling what waits for an endpoint that is gone.
//!
//! A sweep needs no cursor: what it cancels leaves the index that it reads. While one runs, its
//! endpoint makes no new deliveries and cannot be enabled, so it ends. Where nothing is due when it
//! begins, it ends in the same transaction.

use everhook_domain::delivery::{CancelReason, Input, State};
use everhook_domain::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::command::VerbError;
use super::jobs::STEP_ROWS;
use super::row::{COLUMNS, DeliveryRow};
use super::tx::Tx;
use crate::code;
use crate::jobs::JobStep;

/// One step of the sweep of the oldest endpoint.
pub(super) fn step(tx: &mut Tx<'_>, now: Timestamp) -> Result<JobStep, VerbError> {
    let sweep = tx
        .connection
        .prepare_cached("SELECT endpoint, reason FROM sweeps ORDER BY endpoint LIMIT 1")?
        .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
        .optional()?;
    let Some((endpoint, reason)) = sweep else { return Ok(JobStep::Idle) };
    sweep_step(tx, endpoint, code::read_cancel(reason)?, now)?;
    Ok(JobStep::More)
}

/// Begins to cancel what is not delivered yet to an endpoint that is disabled or deleted in this
/// transaction.
pub(super) fn begin(
    tx: &mut Tx<'_>,
    endpoint: i64,
    reason: CancelReason,
    now: Timestamp,
) -> Result<(), VerbError> {
    let waiting = tx
        .connection
        .prepare_cached("SELECT 1 FROM deliveries WHERE status = 0 AND endpoint = ?1 LIMIT 1")?
        .exists([endpoint])?;
    if !waiting {
        return end(tx, endpoint, reason, now);
    }
    tx.connection
        .prepare_cached(
            "INSERT INTO sweeps (endpoint, reason) VALUES (?1, ?2) \
             ON CONFLICT (endpoint) DO UPDATE SET reason = excluded.reason",
        )?
        .execute(params![endpoint, code::cancel(reason)])?;
    tx.jobs_pending();
    Ok(())
}

/// Whether an endpoint's deliveries are still being cancelled.
pub(super) fn is_under_way(tx: &Tx<'_>, endpoint: i64) -> rusqlite::Result<bool> {
    tx.connection.prepare_cached("SELECT 1 FROM sweeps WHERE endpoint = ?1")?.exists([endpoint])
}

/// Cancels up to [`STEP_ROWS`] due deliveries; with none left, ends.
fn sweep_step(
    tx: &mut Tx<'_>,
    endpoint: i64,
    reason: CancelReason,
    now: Timestamp,
) -> Result<(), VerbError> {
    let due: Vec<DeliveryRow> = tx
        .connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE status = 0 AND endpoint = ?1 LIMIT ?2"
        ))?
        .query_map(params![endpoint, STEP_ROWS], DeliveryRow::read)?
        .collect::<Result<_, _>>()?;
    let last_step = due.len() < STEP_ROWS as usize;
    for mut row in due {
        tx.step(&mut row, Input::Cancel(reason), now)?;
    }
    if last_step { end(tx, endpoint, reason, now) } else { Ok(()) }
}

/// Marks what is being sent, so that it ends with its lease, and forgets the sweep.
fn end(
    tx: &mut Tx<'_>,
    endpoint: i64,
    reason: CancelReason,
    now: Timestamp,
) -> Result<(), VerbError> {
    for mut row in leased(tx, endpoint)? {
        if matches!(row.state, State::Leased(_)) {
            tx.step(&mut row, Input::Cancel(reason), now)?;
        }
    }
    tx.connection.prepare_cached("DELETE FROM sweeps WHERE endpoint = ?1")?.execute([endpoint])?;
    Ok(())
}

/// What is being sent to an endpoint: bounded by its slots.
fn leased(tx: &Tx<'_>, endpoint: i64) -> Result<Vec<DeliveryRow>, VerbError> {
    let mut rows: Vec<DeliveryRow> = tx
        .connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE status = 2 AND endpoint = ?1"
        ))?
        .query_map([endpoint], DeliveryRow::read)?
        .collect::<Result<_, _>>()?;
    for key in tx.outstanding_to(endpoint) {
        rows.extend(DeliveryRow::find(tx.connection, key)?);
    }
    Ok(rows)
}
