//! New events and their deliveries: the part that publishing and receiving share.
//!
//! Routing happens before the writer's queue, on the caller's side, against a snapshot of the
//! directory; the writer routes again only if the directory has changed since.

use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{Due, Lease, Progress, State};
use everhook_domain::event::{EventType, Origin};
use everhook_domain::id::EventId;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::time::Timestamp;
use rusqlite::params;

use super::command::VerbError;
use super::row::{DeliveryRow, signed};
use super::tx::{Tx, endpoint_no};
use crate::code;
use crate::directory::Directory;
use crate::error::Refusal;
use crate::handoff::Handoff;
use crate::route::{Brings, Route};
use crate::sending::LeasedDelivery;
use crate::share::Share;

/// Where the events of a call go, and which of their deliveries are leased at birth.
#[derive(Default)]
pub(super) struct Outgoing {
    /// One an event, made from this version of the directory; `None`: not made.
    routes: Vec<Route>,
    version: Option<u64>,
    /// Event and target in `routes`, and what to hand over.
    leased: Vec<(usize, usize, LeasedDelivery)>,
}

/// An event that is being accepted.
pub(super) struct NewRow<'a> {
    pub(super) id: EventId,
    pub(super) tenant: i64,
    pub(super) event_type: &'a EventType,
    pub(super) origin: Origin,
    pub(super) happened_at: Timestamp,
    pub(super) source_event_id: Option<&'a str>,
    pub(super) body: &'a Bytes,
    pub(super) headers: Option<&'a Arc<ForwardedHeaders>>,
    /// What makes its first attempts happen.
    pub(super) cause: Trigger,
}

impl Outgoing {
    /// Routes that were made from this version of the directory.
    pub(super) fn routed(routes: Vec<Route>, version: u64) -> Self {
        Self { routes, version: Some(version), leased: Vec::new() }
    }

    /// Begins a transaction: one before it may have been undone.
    pub(super) fn begin(&mut self) {
        self.leased.clear();
    }

    /// If the directory has changed since the caller routed, the permits are void, and the table
    /// takes all.
    pub(super) fn reroute(
        &mut self,
        directory: &Directory,
        call: &impl Brings,
    ) -> Result<(), Refusal> {
        if self.version == Some(directory.version()) {
            return Ok(());
        }
        let targets = call.targets(directory)?;
        let without_room = |targets: Vec<_>| targets.into_iter().map(|to| (to, None)).collect();
        self.routes = targets.into_iter().map(without_room).collect();
        self.version = Some(directory.version());
        Ok(())
    }

    /// How many deliveries an event will have.
    pub(super) fn count(&self, index: usize) -> u32 {
        u32::try_from(self.routes[index].len()).unwrap_or(u32::MAX)
    }

    /// Makes an event's deliveries.
    pub(super) fn deliver(
        &mut self,
        tx: &mut Tx<'_>,
        index: usize,
        event: &NewRow<'_>,
        now: Timestamp,
    ) -> Result<(), VerbError> {
        for target in 0..self.routes[index].len() {
            self.deliver_to(tx, (index, target), event, now)?;
        }
        Ok(())
    }

    /// Makes one delivery: leased if the engine has room for it, else due at once.
    fn deliver_to(
        &mut self,
        tx: &mut Tx<'_>,
        (index, target): (usize, usize),
        event: &NewRow<'_>,
        now: Timestamp,
    ) -> Result<(), VerbError> {
        let (endpoint, permit) = &self.routes[index][target];
        let ordinal = u16::try_from(target + 1).map_err(|_| Refusal::TooManyEndpoints)?;
        // Not the instant of acceptance, which never falls: after the wall clock has been set back
        // that may lie ahead.
        let due = Due { at: now, cause: event.cause };
        let lease = permit.is_some().then(|| Lease { token: tx.next_token(), until: None, due });
        let row = DeliveryRow {
            key: signed(event.id.sequence()) << 16 | i64::from(ordinal),
            tenant: event.tenant,
            endpoint: endpoint_no(endpoint.id),
            event_type: event.event_type.as_str().to_owned(),
            event_at: event.id.created_at().as_millis(),
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
            id: event.id.delivery(ordinal),
            endpoint: endpoint.id,
            token: lease.token,
            until: None,
            number: row.progress.next_number(),
            due_at: due.at,
            cause: event.cause,
            share: Share::Fresh,
            body: event.body.clone(),
            headers: event.headers.map(Arc::clone),
        };
        self.leased.push((index, target, leased));
        Ok(())
    }

    /// After the commit: what was leased goes to the engine, and what was not needed goes back
    /// before the caller hears of the commit.
    pub(super) fn hand_over(&mut self, handoff: &dyn Handoff) {
        let mut handed = Vec::with_capacity(self.leased.len());
        for (event, target, delivery) in self.leased.drain(..) {
            if let Some(permit) = self.routes[event][target].1.take() {
                handed.push((delivery, permit));
            }
        }
        if !handed.is_empty() {
            handoff.hand_over(handed);
        }
        self.routes.clear();
    }
}

impl NewRow<'_> {
    /// Writes the event.
    pub(super) fn insert(&self, tx: &Tx<'_>, deliveries: u32) -> rusqlite::Result<()> {
        tx.connection
            .prepare_cached(
                "INSERT INTO events (seq, tenant, created_at, type, origin, happened_at, \
                 source_event_id, deliveries, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                signed(self.id.sequence()),
                self.tenant,
                self.id.created_at().as_millis(),
                self.event_type.as_str(),
                code::origin(self.origin),
                self.happened_at.as_millis(),
                self.source_event_id,
                deliveries,
                &self.body[..],
            ])?;
        Ok(())
    }
}
