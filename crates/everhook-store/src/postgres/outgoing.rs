//! New events and their deliveries: the part that publishing and receiving share.

use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Lease, Progress, State, Token};
use everhook_domain::event::{EventType, Origin};
use everhook_domain::id::EventId;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::number::{Bits, int, small};
use super::row;
use super::tx::Tx;
use crate::code;
use crate::error::Refusal;
use crate::handoff::Permit;
use crate::reading::DeliveryRecord;
use crate::route::{Brings, Route};
use crate::sending::LeasedDelivery;
use crate::share::Share;

/// Where events go, by which version of the directory; `None`: by none that is known.
pub(super) type Routed = (Vec<Route>, Option<u64>);

/// What was leased at birth, to be handed over after the commit.
pub(super) type HandedOver = Vec<(LeasedDelivery, Permit)>;

/// An event that is being accepted.
pub(super) struct NewRow<'a> {
    pub(super) id: EventId,
    pub(super) event_type: &'a EventType,
    pub(super) origin: Origin,
    pub(super) happened_at: Timestamp,
    pub(super) source_event_id: Option<&'a str>,
    pub(super) body: &'a Bytes,
    pub(super) headers: Option<&'a Arc<ForwardedHeaders>>,
    /// What makes its first attempts happen.
    pub(super) cause: Trigger,
    /// How many of them there are.
    pub(super) deliveries: usize,
}

/// The routes as they are to be used: if the directory has changed since the caller routed, the
/// permits are void, and the table takes all.
pub(super) fn rerouted(
    tx: &Tx,
    call: &impl Brings,
    (routes, version): Routed,
) -> Result<Vec<Route>, Refusal> {
    if version == Some(tx.directory.version()) {
        return Ok(routes);
    }
    let without_room = |targets: Vec<_>| targets.into_iter().map(|to| (to, None)).collect();
    Ok(call.targets(&tx.directory)?.into_iter().map(without_room).collect())
}

/// Writes events and their deliveries, one route an event: leased where the engine has room, else
/// due at once.
pub(super) async fn store(
    tx: &mut Tx,
    tenant: &TenantId,
    events: &[NewRow<'_>],
    routes: Vec<Route>,
) -> Result<HandedOver, VerbError> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    insert(tx, tenant, events).await?;
    deliver(tx, tenant, events, routes).await
}

async fn insert(tx: &mut Tx, tenant: &TenantId, events: &[NewRow<'_>]) -> Result<(), VerbError> {
    let ids: Vec<Bits> = events.iter().map(|event| event.id.into()).collect();
    let types: Vec<&str> = events.iter().map(|event| event.event_type.as_str()).collect();
    let origins: Vec<i16> = events.iter().map(|event| small(code::origin(event.origin))).collect();
    let happened: Vec<i64> = events.iter().map(|event| event.happened_at.as_millis()).collect();
    let sources: Vec<Option<&str>> = events.iter().map(|event| event.source_event_id).collect();
    let count = |event: &NewRow<'_>| int(u32::try_from(event.deliveries).unwrap_or(u32::MAX));
    let deliveries: Vec<i32> = events.iter().map(count).collect();
    let bodies: Vec<&[u8]> = events.iter().map(|event| &event.body[..]).collect();
    tx.connection
        .execute(
            "INSERT INTO events (tenant, id, type, origin, happened_at, source_event_id, \
             deliveries, body) SELECT $1::text, v.* FROM unnest($2::uuid[], $3::text[], \
             $4::smallint[], $5::bigint[], $6::text[], $7::integer[], $8::bytea[]) AS v",
            &[&tenant.as_str(), &ids, &types, &origins, &happened, &sources, &deliveries, &bodies],
        )
        .await?;
    Ok(())
}

async fn deliver(
    tx: &mut Tx,
    tenant: &TenantId,
    events: &[NewRow<'_>],
    routes: Vec<Route>,
) -> Result<HandedOver, VerbError> {
    let permits = routes.iter().flatten().filter(|(_, permit)| permit.is_some()).count();
    let mut tokens: Vec<Token> = tx.tokens(permits).await?;
    let until = Some(tx.lease_until());
    let (mut records, mut handed) = (Vec::new(), Vec::new());
    for (event, route) in events.iter().zip(routes) {
        let due = Due { at: tx.now, cause: event.cause };
        for (ordinal, (endpoint, permit)) in (1..).zip(route) {
            let mut record = DeliveryRecord {
                id: event.id.delivery(ordinal),
                endpoint: endpoint.id,
                event_type: event.event_type.clone(),
                state: State::Due(due),
                progress: Progress::NEW,
                created_at: event.id.created_at(),
            };
            if let Some(permit) = permit
                && let Some(token) = tokens.pop()
            {
                record.state = State::Leased(Lease { token, until, due });
                let leased = LeasedDelivery {
                    id: record.id,
                    endpoint: record.endpoint,
                    token,
                    until,
                    number: record.progress.next_number(),
                    due_at: due.at,
                    cause: event.cause,
                    share: Share::Fresh,
                    body: event.body.clone(),
                    headers: event.headers.map(Arc::clone),
                };
                handed.push((leased, permit));
            }
            tx.hint(&record);
            records.push(record);
        }
    }
    row::insert(&mut tx.connection, tenant, &records).await?;
    Ok(handed)
}
