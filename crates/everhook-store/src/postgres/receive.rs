//! `receive`: keys, receipts, events and deliveries of one request in one transaction.
//!
//! The keys of all items are taken, and thereby locked, in one statement and in one order, so that
//! simultaneous requests with a key in common come one after the other. What the items are is then
//! decided in their order; keys that turn out to lead elsewhere are set right at the end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::attempt::Trigger;
use everhook_domain::event::Origin;
use everhook_domain::id::{EventId, ReceiptId};
use everhook_domain::key::KeyHash;
use everhook_domain::receipt::{Decision, Known, ReceiptStatus, Verdict};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::ids::Ids;
use super::number::Bits;
use super::outgoing::{self, HandedOver, NewRow, Routed, rerouted};
use super::receipt::NewReceiptRow;
use super::tx::{Access, Tx};
use super::{PostgresStore, decide, keys, reading, receipt};
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::reading::{Page, PageRequest};
use crate::receipt::{Beginning, Fate, ItemKeys};
use crate::receiving::{NewReceipt, ReceiptQuery, ReceiptRecord, Receive, Received, Receiving};
use crate::route::Route;

#[async_trait]
impl Receiving for PostgresStore {
    async fn receive(&self, receive: Receive, now: Timestamp) -> Result<Vec<Received>, StoreError> {
        let routed = self.routed(&receive).await;
        let mut tx = self.begin(Access::Write, now).await?;
        let done = self::receive(&mut tx, &self.ids, &receive, routed).await;
        let (received, handed) = self.end(tx, done).await?;
        if !handed.is_empty() {
            self.handoff.hand_over(handed);
        }
        self.count_keys(received.len());
        Ok(received)
    }

    async fn decide(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = decide::decided(&mut tx, &tenant, receipt, decision, claim.as_ref()).await;
        self.end(tx, done).await
    }

    async fn receipt(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = reading::find_receipt(&mut tx, &tenant, receipt).await;
        self.end(tx, done).await
    }

    async fn receipts(
        &self,
        tenant: TenantId,
        query: ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = reading::receipts(&mut tx, &tenant, &query, page).await;
        self.end(tx, done).await
    }
}

/// The verb.
async fn receive(
    tx: &mut Tx,
    ids: &Ids,
    receive: &Receive,
    routed: Routed,
) -> Result<(Vec<Received>, HandedOver), VerbError> {
    tx.tenant(&receive.tenant)?;
    let source = tx.directory.source_of(&receive.tenant, receive.source);
    let window = source.ok_or(Refusal::NotFound)?.settings.window();
    let routes = rerouted(tx, receive, routed)?;
    let mut request = Request::take(tx, ids, receive, window).await?;
    let mut received = Vec::with_capacity(receive.items.len());
    for (index, item) in receive.items.iter().enumerate() {
        received.push(request.judge(index, item));
    }
    let corrections = request.corrections(tx.now);
    keys::set_receipt_keys(&mut tx.connection, &receive.tenant, &corrections).await?;
    let handed = request.store(tx, receive, routes).await?;
    receipt::count(&mut tx.connection, &receive.tenant, &request.duplicates, tx.now).await?;
    Ok((received, handed))
}

/// What a key leads to, and until when.
type Leads = (ReceiptId, Timestamp);

/// The items of a request, and what becomes of them.
struct Request {
    /// The id that each item's event has if it is given one.
    ids: Vec<EventId>,
    keys: Vec<ItemKeys>,
    window: Duration,
    /// What was taken for the first item with each key and guard.
    taken: BTreeMap<Bits, Leads>,
    /// What is remembered, from before and by now.
    live: HashMap<Bits, Leads>,
    /// What of that was remembered before.
    before: BTreeSet<Bits>,
    /// What receipts came with.
    contents: HashMap<ReceiptId, Vec<u8>>,
    /// Items that are given a receipt.
    kept: Vec<(usize, Beginning)>,
    /// How many duplicates there are of a receipt, and whether one had another body.
    duplicates: BTreeMap<ReceiptId, (u64, bool)>,
}

impl Request {
    /// Takes the keys, and looks up where those lead that were taken before.
    async fn take(
        tx: &mut Tx,
        ids: &Ids,
        receive: &Receive,
        window: Duration,
    ) -> Result<Self, VerbError> {
        let (tenant, items) = (&receive.tenant, &receive.items);
        let ids: Vec<EventId> = items.iter().map(|_| ids.event(tx.now)).collect();
        let keys = items.iter().map(|item| ItemKeys::of(tenant, receive.source, item));
        let keys: Vec<ItemKeys> = keys.collect();
        let mut taken = BTreeMap::new();
        for (id, keys) in ids.iter().zip(&keys) {
            for key in [keys.key].into_iter().chain(keys.guard) {
                let leads = (id.receipt(), id.created_at() + window);
                taken.entry(Bits::from(key)).or_insert(leads);
            }
        }
        let connection = &mut tx.connection;
        let mut found = keys::take_receipt_keys(connection, tenant, &taken, tx.now).await?;
        found.retain(|key, receipt| taken[key].0 != *receipt);
        // Whoever could add one has locked its item's key.
        let conflicts: Vec<Bits> = keys.iter().map(|keys| Bits::from(keys.conflict)).collect();
        found.extend(keys::receipts_of(connection, tenant, &conflicts, tx.now).await?);
        let receipts: BTreeSet<ReceiptId> = found.values().copied().collect();
        let receipts: Vec<ReceiptId> = receipts.into_iter().collect();
        let contents = receipt::contents(connection, tenant, &receipts).await?;
        // Where a receipt is gone, its key is as good as new.
        found.retain(|_, receipt| contents.contains_key(receipt));
        let before = found.keys().copied().collect();
        // How long they live does not change.
        let live = found.into_iter().map(|(key, receipt)| (key, (receipt, tx.now))).collect();
        let (kept, duplicates) = (Vec::new(), BTreeMap::new());
        Ok(Self { ids, keys, window, taken, live, before, contents, kept, duplicates })
    }

    fn receipt(&self, key: KeyHash) -> Option<ReceiptId> {
        self.live.get(&Bits::from(key)).map(|(receipt, _)| *receipt)
    }

    /// What an item is, given what was before and the items before it.
    fn judge(&mut self, index: usize, item: &NewReceipt) -> Received {
        let keys = self.keys[index];
        let same = |receipt| (receipt, self.contents.get(&receipt) == Some(&item.content.to_vec()));
        let known = Known {
            key: self.receipt(keys.key).map(same),
            conflict: self.receipt(keys.conflict),
            guard: keys.guard.and_then(|guard| self.receipt(guard)),
        };
        let id = self.ids[index];
        let until = id.created_at() + self.window;
        let (receipt, verdict, key) = match Fate::of(item, &keys, known) {
            Fate::Counted { of, body_changed } => {
                let (count, changed) = self.duplicates.entry(of).or_default();
                (*count, *changed) = (*count + 1, *changed || body_changed);
                (of, Verdict::Duplicate, None)
            }
            Fate::Kept(beginning) => {
                let (verdict, key) = (beginning.verdict, beginning.key);
                self.contents.insert(id.receipt(), item.content.to_vec());
                self.kept.push((index, beginning));
                (id.receipt(), verdict, Some(key))
            }
        };
        // Signed bytes are known from their first coming, whatever that was.
        let guard = keys.guard.filter(|_| known.guard.is_none());
        for key in key.into_iter().chain(guard) {
            self.live.insert(Bits::from(key), (receipt, until));
        }
        Received { receipt, verdict }
    }

    /// The keys that are to lead elsewhere than they were taken for, or nowhere.
    fn corrections(&self, now: Timestamp) -> BTreeMap<Bits, Leads> {
        let added = self.live.iter().filter(|(key, _)| !self.before.contains(key));
        let mut corrections: BTreeMap<Bits, Leads> = added
            .filter(|(key, leads)| self.taken.get(key) != Some(leads))
            .map(|(key, leads)| (*key, *leads))
            .collect();
        let unused = self.taken.iter().filter(|(key, _)| !self.live.contains_key(key));
        corrections.extend(unused.map(|(key, (receipt, _))| (*key, (*receipt, now))));
        corrections
    }

    /// Stores what is kept: events, deliveries of those that run, and receipts.
    async fn store(
        &self,
        tx: &mut Tx,
        receive: &Receive,
        routes: Vec<Route>,
    ) -> Result<HandedOver, VerbError> {
        let Some((first, _)) = self.kept.first() else { return Ok(Vec::new()) };
        let (tenant, first) = (&receive.tenant, self.ids[*first].receipt());
        let headers = Arc::new(receive.headers.clone());
        let mut routes: Vec<Option<Route>> = routes.into_iter().map(Some).collect();
        let (mut events, mut receipts, mut to) = (Vec::new(), Vec::new(), Vec::new());
        for (index, beginning) in &self.kept {
            let (id, item) = (self.ids[*index], &receive.items[*index]);
            let runs = beginning.status == ReceiptStatus::Accepted;
            let route = routes[*index].take().filter(|_| runs).unwrap_or_default();
            events.push(NewRow {
                id,
                event_type: &item.event_type,
                origin: Origin::Received,
                happened_at: tx.now,
                source_event_id: None,
                body: &item.body,
                headers: Some(&headers),
                cause: Trigger::Schedule,
                deliveries: route.len(),
            });
            to.push(route);
            receipts.push(NewReceiptRow {
                id: id.receipt(),
                event_type: &item.event_type,
                key: item.key.shown(),
                content: &item.content,
                status: beginning.status,
                reason: beginning.reason.clone(),
            });
        }
        let handed = outgoing::store(tx, tenant, &events, to).await?;
        let connection = &mut tx.connection;
        receipt::insert_headers(connection, tenant, first, &headers).await?;
        receipt::insert(connection, (tenant, receive.source), &receipts, first).await?;
        Ok(handed)
    }
}
