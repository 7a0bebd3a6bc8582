//! `publish`: keys, events and deliveries in one transaction.

use std::collections::HashMap;

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Lease, Progress, State, Token};
use everhook_domain::event::{self, EventType, NewEvent};
use everhook_domain::id::EventId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, bits, count, int, small};
use super::pool::Connection;
use super::tx::Tx;
use super::{claimed, keys, row};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::error::Refusal;
use crate::handoff::Permit;
use crate::reading::DeliveryRecord;
use crate::route::{Route, route, source_key};
use crate::sending::{AcceptedEvent, LeasedDelivery, Publish, Published, Targets};
use crate::share::Share;

/// Where events go, by which version of the directory; `None`: by none that is known.
pub(super) type Routed = (Vec<Route>, Option<u64>);

/// What was leased at birth, to be handed over after the commit.
pub(super) type HandedOver = Vec<(LeasedDelivery, Permit)>;

/// The verb.
pub(super) async fn publish(
    tx: &mut Tx,
    ids: &Ids,
    publish: &Publish,
    claim: Option<&Claim<Published>>,
    (mut routes, version): Routed,
) -> Result<(Claimed<Published>, HandedOver), VerbError> {
    tx.tenant(&publish.tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok((answered, Vec::new()));
    }
    if version != Some(tx.directory.version()) {
        routes = reroute(tx, publish)?;
    }
    let batch = Batch::take(tx, ids, publish).await?;
    let mut published = Published::with_capacity(publish.events.len());
    for index in 0..publish.events.len() {
        published.push(batch.accepted(publish, &routes, index)?);
    }
    insert_events(tx, publish, &batch, &published).await?;
    let handed = deliver(tx, publish, &batch, routes).await?;
    Ok((claimed::done(tx, claim, published).await?, handed))
}

/// The directory has changed since the caller routed: the permits are void, the table takes all.
fn reroute(tx: &Tx, publish: &Publish) -> Result<Vec<Route>, Refusal> {
    let routes = publish.events.iter().map(|event| {
        let targets = route(&tx.directory, &publish.tenant, publish.targets, event)?;
        Ok(targets.into_iter().map(|endpoint| (endpoint, None)).collect())
    });
    routes.collect()
}

/// The events of a call, with what was known of their source event IDs.
struct Batch {
    /// The id that each event has if it is new.
    ids: Vec<EventId>,
    /// The first event with the same key; its own where it is new.
    firsts: Vec<EventId>,
    /// What stands in the database for keys that were taken before.
    stored: HashMap<EventId, Stored>,
    /// The bytes of each event.
    bodies: Vec<Bytes>,
}

/// The first event of a key, from an earlier call.
struct Stored {
    event_type: EventType,
    timestamp: Timestamp,
    deliveries: u32,
    body: Vec<u8>,
}

impl Batch {
    async fn take(tx: &mut Tx, ids: &Ids, publish: &Publish) -> Result<Self, VerbError> {
        let ids: Vec<EventId> = publish.events.iter().map(|_| ids.event(tx.now)).collect();
        let key = |event: &NewEvent| source_key(&publish.tenant, event).map(Bits::from);
        let keys: Vec<Option<Bits>> = publish.events.iter().map(key).collect();
        let mut wanted = HashMap::new();
        for (key, id) in keys.iter().zip(&ids) {
            if let Some(key) = key {
                wanted.entry(*key).or_insert(*id);
            }
        }
        let window = (tx.now, tx.now + tx.rules.policy.dedupe_window);
        let found =
            keys::first_events(&mut tx.connection, &publish.tenant, &wanted, window).await?;
        let first = |(key, id): (&Option<Bits>, &EventId)| {
            key.and_then(|key| found.get(&key).copied()).unwrap_or(*id)
        };
        let firsts: Vec<EventId> = keys.iter().zip(&ids).map(first).collect();
        let before: Vec<EventId> =
            firsts.iter().filter(|first| ids.binary_search(first).is_err()).copied().collect();
        let stored = stored(&mut tx.connection, &publish.tenant, &before).await?;
        let seal =
            |(event, id): (&NewEvent, &EventId)| Bytes::from(event.envelope.clone().seal(*id));
        let bodies = publish.events.iter().zip(&ids).map(seal).collect();
        Ok(Self { ids, firsts, stored, bodies })
    }

    fn is_new(&self, index: usize) -> bool {
        self.firsts[index] == self.ids[index]
    }

    fn accepted(
        &self,
        publish: &Publish,
        routes: &[Route],
        index: usize,
    ) -> Result<AcceptedEvent, VerbError> {
        let (event, id) = (&publish.events[index], self.firsts[index]);
        let (event_type, timestamp, deliveries, same) = match self.ids.binary_search(&id) {
            Ok(first) => {
                let of = &publish.events[first];
                let deliveries = u32::try_from(routes[first].len()).unwrap_or(u32::MAX);
                let same = of.envelope.data() == event.envelope.data();
                (of.event_type.clone(), of.timestamp, deliveries, same)
            }
            Err(_) => {
                let gone = || VerbError::Unusable(format!("event {id}, named by a key, is gone"));
                let of = self.stored.get(&id).ok_or_else(gone)?;
                let data = event::data_of_stored(&of.event_type, &of.body);
                let same = data == Some(event.envelope.data());
                (of.event_type.clone(), of.timestamp, of.deliveries, same)
            }
        };
        let differs = !same || event_type != event.event_type;
        let duplicate = !self.is_new(index);
        Ok(AcceptedEvent { id, event_type, timestamp, duplicate, differs, deliveries })
    }
}

async fn stored(
    connection: &mut Connection,
    tenant: &TenantId,
    events: &[EventId],
) -> Result<HashMap<EventId, Stored>, VerbError> {
    let mut found = HashMap::new();
    if events.is_empty() {
        return Ok(found);
    }
    let statement = "SELECT id, type, happened_at, deliveries, body FROM events \
                     WHERE tenant = $1 AND id = ANY($2)";
    for row in connection.query(statement, &[&tenant.as_str(), &bits(events)]).await? {
        let Bits(id) = row.try_get(0)?;
        let id = EventId::from_bits(id);
        let event_type = EventType::any(row.try_get(1)?)
            .map_err(|error| VerbError::Unusable(format!("the type of event {id}: {error}")))?;
        let stored = Stored {
            event_type,
            timestamp: Timestamp::from_millis(row.try_get(2)?),
            deliveries: count(row.try_get(3)?),
            body: row.try_get(4)?,
        };
        found.insert(id, stored);
    }
    Ok(found)
}

async fn insert_events(
    tx: &mut Tx,
    publish: &Publish,
    batch: &Batch,
    published: &[AcceptedEvent],
) -> Result<(), VerbError> {
    let new: Vec<usize> = (0..published.len()).filter(|index| batch.is_new(*index)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let events = || new.iter().map(|index| &publish.events[*index]);
    let ids: Vec<Bits> = new.iter().map(|index| batch.ids[*index].into()).collect();
    let types: Vec<&str> = events().map(|event| event.event_type.as_str()).collect();
    let origins: Vec<i16> = events().map(|event| small(code::origin(event.origin))).collect();
    let happened: Vec<i64> = events().map(|event| event.timestamp.as_millis()).collect();
    let sources: Vec<Option<&str>> =
        events().map(|event| event.source_event_id.as_ref().map(|id| id.as_str())).collect();
    let deliveries: Vec<i32> = new.iter().map(|index| int(published[*index].deliveries)).collect();
    let bodies: Vec<&[u8]> = new.iter().map(|index| &batch.bodies[*index][..]).collect();
    tx.connection
        .execute(
            "INSERT INTO events (tenant, id, type, origin, happened_at, source_event_id, \
             deliveries, body) SELECT $1::text, v.* FROM unnest($2::uuid[], $3::text[], \
             $4::smallint[], $5::bigint[], $6::text[], $7::integer[], $8::bytea[]) AS v",
            &[
                &publish.tenant.as_str(),
                &ids,
                &types,
                &origins,
                &happened,
                &sources,
                &deliveries,
                &bodies,
            ],
        )
        .await?;
    Ok(())
}

/// Makes the deliveries of what is new: leased where the engine has room, else due at once.
async fn deliver(
    tx: &mut Tx,
    publish: &Publish,
    batch: &Batch,
    routes: Vec<Route>,
) -> Result<HandedOver, VerbError> {
    let cause = match publish.targets {
        Targets::Subscribed => Trigger::Schedule,
        Targets::Test(_) => Trigger::Test,
    };
    let due = Due { at: tx.now, cause };
    let new = routes.iter().enumerate().filter(|(index, _)| batch.is_new(*index));
    let permits = new.flat_map(|(_, route)| route).filter(|(_, permit)| permit.is_some()).count();
    let mut tokens: Vec<Token> = tx.tokens(permits).await?;
    let until = Some(tx.lease_until());
    let (mut records, mut handed) = (Vec::new(), Vec::new());
    for (index, route) in routes.into_iter().enumerate().filter(|(index, _)| batch.is_new(*index)) {
        for (ordinal, (endpoint, permit)) in (1..).zip(route) {
            let mut record = DeliveryRecord {
                id: batch.ids[index].delivery(ordinal),
                endpoint: endpoint.id,
                event_type: publish.events[index].event_type.clone(),
                state: State::Due(due),
                progress: Progress::NEW,
                created_at: batch.ids[index].created_at(),
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
                    cause,
                    share: Share::Fresh,
                    body: batch.bodies[index].clone(),
                    headers: None,
                };
                handed.push((leased, permit));
            }
            tx.hint(&record);
            records.push(record);
        }
    }
    row::insert(&mut tx.connection, &publish.tenant, &records).await?;
    Ok(handed)
}
