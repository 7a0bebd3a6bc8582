//! A small world around the engine: clock, network, store, endpoints.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::attempt::{Attempt, AttemptOutcome, ErrorClass, KeptResponse};
use everhook_domain::certificate::CaCertificates;
use everhook_domain::delivery::State;
use everhook_domain::endpoint::{Endpoint, EndpointSettings, EndpointVerb};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::event::{Envelope, EventType, NewEvent, Origin};
use everhook_domain::header::CustomHeaders;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::{EventPattern, Subscription};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{Clock, Timestamp};
use everhook_engine::{Engine, EngineSettings, Intake, OutgoingRequest, Sender};
use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};
use everhook_store::{
    Change, Changed, DeliveryDetail, DirectoryStore, Publish, Reading, Sealer, Sending, Store,
    StorePolicy, Targets,
};
use http::HeaderMap;
use rusqlite::Connection;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::store::FaultyStore;

/// The wall time at which every world begins.
pub(crate) const BEGIN: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A clock that follows tokio's paused time, and whose wall part can be set.
pub(crate) struct TestClock {
    begin: Instant,
    offset_ms: AtomicI64,
    /// How often it was read.
    pub(crate) readings: AtomicUsize,
}

impl TestClock {
    #[expect(clippy::disallowed_methods, reason = "tokio's paused time is the time here")]
    fn start() -> Self {
        Self { begin: Instant::now(), offset_ms: AtomicI64::new(0), readings: AtomicUsize::new(0) }
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn step_wall(&self, ms: i64) {
        self.offset_ms.fetch_add(ms, SeqCst);
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        self.readings.fetch_add(1, SeqCst);
        let offset = self.offset_ms.load(SeqCst);
        Timestamp::from_millis((BEGIN + self.monotonic()).as_millis() + offset)
    }

    fn monotonic(&self) -> Duration {
        self.begin.elapsed()
    }
}

/// One request that went out.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Since the beginning of the world.
    pub(crate) at: Duration,
    pub(crate) host: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) ca_certificates: Option<CaCertificates>,
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).expect("a header").to_str().expect("text")
    }

    pub(crate) fn number(&self) -> u32 {
        self.header("x-message-webhook-attempt").parse().expect("a number")
    }
}

/// How a host answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) status: u16,
    pub(crate) takes: Duration,
}

/// Answers with this status after so many milliseconds; status 0: never.
pub(crate) fn answers(status: u16, ms: u64) -> Behaviour {
    Behaviour { status, takes: Duration::from_millis(ms) }
}

/// What the requests reach.
#[derive(Default)]
pub(crate) struct Network {
    clock: Option<Arc<TestClock>>,
    hosts: Mutex<HashMap<String, Behaviour>>,
    log: Mutex<Vec<Sent>>,
    in_flight: Mutex<HashMap<String, (usize, usize)>>,
    /// What the bodies weigh that are under way.
    pub(crate) bytes: AtomicUsize,
    /// Panics on every request while set.
    pub(crate) panics: AtomicUsize,
}

impl Network {
    pub(crate) fn set(&self, host: &str, behaviour: Behaviour) {
        self.hosts.lock().expect("lock").insert(host.to_owned(), behaviour);
    }

    /// Every request so far.
    pub(crate) fn log(&self) -> Vec<Sent> {
        self.log.lock().expect("lock").clone()
    }

    /// The requests to one host.
    pub(crate) fn to(&self, host: &str) -> Vec<Sent> {
        self.log().into_iter().filter(|sent| sent.host == host).collect()
    }

    /// How many requests went to one host.
    pub(crate) fn count(&self, host: &str) -> usize {
        self.log.lock().expect("lock").iter().filter(|sent| sent.host == host).count()
    }

    /// The most requests that were under way to a host at once; the empty name: to all.
    pub(crate) fn most_in_flight(&self, host: &str) -> usize {
        self.in_flight.lock().expect("lock").get(host).map_or(0, |(_, most)| *most)
    }

    fn enter(&self, host: &str) {
        let mut in_flight = self.in_flight.lock().expect("lock");
        for name in [host, ""] {
            let (now, most) = in_flight.entry(name.to_owned()).or_default();
            *now += 1;
            *most = (*most).max(*now);
        }
    }

    fn leave(&self, host: &str) {
        let mut in_flight = self.in_flight.lock().expect("lock");
        for name in [host, ""] {
            if let Some((now, _)) = in_flight.get_mut(name) {
                *now -= 1;
            }
        }
    }
}

struct UnderWay<'a>(&'a Network, &'a str, usize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
        self.0.bytes.fetch_sub(self.2, SeqCst);
    }
}

#[async_trait]
impl Sender for Network {
    async fn send(&self, request: OutgoingRequest) -> AttemptOutcome {
        let host = request.url.authority().to_owned();
        let clock = self.clock.as_ref().expect("a clock");
        self.log.lock().expect("lock").push(Sent {
            at: clock.monotonic(),
            host: host.clone(),
            headers: request.headers,
            body: request.body.clone(),
            ca_certificates: request.ca_certificates.clone(),
        });
        assert!(self.panics.load(SeqCst) == 0, "a planned panic");
        self.enter(&host);
        let bytes = request.body.len();
        self.bytes.fetch_add(bytes, SeqCst);
        let _under_way = UnderWay(self, &host, bytes);
        let behaviour =
            self.hosts.lock().expect("lock").get(&host).copied().unwrap_or(answers(200, 1));
        if behaviour.status == 0 || behaviour.takes >= request.timeout {
            tokio::time::sleep(request.timeout).await;
            return AttemptOutcome::failed(ErrorClass::Timeout, "no answer");
        }
        tokio::time::sleep(behaviour.takes).await;
        let response = KeptResponse {
            status: behaviour.status,
            headers: Vec::new(),
            body: String::new(),
            truncated: false,
        };
        AttemptOutcome::answered(response, None)
    }
}

/// Everything.
pub(crate) struct World {
    pub(crate) clock: Arc<TestClock>,
    pub(crate) network: Arc<Network>,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) settings: EngineSettings,
    /// Whose endpoints and events are made.
    pub(crate) tenant: TenantId,
    stop: Arc<Notify>,
    intake: Arc<Intake>,
    engine: JoinSet<()>,
}

impl World {
    /// A world with a running engine.
    pub(crate) async fn new(settings: EngineSettings) -> Self {
        let clock = Arc::new(TestClock::start());
        let network = Network { clock: Some(Arc::clone(&clock)), ..Network::default() };
        let connection = Connection::open_in_memory().expect("SQLite");
        let (store, intake) = open(connection, &settings, &clock);
        let mut world = Self {
            clock,
            network: Arc::new(network),
            store,
            settings,
            tenant: TenantId::default_tenant(),
            stop: Arc::default(),
            intake: Arc::clone(&intake),
            engine: JoinSet::new(),
        };
        world.start(intake);
        world.settle().await;
        world
    }

    fn start(&mut self, intake: Arc<Intake>) {
        let store: Arc<dyn Store> = Arc::clone(&self.store) as _;
        let sender: Arc<dyn Sender> = Arc::clone(&self.network) as _;
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let engine = Engine::new(store, intake, sender, clock, self.settings.clone());
        let stop = Arc::clone(&self.stop);
        self.engine.spawn(engine.run(async move { stop.notified().await }));
    }

    /// Asks the engine to stop and waits until it has.
    pub(crate) async fn stop(&mut self) {
        self.stop.notify_one();
        self.engine.join_next().await.expect("an engine").expect("no panic");
    }

    /// The process dies and another one starts on what is on the disk.
    pub(crate) async fn crash(&mut self) {
        self.crash_and(|_| {}).await;
    }

    /// As [`World::crash`], with something done to the database in between.
    pub(crate) async fn crash_and(&mut self, change: impl FnOnce(&Connection)) {
        self.engine.abort_all();
        while self.engine.join_next().await.is_some() {}
        let connection = self.store.inner.into_connection().expect("the store");
        change(&connection);
        let (store, intake) = open(connection, &self.settings, &self.clock);
        self.store = store;
        self.intake = Arc::clone(&intake);
        self.start(intake);
    }

    /// What the bodies of deliveries hold in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        self.intake.held_bytes()
    }

    /// Time passes.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Lets everything happen that is due now.
    pub(crate) async fn settle(&self) {
        self.pass(Duration::from_millis(1)).await;
    }

    /// Since the beginning of the world.
    pub(crate) fn clock_now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn now(&self) -> Timestamp {
        BEGIN + self.clock.monotonic()
    }

    /// An endpoint at `http://<host>/` that wants the events of the type `<host>`.
    pub(crate) async fn endpoint(&self, host: &str) -> EndpointId {
        self.endpoint_with(host, |_| {}).await
    }

    pub(crate) async fn endpoint_with(
        &self,
        host: &str,
        change: impl FnOnce(&mut EndpointSettings),
    ) -> EndpointId {
        let mut settings = EndpointSettings {
            url: EndpointUrl::parse(&format!("http://{host}/"), false).expect("a URL"),
            description: String::new(),
            headers: CustomHeaders::default(),
            subscription: Subscription {
                event_types: vec![host.parse::<EventPattern>().expect("a pattern")],
                ..Subscription::default()
            },
            requests_per_second: None,
            max_in_flight: None,
            ca_certificates: None,
            unusable: Default::default(),
        };
        change(&mut settings);
        let change = Change::CreateEndpoint {
            tenant: self.tenant.clone(),
            settings: Box::new(settings),
            secrets: SecretSet::new(Secret::from_bytes([7; 32])),
        };
        self.change(change).await.id
    }

    pub(crate) async fn change(&self, change: Change) -> Arc<Endpoint> {
        let changed = self.store.change(change, None, self.now()).await.expect("a change");
        changed.done().and_then(Changed::endpoint).expect("an endpoint")
    }

    pub(crate) async fn update(
        &self,
        endpoint: EndpointId,
        change: impl FnOnce(&mut EndpointSettings),
    ) {
        let directory = self.store.directory().expect("a directory");
        let current = directory.endpoint(endpoint).expect("an endpoint");
        let mut settings = current.settings.clone();
        change(&mut settings);
        self.change(Change::UpdateEndpoint {
            tenant: self.tenant.clone(),
            endpoint,
            expected_version: current.version,
            settings: Box::new(settings),
        })
        .await;
    }

    pub(crate) async fn rotate(&self, endpoint: EndpointId, secret: Secret, overlap: Duration) {
        let tenant = self.tenant.clone();
        self.change(Change::RotateSecret { tenant, endpoint, secret, overlap }).await;
    }

    pub(crate) async fn act_on(&self, endpoint: EndpointId, verb: EndpointVerb) {
        self.change(Change::ActOnEndpoint { tenant: self.tenant.clone(), endpoint, verb }).await;
    }

    /// Publishes one event for the endpoints at this host.
    pub(crate) async fn publish(&self, host: &str) -> EventId {
        self.publish_all(host, 1).await[0]
    }

    /// Publishes so many in one batch.
    pub(crate) async fn publish_all(&self, host: &str, count: usize) -> Vec<EventId> {
        self.publish_data(host, count, r#"{"b": 1.0, "a":2}"#).await
    }

    /// Publishes so many with this data in one batch.
    pub(crate) async fn publish_data(&self, host: &str, count: usize, data: &str) -> Vec<EventId> {
        let event_type = EventType::published(host).expect("a type");
        let data = RawValue::from_string(data.to_owned()).expect("JSON");
        let now = self.now();
        let event = NewEvent {
            envelope: Envelope::compose(&event_type, now, &data),
            event_type,
            origin: Origin::Published,
            source_event_id: None,
            timestamp: now,
        };
        let publish = Publish {
            tenant: self.tenant.clone(),
            events: vec![event; count],
            targets: Targets::Subscribed,
        };
        let published = self.store.publish(publish, None, now).await.expect("accepted");
        published.done().expect("no claim").into_iter().map(|event| event.id).collect()
    }

    pub(crate) async fn act(&self, delivery: DeliveryId, act: everhook_store::Act) {
        let tenant = self.tenant.clone();
        self.store.act(tenant, delivery, act, None, self.now()).await.expect("allowed");
    }

    /// The only delivery of an event.
    pub(crate) async fn delivery(&self, event: EventId) -> DeliveryDetail {
        let found = self.store.delivery(self.tenant.clone(), event.delivery(1)).await;
        found.expect("readable").expect("a delivery")
    }

    pub(crate) async fn state(&self, event: EventId) -> State {
        self.delivery(event).await.record.state
    }

    pub(crate) async fn attempts(&self, event: EventId) -> Vec<Attempt> {
        self.delivery(event).await.attempts
    }
}

fn open(
    connection: Connection,
    settings: &EngineSettings,
    clock: &Arc<TestClock>,
) -> (Arc<FaultyStore>, Arc<Intake>) {
    let intake = Intake::new(settings);
    let options = SqliteOptions {
        policy: StorePolicy::default(),
        handoff: Arc::clone(&intake) as _,
        clock: Arc::clone(clock) as _,
        new_tag: 1,
        group_commit: GroupCommit::default(),
        sealer: Sealer::default(),
    };
    let store = SqliteStore::on_connection(connection, options).expect("a store");
    (Arc::new(FaultyStore::new(store)), intake)
}
