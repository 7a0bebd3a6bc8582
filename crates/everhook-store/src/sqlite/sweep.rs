//! A job: cancelling what waits for an endpoint that is gone.
//!
//! A sweep needs no cursor: what it cancels leaves the index that it reads. While one runs, its
//! endpoint makes no new deliveries and cannot be enabled, so it ends.

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

/// Cancels up to [`STEP_ROWS`] due deliveries; with none left, marks the leased ones and ends.
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
    if !last_step {
        return Ok(());
    }
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
