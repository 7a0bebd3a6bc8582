//! A store that can be made to fail, and what the engine does then.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::budget::Budget;
use everhook_domain::conversation::{Conversation, Message, Outcome};
use everhook_domain::delivery::State;
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{
    ConversationId, DeliveryId, EndpointId, EventId, ReceiptId, RecordId, ReplayId,
};
use everhook_domain::idempotency::Answer;
use everhook_domain::idempotency::claim::{Finished, Quota, Taken, Terms, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_engine::EngineSettings;
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    Act, Bulk, BulkRecord, BulkRequest, BulkStarted, Change, Changed, Claim, Claimed,
    Conversations, Converse, Decision, DeliveryDetail, DeliveryQuery, DeliveryRecord, Directory,
    DirectoryStore, EventDetail, EventQuery, EventRecord, HeldClaim, JobStep, Jobs, KeyRecord,
    Keys, LaneDue, LeasedDelivery, Page, PageRequest, Publish, Published, Reading, ReceiptQuery,
    ReceiptRecord, Receive, Received, Receiving, RecordQuery, Sending, SentAgain, Settled,
    Settlement, StoreError, StoreHealth, StoredClaim, Taking, Wanted,
};

use crate::world::{World, answers};

/// The store in memory, with switches.
pub(crate) struct FaultyStore {
    pub(crate) inner: SqliteStore,
    /// Nothing works while set.
    pub(crate) away: AtomicBool,
    /// Recording does not work while set.
    pub(crate) no_settle: AtomicBool,
    pub(crate) claims: AtomicUsize,
    /// Groups of results.
    pub(crate) settles: AtomicUsize,
    pub(crate) calls_while_away: AtomicUsize,
}

impl FaultyStore {
    pub(crate) fn new(inner: SqliteStore) -> Self {
        Self {
            inner,
            away: AtomicBool::new(false),
            no_settle: AtomicBool::new(false),
            claims: AtomicUsize::new(0),
            settles: AtomicUsize::new(0),
            calls_while_away: AtomicUsize::new(0),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.away.load(SeqCst) {
            self.calls_while_away.fetch_add(1, SeqCst);
            return Err(StoreError::Unavailable("planned".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Sending for FaultyStore {
    async fn publish(
        &self,
        publish: Publish,
        claim: Option<Claim<Published>>,
        now: Timestamp,
    ) -> Result<Claimed<Published>, StoreError> {
        self.check()?;
        self.inner.publish(publish, claim, now).await
    }

    async fn claim(
        &self,
        wanted: Vec<Wanted>,
        budget: Budget,
        now: Timestamp,
    ) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError> {
        self.check()?;
        self.claims.fetch_add(1, SeqCst);
        self.inner.claim(wanted, budget, now).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError> {
        self.check()?;
        if self.no_settle.load(SeqCst) {
            return Err(StoreError::Failed("planned".into()));
        }
        self.settles.fetch_add(1, SeqCst);
        self.inner.settle(settlements, now).await
    }

    async fn lapse(&self, now: Timestamp) -> Result<u64, StoreError> {
        self.check()?;
        self.inner.lapse(now).await
    }

    async fn due(&self) -> Result<Vec<LaneDue>, StoreError> {
        self.check()?;
        self.inner.due().await
    }

    async fn act(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        act: Act,
        claim: Option<Claim<DeliveryRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<DeliveryRecord>, StoreError> {
        self.inner.act(tenant, delivery, act, claim, now).await
    }

    async fn send_again(
        &self,
        tenant: TenantId,
        event: EventId,
        endpoint: Option<EndpointId>,
        claim: Option<Claim<SentAgain>>,
        now: Timestamp,
    ) -> Result<Claimed<SentAgain>, StoreError> {
        self.inner.send_again(tenant, event, endpoint, claim, now).await
    }
}

#[async_trait]
impl Receiving for FaultyStore {
    async fn receive(&self, receive: Receive, now: Timestamp) -> Result<Vec<Received>, StoreError> {
        self.check()?;
        self.inner.receive(receive, now).await
    }

    async fn decide(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
        decision: Decision,
        claim: Option<Claim<ReceiptRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<ReceiptRecord>, StoreError> {
        self.check()?;
        self.inner.decide(tenant, receipt, decision, claim, now).await
    }

    async fn receipt(
        &self,
        tenant: TenantId,
        receipt: ReceiptId,
    ) -> Result<Option<ReceiptRecord>, StoreError> {
        self.check()?;
        self.inner.receipt(tenant, receipt).await
    }

    async fn receipts(
        &self,
        tenant: TenantId,
        query: ReceiptQuery,
        page: PageRequest,
    ) -> Result<Page<ReceiptRecord>, StoreError> {
        self.check()?;
        self.inner.receipts(tenant, query, page).await
    }
}

#[async_trait]
impl Conversations for FaultyStore {
    async fn converse(
        &self,
        converse: Converse,
        claim: Option<Claim<Outcome>>,
        now: Timestamp,
    ) -> Result<Claimed<Outcome>, StoreError> {
        self.inner.converse(converse, claim, now).await
    }

    async fn conversation(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
    ) -> Result<Option<Conversation>, StoreError> {
        self.inner.conversation(tenant, conversation).await
    }

    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: PageRequest,
    ) -> Result<Option<Page<Message>>, StoreError> {
        self.inner.messages(tenant, conversation, page).await
    }

    async fn changed_since(
        &self,
        tenant: TenantId,
        from: Option<Timestamp>,
        page: PageRequest,
    ) -> Result<Page<Conversation>, StoreError> {
        self.inner.changed_since(tenant, from, page).await
    }
}

#[async_trait]
impl DirectoryStore for FaultyStore {
    fn directory(&self) -> Result<Arc<Directory>, StoreError> {
        self.inner.directory()
    }

    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Changed>>,
        now: Timestamp,
    ) -> Result<Claimed<Changed>, StoreError> {
        self.inner.change(change, claim, now).await
    }
}

#[async_trait]
impl Keys for FaultyStore {
    async fn look(
        &self,
        tenant: TenantId,
        key: KeyHash,
    ) -> Result<Option<StoredClaim>, StoreError> {
        self.inner.look(tenant, key).await
    }

    async fn look_at(
        &self,
        tenant: TenantId,
        id: RecordId,
    ) -> Result<Option<StoredClaim>, StoreError> {
        self.inner.look_at(tenant, id).await
    }

    async fn take(
        &self,
        taking: Taking,
        seen: Option<(Token, Timestamp)>,
        terms: Terms,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Taken, StoreError> {
        self.inner.take(taking, seen, terms, quota, now).await
    }

    async fn renew(
        &self,
        claim: HeldClaim,
        terms: Terms,
        checkpoint: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.inner.renew(claim, terms, checkpoint, now).await
    }

    async fn finish(
        &self,
        claim: HeldClaim,
        remembered: Vec<u8>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Finished, StoreError> {
        self.inner.finish(claim, remembered, ttl, now).await
    }

    async fn release(&self, claim: HeldClaim) -> Result<bool, StoreError> {
        self.inner.release(claim).await
    }

    async fn records(
        &self,
        tenant: TenantId,
        query: RecordQuery,
        page: PageRequest,
        now: Timestamp,
    ) -> Result<Page<KeyRecord>, StoreError> {
        self.inner.records(tenant, query, page, now).await
    }

    async fn record(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.inner.record(tenant, id, now).await
    }

    async fn resolve(
        &self,
        tenant: TenantId,
        id: RecordId,
        answer: Answer,
        claim: Option<Claim<KeyRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<KeyRecord>, StoreError> {
        self.inner.resolve(tenant, id, answer, claim, now).await
    }

    async fn remember(&self, claim: Claim<()>, now: Timestamp) -> Result<Claimed<()>, StoreError> {
        self.inner.remember(claim, now).await
    }

    async fn forget(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.inner.forget(tenant, id, now).await
    }
}

#[async_trait]
impl Jobs for FaultyStore {
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError> {
        self.check()?;
        self.inner.step(now).await
    }
}

#[async_trait]
impl Bulk for FaultyStore {
    async fn start_bulk(
        &self,
        request: BulkRequest,
        claim: Option<Claim<BulkStarted>>,
        now: Timestamp,
    ) -> Result<Claimed<BulkStarted>, StoreError> {
        self.inner.start_bulk(request, claim, now).await
    }

    async fn cancel_bulk(
        &self,
        tenant: TenantId,
        id: ReplayId,
        now: Timestamp,
    ) -> Result<BulkRecord, StoreError> {
        self.inner.cancel_bulk(tenant, id, now).await
    }

    async fn bulk(&self, tenant: TenantId, id: ReplayId) -> Result<Option<BulkRecord>, StoreError> {
        self.inner.bulk(tenant, id).await
    }

    async fn bulks(
        &self,
        tenant: TenantId,
        page: PageRequest,
    ) -> Result<Page<BulkRecord>, StoreError> {
        self.inner.bulks(tenant, page).await
    }
}

#[async_trait]
impl Reading for FaultyStore {
    async fn event(
        &self,
        tenant: TenantId,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        self.inner.event(tenant, event).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        query: EventQuery,
        page: PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.inner.events(tenant, query, page).await
    }

    async fn delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
    ) -> Result<Option<DeliveryDetail>, StoreError> {
        self.inner.delivery(tenant, delivery).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        query: DeliveryQuery,
        page: PageRequest,
    ) -> Result<Page<DeliveryRecord>, StoreError> {
        self.inner.deliveries(tenant, query, page).await
    }

    async fn endpoint_health(
        &self,
        tenant: TenantId,
        endpoints: Vec<EndpointId>,
    ) -> Result<HashMap<EndpointId, EndpointHealth>, StoreError> {
        self.inner.endpoint_health(tenant, endpoints).await
    }

    async fn health(&self) -> Result<StoreHealth, StoreError> {
        self.inner.health().await
    }
}

#[tokio::test(start_paused = true)]
async fn case_003_the_engine_recovers_when_the_store_comes_back_and_does_not_loop_meanwhile() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    let event = world.publish("a").await;
    world.settle().await;
    world.store.away.store(true, SeqCst);
    world.network.set("a", answers(200, 1));
    world.pass(Duration::from_secs(120)).await;
    // The retry was due after a minute; pauses reach five seconds within ten tries.
    let calls = world.store.calls_while_away.load(SeqCst);
    assert!((10..40).contains(&calls), "{calls} calls in a minute");
    assert_eq!(world.network.log().len(), 1);
    world.store.away.store(false, SeqCst);
    world.pass(Duration::from_secs(6)).await;
    assert_eq!(world.network.log().len(), 2);
    assert_eq!(world.state(event).await, State::Delivered);
}

#[tokio::test(start_paused = true)]
async fn what_peers_fail_5_a_result_that_cannot_be_written_is_kept_and_sends_nothing_again() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.store.no_settle.store(true, SeqCst);
    let events = world.publish_all("a", 20).await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.network.log().len(), 20);
    world.store.no_settle.store(false, SeqCst);
    world.pass(Duration::from_secs(6)).await;
    for event in events {
        assert_eq!(world.state(event).await, State::Delivered);
        assert_eq!(world.attempts(event).await.len(), 1);
    }
    world.pass(Duration::from_secs(100_000)).await;
    assert_eq!(world.network.log().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_begun_while_too_many_results_wait() {
    let settings = EngineSettings { results_waiting_max: 50, ..EngineSettings::default() };
    let world = World::new(settings).await;
    world.endpoint("a").await;
    world.store.no_settle.store(true, SeqCst);
    for _ in 0..30 {
        world.publish_all("a", 10).await;
        world.settle().await;
    }
    world.pass(Duration::from_secs(60)).await;
    let sent = world.network.log().len();
    assert!((50..=50 + 64).contains(&sent), "{sent} sent");
    world.store.no_settle.store(false, SeqCst);
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.network.log().len(), 300, "each exactly once");
}
