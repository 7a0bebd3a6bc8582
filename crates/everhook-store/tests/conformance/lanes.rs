//! The engine as a store sees it: gives permits as told, and writes down what it is told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;
use everhook_store::{Handoff, LeasedDelivery, Offer, Permit, Share};

/// Lanes without any sending behind them.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    free: HashMap<EndpointId, Arc<AtomicUsize>>,
    full: Full,
    rooms_awaited: usize,
    handed: Vec<LeasedDelivery>,
    held: Vec<Permit>,
    hints: Vec<(EndpointId, Share, Timestamp)>,
    directory_changes: usize,
    job_hints: usize,
    disabled: Vec<(EndpointId, Timestamp)>,
    /// Lanes that their endpoint's failures hold back.
    failing: Vec<EndpointId>,
}

/// What a lane without a free permit answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Full {
    /// Leave it in the table.
    #[default]
    Declines,
    /// Wait for room, which never comes.
    NeverHasRoom,
    /// Wait for room, which comes at once.
    GetsRoom,
}

/// Room for one delivery, given back when dropped.
struct Room(Arc<AtomicUsize>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Lanes {
    fn free_of(inner: &mut Inner, endpoint: EndpointId) -> Arc<AtomicUsize> {
        Arc::clone(inner.free.entry(endpoint).or_default())
    }

    /// Makes room in a lane.
    pub(crate) fn give(&self, endpoint: EndpointId, permits: usize) {
        Self::free_of(&mut self.0.lock().unwrap(), endpoint).fetch_add(permits, Ordering::SeqCst);
    }

    /// Permits that nobody holds.
    pub(crate) fn free(&self, endpoint: EndpointId) -> usize {
        Self::free_of(&mut self.0.lock().unwrap(), endpoint).load(Ordering::SeqCst)
    }

    /// What lanes without room answer from now on.
    pub(crate) fn when_full(&self, full: Full) {
        self.0.lock().unwrap().full = full;
    }

    /// How often room was waited for.
    pub(crate) fn rooms_awaited(&self) -> usize {
        self.0.lock().unwrap().rooms_awaited
    }

    /// Takes what was handed over since the last call.
    pub(crate) fn handed(&self) -> Vec<LeasedDelivery> {
        std::mem::take(&mut self.0.lock().unwrap().handed)
    }

    /// Takes the hints about due deliveries since the last call.
    pub(crate) fn hints(&self) -> Vec<(EndpointId, Share, Timestamp)> {
        std::mem::take(&mut self.0.lock().unwrap().hints)
    }

    /// How often the directory was said to have changed.
    pub(crate) fn directory_changes(&self) -> usize {
        self.0.lock().unwrap().directory_changes
    }

    /// The endpoints that were said to be disabled automatically, and since when they failed.
    pub(crate) fn disabled(&self) -> Vec<(EndpointId, Timestamp)> {
        self.0.lock().unwrap().disabled.clone()
    }

    /// From now on this lane is held back by its endpoint's failures.
    pub(crate) fn fail(&self, endpoint: EndpointId) {
        self.0.lock().unwrap().failing.push(endpoint);
    }

    /// How often a job was said to have work.
    pub(crate) fn job_hints(&self) -> usize {
        self.0.lock().unwrap().job_hints
    }
}

#[async_trait]
impl Handoff for Lanes {
    fn offer(&self, endpoint: EndpointId, _bytes: usize) -> Offer {
        let mut inner = self.0.lock().unwrap();
        let free = Self::free_of(&mut inner, endpoint);
        let taken = free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match (taken, inner.full) {
            (Ok(_), _) => Offer::Room(Permit::new(Room(free))),
            (Err(_), Full::Declines) => Offer::Declined,
            (Err(_), Full::NeverHasRoom | Full::GetsRoom) => Offer::Full,
        }
    }

    async fn room(&self, endpoint: EndpointId) {
        let full = {
            let mut inner = self.0.lock().unwrap();
            inner.rooms_awaited += 1;
            inner.full
        };
        match full {
            Full::GetsRoom => self.give(endpoint, 1),
            Full::Declines | Full::NeverHasRoom => std::future::pending().await,
        }
    }

    fn hand_over(&self, deliveries: Vec<(LeasedDelivery, Permit)>) {
        let mut inner = self.0.lock().unwrap();
        for (delivery, permit) in deliveries {
            inner.handed.push(delivery);
            inner.held.push(permit);
        }
    }

    fn due(&self, endpoint: EndpointId, share: Share, at: Timestamp) {
        self.0.lock().unwrap().hints.push((endpoint, share, at));
    }

    fn directory_changed(&self) {
        self.0.lock().unwrap().directory_changes += 1;
    }

    fn waits_since(&self, endpoint: EndpointId, due: Timestamp) -> Option<Timestamp> {
        (!self.0.lock().unwrap().failing.contains(&endpoint)).then_some(due)
    }

    fn jobs_pending(&self) {
        self.0.lock().unwrap().job_hints += 1;
    }

    fn disabled(&self, endpoint: EndpointId, failing_since: Timestamp) {
        self.0.lock().unwrap().disabled.push((endpoint, failing_since));
    }
}
