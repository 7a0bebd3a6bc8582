//! Whoever works on what is in an inbox.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Inbox, Job};
use crate::store::{StoreError, Token};
use crate::verify::KEEP;

/// After every so many events, as many keys that are over are deleted.
const PRUNE_EVERY: u32 = 64;
const PRUNE_MAX: u32 = 500;
/// As much of a reason as is kept, in bytes.
const REASON_BYTES_MAX: usize = 1_000;

/// How a worker works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How long it is after each failed attempt until the next one. An event that has failed once
    /// more than this list is long is dead, whether its handler failed or its worker died. 10 s,
    /// 1 min, 5 min, 30 min, 2 h, 6 h: seven attempts.
    pub retries: Vec<Duration>,
    /// For so long the event of a worker that has died stays with it. A handler that runs longer
    /// renews its lease. 30 s, more than nothing.
    pub lease: Duration,
    /// For so long a handler renews its lease; one that hangs then loses its event. 10 min.
    pub handler_max: Duration,
    /// How often it looks for events that other processes have stored, or whose worker has died,
    /// while it has nothing to do. 5 s.
    pub poll: Duration,
    /// How long the keys of processed events are remembered, from their receipt: [`KEEP`]. Of a
    /// verifier it is [`keep`](crate::Verifier::keep); of several the longest.
    pub keep: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let seconds = [10, 60, 300, 1_800, 7_200, 21_600];
        Self {
            retries: seconds.map(Duration::from_secs).to_vec(),
            lease: Duration::from_secs(30),
            handler_max: Duration::from_secs(600),
            poll: Duration::from_secs(5),
            keep: KEEP,
        }
    }
}

/// Works on the events of an inbox, one after the other. Start several for several at a time.
#[derive(Clone, Debug)]
pub struct Worker {
    inbox: Arc<dyn Inbox>,
    settings: WorkerSettings,
}

impl Worker {
    /// A worker on this inbox.
    pub fn new(inbox: Arc<dyn Inbox>, settings: WorkerSettings) -> Self {
        Self { inbox, settings }
    }

    /// Works on the event that is due for longest; `false`: none is due. A handler that fails or
    /// panics is tried again later, and that is no error here.
    ///
    /// # Errors
    /// The database is away. What was taken comes again when its lease ends.
    pub async fn run_once<H, F, E>(&self, handler: &H) -> Result<bool, StoreError>
    where
        H: Fn(Job) -> F,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let Some(job) = self.inbox.take(Token::draw()?, self.settings.lease).await? else {
            return Ok(false);
        };
        let (key, token) = (job.key.clone(), job.token);
        let failed = match self.retries_left(job.attempt) {
            // Its last attempt has ended without a word, more often than not with its process.
            None => Some((job.attempt - 1, "its worker died, or was stopped, on it".to_owned())),
            Some(_) => {
                let attempt = job.attempt;
                self.handle(handler, job).await.err().map(|reason| (attempt, reason))
            }
        };
        let is_mine = match failed {
            None => self.inbox.finish(&key, token).await?,
            Some((attempt, reason)) => {
                let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
                match self.retries_left(attempt).and_then(<[_]>::first) {
                    Some(after) => {
                        tracing::warn!(%key, attempt, reason, "an event failed; it comes again");
                        self.inbox.retry(&key, token, *after, reason).await?
                    }
                    None => {
                        tracing::error!(%key, attempt, reason, "an event is dead");
                        self.inbox.bury(&key, token, reason).await?
                    }
                }
            }
        };
        if !is_mine {
            tracing::warn!(%key, "an event took longer than its lease, and another has it");
        }
        Ok(true)
    }

    /// Works until `stop` is there; the event that it then works on is finished first. While the
    /// database is away it waits.
    pub async fn run<H, F, E>(&self, handler: H, stop: impl Future<Output = ()>)
    where
        H: Fn(Job) -> F,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let mut stop = std::pin::pin!(stop);
        let mut until_prune = 0;
        while !is_there(stop.as_mut()).await {
            if until_prune == 0 {
                until_prune = PRUNE_EVERY;
                if let Err(error) = self.inbox.prune(self.settings.keep, PRUNE_MAX).await {
                    tracing::warn!(%error, "keys that are over were not deleted");
                }
            }
            until_prune -= 1;
            // Asked for before it is looked, so that nothing is missed in between.
            let arrived = self.inbox.arrived().notified();
            let pause = match self.run_once(&handler).await {
                Ok(true) => continue,
                Ok(false) => self.until_due().await,
                Err(error) => {
                    tracing::warn!(%error, "a worker has no database, and tries again");
                    self.settings.poll
                }
            };
            tokio::select! {
                () = stop.as_mut() => return,
                () = arrived => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Those pauses of the list that an event has before it after so many attempts; `None`: it has
    /// had more than there may be.
    fn retries_left(&self, attempts: u32) -> Option<&[Duration]> {
        let failed_before = usize::try_from(attempts).unwrap_or(usize::MAX).saturating_sub(1);
        self.settings.retries.get(failed_before..)
    }

    async fn until_due(&self) -> Duration {
        let due_in = self.inbox.due_in().await.ok().flatten();
        due_in.map_or(self.settings.poll, |due_in| due_in.min(self.settings.poll))
    }

    /// Runs the handler in a task of its own, so that a panic ends nothing but the attempt.
    async fn handle<H, F, E>(&self, handler: &H, job: Job) -> Result<(), String>
    where
        H: Fn(Job) -> F,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        let (key, token) = (job.key.clone(), job.token);
        let work = handler(job);
        let mut task = JoinSet::new();
        task.spawn(async move { work.await.map_err(|error| error.to_string()) });
        let renewing = async {
            loop {
                tokio::time::sleep(self.settings.lease / 3).await;
                match self.inbox.renew(&key, token, self.settings.lease).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => tracing::warn!(%error, %key, "a lease was not renewed"),
                }
            }
        };
        let renewed = tokio::time::timeout(self.settings.handler_max, renewing);
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            _ = renewed => task.join_next().await,
        };
        match ended {
            Some(Ok(result)) => result,
            Some(Err(_)) | None => Err("the handler panicked".to_owned()),
        }
    }
}

/// Whether it is there already.
async fn is_there(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}
