//! A job: cancelling what waits for an endpoint that is gone.
//!
//! A sweep needs no cursor: what it cancels leaves the index that it reads. While one runs, its
//! endpoint makes no new deliveries and cannot be enabled, so it ends. Where nothing is due when it
//! begins, it ends in the same transaction. Two nodes take two sweeps.

use everhook_domain::delivery::{CancelReason, Input, State};

use super::failure::VerbError;
use super::jobs::STEP_ROWS;
use super::number::{Bits, small};
use super::row::{COLUMNS, DeliveryRow};
use super::tx::Tx;
use crate::code;
use crate::jobs::JobStep;

/// One step of the first sweep that no other node is at.
pub(super) async fn step(tx: &mut Tx) -> Result<JobStep, VerbError> {
    let statement = "SELECT endpoint, reason FROM sweeps ORDER BY endpoint LIMIT 1 \
                     FOR UPDATE SKIP LOCKED";
    let Some(sweep) = tx.connection.first(statement, &[]).await? else { return Ok(JobStep::Idle) };
    let (endpoint, reason): (Bits, i16) = (sweep.try_get(0)?, sweep.try_get(1)?);
    let reason = code::read_cancel(i64::from(reason))?;
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE status = 0 AND endpoint = $1 \
         ORDER BY id LIMIT $2 FOR UPDATE"
    );
    let due = tx.connection.query(&statement, &[&endpoint, &STEP_ROWS]).await?;
    let last_step = i64::try_from(due.len()).is_ok_and(|rows| rows < STEP_ROWS);
    for row in &mut DeliveryRow::read_all(&due)? {
        if matches!(row.record.state, State::Due(_) | State::Leased(_)) {
            tx.step(row, Input::Cancel(reason))?;
        }
    }
    if last_step {
        end(tx, endpoint, reason).await?;
    }
    Ok(JobStep::More)
}

/// Begins to cancel what is not delivered yet to an endpoint that is disabled or deleted in this
/// transaction. It is alone: whoever makes or leases deliveries holds the directory's lock.
pub(super) async fn begin(
    tx: &mut Tx,
    endpoint: Bits,
    reason: CancelReason,
) -> Result<(), VerbError> {
    let waiting = "SELECT 1 FROM deliveries WHERE status = 0 AND endpoint = $1 LIMIT 1";
    if tx.connection.first(waiting, &[&endpoint]).await?.is_none() {
        return end(tx, endpoint, reason).await;
    }
    let statement = "INSERT INTO sweeps (endpoint, reason) VALUES ($1, $2) \
                     ON CONFLICT (endpoint) DO UPDATE SET reason = excluded.reason";
    tx.connection.execute(statement, &[&endpoint, &small(code::cancel(reason))]).await?;
    tx.jobs_pending();
    Ok(())
}

/// Whether an endpoint's deliveries are still being cancelled.
pub(super) async fn is_under_way(tx: &mut Tx, endpoint: Bits) -> Result<bool, VerbError> {
    let statement = "SELECT 1 FROM sweeps WHERE endpoint = $1";
    Ok(tx.connection.first(statement, &[&endpoint]).await?.is_some())
}

/// Marks what is being sent, so that it ends with its lease (bounded by the endpoint's slots), and
/// forgets the sweep.
async fn end(tx: &mut Tx, endpoint: Bits, reason: CancelReason) -> Result<(), VerbError> {
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE status = 2 AND endpoint = $1 \
         ORDER BY id FOR UPDATE"
    );
    let leased = tx.connection.query(&statement, &[&endpoint]).await?;
    for row in &mut DeliveryRow::read_all(&leased)? {
        if matches!(row.record.state, State::Leased(_)) {
            tx.step(row, Input::Cancel(reason))?;
        }
    }
    tx.connection.execute("DELETE FROM sweeps WHERE endpoint = $1", &[&endpoint]).await?;
    Ok(())
}
