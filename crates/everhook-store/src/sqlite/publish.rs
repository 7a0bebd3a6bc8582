//! `publish`: keys, events and deliveries in one transaction.

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::event::{self, EventType, NewEvent};
use everhook_domain::id::EventId;
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::OptionalExtension;

use super::claimed;
use super::command::{Verb, VerbError};
use super::keys::KeyEntry;
use super::outgoing::{NewRow, Outgoing};
use super::row::{event_id, first_key, unsigned};
use super::tx::Tx;
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::handoff::Handoff;
use crate::route::{Brings, source_key};
use crate::sending::{AcceptedEvent, Publish, Published, Targets};

/// The verb.
pub(super) struct PublishVerb {
    pub(super) publish: Publish,
    pub(super) claim: Option<Claim<Published>>,
    pub(super) now: Timestamp,
    pub(super) outgoing: Outgoing,
}

impl Verb for PublishVerb {
    type Output = Claimed<Published>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        self.outgoing.begin();
        let tenant = tx.tenant(&self.publish.tenant)?;
        let claim = self.claim.clone();
        let now = self.now;
        claimed::run(tx, claim.as_ref(), now, |tx| {
            self.outgoing.reroute(&tx.catalog().directory, &self.publish)?;
            (0..self.publish.events.len()).map(|index| self.accept(tx, tenant, index)).collect()
        })
    }

    fn committed(&mut self, handoff: &dyn Handoff) {
        self.outgoing.hand_over(handoff);
    }

    fn weight(&self) -> usize {
        self.publish.sizes().sum()
    }
}

impl PublishVerb {
    fn accept(
        &mut self,
        tx: &mut Tx<'_>,
        tenant: i64,
        index: usize,
    ) -> Result<AcceptedEvent, VerbError> {
        let event = &self.publish.events[index];
        let key = source_key(&self.publish.tenant, event);
        if let Some(entry) = key.and_then(|key| tx.key(&key, self.now))
            && let Some(first) = first_of(tx, entry.target, event)?
        {
            return Ok(first);
        }
        self.store(tx, tenant, index, key)
    }

    /// Stores an event as new, and makes its key lead to it.
    fn store(
        &mut self,
        tx: &mut Tx<'_>,
        tenant: i64,
        index: usize,
        key: Option<KeyHash>,
    ) -> Result<AcceptedEvent, VerbError> {
        let event = &self.publish.events[index];
        let (sequence, created_at) = tx.next_event(self.now);
        let id = event_id(first_key(sequence), created_at.as_millis(), tx.tag());
        let row = NewRow {
            id,
            tenant,
            event_type: &event.event_type,
            origin: event.origin,
            happened_at: event.timestamp,
            source_event_id: event.source_event_id.as_ref().map(|id| id.as_str()),
            body: &Bytes::from(event.envelope.clone().seal(id)),
            headers: None,
            cause: match self.publish.targets {
                Targets::Subscribed => Trigger::Schedule,
                Targets::Test(_) => Trigger::Test,
            },
        };
        let deliveries = self.outgoing.count(index);
        row.insert(tx, deliveries)?;
        if let Some(key) = key {
            // From the instant that the event shows, so that a clock that steps between does not
            // cut the window short.
            let expires_at = created_at + tx.policy.dedupe_window;
            tx.remember(tenant, (key, KeyEntry { target: sequence, expires_at }), None)?;
        }
        self.outgoing.deliver(tx, index, &row, self.now)?;
        Ok(AcceptedEvent {
            id,
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            duplicate: false,
            differs: false,
            deliveries,
        })
    }
}

/// Publishes an event of our own in the running transaction: like any other event, but nobody waits
/// for room in a lane, so the engine finds its deliveries in the table. It is new, whatever was
/// published under its source event ID before.
pub(super) fn own(
    tx: &mut Tx<'_>,
    tenant: TenantId,
    event: NewEvent,
    now: Timestamp,
) -> Result<(), VerbError> {
    let tenant_no = tx.tenant(&tenant)?;
    let key = source_key(&tenant, &event);
    let mut verb = PublishVerb {
        publish: Publish { tenant, events: vec![event], targets: Targets::Subscribed },
        claim: None,
        now,
        outgoing: Outgoing::default(),
    };
    verb.outgoing.reroute(&tx.catalog().directory, &verb.publish)?;
    verb.store(tx, tenant_no, 0, key).map(drop)
}

/// The first event of a source event ID, as the answer to its duplicate; `None` if it is gone.
fn first_of(
    tx: &Tx<'_>,
    sequence: i64,
    event: &NewEvent,
) -> Result<Option<AcceptedEvent>, VerbError> {
    let found = tx
        .connection
        .prepare_cached(
            "SELECT created_at, type, happened_at, deliveries, body FROM events WHERE seq = ?1",
        )?
        .query_row([sequence], |row| {
            let created_at: i64 = row.get(0)?;
            let event_type: String = row.get(1)?;
            let body: Vec<u8> = row.get(4)?;
            Ok((created_at, event_type, row.get::<_, i64>(2)?, row.get(3)?, body))
        })
        .optional()?;
    let Some((created_at, event_type, happened_at, deliveries, body)) = found else {
        return Ok(None);
    };
    let event_type =
        EventType::any(&event_type).map_err(|_| code::UnknownCode("event type", sequence))?;
    let same = event_type == event.event_type
        && event::data_of_stored(&event_type, &body) == Some(event.envelope.data());
    Ok(Some(AcceptedEvent {
        id: EventId::from_parts(unsigned(created_at), unsigned(sequence), tx.tag(), 0),
        event_type,
        timestamp: Timestamp::from_millis(happened_at),
        duplicate: true,
        differs: !same,
        deliveries,
    }))
}
