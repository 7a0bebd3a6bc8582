//! One step of work on many deliveries.

use std::collections::HashMap;

use everhook_domain::bulk::{BulkKind, BulkStatus, SkipReason};

use super::super::failure::VerbError;
use super::super::jobs::STEP_ROWS;
use super::super::number::Bits;
use super::super::row::{COLUMNS, DeliveryRow};
use super::super::tx::Tx;
use super::row::BulkRow;
use super::{catch_up, members};
use crate::error::Refusal;
use crate::jobs::JobStep;

/// One step of the work that may go on first. Its cursor is written in the same transaction.
pub(in super::super) async fn step(tx: &mut Tx) -> Result<JobStep, VerbError> {
    if clear(tx).await? {
        return Ok(JobStep::More);
    }
    let Some(mut bulk) = BulkRow::next(&mut tx.connection).await? else {
        return Ok(JobStep::Idle);
    };
    let allowed = bulk.pace.allowed(tx.now);
    if allowed == 0 {
        return Ok(JobStep::NotBefore(bulk.pace.next()));
    }
    let before = bulk.record.tally.done;
    match bulk.record.kind {
        BulkKind::Replay | BulkKind::Acknowledge => step_members(tx, &mut bulk, allowed).await?,
        BulkKind::CatchUp => catch_up::step(tx, &mut bulk, allowed).await?,
    }
    bulk.pace = bulk.pace.after(bulk.record.tally.done - before, tx.now);
    if bulk.record.status == BulkStatus::Running && bulk.cursor >= bulk.last {
        bulk.end(BulkStatus::Done, tx.now);
    }
    bulk.update(&mut tx.connection).await?;
    Ok(JobStep::More)
}

/// Steps the next members, until so many were done.
async fn step_members(tx: &mut Tx, bulk: &mut BulkRow, allowed: u64) -> Result<(), VerbError> {
    let ids = members::after(&mut tx.connection, &bulk.tenant, bulk.record.id, bulk.cursor).await?;
    let ids: Vec<Bits> = ids.into_iter().take(usize::try_from(STEP_ROWS).unwrap_or(1)).collect();
    if ids.is_empty() {
        bulk.cursor = bulk.last;
    }
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE tenant = $1 AND id = ANY($2) ORDER BY id FOR UPDATE"
    );
    let rows = tx.connection.query(&statement, &[&bulk.tenant.as_str(), &ids]).await?;
    let rows = DeliveryRow::read_all(&rows)?;
    let mut rows: HashMap<u128, DeliveryRow> =
        rows.into_iter().map(|row| (row.record.id.bits(), row)).collect();
    let enough = bulk.record.tally.done + allowed;
    for id in ids {
        let outcome = match rows.get_mut(&id.0) {
            Some(row) => skipped(tx.step(row, bulk.record.kind.input()))?,
            None => Err(SkipReason::Erased),
        };
        bulk.record.tally.count(outcome);
        bulk.cursor = id;
        if bulk.record.tally.done == enough {
            break;
        }
    }
    Ok(())
}

/// A refused step is a skipped delivery.
pub(super) fn skipped(stepped: Result<(), VerbError>) -> Result<Result<(), SkipReason>, VerbError> {
    match stepped {
        Ok(()) => Ok(Ok(())),
        Err(VerbError::Refused(Refusal::Step(illegal))) => Ok(Err(illegal.into())),
        Err(error) => Err(error),
    }
}

/// Removes some of what ended work had stored; false when there was nothing.
async fn clear(tx: &mut Tx) -> Result<bool, VerbError> {
    let statement = "SELECT tenant, id FROM bulks WHERE status <> 'running' AND has_members \
                     LIMIT 1 FOR UPDATE SKIP LOCKED";
    let Some(ended) = tx.connection.first(statement, &[]).await? else { return Ok(false) };
    let (tenant, bulk): (&str, Bits) = (ended.try_get(0)?, ended.try_get(1)?);
    if !members::clear(&mut tx.connection, tenant, bulk).await? {
        let statement = "UPDATE bulks SET has_members = false WHERE tenant = $1 AND id = $2";
        tx.connection.execute(statement, &[&tenant, &bulk]).await?;
    }
    Ok(true)
}
