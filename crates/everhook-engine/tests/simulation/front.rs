//! What a process sees of the store: the real one, until the process is dead. What a zombie still
//! reports goes to the store of the process that took its place.

mod keys;

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use async_trait::async_trait;
use everhook_domain::budget::Budget;
use everhook_domain::conversation::{Conversation, Message, Outcome};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{ConversationId, DeliveryId, EndpointId, EventId, ReceiptId, ReplayId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    Act, Bulk, BulkRecord, BulkRequest, BulkStarted, Change, Changed, Claim, Claimed,
    Conversations, Converse, Decision, DeliveryDetail, DeliveryQuery, DeliveryRecord, Directory,
    DirectoryStore, EventDetail, EventQuery, EventRecord, JobStep, Jobs, LaneDue, LeasedDelivery,
    Page, PageRequest, Publish, Published, Reading, ReceiptQuery, ReceiptRecord, Receive, Received,
    Receiving, Sending, SentAgain, Settled, Settlement, StoreError, StoreHealth, Wanted,
};

use crate::client::tenant;
use crate::decide::Decided;
use crate::process::{Life, Phase};
use crate::provider::Meaning;
use crate::receipts;
use crate::world::World;

/// More calls than any process of a sound world makes: something runs in circles.
const CALLS_MAX: u64 = 100_000;

/// The store as one process sees it.
pub(crate) struct Front {
    world: Arc<World>,
    life: Arc<Life>,
    generation: u32,
    calls: AtomicU64,
}

impl Front {
    /// The front of a process.
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>, generation: u32) -> Self {
        Self { world, life, generation, calls: AtomicU64::new(0) }
    }

    /// How often the store was called through here.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    fn store(&self) -> Result<Arc<SqliteStore>, StoreError> {
        self.world.store().ok_or_else(closed)
    }

    /// A call that only a process in possession of the database can make.
    async fn own<T, F>(
        &self,
        what: &str,
        call: impl FnOnce(Arc<SqliteStore>) -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.way().await;
        if self.life.phase() == Phase::Zombie {
            return Err(closed());
        }
        self.world.note(format_args!("g{} {what}", self.generation));
        let result = call(self.store()?).await;
        if let Err(error) = &result {
            self.world.note(format_args!("g{} {what}: {error}", self.generation));
        }
        self.way_back().await;
        result
    }

    /// As `receive`, with a look at what the store makes of it, whoever learns of that.
    pub(crate) async fn take_in(
        &self,
        receive: Receive,
        now: Timestamp,
        meaning: &Meaning,
    ) -> Result<Vec<Received>, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            let result = store.receive(receive, now).await;
            receipts::look(&self.world, &store, meaning, &result, now).await;
            result
        };
        self.own("receive", call).await
    }

    /// As `decide`, with a look at what the store makes of it, whoever learns of that.
    pub(crate) async fn decide_on(
        &self,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            let from = self.world.note(format_args!("{decision:?} {receipt}"));
            let result = store.decide(tenant(), receipt, decision, claim, now).await;
            let (world, store) = (&*self.world, &*store);
            Decided { world, store, receipt, decision, from, now }.look(&result).await;
            result
        };
        self.own("decide", call).await
    }

    /// A call on its way to the store.
    async fn way(&self) {
        if self.calls.fetch_add(1, SeqCst) >= CALLS_MAX {
            self.world.violate("calls of the store without end".to_owned());
            std::future::pending().await
        }
        self.world.delay().await;
        self.life.unless_dead().await;
    }

    /// An answer on its way back. A process that died meanwhile does not learn what came of it.
    async fn way_back(&self) {
        self.life.unless_dead().await;
        self.world.delay().await;
        self.life.unless_dead().await;
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the database was taken away".into())
}

#[async_trait]
impl Sending for Front {
    async fn publish(
        &self,
        publish: Publish,
        claim: Option<Claim<Published>>,
        now: Timestamp,
    ) -> Result<Claimed<Published>, StoreError> {
        self.own("publish", async |store| store.publish(publish, claim, now).await).await
    }

    async fn claim(
        &self,
        wanted: Vec<Wanted>,
        budget: Budget,
        now: Timestamp,
    ) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            let result = store.claim(wanted, budget, now).await;
            if let Ok((leased, _)) = &result {
                self.world.claimed(self.generation, leased);
            }
            result
        };
        self.own("claim", call).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError> {
        self.way().await;
        let result = self.store()?.settle(settlements.clone(), now).await;
        match &result {
            Ok(settled) => {
                let zombie = self.life.phase() == Phase::Zombie;
                self.world.settled(self.generation, zombie, &settlements, settled);
            }
            Err(error) => {
                self.world.note(format_args!("g{} settle: {error}", self.generation));
            }
        }
        self.way_back().await;
        result
    }

    async fn lapse(&self, now: Timestamp) -> Result<u64, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            let result = store.lapse(now).await;
            if let Ok(ended) = &result {
                self.world.note(format_args!("g{} lapsed {ended}", self.generation));
                self.world.book().lapsed = true;
            }
            result
        };
        self.own("lapse", call).await
    }

    async fn due(&self) -> Result<Vec<LaneDue>, StoreError> {
        self.own("due", async |store| store.due().await).await
    }

    async fn act(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        act: Act,
        claim: Option<Claim<DeliveryRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<DeliveryRecord>, StoreError> {
        let call =
            async |store: Arc<SqliteStore>| store.act(tenant, delivery, act, claim, now).await;
        self.own("act", call).await
    }

    async fn send_again(
        &self,
        tenant: TenantId,
        event: EventId,
        endpoint: Option<EndpointId>,
        claim: Option<Claim<SentAgain>>,
        now: Timestamp,
    ) -> Result<Claimed<SentAgain>, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            store.send_again(tenant, event, endpoint, claim, now).await
        };
        self.own("send_again", call).await
    }
}

#[async_trait]
impl Receiving for Front {
    async fn receive(&self, receive: Receive, now: Timestamp) -> Result<Vec<Received>, StoreError> {
        let call = async |store: Arc<SqliteStore>| store.receive(receive, now).await;
        self.own("receive", call).await
    }

    async fn decide(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            store.decide(tenant, receipt, decision, claim, now).await
        };
        self.own("decide", call).await
    }

    async fn receipt(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError> {
        let call = async |store: Arc<SqliteStore>| store.receipt(tenant, receipt).await;
        self.own("receipt", call).await
    }

    async fn receipts(
        &self,
        tenant: TenantId,
        query: ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError> {
        let call = async |store: Arc<SqliteStore>| store.receipts(tenant, query, page).await;
        self.own("receipts", call).await
    }
}

#[async_trait]
impl Conversations for Front {
    async fn converse(
        &self,
        converse: Converse,
        claim: Option<Claim<Outcome>>,
        now: Timestamp,
    ) -> Result<Claimed<Outcome>, StoreError> {
        self.own("converse", async |store| store.converse(converse, claim, now).await).await
    }

    async fn conversation(
        &self,
        tenant: TenantId,
        id: ConversationId,
    ) -> Result<Option<Conversation>, StoreError> {
        self.own("conversation", async |store| store.conversation(tenant, id).await).await
    }

    async fn messages(
        &self,
        tenant: TenantId,
        of: ConversationId,
        page: PageRequest,
    ) -> Result<Option<Page<Message>>, StoreError> {
        self.own("messages", async |store| store.messages(tenant, of, page).await).await
    }

    async fn changed_since(
        &self,
        tenant: TenantId,
        from: Option<Timestamp>,
        page: PageRequest,
    ) -> Result<Page<Conversation>, StoreError> {
        self.own("changed_since", async |store| store.changed_since(tenant, from, page).await).await
    }
}

#[async_trait]
impl DirectoryStore for Front {
    fn directory(&self) -> Result<Arc<Directory>, StoreError> {
        self.store()?.directory()
    }

    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Changed>>,
        now: Timestamp,
    ) -> Result<Claimed<Changed>, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            let result = store.change(change, claim, now).await;
            // Whether or not the caller learns of it: from now on it holds.
            self.world.look_at_endpoints();
            result
        };
        self.own("change", call).await
    }
}

#[async_trait]
impl Jobs for Front {
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError> {
        let call = async |store: Arc<SqliteStore>| {
            self.world.book().ledger.may_prune(now);
            store.step(now).await
        };
        self.own("step", call).await
    }
}

#[async_trait]
impl Bulk for Front {
    async fn start_bulk(
        &self,
        request: BulkRequest,
        claim: Option<Claim<BulkStarted>>,
        now: Timestamp,
    ) -> Result<Claimed<BulkStarted>, StoreError> {
        let call = async |store: Arc<SqliteStore>| store.start_bulk(request, claim, now).await;
        self.own("start_bulk", call).await
    }

    async fn cancel_bulk(
        &self,
        tenant: TenantId,
        id: ReplayId,
        now: Timestamp,
    ) -> Result<BulkRecord, StoreError> {
        self.own("cancel_bulk", async |store| store.cancel_bulk(tenant, id, now).await).await
    }

    async fn bulk(&self, tenant: TenantId, id: ReplayId) -> Result<Option<BulkRecord>, StoreError> {
        self.own("bulk", async |store| store.bulk(tenant, id).await).await
    }

    async fn bulks(
        &self,
        tenant: TenantId,
        page: PageRequest,
    ) -> Result<Page<BulkRecord>, StoreError> {
        self.own("bulks", async |store| store.bulks(tenant, page).await).await
    }
}

#[async_trait]
impl Reading for Front {
    async fn event(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        self.own("event", async |store| store.event(tenant, event).await).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        query: EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.own("events", async |store| store.events(tenant, query, page).await).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError> {
        self.own("delivery", async |store| store.delivery(tenant, delivery).await).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        self.own("deliveries", async |store| store.deliveries(tenant, query, page).await).await
    }

    async fn endpoint_health(
        &self,
        tenant: TenantId,
        endpoints: Vec<EndpointId>,
    ) -> Result<HashMap<EndpointId, EndpointHealth>, StoreError> {
        self.own("endpoint_health", async |store| store.endpoint_health(tenant, endpoints).await)
            .await
    }

    async fn health(&self) -> Result<StoreHealth, StoreError> {
        self.own("health", async |store| store.health().await).await
    }
}
