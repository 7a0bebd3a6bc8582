//! `publish`: keys, events and deliveries in one transaction.

use std::collections::HashMap;

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::event::{self, EventType, NewEvent};
use everhook_domain::id::EventId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, bits, count};
use super::outgoing::{self, HandedOver, NewRow, Routed, rerouted};
use super::pool::Connection;
use super::tx::Tx;
use super::{claimed, keys};
use crate::claim::{Claim, Claimed};
use crate::route::{Route, source_key};
use crate::sending::{AcceptedEvent, Publish, Published, Targets};

/// The verb.
pub(super) async fn publish(
    tx: &mut Tx,
    ids: &Ids,
    publish: &Publish,
    claim: Option<&Claim<Published>>,
    routed: Routed,
) -> Result<(Claimed<Published>, HandedOver), VerbError> {
    tx.tenant(&publish.tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok((answered, Vec::new()));
    }
    let routes = rerouted(tx, publish, routed)?;
    let batch = Batch::take(tx, ids, publish).await?;
    let mut published = Published::with_capacity(publish.events.len());
    for index in 0..publish.events.len() {
        published.push(batch.accepted(publish, &routes, index)?);
    }
    let of_new = routes.into_iter().enumerate().filter(|(index, _)| batch.is_new(*index));
    let routes: Vec<Route> = of_new.map(|(_, route)| route).collect();
    let rows = batch.new_rows(publish, &routes);
    let handed = outgoing::store(tx, &publish.tenant, &rows, routes).await?;
    Ok((claimed::done(tx, claim, published).await?, handed))
}

/// Publishes an event of our own in the running transaction: like any other event, but nobody waits
/// for room in a lane, so the engine finds its deliveries in the table. It is new, whatever was
/// published under its source event ID before.
pub(super) async fn own(
    tx: &mut Tx,
    ids: &Ids,
    tenant: TenantId,
    event: NewEvent,
) -> Result<(), VerbError> {
    tx.tenant(&tenant)?;
    let key = source_key(&tenant, &event);
    let publish = Publish { tenant, events: vec![event], targets: Targets::Subscribed };
    let batch = Batch::new(ids, &publish, tx.now);
    if let Some(key) = key {
        let expires_at = tx.now + tx.rules.policy.dedupe_window;
        let entry = (Bits::from(key), batch.ids[0], expires_at);
        keys::set_first_event(&mut tx.connection, &publish.tenant, entry).await?;
    }
    let routes = rerouted(tx, &publish, (Vec::new(), None))?;
    let rows = batch.new_rows(&publish, &routes);
    outgoing::store(tx, &publish.tenant, &rows, routes).await.map(drop)
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
    /// All of them new.
    fn new(ids: &Ids, publish: &Publish, now: Timestamp) -> Self {
        let ids: Vec<EventId> = publish.events.iter().map(|_| ids.event(now)).collect();
        let seal =
            |(event, id): (&NewEvent, &EventId)| Bytes::from(event.envelope.clone().seal(*id));
        let bodies = publish.events.iter().zip(&ids).map(seal).collect();
        Self { firsts: ids.clone(), ids, stored: HashMap::new(), bodies }
    }

    /// With what is known of their keys, which are taken for those that are new.
    async fn take(tx: &mut Tx, ids: &Ids, publish: &Publish) -> Result<Self, VerbError> {
        let Self { ids, bodies, .. } = Self::new(ids, publish, tx.now);
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
        Ok(Self { ids, firsts, stored, bodies })
    }

    fn is_new(&self, index: usize) -> bool {
        self.firsts[index] == self.ids[index]
    }

    /// What is to be stored, with the routes of what is new.
    fn new_rows<'a>(&'a self, publish: &'a Publish, routes: &[Route]) -> Vec<NewRow<'a>> {
        let cause = match publish.targets {
            Targets::Subscribed => Trigger::Schedule,
            Targets::Test(_) => Trigger::Test,
        };
        let new = (0..publish.events.len()).filter(|index| self.is_new(*index));
        new.zip(routes)
            .map(|(index, route)| {
                let event = &publish.events[index];
                NewRow {
                    id: self.ids[index],
                    event_type: &event.event_type,
                    origin: event.origin,
                    happened_at: event.timestamp,
                    source_event_id: event.source_event_id.as_ref().map(|id| id.as_str()),
                    body: &self.bodies[index],
                    headers: None,
                    cause,
                    deliveries: route.len(),
                }
            })
            .collect()
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
