//! Results on their way into the store, grouped.
//!
//! While one group is being recorded the next one collects. A group that the store does not take is
//! tried again, with growing pauses and together with what came since, until it is in: a result is
//! never dropped. The queue is bounded from outside, because nothing more is begun while
//! [`Recorder::is_full`]. A crash loses what is here; those deliveries are sent again, once their
//! lease has been found to have no owner.
//!
//! What an endpoint that fails comes to may wait a little ([`PATIENCE`]): its next attempt is a
//! minute away or more. Written one by one, each of them would make somebody's accept write other
//! pages as well.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::fault::{self, Step};
use everhook_domain::time::Timestamp;
use everhook_store::{Settled, Settlement, Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::backoff::Backoff;

/// How long results of endpoints that fail collect.
const PATIENCE: Duration = Duration::from_millis(100);

type Answer = (Vec<Settlement>, Result<Vec<Settled>, StoreError>);

/// The queue of results, and the group that is being recorded.
pub(crate) struct Recorder {
    store: Arc<dyn Store>,
    waiting_max: usize,
    waiting: Vec<Settlement>,
    /// What may wait, and until when.
    patient: Vec<Settlement>,
    patient_until: Option<Timestamp>,
    recording: Option<(usize, BoxFuture<'static, Answer>)>,
    backoff: Backoff,
}

impl Recorder {
    /// Nothing waits.
    pub(crate) fn new(store: Arc<dyn Store>, waiting_max: usize) -> Self {
        Self {
            store,
            waiting_max,
            waiting: Vec::new(),
            patient: Vec::new(),
            patient_until: None,
            recording: None,
            backoff: Backoff::default(),
        }
    }

    /// Takes results.
    pub(crate) fn push(&mut self, settlements: impl IntoIterator<Item = Settlement>) {
        self.waiting.extend(settlements);
    }

    /// Takes a result that may wait for others of its kind.
    pub(crate) fn push_patient(&mut self, settlement: Settlement, now: Timestamp) {
        self.patient.push(settlement);
        self.patient_until.get_or_insert(now + PATIENCE);
    }

    /// Nothing waits for others any longer.
    pub(crate) fn hurry(&mut self) {
        self.waiting.append(&mut self.patient);
        self.patient_until = None;
    }

    /// Whether so many results wait that no more should be made.
    pub(crate) fn is_full(&self) -> bool {
        self.pending() >= self.waiting_max
    }

    /// Whether everything is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending() == 0
    }

    fn pending(&self) -> usize {
        let recording = self.recording.as_ref().map_or(0, |(count, _)| *count);
        self.waiting.len() + self.patient.len() + recording
    }

    /// Begins to record what waits, unless a group is under way or the store needs a pause.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.patient_until.is_some_and(|until| until <= now) {
            self.hurry();
        }
        if self.recording.is_some()
            || self.waiting.is_empty()
            || self.backoff.blocked(now).is_some()
        {
            return;
        }
        let group = std::mem::take(&mut self.waiting);
        let count = group.len();
        let store = Arc::clone(&self.store);
        let record = async move {
            fault::reach(Step::SettleBefore);
            let answer = store.settle(group.clone(), now).await;
            fault::reach(Step::SettleAfter);
            (group, answer)
        };
        self.recording = Some((count, record.boxed()));
    }

    /// When to begin again, after a failure or for what may wait; `None` if there is nothing to
    /// wait for.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.recording.is_some() {
            return None;
        }
        let blocked = self.backoff.blocked(now).filter(|_| !self.waiting.is_empty());
        blocked.or(self.patient_until)
    }

    /// Resolves when the group under way has been answered; never if there is none. Dropping the
    /// future leaves the group under way.
    pub(crate) async fn answered(&mut self) -> Answer {
        match &mut self.recording {
            Some((_, recording)) => recording.await,
            None => std::future::pending().await,
        }
    }

    /// Takes in the answer of [`Self::answered`].
    pub(crate) fn finish(&mut self, (mut group, answer): Answer, now: Timestamp) {
        self.recording = None;
        match answer {
            Ok(settled) => {
                self.backoff.succeeded();
                let stale = settled.iter().filter(|settled| **settled == Settled::Stale).count();
                if stale > 0 {
                    tracing::debug!(stale, "results of leases that had ended were not recorded");
                }
            }
            Err(error) => {
                let until = self.backoff.failed(now);
                let pause_ms = until.since(now).as_millis();
                group.append(&mut self.waiting);
                let waiting = group.len();
                self.waiting = group;
                tracing::warn!(
                    %error, waiting, pause_ms,
                    "results could not be recorded; they are kept and tried again"
                );
            }
        }
    }
}
