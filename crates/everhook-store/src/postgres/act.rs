//! `act` and `send_again`: what people do with deliveries.

use std::collections::HashSet;
use std::sync::Arc;

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{CancelReason, Due, IllegalStep, Input, Progress, State};
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::tenant::TenantId;

use super::failure::VerbError;
use super::number::Bits;
use super::row::{self, COLUMNS, DeliveryRow};
use super::tx::Tx;
use super::{claimed, receipt};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::error::Refusal;
use crate::reading::DeliveryRecord;
use crate::route::stored_facts;
use crate::sending::{Act, SentAgain};

/// `act` under its claim.
pub(super) async fn acted(
    tx: &mut Tx,
    tenant: &TenantId,
    delivery: DeliveryId,
    act: Act,
    claim: Option<&Claim<DeliveryRecord>>,
) -> Result<Claimed<DeliveryRecord>, VerbError> {
    tx.tenant(tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let record = self::act(tx, tenant, delivery, act).await?;
    claimed::done(tx, claim, record).await
}

/// `send_again` under its claim.
pub(super) async fn sent_again(
    tx: &mut Tx,
    tenant: &TenantId,
    event: EventId,
    endpoint: Option<EndpointId>,
    claim: Option<&Claim<SentAgain>>,
) -> Result<Claimed<SentAgain>, VerbError> {
    tx.tenant(tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let sent = send_again(tx, tenant, event, endpoint).await?;
    claimed::done(tx, claim, sent).await
}

/// `act`.
async fn act(
    tx: &mut Tx,
    tenant: &TenantId,
    delivery: DeliveryId,
    act: Act,
) -> Result<DeliveryRecord, VerbError> {
    let statement =
        format!("SELECT {COLUMNS} FROM deliveries WHERE tenant = $1 AND id = $2 FOR UPDATE");
    let found = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(delivery)]).await?;
    let mut row = DeliveryRow::read(&found.ok_or(Refusal::NotFound)?, 0)?;
    let input = match act {
        Act::Replay => Input::Replay,
        Act::Cancel => Input::Cancel(CancelReason::Requested),
        Act::Acknowledge => Input::Acknowledge,
    };
    tx.step(&mut row, input)?;
    Ok(row.record)
}

/// `send_again`.
pub(super) async fn send_again(
    tx: &mut Tx,
    tenant: &TenantId,
    event: EventId,
    endpoint: Option<EndpointId>,
) -> Result<SentAgain, VerbError> {
    let (event_type, origin, body) = lock_event(tx, tenant, event).await?;
    let source = match origin {
        Origin::Received => receipt::running(tx, tenant, event).await?,
        Origin::Published | Origin::System => None,
    };
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE tenant = $1 AND id BETWEEN $2 AND $3 \
         ORDER BY id FOR UPDATE"
    );
    let (first, last) = (Bits::from(event.delivery(0)), Bits::from(event.delivery(u16::MAX)));
    let rows = tx.connection.query(&statement, &[&tenant.as_str(), &first, &last]).await?;
    let mut rows = DeliveryRow::read_all(&rows)?;
    let last = rows.last().map_or(0, |row| row.record.id.ordinal());
    let targets: Vec<Arc<Endpoint>> = match endpoint {
        Some(id) => {
            let endpoint = tx.directory.endpoint_of(tenant, id).ok_or(Refusal::NotFound)?;
            if let Some(reason) = endpoint.state.gone() {
                return Err(IllegalStep::EndpointGone(reason).into());
            }
            rows.retain(|row| row.record.endpoint == id);
            vec![Arc::clone(endpoint)]
        }
        None => {
            let facts = stored_facts(origin, &event_type, source.as_ref(), &body);
            tx.directory.route(tenant, &facts).cloned().collect()
        }
    };
    let has: HashSet<EndpointId> = rows.iter().map(|row| row.record.endpoint).collect();
    let without = targets.iter().filter(|target| !has.contains(&target.id));
    let (mut sent, mut left_out) = (Vec::new(), None);
    for row in &mut rows {
        match tx.step(row, Input::Replay) {
            Ok(()) => sent.push(row.record.clone()),
            // Its endpoint is disabled or deleted.
            Err(VerbError::Refused(refusal)) => left_out = Some(refusal),
            Err(error) => return Err(error),
        }
    }
    let mut made = Vec::new();
    let mut ordinal = last;
    for target in without {
        ordinal = ordinal.checked_add(1).ok_or(Refusal::TooManyEndpoints)?;
        let record = DeliveryRecord {
            id: event.delivery(ordinal),
            endpoint: target.id,
            event_type: event_type.clone(),
            state: State::Due(Due { at: tx.now, cause: Trigger::Replay }),
            progress: Progress::NEW,
            created_at: tx.now,
        };
        tx.hint(&record);
        made.push(record);
    }
    row::insert(&mut tx.connection, tenant, &made).await?;
    sent.extend(made);
    match left_out {
        // Nothing was left to send to, and so nothing was written.
        Some(refusal) if sent.is_empty() => Err(refusal.into()),
        Some(_) | None => Ok(sent),
    }
}

/// Locks an event, so that only one transaction at a time gives it new deliveries.
pub(super) async fn lock_event(
    tx: &mut Tx,
    tenant: &TenantId,
    event: EventId,
) -> Result<(EventType, Origin, Vec<u8>), VerbError> {
    let statement = "SELECT type, origin, body FROM events WHERE tenant = $1 AND id = $2 \
                     FOR NO KEY UPDATE";
    let found = tx.connection.first(statement, &[&tenant.as_str(), &Bits::from(event)]).await?;
    let row = found.ok_or(Refusal::NotFound)?;
    let event_type = EventType::any(row.try_get(0)?)
        .map_err(|error| VerbError::Unusable(format!("the type of event {event}: {error}")))?;
    let origin: i16 = row.try_get(1)?;
    Ok((event_type, code::read_origin(i64::from(origin))?, row.try_get(2)?))
}
