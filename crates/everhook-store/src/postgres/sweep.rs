//! A job: cancelling what waits for an endpoint that is gone.
//!
//! A sweep needs no cursor: what it cancels leaves the index that it reads. While one runs, its
//! endpoint makes no new deliveries and cannot be enabled, so it ends. Two nodes take two sweeps.

use everhook_domain::delivery::{Input, State};

use super::failure::VerbError;
use super::jobs::STEP_ROWS;
use super::number::Bits;
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
    let cancel = Input::Cancel(code::read_cancel(i64::from(reason))?);
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE status = 0 AND endpoint = $1 \
         ORDER BY id LIMIT $2 FOR UPDATE"
    );
    let due = tx.connection.query(&statement, &[&endpoint, &STEP_ROWS]).await?;
    let last_step = i64::try_from(due.len()).is_ok_and(|rows| rows < STEP_ROWS);
    let mut rows = DeliveryRow::read_all(&due)?;
    if last_step {
        // What is being sent ends with its lease: bounded by the endpoint's slots.
        let statement = format!(
            "SELECT {COLUMNS} FROM deliveries WHERE status = 2 AND endpoint = $1 \
             ORDER BY id FOR UPDATE"
        );
        let leased = tx.connection.query(&statement, &[&endpoint]).await?;
        rows.extend(DeliveryRow::read_all(&leased)?);
        tx.connection.execute("DELETE FROM sweeps WHERE endpoint = $1", &[&endpoint]).await?;
    }
    for row in &mut rows {
        if matches!(row.record.state, State::Due(_) | State::Leased(_)) {
            tx.step(row, cancel.clone())?;
        }
    }
    Ok(JobStep::More)
}
