//! The few who may be judged at the same time beside the threads that serve.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everhook_domain::id::SourceId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most requests that are judged there at the same time. Decoding may make as much as the
/// source takes out of a few bytes, before it is known whose they are, so this bounds memory too.
const BESIDE_MAX: usize = 4;
/// The most of one source, so that what anybody sends to it does not stand before all others.
const OF_A_SOURCE_MAX: usize = BESIDE_MAX / 2;
/// For so long a request waits; then its sender is told to come again.
const PATIENCE: Duration = Duration::from_secs(10);

/// Lets requests in. Of each source only a few wait for a place, the others for the source's turn.
/// Who goes away while it waits waits no more.
#[derive(Debug)]
pub(super) struct Beside {
    places: Arc<Semaphore>,
    by_source: Mutex<HashMap<SourceId, Arc<Semaphore>>>,
}

/// A place, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _of_source: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Beside {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(BESIDE_MAX)), by_source: Mutex::default() }
    }
}

impl Beside {
    /// A place for a request to this source; `None` when there was none for too long.
    pub(super) async fn place(&self, source: SourceId) -> Option<Place> {
        let turns = self.turns(source);
        let wait = async {
            // Neither is ever closed.
            let of_source = turns.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.places).acquire_owned().await.ok()?;
            Some(Place { _of_source: of_source, _of_all: of_all })
        };
        tokio::time::timeout(PATIENCE, wait).await.ok().flatten()
    }

    /// The turns of a source. Those of sources that nobody has or waits for are forgotten.
    fn turns(&self, source: SourceId) -> Arc<Semaphore> {
        let mut by_source = self.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        by_source.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = by_source.entry(source);
        Arc::clone(turns.or_insert_with(|| Arc::new(Semaphore::new(OF_A_SOURCE_MAX))))
    }
}

#[cfg(test)]
mod tests {
    use everhook_domain::id::Id;
    use tokio::task::JoinSet;

    use super::*;

    fn source(number: u128) -> SourceId {
        Id::from_bits(number)
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_flooded_keeps_nobody_else_waiting() {
        let beside = Arc::new(Beside::default());
        let mut flood = JoinSet::new();
        for _ in 0..100 {
            let beside = Arc::clone(&beside);
            flood.spawn(async move {
                let place = beside.place(source(1)).await;
                std::future::pending::<()>().await;
                drop(place);
            });
        }
        tokio::task::yield_now().await;
        let others = [beside.place(source(2)).await, beside.place(source(3)).await];
        assert!(others.iter().all(Option::is_some));
        // All places are taken now, and nobody waits for ever.
        assert!(beside.place(source(4)).await.is_none());
        drop(others);
        assert!(beside.place(source(4)).await.is_some());
        assert!(beside.place(source(1)).await.is_none(), "its turns are taken");
        flood.shutdown().await;
        assert!(beside.place(source(1)).await.is_some());
        assert_eq!(beside.by_source.lock().unwrap().len(), 1, "the others are forgotten");
    }
}
