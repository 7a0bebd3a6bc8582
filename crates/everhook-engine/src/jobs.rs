//! Long work of the store, driven step by step.
//!
//! A step is begun when the store says that there is work, and again while it says so. Between two
//! rounds lies a pause, because every accepted event may tell of work. All of it is durable in the
//! store: a crash loses nothing, and the engine asks once when it starts.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::time::Timestamp;
use everhook_store::{JobStep, Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backoff::Backoff;

/// The least time from the end of one round to the beginning of the next.
const PAUSE: Duration = Duration::from_millis(100);

/// The step that is under way, and whether more is to be done.
pub(crate) struct JobRunner {
    store: Arc<dyn Store>,
    pending: bool,
    step: Option<BoxFuture<'static, Result<JobStep, StoreError>>>,
    not_before: Option<Timestamp>,
    backoff: Backoff,
}

impl JobRunner {
    /// One that asks the store once whether there is work.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let backoff = Backoff::default();
        Self { store, pending: true, step: None, not_before: None, backoff }
    }

    /// There is work.
    pub(crate) fn pending(&mut self) {
        self.pending = true;
    }

    /// Begins a step if there is work and no pause.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.step.is_some() || !self.pending || self.blocked(now).is_some() {
            return;
        }
        self.pending = false;
        let store = Arc::clone(&self.store);
        self.step = Some(async move { store.step(now).await }.boxed());
    }

    /// When to begin the next step; `None` if there is nothing to wait for.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.step.is_some() || !self.pending { None } else { self.blocked(now) }
    }

    /// Resolves when the step under way has ended; never if there is none.
    pub(crate) async fn stepped(&mut self) -> Result<JobStep, StoreError> {
        match &mut self.step {
            Some(step) => step.await,
            None => std::future::pending().await,
        }
    }

    /// Takes in the answer of [`Self::stepped`].
    pub(crate) fn finish(&mut self, step: Result<JobStep, StoreError>, now: Timestamp) {
        self.step = None;
        match step {
            Ok(JobStep::More) => {
                self.backoff.succeeded();
                self.pending = true;
            }
            Ok(JobStep::Idle) => {
                self.backoff.succeeded();
                self.not_before = Some(now + PAUSE);
            }
            Err(error) => {
                self.pending = true;
                let pause_ms = self.backoff.failed(now).since(now).as_millis();
                tracing::warn!(%error, pause_ms, "a step of long work failed; it is tried again");
            }
        }
    }

    fn blocked(&self, now: Timestamp) -> Option<Timestamp> {
        let pause = self.not_before.filter(|until| now < *until);
        self.backoff.blocked(now).max(pause)
    }
}
