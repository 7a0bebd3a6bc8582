//! One step of work on many deliveries.

use everhook_domain::bulk::{BulkKind, BulkStatus, SkipReason};
use everhook_domain::time::Timestamp;
use rusqlite::OptionalExtension;

use super::super::command::VerbError;
use super::super::jobs::STEP_ROWS;
use super::super::row::DeliveryRow;
use super::super::tx::Tx;
use super::row::BulkRow;
use super::{catch_up, members};
use crate::error::Refusal;
use crate::jobs::JobStep;

/// One step of the work that may go on first. Its cursor is written in the same transaction.
pub(in super::super) fn step(tx: &mut Tx<'_>, now: Timestamp) -> Result<JobStep, VerbError> {
    if clear(tx)? {
        return Ok(JobStep::More);
    }
    let Some(mut bulk) = BulkRow::next(tx.connection, tx.tag())? else { return Ok(JobStep::Idle) };
    let allowed = bulk.pace.allowed(now);
    if allowed == 0 {
        return Ok(JobStep::NotBefore(bulk.pace.next()));
    }
    let before = bulk.record.tally.done;
    match bulk.record.kind {
        BulkKind::Replay | BulkKind::Acknowledge => step_members(tx, &mut bulk, allowed, now)?,
        BulkKind::CatchUp => catch_up::step(tx, &mut bulk, allowed, now)?,
    }
    bulk.pace = bulk.pace.after(bulk.record.tally.done - before, now);
    if bulk.record.status == BulkStatus::Running && bulk.cursor >= bulk.last {
        bulk.end(BulkStatus::Done, now);
    }
    bulk.update(tx.connection)?;
    Ok(JobStep::More)
}

/// Steps the next members, until so many were done.
fn step_members(
    tx: &mut Tx<'_>,
    bulk: &mut BulkRow,
    allowed: u64,
    now: Timestamp,
) -> Result<(), VerbError> {
    let keys = members::after(tx.connection, bulk.seq, bulk.cursor)?;
    if keys.is_empty() {
        bulk.cursor = bulk.last;
    }
    let enough = bulk.record.tally.done + allowed;
    for key in keys.into_iter().take(STEP_ROWS as usize) {
        let row = DeliveryRow::find(tx.connection, key)?.filter(|row| row.tenant == bulk.tenant);
        let outcome = match row {
            Some(mut row) => skipped(tx.step(&mut row, bulk.record.kind.input(), now))?,
            None => Err(SkipReason::Erased),
        };
        bulk.record.tally.count(outcome);
        bulk.cursor = key;
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
fn clear(tx: &Tx<'_>) -> Result<bool, VerbError> {
    let ended: Option<i64> = tx
        .connection
        .prepare_cached(
            "SELECT seq FROM bulks WHERE status <> 'running' AND has_members = 1 LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(ended) = ended else { return Ok(false) };
    if !members::clear(tx.connection, ended)? {
        tx.connection
            .prepare_cached("UPDATE bulks SET has_members = 0 WHERE seq = ?1")?
            .execute([ended])?;
    }
    Ok(true)
}
