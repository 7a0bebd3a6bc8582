//! Webhooks in: receipts, and the events and deliveries that they make.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::event::EventType;
use everhook_domain::id::{EventId, ReceiptId, SourceId};
use everhook_domain::inbound::{DedupeKey, ForwardedHeaders, OnChange};
pub use everhook_domain::receipt::{Decision, ReceiptReason, ReceiptStatus, Verdict};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;
use crate::reading::{Page, PageRequest};

/// One verified request to a source: all of its events are stored, or none.
#[derive(Clone, Debug)]
pub struct Receive {
    /// Whose source it is.
    pub tenant: TenantId,
    /// The source.
    pub source: SourceId,
    /// Its events, in order; ids rise in this order.
    pub items: Vec<NewReceipt>,
    /// The headers that go on with each of them.
    pub headers: ForwardedHeaders,
}

/// One event of a request to a source.
#[derive(Clone)]
pub struct NewReceipt {
    /// What identifies it within the source.
    pub key: DedupeKey,
    /// What other content under this key means.
    pub on_change: OnChange,
    /// What tells its content from another's.
    pub content: [u8; 32],
    /// What no other key may come with in the window.
    pub guard: Option<[u8; 32]>,
    /// Its type.
    pub event_type: EventType,
    /// What is forwarded.
    pub body: Bytes,
    /// Why it cannot be read: it is kept as dead.
    pub unreadable: Option<String>,
}

impl fmt::Debug for NewReceipt {
    /// Without the payload: it stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("NewReceipt");
        debug.field("key", &self.key).field("event_type", &self.event_type).finish_non_exhaustive()
    }
}

/// What became of one event of a request. Each is a success for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The receipt: of a duplicate, the first one's.
    pub receipt: ReceiptId,
    /// What it is.
    pub verdict: Verdict,
}

/// A receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRecord {
    /// Its id.
    pub id: ReceiptId,
    /// The source that it came to.
    pub source: SourceId,
    /// Its key, as it is shown.
    pub key: String,
    /// The event's type.
    pub event_type: EventType,
    /// When it first came.
    pub first_seen_at: Timestamp,
    /// When it last came.
    pub last_seen_at: Timestamp,
    /// How often it came after the first time.
    pub duplicates: u64,
    /// Whether a duplicate came with another body.
    pub body_changed: bool,
    /// Where it stands.
    pub status: ReceiptStatus,
    /// Why, where it is a conflict or dead; it stays when a conflict is released.
    pub reason: Option<ReceiptReason>,
    /// How many deliveries it has.
    pub deliveries: u32,
    /// When the last of its deliveries was delivered; `None` while one is not, or without any.
    pub processed_at: Option<Timestamp>,
    /// When it was released.
    pub released_at: Option<Timestamp>,
}

impl ReceiptRecord {
    /// The event that was received.
    pub const fn event(&self) -> EventId {
        self.id.event()
    }
}

/// Which receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiptQuery {
    /// Of this source.
    pub source: Option<SourceId>,
    /// With this status.
    pub status: Option<ReceiptStatus>,
    /// That came at least so often after the first time.
    pub duplicates_min: Option<u64>,
}

/// Webhooks in.
#[async_trait]
pub trait Receiving: Send + Sync {
    /// Takes the events of one verified request: keys, receipts, events and deliveries in one
    /// transaction that has reached the disk when this returns. One verdict an item, in order.
    ///
    /// In the window of the source, which runs from the first receipt of a key and which a
    /// duplicate does not extend (a key at exactly first receipt + window is new), whether it came
    /// in an earlier call, in a simultaneous one or earlier in the same request:
    ///
    /// - the same key and content is a duplicate;
    /// - the same key with other content is, by [`OnChange`], a duplicate whose body has changed or
    ///   a conflict; a conflict is remembered by key and content, for a window of its own, so its
    ///   own retries are duplicates;
    /// - a new key with a known guard is a conflict. A guard is known from its first coming, with a
    ///   duplicate too.
    ///
    /// An event that cannot be read is deduplicated like any other, and dead. A conflict has no
    /// deliveries until it is released. Each accepted event makes one delivery for every endpoint
    /// that the directory of that instant routes it to.
    ///
    /// # Errors
    /// [`StoreError`]; nothing was accepted. `Refused(NotFound)`: no such source in this tenant.
    async fn receive(&self, receive: Receive, now: Timestamp) -> Result<Vec<Received>, StoreError>;

    /// Decides about one receipt. A decision that was made before changes nothing. What is released
    /// goes to where the directory of that instant routes it.
    ///
    /// # Errors
    /// `Refused(NotFound)`: no such receipt in this tenant; `Refused(Receipt(…))`: not for a
    /// receipt in its state. Those of `send_again` for [`Decision::Force`].
    async fn decide(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError>;

    /// A receipt of this tenant.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn receipt(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError>;

    /// A tenant's receipts, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn receipts(
        &self,
        tenant: TenantId,
        query: ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError>;
}
