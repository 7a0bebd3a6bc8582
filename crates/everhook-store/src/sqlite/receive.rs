//! `receive`: keys, receipts, events and deliveries of one request in one transaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::attempt::Trigger;
use everhook_domain::event::Origin;
use everhook_domain::fault::{self, Plant};
use everhook_domain::id::ReceiptId;
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::key::KeyHash;
use everhook_domain::receipt::{Known, ReceiptStatus, Verdict};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::SqliteStore;
use super::command::{Verb, VerbError};
use super::decide::DecideVerb;
use super::keys::KeyEntry;
use super::outgoing::{NewRow, Outgoing};
use super::receipt::{self, ReceiptRow};
use super::row::{event_id, first_key, signed};
use super::source::source_no;
use super::tx::Tx;
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::handoff::Handoff;
use crate::reading::{Page, PageRequest};
use crate::receipt::{Beginning, Fate, ItemKeys};
use crate::receiving::{
    Decision, NewReceipt, ReceiptQuery, ReceiptRecord, Receive, Received, Receiving,
};
use crate::route::Brings;

#[async_trait]
impl Receiving for SqliteStore {
    async fn receive(&self, receive: Receive, now: Timestamp) -> Result<Vec<Received>, StoreError> {
        let outgoing = self.outgoing(&receive).await;
        let receive = Arc::new(receive);
        self.run(ReceiveVerb { receive, now, outgoing }).await
    }

    async fn decide(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError> {
        self.run(DecideVerb { tenant, receipt, decision, claim, now }).await
    }

    async fn receipt(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.receipt(tenant, receipt)).await
    }

    async fn receipts(
        &self,
        tenant: TenantId,
        query: ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| reader.receipts(tenant, &query, page)).await
    }
}

/// What an event weighs in a transaction besides its body.
const EVENT_BYTES: usize = 512;

/// The verb.
pub(super) struct ReceiveVerb {
    pub(super) receive: Arc<Receive>,
    pub(super) now: Timestamp,
    pub(super) outgoing: Outgoing,
}

impl Verb for ReceiveVerb {
    type Output = Vec<Received>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        self.outgoing.begin();
        let receive = Arc::clone(&self.receive);
        let tenant = tx.tenant(&receive.tenant)?;
        let directory = &tx.catalog().directory;
        let source =
            directory.source_of(&receive.tenant, receive.source).ok_or(Refusal::NotFound)?;
        let window = source.settings.window();
        self.outgoing.reroute(directory, &*receive)?;
        let mut request = Request {
            tenant,
            window,
            now: self.now,
            headers: Arc::new(receive.headers.clone()),
            headers_at: None,
        };
        let mut received = Vec::with_capacity(receive.items.len());
        for (index, item) in receive.items.iter().enumerate() {
            received.push(self.take(tx, &mut request, (index, item))?);
        }
        Ok(received)
    }

    fn committed(&mut self, handoff: &dyn Handoff) {
        self.outgoing.hand_over(handoff);
    }

    fn weight(&self) -> usize {
        self.receive.sizes().map(|bytes| bytes + EVENT_BYTES).sum()
    }
}

/// What the events of a request share.
struct Request {
    tenant: i64,
    window: Duration,
    now: Timestamp,
    headers: Arc<ForwardedHeaders>,
    /// Where the headers are stored: once, with the first event that is.
    headers_at: Option<i64>,
}

impl ReceiveVerb {
    fn take(
        &mut self,
        tx: &mut Tx<'_>,
        request: &mut Request,
        (index, item): (usize, &NewReceipt),
    ) -> Result<Received, VerbError> {
        let keys = ItemKeys::of(&self.receive.tenant, self.receive.source, item);
        let guard = keys.guard.map(|guard| seen(tx, &guard, self.now)).transpose()?.flatten();
        let known = Known {
            key: seen(tx, &keys.key, self.now)?.map(|(of, content)| (of, content == item.content)),
            conflict: seen(tx, &keys.conflict, self.now)?.map(|(of, _)| of),
            guard: guard.map(|(of, _)| of),
        };
        let (receipt, verdict, key) = match Fate::of(item, &keys, known) {
            Fate::Counted { of, body_changed } => {
                receipt::count(tx.connection, of, body_changed, self.now)?;
                (of, Verdict::Duplicate, None)
            }
            Fate::Kept(beginning) => {
                let (verdict, key) = (beginning.verdict, beginning.key);
                (self.keep(tx, request, (index, item), beginning)?, verdict, Some(key))
            }
        };
        // Signed bytes are known from their first coming, whatever that was.
        let guard = keys.guard.filter(|_| known.guard.is_none());
        for key in key.into_iter().chain(guard) {
            remember(tx, request, key, receipt)?;
        }
        Ok(Received { receipt, verdict })
    }

    /// Stores the event with its receipt; makes its deliveries if it runs.
    fn keep(
        &mut self,
        tx: &mut Tx<'_>,
        request: &mut Request,
        (index, item): (usize, &NewReceipt),
        beginning: Beginning,
    ) -> Result<ReceiptId, VerbError> {
        let (sequence, created_at) = tx.next_event(self.now);
        let id = event_id(first_key(sequence), created_at.as_millis(), tx.tag());
        let runs = beginning.status == ReceiptStatus::Accepted;
        let event = NewRow {
            id,
            tenant: request.tenant,
            event_type: &item.event_type,
            origin: Origin::Received,
            happened_at: self.now,
            source_event_id: None,
            body: &item.body,
            headers: Some(&request.headers),
            cause: Trigger::Schedule,
        };
        event.insert(tx, if runs { self.outgoing.count(index) } else { 0 })?;
        let headers_at = *request.headers_at.get_or_insert(sequence);
        if headers_at == sequence {
            let headers = &request.headers;
            receipt::insert_headers(tx.connection, request.tenant, sequence, headers)?;
        }
        let row = ReceiptRow {
            id: id.receipt(),
            tenant: request.tenant,
            source: source_no(self.receive.source),
            event_type: item.event_type.clone(),
            key: item.key.shown().to_owned(),
            last_seen_at: created_at,
            duplicates: 0,
            body_changed: false,
            status: beginning.status,
            reason: beginning.reason,
            released_at: None,
        };
        row.insert(tx.connection, &item.content, headers_at)?;
        if fault::planted(Plant::MarkedBeforeStored) {
            remember(tx, request, beginning.key, id.receipt())?;
            tx.connection.execute_batch("COMMIT; BEGIN IMMEDIATE")?;
        }
        if runs {
            self.outgoing.deliver(tx, index, &event, self.now)?;
        }
        Ok(id.receipt())
    }
}

/// The receipt that a live key leads to, with the content that it came with.
fn seen(
    tx: &Tx<'_>,
    key: &KeyHash,
    now: Timestamp,
) -> Result<Option<(ReceiptId, [u8; 32])>, VerbError> {
    match tx.key(key, now) {
        Some(entry) => Ok(receipt::first_of(tx.connection, entry.target, tx.tag())?),
        None => Ok(None),
    }
}

fn remember(
    tx: &mut Tx<'_>,
    request: &Request,
    key: KeyHash,
    receipt: ReceiptId,
) -> rusqlite::Result<()> {
    // From the instant that a receipt of now shows, as with source event IDs.
    let expires_at = receipt.created_at().max(request.now) + request.window;
    let target = signed(receipt.sequence());
    tx.remember(request.tenant, (key, KeyEntry { target, expires_at }), None)
}
