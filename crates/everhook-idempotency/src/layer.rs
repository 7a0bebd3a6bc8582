//! The tower layer, and what an operator does with it.

use std::sync::Arc;

use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::time::Timestamp;
use tower_layer::Layer;

use crate::account::AccountOf;
use crate::claim::RecordId;
use crate::counts::Counts;
use crate::keys::{Keys, draw_token};
use crate::service::IdempotencyService;
use crate::settings::{InvalidSettings, Settings};
use crate::store::{Finished, Store, StoreError, Taken, Taking};
use crate::tasks::Tasks;

/// Makes a service run once for each `Idempotency-Key`.
///
/// Authentication belongs outside of it, so that a stored answer is given to nobody who may not
/// have it; compression belongs outside too, so that one form is stored for all. It belongs inside
/// the router (axum's `route_layer`), so that a path that is not there takes no key.
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) account_of: AccountOf,
    pub(crate) tasks: Tasks,
}

/// What an operator found out about a request that was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// It had no effect: its key is free, and the next try runs.
    NothingHappened,
    /// It had its effect: this is what each further try is answered.
    Answer(Answer),
}

/// A request that began and was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRecord {
    /// Its record: a 409 of type `outcome-unknown` names it.
    pub record: RecordId,
    /// Until when its lease lasted, on the store's clock.
    pub since: Timestamp,
}

impl IdempotencyLayer {
    /// A layer that keeps its keys in `store`.
    ///
    /// # Errors
    /// [`InvalidSettings`] says everything that is wrong.
    pub fn new(
        store: Arc<dyn Store>,
        account_of: AccountOf,
        settings: Settings,
    ) -> Result<Self, InvalidSettings> {
        settings.check()?;
        let keys = Keys { store, settings, counters: Default::default() };
        let shared = Shared { keys, account_of, tasks: Tasks::default() };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        self.shared.keys.counters.read()
    }

    /// Waits until no handler runs: the last step of an orderly stop, after the server takes no
    /// more requests. A handler that is not waited for is lost with the process.
    pub async fn drain(&self) {
        self.shared.tasks.drain().await;
    }

    /// Requests that began and were lost, oldest first, at most `limit`.
    ///
    /// # Errors
    /// The store is away.
    pub async fn unknown(&self, limit: u32) -> Result<Vec<UnknownRecord>, StoreError> {
        let lapsed = self.shared.keys.store.lapsed(limit).await?;
        let shown = lapsed.into_iter();
        Ok(shown.map(|one| UnknownRecord { record: one.key.into(), since: one.since }).collect())
    }

    /// Settles a request that was lost. `false`, and nothing is changed, when it is not lost: it
    /// still runs, was answered or settled meanwhile, or there is no such record.
    ///
    /// # Errors
    /// The store is away; ask for what is unknown before doing it again.
    pub async fn settle(
        &self,
        record: RecordId,
        settlement: Settlement,
    ) -> Result<bool, StoreError> {
        let Keys { store, settings, .. } = &self.shared.keys;
        let look = store.look(record.0).await?;
        let Some(lapsed) = look.record.filter(|record| record.has_lapsed(look.now)) else {
            return Ok(false);
        };
        // Taken over first, so that a handler that was only slow is fenced off from here on.
        let taking = Taking {
            key: record.0,
            account: lapsed.account,
            account_name: String::new(),
            subject: String::new(),
            rule: lapsed.rule,
            fingerprint: lapsed.fingerprint,
            token: draw_token()?,
            checkpoint: None,
        };
        let taken = store.take(&taking, Some(&lapsed), settings.terms(), settings.quota()).await?;
        if taken != Taken::Yes {
            return Ok(false);
        }
        match settlement {
            Settlement::NothingHappened => store.release(record.0, taking.token).await,
            Settlement::Answer(answer) => {
                let bytes = Remembered::Answer(answer).encode();
                let finished = store.finish(record.0, taking.token, &bytes, settings.ttl).await?;
                Ok(finished == Finished::Now)
            }
        }
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.shared))
    }
}
