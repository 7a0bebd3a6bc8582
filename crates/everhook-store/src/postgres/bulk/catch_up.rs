//! Catch-up: the deliveries that an endpoint missed, or that its disabling cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use everhook_domain::attempt::Trigger;
use everhook_domain::bulk::{BulkKind, BulkStatus, SkipReason, catches_up};
use everhook_domain::delivery::{Due, Input, Progress, State};
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::id::{DeliveryId, EventId};
use everhook_domain::tenant::TenantId;
use tokio_postgres::Row;

use super::super::failure::VerbError;
use super::super::jobs::STEP_ROWS;
use super::super::number::Bits;
use super::super::receipt;
use super::super::row::{self, COLUMNS, DeliveryRow};
use super::super::tx::Tx;
use super::members;
use super::row::BulkRow;
use super::step::skipped;
use crate::code;
use crate::reading::DeliveryRecord;
use crate::route::stored_facts;

/// About so many bytes are read in one step.
const STEP_BYTES: i64 = 1 << 20;
/// A delivery of an event counts as so many bytes, because looking for one reads its neighbours.
const DELIVERY_BYTES: i64 = 100;

/// An event that the endpoint wants.
struct Wanted {
    id: EventId,
    event_type: EventType,
}

/// Goes through the next events, until so many deliveries were set going.
pub(super) async fn step(tx: &mut Tx, bulk: &mut BulkRow, allowed: u64) -> Result<(), VerbError> {
    let id = bulk.record.filter.endpoint;
    let endpoint = id.and_then(|id| tx.directory.endpoint_of(&bulk.tenant, id));
    let endpoint = endpoint.filter(|endpoint| endpoint.state.gone().is_none()).map(Arc::clone);
    let Some(endpoint) = endpoint else {
        bulk.end(BulkStatus::Cancelled, tx.now);
        return Ok(());
    };
    let Some(read_to) = read_to(tx, bulk).await? else {
        bulk.cursor = bulk.last;
        return Ok(());
    };
    let wanted = read(tx, bulk, &endpoint, read_to).await?;
    let mut there = there(tx, bulk, &endpoint, read_to).await?;
    let enough = bulk.record.tally.done + allowed;
    for event in wanted {
        match there.get_mut(&event.id) {
            Some(row) => replay(tx, bulk, row).await?,
            None => make(tx, bulk, &event, &endpoint).await?,
        }
        bulk.cursor = Bits::from(event.id);
        if bulk.record.tally.done == enough {
            return Ok(());
        }
    }
    bulk.cursor = read_to;
    Ok(())
}

/// How far one step reads; `None` if there is nothing more.
async fn read_to(tx: &mut Tx, bulk: &BulkRow) -> Result<Option<Bits>, VerbError> {
    let statement = "SELECT id, octet_length(body)::bigint, deliveries::bigint FROM events \
                     WHERE tenant = $1 AND id > $2 AND id <= $3 ORDER BY id LIMIT $4";
    let tenant = bulk.tenant.as_str();
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&tenant, &bulk.cursor, &bulk.last, &STEP_ROWS];
    let (mut read_to, mut bytes) = (None, 0);
    for row in tx.connection.query(statement, &values).await? {
        read_to = Some(row.try_get(0)?);
        let (body, deliveries): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        bytes += body + deliveries * DELIVERY_BYTES;
        if bytes >= STEP_BYTES {
            break;
        }
    }
    Ok(read_to)
}

/// The wanted ones among the next events, locked, so that only one transaction at a time gives them
/// new deliveries.
async fn read(
    tx: &mut Tx,
    bulk: &BulkRow,
    endpoint: &Endpoint,
    read_to: Bits,
) -> Result<Vec<Wanted>, VerbError> {
    let statement = "SELECT id, type, origin, body FROM events \
                     WHERE tenant = $1 AND id > $2 AND id <= $3 ORDER BY id FOR NO KEY UPDATE";
    let tenant = bulk.tenant.as_str();
    let rows = tx.connection.query(statement, &[&tenant, &bulk.cursor, &read_to]).await?;
    let mut wanted = Vec::new();
    for row in &rows {
        wanted.extend(wants(tx, &bulk.tenant, endpoint, row).await?);
    }
    Ok(wanted)
}

async fn wants(
    tx: &mut Tx,
    tenant: &TenantId,
    endpoint: &Endpoint,
    row: &Row,
) -> Result<Option<Wanted>, VerbError> {
    let Bits(id) = row.try_get(0)?;
    let id = EventId::from_bits(id);
    let event_type = EventType::any(row.try_get(1)?)
        .map_err(|error| VerbError::Unusable(format!("the type of event {id}: {error}")))?;
    let origin: i16 = row.try_get(2)?;
    let origin = code::read_origin(i64::from(origin))?;
    let source = match origin {
        Origin::Received => match receipt::running(tx, tenant, id).await {
            Ok(source) => source,
            // It waits for a decision, or is dead.
            Err(VerbError::Refused(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
        Origin::Published | Origin::System => None,
    };
    let facts = stored_facts(origin, &event_type, source.as_ref(), row.try_get(3)?);
    let matches = endpoint.settings.wants(&facts);
    Ok(matches.then_some(Wanted { id, event_type }))
}

/// The endpoint's deliveries of the next events, locked.
async fn there(
    tx: &mut Tx,
    bulk: &BulkRow,
    endpoint: &Endpoint,
    Bits(read_to): Bits,
) -> Result<HashMap<EventId, DeliveryRow>, VerbError> {
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries \
         WHERE tenant = $1 AND endpoint = $2 AND id > $3 AND id <= $4 ORDER BY id FOR UPDATE"
    );
    let last = Bits::from(EventId::from_bits(read_to).delivery(u16::MAX));
    let tenant = bulk.tenant.as_str();
    let to = Bits::from(endpoint.id);
    let rows = tx.connection.query(&statement, &[&tenant, &to, &bulk.cursor, &last]).await?;
    let rows = DeliveryRow::read_all(&rows)?;
    Ok(rows.into_iter().map(|row| (row.record.id.event(), row)).collect())
}

/// Sends it again if the disabling cancelled it.
async fn replay(tx: &mut Tx, bulk: &mut BulkRow, row: &mut DeliveryRow) -> Result<(), VerbError> {
    if catches_up(&row.record.state) {
        let outcome = match in_replay(tx, bulk, row.record.id).await? {
            true => Err(SkipReason::InBulkReplay),
            false => skipped(tx.step(row, Input::Replay))?,
        };
        bulk.record.tally.count(outcome);
    }
    Ok(())
}

/// Makes the delivery that is missing.
async fn make(
    tx: &mut Tx,
    bulk: &mut BulkRow,
    event: &Wanted,
    endpoint: &Endpoint,
) -> Result<(), VerbError> {
    let statement = "SELECT id FROM deliveries WHERE tenant = $1 AND id BETWEEN $2 AND $3 \
                     ORDER BY id DESC LIMIT 1";
    let (first, last) = (event.id.delivery(0), event.id.delivery(u16::MAX));
    let tenant = bulk.tenant.as_str();
    let newest =
        tx.connection.first(statement, &[&tenant, &Bits::from(first), &Bits::from(last)]).await?;
    let newest: Option<Bits> = newest.map(|row| row.try_get(0)).transpose()?;
    let newest = newest.map_or(0, |Bits(bits)| DeliveryId::from_bits(bits).ordinal());
    // Otherwise it has as many as an event can have.
    if let Some(ordinal) = newest.checked_add(1) {
        let record = DeliveryRecord {
            id: event.id.delivery(ordinal),
            endpoint: endpoint.id,
            event_type: event.event_type.clone(),
            state: State::Due(Due { at: tx.now, cause: Trigger::Replay }),
            progress: Progress::NEW,
            created_at: tx.now,
        };
        tx.hint(&record);
        row::insert(&mut tx.connection, &bulk.tenant, &[record]).await?;
        bulk.record.tally.count(Ok(()));
    } else {
        bulk.record.tally.count(Err(SkipReason::NotAllowed));
    }
    Ok(())
}

/// Whether an unfinished bulk replay is still to send it.
async fn in_replay(tx: &mut Tx, bulk: &BulkRow, delivery: DeliveryId) -> Result<bool, VerbError> {
    let (id, before) = (Bits::from(delivery), Bits(delivery.bits() - 1));
    for other in BulkRow::running(&mut tx.connection, &bulk.tenant).await? {
        if other.record.kind == BulkKind::Replay && id > other.cursor {
            let connection = &mut tx.connection;
            let next = members::after(connection, &bulk.tenant, other.record.id, before).await?;
            if next.first() == Some(&id) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
