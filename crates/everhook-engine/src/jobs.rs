//! Long work of the store, driven step by step.
//!
//! A step is begun when the store says that there is work, and again while it says so, or at the
//! instant that it names for work that is paced. After each step lies a pause as long as the step
//! was, so that long work has at most half of the store's time, and less when others keep it
//! waiting. Between two rounds lies a longer one, because every accepted event may tell of work.
//! All of it is durable in the store: a crash loses nothing, and the engine asks once when it
//! starts.

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
    /// When paced work goes on.
    paced_until: Option<Timestamp>,
    step: Option<BoxFuture<'static, Result<JobStep, StoreError>>>,
    began: Timestamp,
    not_before: Option<Timestamp>,
    backoff: Backoff,
}

impl JobRunner {
    /// One that asks the store once whether there is work.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let backoff = Backoff::default();
        let began = Timestamp::from_millis(0);
        Self {
            store,
            pending: true,
            paced_until: None,
            step: None,
            began,
            not_before: None,
            backoff,
        }
    }

    /// There is work.
    pub(crate) fn pending(&mut self) {
        self.pending = true;
    }

    /// Begins a step if there is work and no pause.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if self.wake_at(now).is_none_or(|at| now < at) {
            return;
        }
        self.pending = false;
        self.paced_until = None;
        self.began = now;
        let store = Arc::clone(&self.store);
        self.step = Some(async move { store.step(now).await }.boxed());
    }

    /// When to begin the next step; `None` if one is under way or there is nothing to wait for.
    pub(crate) fn wake_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.step.is_some() {
            return None;
        }
        let work = if self.pending { Some(now) } else { self.paced_until };
        work.map(|at| at.max(self.blocked(now).unwrap_or(now)))
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
                self.not_before = Some(now + now.since(self.began));
            }
            Ok(JobStep::NotBefore(at)) => {
                self.backoff.succeeded();
                self.not_before = Some(now + PAUSE);
                self.paced_until = Some(at);
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

#[cfg(test)]
mod tests {
    use everhook_domain::time::SystemClock;
    use everhook_store::NoHandoff;
    use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};

    use super::*;

    fn runner() -> JobRunner {
        let options = SqliteOptions {
            policy: everhook_store::StorePolicy::default(),
            handoff: Arc::new(NoHandoff),
            clock: Arc::new(SystemClock::start()),
            new_tag: 1,
            group_commit: GroupCommit::default(),
            sealer: everhook_store::Sealer::default(),
        };
        JobRunner::new(Arc::new(SqliteStore::open_in_memory(options).expect("memory")))
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Whether a step is begun at this instant; if so it ends with this answer.
    fn steps(runner: &mut JobRunner, now: i64, answer: JobStep) -> bool {
        runner.begin(at(now));
        let began = runner.step.is_some();
        if began {
            runner.finish(Ok(answer), at(now));
        }
        began
    }

    #[test]
    fn a_pause_is_as_long_as_the_step_before_it() {
        let mut runner = runner();
        runner.begin(at(100));
        runner.finish(Ok(JobStep::More), at(120));
        assert_eq!(runner.wake_at(at(120)), Some(at(140)));
        assert!(!steps(&mut runner, 139, JobStep::More));
        assert!(steps(&mut runner, 140, JobStep::More), "which took no time");
        assert!(steps(&mut runner, 140, JobStep::Idle));
    }

    #[test]
    fn paced_work_waits_for_its_instant_and_new_work_does_not() {
        let mut runner = runner();
        assert!(steps(&mut runner, 0, JobStep::More));
        assert!(steps(&mut runner, 0, JobStep::NotBefore(at(1_000))));
        assert_eq!(runner.wake_at(at(1)), Some(at(1_000)));
        assert!(!steps(&mut runner, 999, JobStep::Idle));
        runner.pending();
        assert!(steps(&mut runner, 999, JobStep::NotBefore(at(1_000))));
        assert_eq!(runner.wake_at(at(999)), Some(at(999) + PAUSE), "a pause lies between");
        assert!(steps(&mut runner, 1_099, JobStep::Idle));
        assert_eq!(runner.wake_at(at(2_000)), None);
    }

    #[test]
    fn a_failed_step_is_tried_again_after_a_wait() {
        let mut runner = runner();
        runner.begin(at(0));
        assert_eq!(runner.wake_at(at(0)), None, "one at a time");
        runner.finish(Err(StoreError::Unavailable("full".into())), at(0));
        assert!(!steps(&mut runner, 99, JobStep::Idle));
        assert!(steps(&mut runner, 100, JobStep::Idle));
    }
}
