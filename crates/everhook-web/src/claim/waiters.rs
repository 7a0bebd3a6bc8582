//! Who waits for a claim to end: woken when it is completed, released, settled or forgotten here.
//!
//! Waking is a hint: who is woken looks again, and nothing is lost with the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use everhook_domain::id::RecordId;
use tokio::sync::Notify;

/// Those who wait, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<HashMap<RecordId, Arc<Notify>>>);

/// One who waits, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    id: RecordId,
    /// Tells those who have asked for it before.
    pub(crate) changed: Arc<Notify>,
}

impl Waiters {
    /// Begins to wait for a claim: look at it only then.
    pub(crate) fn wait_for(&self, id: RecordId) -> Waiter<'_> {
        let changed = Arc::clone(self.held().entry(id).or_default());
        Waiter { waiters: self, id, changed }
    }

    /// Wakes those who wait for a claim that is no longer as it was.
    pub(crate) fn wake(&self, id: RecordId) {
        if let Some(changed) = self.held().get(&id) {
            changed.notify_waiters();
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<RecordId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut held = self.waiters.held();
        // The map's and its own: it is the last one.
        if Arc::strong_count(&self.changed) == 2 {
            held.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_is_not_kept() {
        let (waiters, id) = (Waiters::default(), RecordId::from_bits(1));
        let (one, two) = (waiters.wait_for(id), waiters.wait_for(id));
        drop(one);
        assert_eq!(waiters.held().len(), 1);
        drop(two);
        assert_eq!(waiters.held().len(), 0);
    }
}
