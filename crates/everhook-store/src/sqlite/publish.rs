//! `publish`: keys, events and deliveries in one transaction.
//!
//! Routing happens before the writer's queue, on the caller's side, against a snapshot of the
//! directory; the writer routes again only if the directory has changed since.

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Lease, Progress, State};
use everhook_domain::event::{self, EventType, NewEvent};
use everhook_domain::id::EventId;
use everhook_domain::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::claimed;
use super::command::{Verb, VerbError};
use super::keys::KeyEntry;
use super::row::{DeliveryRow, event_id, signed, unsigned};
use super::tx::{Tx, endpoint_no};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::error::Refusal;
use crate::handoff::Handoff;
use crate::route::{Route, route, source_key};
use crate::sending::{AcceptedEvent, LeasedDelivery, Publish, Published, Targets};
use crate::share::Share;

/// The verb.
pub(super) struct PublishVerb {
    pub(super) publish: Publish,
    pub(super) claim: Option<Claim<Published>>,
    pub(super) now: Timestamp,
    /// One route an event, made from this version of the directory; `None`: not made.
    pub(super) routes: Vec<Route>,
    pub(super) directory_version: Option<u64>,
    /// What was leased at birth: event and target in `routes`, and what to hand over.
    pub(super) leased: Vec<(usize, usize, LeasedDelivery)>,
}

impl Verb for PublishVerb {
    type Output = Claimed<Published>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        self.leased.clear();
        let tenant = tx.tenant(&self.publish.tenant)?;
        let claim = self.claim.clone();
        let now = self.now;
        claimed::run(tx, claim.as_ref(), now, |tx| {
            if self.directory_version != Some(tx.catalog().directory.version()) {
                self.reroute(tx)?;
            }
            (0..self.publish.events.len()).map(|index| self.accept(tx, tenant, index)).collect()
        })
    }

    fn committed(&mut self, handoff: &dyn Handoff) {
        let mut handed = Vec::with_capacity(self.leased.len());
        for (event, target, delivery) in self.leased.drain(..) {
            if let Some(permit) = self.routes[event][target].1.take() {
                handed.push((delivery, permit));
            }
        }
        if !handed.is_empty() {
            handoff.hand_over(handed);
        }
        // What was not needed goes back before the caller hears of the commit.
        self.routes.clear();
    }

    fn weight(&self) -> usize {
        self.publish.events.iter().map(|event| event.envelope.len()).sum()
    }
}

impl PublishVerb {
    /// The directory has changed since the caller routed: the permits are void, the table takes
    /// all.
    fn reroute(&mut self, tx: &Tx<'_>) -> Result<(), VerbError> {
        let directory = &tx.catalog().directory;
        self.routes.clear();
        for event in &self.publish.events {
            let targets = route(directory, &self.publish.tenant, self.publish.targets, event)?;
            self.routes.push(targets.into_iter().map(|endpoint| (endpoint, None)).collect());
        }
        self.directory_version = Some(directory.version());
        Ok(())
    }

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
        let (sequence, created_at) = tx.next_event(self.now);
        let id = event_id(sequence << 16, created_at.as_millis(), tx.tag());
        let body = Bytes::from(event.envelope.clone().seal(id));
        let deliveries = u32::try_from(self.routes[index].len()).unwrap_or(u32::MAX);
        tx.connection
            .prepare_cached(
                "INSERT INTO events (seq, tenant, created_at, type, origin, happened_at, \
                 source_event_id, deliveries, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                sequence,
                tenant,
                created_at.as_millis(),
                event.event_type.as_str(),
                code::origin(event.origin),
                event.timestamp.as_millis(),
                event.source_event_id.as_ref().map(|id| id.as_str()),
                deliveries,
                &body[..],
            ])?;
        if let Some(key) = key {
            // From the instant that the event shows, so that a clock that steps between does not
            // cut the window short.
            let expires_at = created_at + tx.policy.dedupe_window;
            tx.remember(tenant, key, KeyEntry { target: sequence, expires_at })?;
        }
        let accepted = AcceptedEvent {
            id,
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            duplicate: false,
            differs: false,
            deliveries,
        };
        for target in 0..self.routes[index].len() {
            self.deliver(tx, tenant, (index, target), id, &body)?;
        }
        Ok(accepted)
    }

    /// Makes one delivery: leased if the engine has room for it, else due at once.
    fn deliver(
        &mut self,
        tx: &mut Tx<'_>,
        tenant: i64,
        (index, target): (usize, usize),
        id: EventId,
        body: &Bytes,
    ) -> Result<(), VerbError> {
        let (endpoint, permit) = &self.routes[index][target];
        let cause = match self.publish.targets {
            Targets::Subscribed => Trigger::Schedule,
            Targets::Test(_) => Trigger::Test,
        };
        let ordinal = u16::try_from(target + 1).map_err(|_| Refusal::TooManyEndpoints)?;
        // Not the instant of acceptance, which never falls: after the wall clock has been set back
        // that may lie ahead.
        let due = Due { at: self.now, cause };
        let lease = permit.is_some().then(|| Lease { token: tx.next_token(), until: None, due });
        let row = DeliveryRow {
            key: signed(id.sequence()) << 16 | i64::from(ordinal),
            tenant,
            endpoint: endpoint_no(endpoint.id),
            event_type: self.publish.events[index].event_type.as_str().to_owned(),
            event_at: id.created_at().as_millis(),
            created_at: None,
            leased_at_birth: lease.is_some(),
            state: lease.map_or(State::Due(due), State::Leased),
            progress: Progress::NEW,
        };
        row.insert(tx.connection)?;
        let Some(lease) = lease else {
            tx.hint(&row);
            return Ok(());
        };
        tx.leased_at_birth(&row);
        let leased = LeasedDelivery {
            id: id.delivery(ordinal),
            endpoint: endpoint.id,
            token: lease.token,
            until: None,
            number: row.progress.next_number(),
            due_at: due.at,
            cause,
            share: Share::Fresh,
            body: body.clone(),
            headers: None,
        };
        self.leased.push((index, target, leased));
        Ok(())
    }
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
