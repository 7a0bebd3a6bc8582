//! Events in, deliveries leased, results recorded.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::attempt::{AttemptReport, Trigger};
use everhook_domain::budget::Budget;
use everhook_domain::delivery::Token;
use everhook_domain::event::{EventType, NewEvent};
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::idempotency::claim::Quota;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::schedule::Schedule;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;
use crate::reading::DeliveryRecord;
use crate::share::Share;

/// The rules that a store applies; the same for every verb.
#[derive(Clone, Debug)]
pub struct StorePolicy {
    /// When attempts are due.
    pub schedule: Schedule,
    /// Whether an answer's `Retry-After` may move the next attempt.
    pub honor_retry_after: bool,
    /// Interruptions in one round that make a delivery dead.
    pub interruptions_max: u32,
    /// How long a source event ID is remembered, from its first event.
    pub dedupe_window: Duration,
    /// How long an idempotency record is kept, from completion.
    pub idempotency_ttl: Duration,
    /// What an account may have of idempotency keys, of our own API and of claims together.
    pub idempotency_quota: Quota,
    /// An endpoint where nothing but failures was recorded for so long, from the start of the first
    /// one, is disabled by the next; `None`: never.
    pub disable_after: Option<Duration>,
}

impl Default for StorePolicy {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3_600);
        Self {
            schedule: Schedule::default(),
            honor_retry_after: false,
            interruptions_max: 20,
            dedupe_window: day,
            idempotency_ttl: day,
            idempotency_quota: Quota { keys: 1_000_000, bytes: 1 << 30 },
            disable_after: None,
        }
    }
}

/// Which endpoints an event goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Those whose subscription matches.
    Subscribed,
    /// This one, once, outside schedule and warning.
    Test(EndpointId),
}

/// Events to accept, all or nothing.
#[derive(Clone, Debug)]
pub struct Publish {
    /// Whose they are.
    pub tenant: TenantId,
    /// In order; ids rise in this order.
    pub events: Vec<NewEvent>,
    /// Where they go.
    pub targets: Targets,
}

/// What became of one event of a [`Publish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedEvent {
    /// The event's id; for a duplicate, the first event's.
    pub id: EventId,
    /// The type of the event with this id.
    pub event_type: EventType,
    /// The timestamp of the event with this id.
    pub timestamp: Timestamp,
    /// Whether the source event ID had been seen in the window: no new event was made.
    pub duplicate: bool,
    /// Whether a duplicate's type or data differ from the first event's.
    pub differs: bool,
    /// How many deliveries the event with this id was given at acceptance.
    pub deliveries: u32,
}

/// What became of a [`Publish`], one entry an event, in order.
pub type Published = Vec<AcceptedEvent>;

/// What a lane can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The lane.
    pub endpoint: EndpointId,
    /// At most this many that were never tried.
    pub fresh: u32,
    /// At most this many that were tried before.
    pub retry: u32,
    /// At most this many that must be tried alone.
    pub suspect: u32,
    /// Bytes of the budget that the lane holds already.
    pub held: usize,
}

/// A delivery that the caller is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// Where it goes.
    pub endpoint: EndpointId,
    /// Must be presented with the result.
    pub token: Token,
    /// When the lease lapses; `None` where it ends with this process.
    pub until: Option<Timestamp>,
    /// The attempt's number, for the header.
    pub number: u32,
    /// When it was due.
    pub due_at: Timestamp,
    /// What makes the attempt happen.
    pub cause: Trigger,
    /// Which share of its lane it was in.
    pub share: Share,
    /// The bytes to send.
    pub body: Bytes,
    /// The headers to send besides ours, of an event that was received.
    pub headers: Option<Arc<ForwardedHeaders>>,
}

/// The earliest due times of a lane, per share; `None` where nothing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneDue {
    /// The lane.
    pub endpoint: EndpointId,
    /// The earliest that was never tried.
    pub fresh: Option<Timestamp>,
    /// The earliest that was tried before.
    pub retry: Option<Timestamp>,
    /// The earliest that must be tried alone.
    pub suspect: Option<Timestamp>,
    /// What the first one weighs that was left to wait for want of bytes; never told by
    /// [`Sending::due`].
    pub too_heavy: Option<usize>,
}

/// The end of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The delivery.
    pub delivery: DeliveryId,
    /// The lease.
    pub token: Token,
    /// How it ended.
    pub result: SettlementResult,
}

/// How a lease ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettlementResult {
    /// With an attempt.
    Finished(Box<AttemptReport>),
    /// Nothing was tried; it does not count.
    Released,
}

/// What became of a [`Settlement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It is recorded.
    Recorded,
    /// The lease had ended before: nothing was changed.
    Stale,
}

/// What to do with one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send it, or send it again.
    Replay,
    /// Do not send it any more.
    Cancel,
    /// Take note that it is dead.
    Acknowledge,
}

/// The deliveries that [`Sending::send_again`] set going.
pub type SentAgain = Vec<DeliveryRecord>;

/// Events in, deliveries leased, results recorded.
#[async_trait]
pub trait Sending: Send + Sync {
    /// Accepts events: their keys, bytes and deliveries, and the claim's answer, in one transaction
    /// that has reached the disk when this returns.
    ///
    /// An event whose source event ID was seen within the window, in an earlier call, in a
    /// simultaneous one or earlier in the same batch, makes nothing and names the first event. The
    /// key is exact: two calls at the same instant make one event. Each event makes one delivery
    /// for every endpoint that the directory of that instant routes it to; deliveries that the
    /// [`Handoff`](crate::Handoff) has room for are leased in the same transaction and handed over
    /// after it.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was accepted. `Refused(NotFound)`: no such tenant or test endpoint.
    async fn publish(
        &self,
        publish: Publish,
        claim: Option<Claim<Published>>,
        now: Timestamp,
    ) -> Result<Claimed<Published>, StoreError>;

    /// Leases what is due at `now`, oldest first within each share, at most as many as wanted, and
    /// tells what is due next in the lanes asked for. No delivery is ever leased twice at once.
    ///
    /// Their bodies weigh at most what `budget` allows each lane, in the order of `wanted`. Where
    /// one is not allowed, its share stays as it is, and no body is read that is not returned.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was leased.
    async fn claim(
        &self,
        wanted: Vec<Wanted>,
        budget: Budget,
        now: Timestamp,
    ) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError>;

    /// Records how leases ended: state, progress and attempt of all of them in one transaction.
    /// Each applies only while its lease is the delivery's current one; the others come back as
    /// stale, so recording twice is harmless.
    ///
    /// In the same transaction: the endpoint's health after its attempts, and the system events
    /// that tell of a delivery's death, of an endpoint that begins to fail or has recovered, and of
    /// one that is disabled because nothing has succeeded there for too long.
    ///
    /// # Errors
    /// [`StoreError`]; none of them was recorded.
    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError>;

    /// Ends the leases whose owner is gone: each is an interruption, and its delivery is due again
    /// at once. Returns how many. Embedded, the owner is this process: to be called once, before
    /// the first lease of a process; a later call finds nothing. What is due further off than the
    /// schedule can put it, because an earlier process had a clock ahead of ours, is pulled back to
    /// the longest gap from now.
    ///
    /// # Errors
    /// [`StoreError`]; some of them may have been ended, calling again ends the rest.
    async fn lapse(&self, now: Timestamp) -> Result<u64, StoreError>;

    /// The earliest due times of every lane in which something waits.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn due(&self) -> Result<Vec<LaneDue>, StoreError>;

    /// Replays, cancels or acknowledges one delivery by the rules of
    /// [`step`](everhook_domain::delivery::step).
    ///
    /// # Errors
    /// `Refused` with the rule, or `NotFound`; nothing has changed.
    async fn act(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        act: Act,
        claim: Option<Claim<DeliveryRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<DeliveryRecord>, StoreError>;

    /// Sends an event again, same id and bytes. With an endpoint: there, even if it had no delivery
    /// there. Without: every delivery it has and every endpoint that the directory routes it to
    /// now; those whose endpoint is disabled or deleted are left out.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such event or endpoint in this tenant. `Refused(Step(…))`: the named
    /// endpoint is disabled or deleted, or without a name every one that it went to.
    /// `Refused(Receipt(…))`: it was received, and waits for a decision or is dead.
    async fn send_again(
        &self,
        tenant: TenantId,
        event: EventId,
        endpoint: Option<EndpointId>,
        claim: Option<Claim<SentAgain>>,
        now: Timestamp,
    ) -> Result<Claimed<SentAgain>, StoreError>;
}
