//! Claim, run, mark: a handler runs for an event that nobody has processed and nobody is at work
//! on, and the event is marked as processed when it has succeeded.
//!
//! | a crash | what is left | what the sender's next attempt finds |
//! | --- | --- | --- |
//! | before the claim | nothing | a new event: it runs |
//! | after the claim, before the handler | received, leased | come again until it ends: it runs |
//! | in the handler | the same, and what it has done | the same: it runs from its beginning |
//! | after the handler, before the mark | the same, and all of its work | **it runs again** |
//! | after the mark, before the answer | processed | a duplicate: it does not run |
//!
//! So a handler runs at least once, and its work may be done twice after a crash. Where it must
//! not, let the receipt commit with the work (`claim_in` of a store), or give the work a key of its
//! own.
//!
//! A handler that fails gives its event back, and the next attempt runs it at once. One that stands
//! still for longer than its lease loses the event to the next attempt; its own mark is then
//! refused, as its token is no longer the event's.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::store::{Claimed, Store, StoreError, Terms, Token};
use crate::verify::{Event, EventKey, KEEP};

/// The first pause before a mark is tried again; it doubles.
const MARK_PAUSE: Duration = Duration::from_millis(20);
/// How often a mark is tried: for a second and a quarter in all.
const MARKS_MAX: u32 = 7;

/// How events are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnceSettings {
    /// For so long the events of a process that has died stay with it. A handler that runs longer
    /// renews its lease. 30 s, more than nothing.
    pub lease: Duration,
    /// How long a receipt counts, from the first: [`KEEP`]. Of a verifier it is
    /// [`keep`](crate::Verifier::keep).
    pub keep: Duration,
    /// For so long a handler renews its lease; one that hangs then loses its events. 10 min.
    pub handler_max: Duration,
}

impl Default for OnceSettings {
    fn default() -> Self {
        let (lease, handler_max) = (Duration::from_secs(30), Duration::from_secs(600));
        Self { lease, keep: KEEP, handler_max }
    }
}

/// Runs handlers once for each event, as far as a store that is not theirs can promise.
#[derive(Clone, Debug)]
pub struct Once {
    store: Arc<dyn Store>,
    settings: OnceSettings,
}

/// What came of a request's events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran<T> {
    /// The handler ran, and what it ran for is marked.
    Done(T),
    /// All of them were processed before, or are captured bytes under another id: it did not run.
    Duplicate,
    /// Somebody is at work on one of them: it did not run, and they are to come again.
    InProgress,
}

/// Why a handler did not run, or why what it ran for is not marked.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// The store is away, and nothing ran: they are to come again.
    #[error("no event could be claimed: {0}")]
    Unclaimed(StoreError),
    /// The handler failed, and its events were given back.
    #[error("the handler failed")]
    Failed(E),
    /// The handler ran, and that could not be recorded: when the lease has ended, it runs again.
    #[error("the handler has succeeded, and its events could not be marked: {0}")]
    Unmarked(StoreError),
    /// The handler ran for longer than its lease, and another one has its events.
    #[error("the handler took too long: another one has its events")]
    Lost,
}

/// The events that a handler is to run for, in its hands.
#[derive(Debug)]
pub(crate) struct Claim {
    once: Once,
    token: Token,
    /// Keys first, and their guards behind them: a guard that is known while its key is not would
    /// turn the retry away.
    keys: Vec<EventKey>,
    guards: Vec<EventKey>,
    pub(crate) events: Vec<Event>,
}

pub(crate) enum Admitted {
    Run(Claim),
    Duplicate,
    InProgress,
}

/// What became of one event.
enum One {
    Mine,
    Seen,
    Busy,
}

impl Once {
    /// Handlers that share this store.
    pub fn new(store: Arc<dyn Store>, settings: OnceSettings) -> Self {
        Self { store, settings }
    }

    /// Runs a handler for those of a request's events that were not processed. They are marked when
    /// it returns `Ok`, and given back when it returns an error. If the returned future is dropped
    /// meanwhile, they are free when their lease ends; run it in a task to be sure.
    ///
    /// # Errors
    /// [`RunError`].
    pub async fn run<T, E, F, H>(&self, events: &[Event], handler: H) -> Result<Ran<T>, RunError<E>>
    where
        H: FnOnce(Vec<Event>) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let claim = match self.claim(events).await.map_err(RunError::Unclaimed)? {
            Admitted::Run(claim) => claim,
            Admitted::Duplicate => return Ok(Ran::Duplicate),
            Admitted::InProgress => return Ok(Ran::InProgress),
        };
        let handled = claim.during(handler(claim.events.clone())).await;
        match handled {
            Ok(value) => match claim.finish().await {
                Ok(true) => Ok(Ran::Done(value)),
                Ok(false) => Err(RunError::Lost),
                Err(error) => Err(RunError::Unmarked(error)),
            },
            Err(error) => {
                claim.release().await;
                Err(RunError::Failed(error))
            }
        }
    }

    /// Claims those events that were not processed, all of them or none.
    pub(crate) async fn claim(&self, events: &[Event]) -> Result<Admitted, StoreError> {
        let token = Token::draw()?;
        let (keys, guards) = (Vec::new(), Vec::new());
        let mut claim = Claim { once: self.clone(), token, keys, guards, events: Vec::new() };
        for event in events {
            // Twice in one request is once.
            if claim.keys.contains(&event.key) {
                continue;
            }
            match claim.take(event).await {
                Ok(One::Mine) => claim.events.push(event.clone()),
                Ok(One::Seen) => {}
                Ok(One::Busy) => {
                    claim.release().await;
                    return Ok(Admitted::InProgress);
                }
                Err(error) => {
                    claim.release().await;
                    return Err(error);
                }
            }
        }
        Ok(if claim.events.is_empty() { Admitted::Duplicate } else { Admitted::Run(claim) })
    }

    fn terms(&self) -> Terms {
        Terms { lease: self.settings.lease, keep: self.settings.keep }
    }
}

impl Claim {
    /// Takes one event, and its guard with it.
    async fn take(&mut self, event: &Event) -> Result<One, StoreError> {
        let (store, terms) = (Arc::clone(&self.once.store), self.once.terms());
        // Held before it is asked for: after an error it may be ours.
        self.keys.push(event.key.clone());
        let claimed = store.claim(&event.key, self.token, terms).await?;
        if claimed != Claimed::Yes {
            self.keys.pop();
        }
        let Some(guard) = &event.guard else {
            return Ok(match claimed {
                Claimed::Yes => One::Mine,
                Claimed::Processed => One::Seen,
                Claimed::InProgress => One::Busy,
            });
        };
        match claimed {
            Claimed::InProgress => Ok(One::Busy),
            Claimed::Processed => {
                // An attempt with a timestamp of its own: its bytes are known from now on too.
                if store.claim(guard, self.token, terms).await? == Claimed::Yes {
                    store.finish(guard, self.token).await?;
                }
                Ok(One::Seen)
            }
            Claimed::Yes => {
                self.guards.push(guard.clone());
                let claimed = store.claim(guard, self.token, terms).await?;
                if claimed == Claimed::Yes {
                    return Ok(One::Mine);
                }
                self.guards.pop();
                self.keys.pop();
                store.release(&event.key, self.token).await?;
                if claimed == Claimed::InProgress {
                    return Ok(One::Busy);
                }
                tracing::warn!(key = %event.key, "signed bytes came again under another id");
                Ok(One::Seen)
            }
        }
    }

    /// Waits for a handler, and renews its lease meanwhile.
    pub(crate) async fn during<T>(&self, handler: impl Future<Output = T>) -> T {
        let mut handler = std::pin::pin!(handler);
        tokio::select! {
            value = &mut handler => value,
            () = self.renew() => handler.await,
        }
    }

    /// Renews the lease until an event is lost or the handler has had its time.
    async fn renew(&self) {
        let Once { store, settings } = &self.once;
        let renewing = async {
            loop {
                tokio::time::sleep(settings.lease / 3).await;
                for key in self.held() {
                    match store.renew(key, self.token, settings.lease).await {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => tracing::warn!(%error, %key, "a lease was not renewed"),
                    }
                }
            }
        };
        if tokio::time::timeout(settings.handler_max, renewing).await.is_err() {
            tracing::warn!(key = %self.first(), "a handler runs for longer than it may");
        }
    }

    /// Marks the events as processed. `false`: one of them is another's by now.
    ///
    /// # Errors
    /// The store is away, and stays away for longer than is waited for.
    pub(crate) async fn finish(&self) -> Result<bool, StoreError> {
        let mut are_mine = true;
        for key in self.held() {
            are_mine &= self.finish_one(key).await?;
        }
        Ok(are_mine)
    }

    async fn finish_one(&self, key: &EventKey) -> Result<bool, StoreError> {
        let mut pause = MARK_PAUSE;
        let mut tries = 1;
        loop {
            match self.once.store.finish(key, self.token).await {
                Err(error) if tries < MARKS_MAX => {
                    tracing::warn!(%error, %key, "an event was not marked; it is tried again");
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                    tries += 1;
                }
                finished => return finished,
            }
        }
    }

    /// Gives the events back. What cannot be given back is free when its lease ends.
    pub(crate) async fn release(&self) {
        for key in self.held() {
            if let Err(error) = self.once.store.release(key, self.token).await {
                tracing::warn!(%error, %key, "an event was not given back");
            }
        }
    }

    fn held(&self) -> impl Iterator<Item = &EventKey> {
        self.keys.iter().chain(&self.guards)
    }

    fn first(&self) -> impl fmt::Display {
        self.keys.first().map(EventKey::as_str).unwrap_or_default()
    }
}
