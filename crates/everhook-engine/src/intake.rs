//! Where the store hands work to the engine: room for new deliveries, and hints of what is due.
//!
//! Made before the store, which asks it for room and tells it of work, and before the engine, which
//! empties it. It declines until the engine has ended the leases of the process before, and again
//! when the engine stops. What lies here is a copy: a crash loses nothing, the table is the truth.
//!
//! Invariant: the deliveries that were given room and have not begun are at most so many a lane,
//! and those not ended weigh at most half of the bytes in flight, counted from before their commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::fault::{self, Step};
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;
use everhook_store::{Handoff, LeasedDelivery, Offer, Permit, Share};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::lock::lock;
use crate::room::{Room, Totals};
use crate::settings::EngineSettings;

/// The engine's side of [`Handoff`].
#[derive(Debug)]
pub struct Intake {
    lane_max: u32,
    /// How long an attempt takes at most.
    timeout: Duration,
    totals: Arc<Totals>,
    /// What the deliveries weigh that the engine has claimed.
    claimed_bytes: AtomicUsize,
    open: AtomicBool,
    /// When it opened, in milliseconds.
    opened_at: AtomicI64,
    rooms: Mutex<HashMap<EndpointId, Arc<Room>>>,
    inbox: Mutex<Inbox>,
    wake: Notify,
}

/// What came in since the engine last looked.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Deliveries whose lease has been committed, in that order.
    pub(crate) handed: Vec<(LeasedDelivery, Permit)>,
    /// The earliest due times that were told.
    pub(crate) hints: BTreeMap<(EndpointId, Share), Timestamp>,
    /// An endpoint may have been paused, resumed or changed.
    pub(crate) directory_changed: bool,
    /// Long work waits.
    pub(crate) jobs_pending: bool,
}

impl Intake {
    /// An intake that declines until an engine runs on it.
    pub fn new(settings: &EngineSettings) -> Arc<Self> {
        Arc::new(Self {
            lane_max: settings.lane_handoff_max,
            timeout: settings.timeout,
            claimed_bytes: AtomicUsize::new(0),
            totals: Arc::new(Totals::new(settings.half_of_bytes())),
            open: AtomicBool::new(false),
            opened_at: AtomicI64::new(i64::MIN),
            rooms: Mutex::default(),
            inbox: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// What the bodies of deliveries hold in memory now, waiting or under way, in bytes: at most
    /// [`EngineSettings::in_flight_bytes_max`], however much is accepted or due, unless a single
    /// one is larger than half of that.
    pub fn held_bytes(&self) -> usize {
        self.totals.held_bytes() + self.claimed_bytes.load(Ordering::SeqCst)
    }

    /// What the deliveries weigh now that the engine has claimed.
    pub(crate) fn set_claimed_bytes(&self, bytes: usize) {
        self.claimed_bytes.store(bytes, Ordering::SeqCst);
    }

    /// From now on there is room.
    pub(crate) fn open(&self, now: Timestamp) {
        self.opened_at.store(now.as_millis(), Ordering::SeqCst);
        self.open.store(true, Ordering::SeqCst);
    }

    /// From now on everything is declined; whoever waits for room is told.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
        let mut rooms: Vec<_> =
            lock(&self.rooms).iter().map(|(id, room)| (*id, Arc::clone(room))).collect();
        // In an order that is the same every time, so that a simulated life can be lived again.
        rooms.sort_unstable_by_key(|(id, _)| *id);
        rooms.iter().for_each(|(_, room)| room.tell_all());
    }

    /// The room of a lane; one that was never asked for is open.
    pub(crate) fn room_of(&self, endpoint: EndpointId) -> Arc<Room> {
        let mut rooms = lock(&self.rooms);
        Arc::clone(rooms.entry(endpoint).or_insert_with(|| Arc::new(Room::new(self.lane_max))))
    }

    /// Forgets the lanes that are not wanted any more.
    pub(crate) fn retain(&self, wanted: impl Fn(EndpointId) -> bool) {
        lock(&self.rooms).retain(|endpoint, _| wanted(*endpoint));
    }

    /// Takes what came in.
    pub(crate) fn take(&self) -> Inbox {
        std::mem::take(&mut *lock(&self.inbox))
    }

    /// Resolves when something came in since the last time this was awaited.
    pub(crate) fn notified(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// Whether a delivery is being committed, waits or is under way that room was given for.
    pub(crate) fn is_owed(&self) -> bool {
        self.totals.admitted() > 0
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::SeqCst)
    }

    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut lock(&self.inbox));
        self.wake.notify_one();
    }
}

#[async_trait]
impl Handoff for Intake {
    fn offer(&self, endpoint: EndpointId, bytes: usize) -> Offer {
        if self.is_open() {
            self.room_of(endpoint).admit(&self.totals, bytes)
        } else {
            Offer::Declined
        }
    }

    async fn room(&self, endpoint: EndpointId) {
        if self.is_open() {
            self.room_of(endpoint).wait(&self.totals, || self.is_open()).await;
        }
    }

    fn hand_over(&self, mut deliveries: Vec<(LeasedDelivery, Permit)>) {
        for _ in &deliveries {
            fault::reach(Step::HandedOver);
        }
        self.put(|inbox| inbox.handed.append(&mut deliveries));
    }

    fn due(&self, endpoint: EndpointId, share: Share, at: Timestamp) {
        self.put(|inbox| {
            let earliest = inbox.hints.entry((endpoint, share)).or_insert(at);
            *earliest = at.min(*earliest);
        });
    }

    fn directory_changed(&self) {
        self.put(|inbox| inbox.directory_changed = true);
    }

    fn waits_since(&self, endpoint: EndpointId, due: Timestamp) -> Option<Timestamp> {
        // Attempts under way may hold every slot of the lane, but not for longer than they take.
        let moved_at = self.room_of(endpoint).moved_at()? + self.timeout;
        // What an outage of ours left behind waits for this process since it began.
        let opened_at = Timestamp::from_millis(self.opened_at.load(Ordering::SeqCst));
        Some(due.max(moved_at).max(opened_at))
    }

    fn jobs_pending(&self) {
        self.put(|inbox| inbox.jobs_pending = true);
    }

    fn disabled(&self, endpoint: EndpointId, failing_since: Timestamp) {
        tracing::warn!(
            %endpoint,
            %failing_since,
            "the endpoint was disabled, because nothing has succeeded there for \
             delivery.disable_after; enable it when it is repaired"
        );
    }
}
