//! How the store tells the engine of work: the only call upwards, implemented by the engine.
//!
//! A hint here is never the truth: the tables are. Losing one costs latency and never a delivery,
//! because the engine asks [`Sending::due`](crate::Sending::due) when it starts and after an error.

use std::any::Any;
use std::fmt;

use async_trait::async_trait;
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;

use crate::sending::LeasedDelivery;
use crate::share::Share;

/// Room for one delivery in a lane; dropping it gives the room back.
pub struct Permit(Box<dyn Any + Send>);

impl Permit {
    /// A permit that gives back what it stands for when `room` is dropped.
    pub fn new(room: impl Any + Send) -> Self {
        Self(Box::new(room))
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(_held) = self;
        f.write_str("Permit")
    }
}

/// The answer to an offer.
#[derive(Debug)]
pub enum Offer {
    /// Hand it over after the commit.
    Room(Permit),
    /// A healthy lane is full for the moment: waiting for [`Handoff::room`] is worth it.
    Full,
    /// The lane is paused, failing or paced, or the engine is stopping: leave it in the table.
    Declined,
}

/// What the engine offers the store.
#[async_trait]
pub trait Handoff: Send + Sync {
    /// Asks for room for a new delivery of `bytes` bytes in an endpoint's lane.
    fn offer(&self, endpoint: EndpointId, bytes: usize) -> Offer;

    /// Returns when a lane that was full may have room, or will not get any.
    async fn room(&self, endpoint: EndpointId);

    /// Takes deliveries whose lease has been committed.
    fn hand_over(&self, deliveries: Vec<(LeasedDelivery, Permit)>);

    /// Something is due at `at` in this lane's share.
    fn due(&self, endpoint: EndpointId, share: Share, at: Timestamp);

    /// The directory has changed: an endpoint may have been paused, resumed or changed.
    fn directory_changed(&self);

    /// Since when a delivery of this lane that is due since `due` waits although it could begin;
    /// `None` while the endpoint's own failures hold the lane back. What waits behind others moves:
    /// as long as one after the other begins, the answer is about now.
    fn waits_since(&self, endpoint: EndpointId, due: Timestamp) -> Option<Timestamp>;

    /// [`Jobs::step`](crate::Jobs::step) has work.
    fn jobs_pending(&self);

    /// An endpoint was disabled automatically, because nothing had succeeded there since then.
    fn disabled(&self, endpoint: EndpointId, failing_since: Timestamp);
}

/// Declines everything, and nothing moves: for stores that nobody sends from.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHandoff;

#[async_trait]
impl Handoff for NoHandoff {
    fn offer(&self, _: EndpointId, _: usize) -> Offer {
        Offer::Declined
    }

    async fn room(&self, _: EndpointId) {}

    fn hand_over(&self, _: Vec<(LeasedDelivery, Permit)>) {}

    fn due(&self, _: EndpointId, _: Share, _: Timestamp) {}

    fn directory_changed(&self) {}

    fn waits_since(&self, _: EndpointId, due: Timestamp) -> Option<Timestamp> {
        Some(due)
    }

    fn jobs_pending(&self) {}

    fn disabled(&self, _: EndpointId, _: Timestamp) {}
}
