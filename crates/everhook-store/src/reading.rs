//! Single things, lists and health. Reads never wait for writes.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::attempt::Attempt;
use everhook_domain::delivery::{Progress, State};
use everhook_domain::event::{EventType, Origin};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{DeliveryId, EndpointId, EventId, SourceId};
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::error::StoreError;
use crate::handoff::Handoff;
use crate::sending::LaneDue;

/// An event without its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Its id; the time in it is when it was accepted.
    pub id: EventId,
    /// Its type.
    pub event_type: EventType,
    /// Where it comes from.
    pub origin: Origin,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The publisher's own ID.
    pub source_event_id: Option<String>,
    /// The source that it was received from; its receipt is [`EventId::receipt`].
    pub source: Option<SourceId>,
    /// How many deliveries it was given at acceptance.
    pub deliveries: u32,
}

/// An event with its bytes.
#[derive(Clone)]
pub struct EventDetail {
    /// Everything but the bytes.
    pub record: EventRecord,
    /// What is sent for it: of a received event the bytes that came, whatever they are.
    pub body: Bytes,
    /// The headers that go on with an event that was received.
    pub headers: Option<Arc<ForwardedHeaders>>,
}

impl fmt::Debug for EventDetail {
    /// Without the payload: it stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDetail").field("record", &self.record).finish_non_exhaustive()
    }
}

/// A delivery without its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRecord {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// The type of its event.
    pub event_type: EventType,
    /// Where it stands.
    pub state: State,
    /// How far it has come.
    pub progress: Progress,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A delivery with its attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryDetail {
    /// Everything but the attempts.
    pub record: DeliveryRecord,
    /// Oldest first.
    pub attempts: Vec<Attempt>,
}

/// A state without its particulars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatusFilter {
    /// Waits for its time.
    Due,
    /// Being sent.
    Leased,
    /// The endpoint took it.
    Delivered,
    /// Given up.
    Dead,
    /// Not wanted any more.
    Cancelled,
}

impl StatusFilter {
    /// The status of a state.
    pub const fn of(state: &State) -> Self {
        match state {
            State::Due(_) => Self::Due,
            State::Leased(_) => Self::Leased,
            State::Delivered => Self::Delivered,
            State::Dead(_) => Self::Dead,
            State::Cancelled(_) => Self::Cancelled,
        }
    }

    /// The word used in JSON, SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Leased => "leased",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// The status with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Due, Self::Leased, Self::Delivered, Self::Dead, Self::Cancelled]
            .into_iter()
            .find(|status| status.as_str() == word)
    }
}

/// Which events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Accepted at or after this.
    pub from: Option<Timestamp>,
    /// Accepted before this.
    pub to: Option<Timestamp>,
}

/// Which deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryQuery {
    /// With this status.
    pub status: Option<StatusFilter>,
    /// To this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this event.
    pub event: Option<EventId>,
    /// Of this type.
    pub event_type: Option<EventType>,
    /// Whose event was accepted at or after this.
    pub from: Option<Timestamp>,
    /// Whose event was accepted before this.
    pub to: Option<Timestamp>,
}

/// A place in a list: the id of the last thing seen. Things are listed by falling id, so a place
/// stays valid when rows come or go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u128);

/// How much of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// At most this many.
    pub limit: usize,
    /// After this place; `None`: from the newest.
    pub after: Option<Position>,
    /// At most this many rows are looked at, so that a rare filter cannot hold a reader for ever; a
    /// page may then be short and still have a next one.
    pub scan_limit: usize,
}

/// A part of a list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The things.
    pub items: Vec<T>,
    /// Where to go on; `None` at the end of the list.
    pub next: Option<Position>,
}

/// How the store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// Whether it takes writes: one was tried.
    pub writable: bool,
    /// The oldest due time in a lane that is not paused.
    pub oldest_due: Option<Timestamp>,
    /// Since when deliveries wait, though nothing but the sending itself holds them back; `None`
    /// while all lanes move, or none has work.
    pub stalled_since: Option<Timestamp>,
}

impl StoreHealth {
    /// By what is due in the lanes that are not paused. Those that are tried alone take turns with
    /// others of their kind, and do not count as waiting.
    pub(crate) fn of(writable: bool, lanes: &[LaneDue], handoff: &dyn Handoff) -> Self {
        let stalled = |lane: &LaneDue| {
            let due = [lane.fresh, lane.retry].into_iter().flatten().min()?;
            handoff.waits_since(lane.endpoint, due)
        };
        let all = |lane: &LaneDue| [lane.fresh, lane.retry, lane.suspect];
        Self {
            writable,
            oldest_due: lanes.iter().flat_map(all).flatten().min(),
            stalled_since: lanes.iter().filter_map(stalled).min(),
        }
    }
}

/// Single things, lists and health.
#[async_trait]
pub trait Reading: Send + Sync {
    /// An event of this tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn event(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError>;

    /// A tenant's events, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn events(
        &self,
        tenant: TenantId,
        query: EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError>;

    /// A delivery of this tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError>;

    /// A tenant's deliveries, newest first. Every delivery is found under exactly one status.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError>;

    /// The failures of these endpoints of this tenant since their last success; one that is not in
    /// it has had none.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn endpoint_health(
        &self,
        tenant: TenantId,
        endpoints: Vec<EndpointId>,
    ) -> Result<HashMap<EndpointId, EndpointHealth>, StoreError>;

    /// How the store is. Tries a write.
    ///
    /// # Errors
    /// Never for a store that is merely not writable: that is what it tells.
    async fn health(&self) -> Result<StoreHealth, StoreError>;
}
