//! A store, the time, and the lanes that it hands deliveries to, with every verb as a plain call.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::Attempt;
use everhook_domain::delivery::{Progress, State};
use everhook_domain::endpoint::{Endpoint, EndpointVerb};
use everhook_domain::event::{NewEvent, Origin};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    AcceptedEvent, Act, Change, Changed, Claimed, DeliveryDetail, DeliveryQuery, DeliveryRecord,
    EventDetail, EventQuery, EventRecord, JobStep, LaneDue, LeasedDelivery, PageRequest, Publish,
    Published, Sealer, SentAgain, Settled, Settlement, Store, StoreError, StorePolicy, Targets,
    Wanted,
};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::backend::{Backend, Kind, RowOf};
use crate::lanes::Lanes;
use crate::sketch::{AMPLE, everything, finished, publish_in, released, secrets, settings};

/// When every world begins.
const BEGINNING: Timestamp = Timestamp::from_millis(1_750_000_000_000);
/// A page that holds whatever a test makes.
const WHOLE: PageRequest = PageRequest { limit: 100_000, after: None, scan_limit: 1_000_000 };

/// One store with everything around it.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lanes: Arc<Lanes>,
    /// The present; only a test moves it.
    pub(crate) now: Timestamp,
    /// The default tenant.
    pub(crate) tenant: TenantId,
    kind: Kind,
    policy: StorePolicy,
    sealer: Sealer,
    backend: Box<dyn Backend>,
    runtime: Runtime,
}

impl World {
    /// A new store with the usual policy.
    pub(crate) fn new(kind: Kind) -> Self {
        Self::with(kind, StorePolicy::default())
    }

    /// A new store with this policy.
    pub(crate) fn with(kind: Kind, policy: StorePolicy) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let lanes = Arc::new(Lanes::default());
        let mut backend = kind.create(&runtime);
        let sealer = Sealer::default();
        let handoff = Arc::clone(&lanes) as _;
        let store = backend.open(policy.clone(), handoff, sealer.clone(), BEGINNING).unwrap();
        let tenant = TenantId::default_tenant();
        Self { store, lanes, now: BEGINNING, tenant, kind, policy, sealer, backend, runtime }
    }

    /// Ends the process at this instant and starts another one on the same data, once the leases of
    /// the first are over. Nothing has lapsed yet.
    pub(crate) fn crash(&mut self) {
        self.backend.crash();
        self.now = self.now + self.kind.lease;
        self.lanes = Arc::new(Lanes::default());
        self.store = self.reopen();
    }

    /// Another node on the same data, whom nobody tells of work.
    #[cfg(feature = "postgres")]
    pub(crate) fn another_node(&mut self) -> Arc<dyn Store> {
        let handoff = Arc::new(everhook_store::NoHandoff);
        self.backend.open(self.policy.clone(), handoff, self.sealer.clone(), self.now).unwrap()
    }

    fn reopen(&mut self) -> Arc<dyn Store> {
        self.try_reopen().unwrap()
    }

    fn try_reopen(&mut self) -> Result<Arc<dyn Store>, String> {
        let (policy, handoff) = (self.policy.clone(), Arc::clone(&self.lanes) as _);
        self.backend.open(policy, handoff, self.sealer.clone(), self.now)
    }

    /// Restarts the store with other master keys, or says why it does not open.
    pub(crate) fn restart_sealed(&mut self, sealer: Sealer) -> Result<(), String> {
        self.backend.crash();
        self.sealer = sealer;
        self.store = self.try_reopen()?;
        Ok(())
    }

    /// Why the store does not open with these master keys; it is then opened again as it was.
    pub(crate) fn try_other_keys(&mut self, other: Sealer) -> String {
        self.backend.crash();
        let own = std::mem::replace(&mut self.sealer, other);
        let refused = self.try_reopen().map(drop).unwrap_err();
        self.sealer = own;
        self.store = self.reopen();
        refused
    }

    /// Settings and secrets as they are stored; restarts the store.
    pub(crate) fn stored(&mut self, row: impl Into<RowOf>) -> [String; 2] {
        self.backend.crash();
        let stored = self.backend.stored(row.into());
        self.store = self.reopen();
        stored
    }

    /// As [`World::crash`], with another policy from then on.
    pub(crate) fn restart_with(&mut self, policy: StorePolicy) {
        self.policy = policy;
        self.crash();
    }

    /// Copies the only endpoint until there are so many; restarts the store.
    pub(crate) fn multiply_endpoint(&mut self, count: usize) {
        self.backend.crash();
        self.backend.multiply_endpoint(count);
        self.store = self.reopen();
    }

    /// Overwrites a column of a row; restarts the store.
    pub(crate) fn store_as(&mut self, row: impl Into<RowOf>, column: &str, text: &str) {
        self.backend.crash();
        self.backend.store_as(row.into(), column, text);
        self.store = self.reopen();
    }

    /// How many rows each table holds; restarts the store.
    pub(crate) fn rows(&mut self) -> BTreeMap<String, i64> {
        self.backend.crash();
        let rows = self.backend.rows();
        self.store = self.reopen();
        rows
    }

    /// What is kept of results that came too late; restarts the store.
    pub(crate) fn late_outcomes(&mut self, delivery: DeliveryId) -> Vec<String> {
        self.backend.crash();
        let outcomes = self.backend.late_outcomes(delivery);
        self.store = self.reopen();
        outcomes
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    pub(crate) fn policy(&self) -> &StorePolicy {
        &self.policy
    }

    /// Waits for a verb.
    pub(crate) fn wait<T>(&self, verb: impl Future<Output = T>) -> T {
        self.runtime.block_on(verb)
    }

    /// Runs so many tasks at once and returns what they returned, in no order.
    pub(crate) fn at_once<T, F>(
        &self,
        count: usize,
        task: impl Fn(usize, Arc<dyn Store>, Timestamp) -> F,
    ) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            tasks.spawn_on(task(number, Arc::clone(&self.store), self.now), self.runtime.handle());
        }
        self.wait(tasks.join_all())
    }
}

/// The directory.
impl World {
    pub(crate) fn add_tenant(&self, id: &str) -> TenantId {
        let tenant = crate::sketch::tenant(id);
        self.change(crate::sketch::create_tenant(id)).unwrap();
        tenant
    }

    /// Makes an endpoint of the default tenant that wants everything published.
    pub(crate) fn endpoint(&self) -> EndpointId {
        self.endpoint_for(&self.tenant, &["*"])
    }

    pub(crate) fn endpoint_for(&self, tenant: &TenantId, event_types: &[&str]) -> EndpointId {
        let created = self.change(Change::CreateEndpoint {
            tenant: tenant.clone(),
            settings: settings(event_types),
            secrets: secrets(1),
        });
        created.unwrap().endpoint().unwrap().id
    }

    pub(crate) fn change(&self, change: Change) -> Result<Changed, StoreError> {
        let changed = self.wait(self.store.change(change, None, self.now))?;
        Ok(changed.done().unwrap())
    }

    pub(crate) fn try_change_state(
        &self,
        endpoint: EndpointId,
        verb: EndpointVerb,
    ) -> Result<Arc<Endpoint>, StoreError> {
        let tenant = self.tenant.clone();
        let changed = self.change(Change::ActOnEndpoint { tenant, endpoint, verb })?;
        Ok(changed.endpoint().unwrap())
    }

    /// Changes an endpoint's state; jobs have not run yet.
    pub(crate) fn change_state(&self, endpoint: EndpointId, verb: EndpointVerb) {
        self.try_change_state(endpoint, verb).unwrap();
    }

    /// Runs jobs until none has work.
    pub(crate) fn run_jobs(&self) {
        while self.job_step() == JobStep::More {}
    }

    pub(crate) fn job_step(&self) -> JobStep {
        self.wait(self.store.step(self.now)).unwrap()
    }
}

/// Sending.
impl World {
    pub(crate) fn try_publish(&self, publish: Publish) -> Result<Published, StoreError> {
        let published = self.wait(self.store.publish(publish, None, self.now))?;
        Ok(published.done().unwrap())
    }

    pub(crate) fn publish(&self, events: Vec<NewEvent>) -> Published {
        self.try_publish(publish_in(&self.tenant, events)).unwrap()
    }

    pub(crate) fn publish_one(&self, event: NewEvent) -> AcceptedEvent {
        self.publish(vec![event]).remove(0)
    }

    /// Sends an endpoint a test event.
    pub(crate) fn publish_test(&self, endpoint: EndpointId) -> Result<AcceptedEvent, StoreError> {
        let events = vec![crate::sketch::event("everhook.test", "{}")];
        let targets = Targets::Test(endpoint);
        let published = self.try_publish(Publish { tenant: self.tenant.clone(), events, targets });
        published.map(|mut published| published.remove(0))
    }

    pub(crate) fn claim(&self, wanted: Wanted) -> (Vec<LeasedDelivery>, LaneDue) {
        let (leased, mut lanes) =
            self.wait(self.store.claim(vec![wanted], AMPLE, self.now)).unwrap();
        assert_eq!(lanes.len(), 1);
        (leased, lanes.remove(0))
    }

    /// Claims everything that is due in one lane.
    pub(crate) fn claim_all(&self, endpoint: EndpointId) -> Vec<LeasedDelivery> {
        self.claim(everything(endpoint)).0
    }

    /// Claims the one delivery that is due in a lane.
    pub(crate) fn claim_one(&self, endpoint: EndpointId) -> LeasedDelivery {
        let mut leased = self.claim_all(endpoint);
        assert_eq!(leased.len(), 1, "{leased:?}");
        leased.remove(0)
    }

    pub(crate) fn settle(&self, settlements: Vec<Settlement>) -> Vec<Settled> {
        self.wait(self.store.settle(settlements, self.now)).unwrap()
    }

    fn settle_one(&self, settlement: Settlement) -> Settled {
        let mut settled = self.settle(vec![settlement]);
        assert_eq!(settled.len(), 1);
        settled.remove(0)
    }

    /// Ends a lease with an attempt that started now.
    pub(crate) fn finish(&self, lease: &LeasedDelivery, status: u16) -> Settled {
        self.settle_one(finished(lease, self.now, status))
    }

    /// Ends leases, which must be current, with this status.
    pub(crate) fn finish_all(&self, leases: &[LeasedDelivery], status: u16) {
        let settlements = leases.iter().map(|lease| finished(lease, self.now, status)).collect();
        assert_eq!(self.settle(settlements), vec![Settled::Recorded; leases.len()]);
    }

    /// Gives leases back, which must be current.
    pub(crate) fn release_all(&self, leases: &[LeasedDelivery]) {
        let settlements = leases.iter().map(released).collect();
        assert_eq!(self.settle(settlements), vec![Settled::Recorded; leases.len()]);
    }

    pub(crate) fn release(&self, lease: &LeasedDelivery) -> Settled {
        self.settle_one(released(lease))
    }

    /// Claims the one delivery that is due in a lane, and ends it with this status.
    pub(crate) fn send(&self, endpoint: EndpointId, status: u16) -> DeliveryId {
        let lease = self.claim_one(endpoint);
        assert_eq!(self.finish(&lease, status), Settled::Recorded);
        lease.id
    }

    pub(crate) fn lapse(&self) -> u64 {
        self.wait(self.store.lapse(self.now)).unwrap()
    }

    /// The earliest due times, by endpoint.
    pub(crate) fn due(&self) -> Vec<LaneDue> {
        let mut due = self.wait(self.store.due()).unwrap();
        due.sort_by_key(|lane| lane.endpoint);
        due
    }

    pub(crate) fn act(&self, delivery: DeliveryId, act: Act) -> Result<DeliveryRecord, StoreError> {
        let verb = self.store.act(self.tenant.clone(), delivery, act, None, self.now);
        self.wait(verb).map(|acted| acted.done().unwrap())
    }

    pub(crate) fn send_again(
        &self,
        event: EventId,
        endpoint: Option<EndpointId>,
    ) -> Result<SentAgain, StoreError> {
        let verb = self.store.send_again(self.tenant.clone(), event, endpoint, None, self.now);
        self.wait(verb).map(|sent| sent.done().unwrap())
    }
}

/// Reading.
impl World {
    pub(crate) fn event(&self, event: EventId) -> EventDetail {
        self.wait(self.store.event(self.tenant.clone(), event)).unwrap().unwrap()
    }

    pub(crate) fn delivery(&self, delivery: DeliveryId) -> DeliveryDetail {
        self.wait(self.store.delivery(self.tenant.clone(), delivery)).unwrap().unwrap()
    }

    pub(crate) fn state(&self, delivery: DeliveryId) -> State {
        self.delivery(delivery).record.state
    }

    pub(crate) fn progress(&self, delivery: DeliveryId) -> Progress {
        self.delivery(delivery).record.progress
    }

    pub(crate) fn attempts(&self, delivery: DeliveryId) -> Vec<Attempt> {
        self.delivery(delivery).attempts
    }

    /// A tenant's deliveries, newest first.
    pub(crate) fn deliveries_of(
        &self,
        tenant: &TenantId,
        query: DeliveryQuery,
    ) -> Vec<DeliveryRecord> {
        let page = self.wait(self.store.deliveries(tenant.clone(), query, WHOLE)).unwrap();
        assert_eq!(page.next, None);
        page.items
    }

    /// The default tenant's deliveries, newest first.
    pub(crate) fn deliveries(&self) -> Vec<DeliveryRecord> {
        self.deliveries_of(&self.tenant, DeliveryQuery::default())
    }

    /// The deliveries of an event, by id.
    pub(crate) fn deliveries_for(&self, event: EventId) -> Vec<DeliveryRecord> {
        let query = DeliveryQuery { event: Some(event), ..DeliveryQuery::default() };
        let mut deliveries = self.deliveries_of(&self.tenant, query);
        deliveries.reverse();
        deliveries
    }

    /// The only delivery of an event.
    pub(crate) fn delivery_of(&self, event: EventId) -> DeliveryRecord {
        let mut deliveries = self.deliveries_for(event);
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries.remove(0)
    }

    /// What an endpoint's failures have come to; `None`: it has none.
    pub(crate) fn endpoint_health(&self, endpoint: EndpointId) -> Option<EndpointHealth> {
        let health = self.store.endpoint_health(self.tenant.clone(), vec![endpoint]);
        self.wait(health).unwrap().remove(&endpoint)
    }

    /// The system events so far, oldest first: type and data.
    pub(crate) fn system_events(&self) -> Vec<(String, Value)> {
        let mut events = self.events();
        events.reverse();
        let ours = events.iter().filter(|event| event.origin == Origin::System);
        ours.map(|event| {
            let body: Value = serde_json::from_slice(&self.event(event.id).body).unwrap();
            assert_eq!(body["id"], event.id.to_string());
            assert_eq!(body["timestamp"], event.timestamp.to_string());
            (event.event_type.to_string(), body["data"].clone())
        })
        .collect()
    }

    /// The default tenant's events, newest first.
    pub(crate) fn events(&self) -> Vec<EventRecord> {
        let all = self.store.events(self.tenant.clone(), EventQuery::default(), WHOLE);
        let page = self.wait(all).unwrap();
        assert_eq!(page.next, None);
        page.items
    }
}

/// What ran now, where nothing may have been replayed.
pub(crate) fn done<T>(claimed: Claimed<T>) -> T {
    match claimed {
        Claimed::Done(value) => value,
        Claimed::Replayed(_) | Claimed::Mismatch | Claimed::OverQuota => {
            panic!("the verb did not run")
        }
    }
}
