//! Catch-up: the deliveries that an endpoint missed, or that its disabling cancelled.

use std::sync::Arc;

use everhook_domain::attempt::Trigger;
use everhook_domain::bulk::{BulkKind, BulkStatus, SkipReason, catches_up};
use everhook_domain::delivery::{Due, Input, Progress, State};
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::time::Timestamp;
use rusqlite::{OptionalExtension, Row, params};

use super::super::command::VerbError;
use super::super::jobs::STEP_ROWS;
use super::super::receipt;
use super::super::row::{COLUMNS, DeliveryRow, bad, first_key, last_key};
use super::super::tx::{Tx, endpoint_no};
use super::members;
use super::row::BulkRow;
use super::step::skipped;
use crate::code::{self, UnknownCode};
use crate::route::stored_facts;

/// About so many bytes are read in one step.
const STEP_BYTES: usize = 1 << 20;
/// A delivery of an event counts as so many bytes, because looking for one reads its neighbours.
const DELIVERY_BYTES: usize = 100;

/// An event that the endpoint wants.
struct Wanted {
    sequence: i64,
    created_at: i64,
    event_type: String,
}

/// Goes through the next events, until so many deliveries were set going.
pub(super) fn step(
    tx: &mut Tx<'_>,
    bulk: &mut BulkRow,
    allowed: u64,
    now: Timestamp,
) -> Result<(), VerbError> {
    let endpoint = bulk.record.filter.endpoint.and_then(|id| tx.endpoint(endpoint_no(id)));
    let endpoint = endpoint.filter(|endpoint| endpoint.state.gone().is_none()).map(Arc::clone);
    let Some(endpoint) = endpoint else {
        bulk.end(BulkStatus::Cancelled, now);
        return Ok(());
    };
    let (wanted, read_to) = read(tx, bulk, &endpoint)?;
    let enough = bulk.record.tally.done + allowed;
    for event in wanted {
        deliver(tx, bulk, &event, &endpoint, now)?;
        bulk.cursor = event.sequence;
        if bulk.record.tally.done == enough {
            return Ok(());
        }
    }
    bulk.cursor = read_to;
    Ok(())
}

/// The wanted ones among the next events, and the last event that was looked at.
fn read(tx: &Tx<'_>, bulk: &BulkRow, endpoint: &Endpoint) -> Result<(Vec<Wanted>, i64), VerbError> {
    let mut statement = tx.connection.prepare_cached(
        "SELECT seq, tenant, created_at, type, origin, deliveries, body FROM events \
         WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut rows = statement.query(params![bulk.cursor, bulk.last, STEP_ROWS])?;
    let (mut wanted, mut read_to, mut bytes) = (Vec::new(), bulk.last, 0);
    let mut looked_at = 0;
    while let Some(row) = rows.next()? {
        looked_at += 1;
        let sequence: i64 = row.get(0)?;
        if row.get::<_, i64>(1)? == bulk.tenant {
            let body = row.get_ref(6)?.as_blob().map_err(rusqlite::Error::from)?;
            bytes += body.len() + row.get::<_, u32>(5)? as usize * DELIVERY_BYTES;
            wanted.extend(wants(tx, endpoint, row, body)?);
        }
        if looked_at == STEP_ROWS || bytes >= STEP_BYTES {
            read_to = sequence;
            break;
        }
    }
    Ok((wanted, read_to))
}

/// The event, if the endpoint wants it. A received one that waits for a decision, or is dead, goes
/// nowhere.
fn wants(
    tx: &Tx<'_>,
    endpoint: &Endpoint,
    row: &Row<'_>,
    body: &[u8],
) -> Result<Option<Wanted>, VerbError> {
    let sequence: i64 = row.get(0)?;
    let event_type: String = row.get(3)?;
    let known =
        EventType::any(&event_type).map_err(|_| bad(UnknownCode("event type", sequence)))?;
    let origin = code::read_origin(row.get(4)?).map_err(bad)?;
    let source = match origin {
        Origin::Received => match receipt::running(tx, sequence) {
            Ok(source) => source,
            Err(VerbError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
        Origin::Published | Origin::System => None,
    };
    let wanted = endpoint.settings.wants(&stored_facts(origin, &known, source.as_ref(), body));
    let created_at = row.get(2)?;
    Ok(wanted.then_some(Wanted { sequence, created_at, event_type }))
}

/// Makes the delivery where it is missing, sends it again where the disabling cancelled it.
fn deliver(
    tx: &mut Tx<'_>,
    bulk: &mut BulkRow,
    event: &Wanted,
    endpoint: &Endpoint,
    now: Timestamp,
) -> Result<(), VerbError> {
    let (first, last) = (first_key(event.sequence), last_key(event.sequence));
    let to = endpoint_no(endpoint.id);
    let there = tx
        .connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM deliveries WHERE id BETWEEN ?1 AND ?2 AND endpoint = ?3"
        ))?
        .query_row(params![first, last, to], DeliveryRow::read)
        .optional()?;
    if let Some(mut row) = there {
        if catches_up(&row.state) {
            let outcome = match in_replay(tx, &row)? {
                true => Err(SkipReason::InBulkReplay),
                false => skipped(tx.step(&mut row, Input::Replay, now))?,
            };
            bulk.record.tally.count(outcome);
        }
        return Ok(());
    }
    let newest: Option<i64> = tx
        .connection
        .prepare_cached("SELECT max(id) FROM deliveries WHERE id BETWEEN ?1 AND ?2")?
        .query_row([first, last], |row| row.get(0))?;
    let key = newest.unwrap_or(first) + 1;
    if key > last {
        // It has as many as an event can have.
        bulk.record.tally.count(Err(SkipReason::NotAllowed));
        return Ok(());
    }
    let row = DeliveryRow {
        key,
        tenant: bulk.tenant,
        endpoint: to,
        event_type: event.event_type.clone(),
        event_at: event.created_at,
        created_at: Some(now.as_millis()),
        leased_at_birth: false,
        state: State::Due(Due { at: now, cause: Trigger::Replay }),
        progress: Progress::NEW,
    };
    row.insert(tx.connection)?;
    tx.hint(&row);
    bulk.record.tally.count(Ok(()));
    Ok(())
}

/// Whether an unfinished bulk replay is still to send it.
fn in_replay(tx: &Tx<'_>, row: &DeliveryRow) -> Result<bool, VerbError> {
    for bulk in BulkRow::running(tx.connection, row.tenant, tx.tag())? {
        if bulk.record.kind == BulkKind::Replay
            && row.key > bulk.cursor
            && members::after(tx.connection, bulk.seq, row.key - 1)?.first() == Some(&row.key)
        {
            return Ok(true);
        }
    }
    Ok(false)
}
