//! The engine: one loop that joins the scheduler to the store and to the attempts.
//!
//! Each turn takes what came in, lets the [`Scheduler`] decide, begins attempts and at most one
//! claim, one group of results and one step of long work; then it sleeps until one of them has
//! ended, something comes in, or the next due time. Nothing is polled: without work it sleeps.
//!
//! A crash at any point leaves leases without an owner. The next process ends them before its first
//! own lease, and their deliveries are due again at once.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::fault::{self, Step};
use everhook_domain::time::{Clock, Timestamp};
use everhook_store::{JobStep, LaneDue, LeasedDelivery, Settled, Settlement, Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::{JoinError, JoinSet};

use crate::attempt::{Context, Finished, attempt};
use crate::backoff::Backoff;
use crate::clock::SteadyClock;
use crate::intake::Intake;
use crate::jobs::JobRunner;
use crate::lane::Starting;
use crate::recorder::Recorder;
use crate::request::Preparations;
use crate::scheduler::{Scheduler, released};
use crate::sender::Sender;
use crate::settings::EngineSettings;

/// What is left for recording, beyond the timeout of what is on the wire, when the engine stops.
const STOP_GRACE: Duration = Duration::from_secs(5);

type Claimed = Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError>;

/// Sends what is due. Made once a process, together with its [`Intake`].
pub struct Engine {
    context: Arc<Context>,
    intake: Arc<Intake>,
}

impl Engine {
    /// An engine that does nothing until it runs. `intake` must be the one that `store` was given.
    pub fn new(
        store: Arc<dyn Store>,
        intake: Arc<Intake>,
        sender: Arc<dyn Sender>,
        clock: Arc<dyn Clock>,
        settings: EngineSettings,
    ) -> Self {
        let clock = Arc::new(SteadyClock::new(clock));
        let preparations = Preparations::new(settings.clone());
        let context = Arc::new(Context { store, sender, clock, settings, preparations });
        Self { context, intake }
    }

    /// The engine's present. Whoever publishes must use the same: what is accepted "now" would
    /// otherwise be due only later, or have been due before it was there, after the wall clock has
    /// been set.
    pub fn steady_now(&self) -> impl Fn() -> Timestamp + Send + Sync + use<> {
        let clock = Arc::clone(&self.context.clock);
        move || clock.now()
    }

    /// Runs until `stop` resolves, then: begins nothing more, waits for what is on the wire, which
    /// is the timeout at most, records its results and gives back every other lease. Returns when
    /// all of that is in the store, or when the store has not taken it in time; what is not
    /// recorded then is sent again by the next process.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        tokio::select! {
            biased;
            () = &mut stop => return,
            () = self.lapse() => {}
        }
        let mut node = Node::new(self.context, self.intake);
        node.intake.open(node.context.clock.now());
        loop {
            node.turn();
            let event = tokio::select! {
                biased;
                () = &mut stop => break,
                event = node.event() => event,
            };
            node.handle(event);
        }
        node.stop().await;
    }

    /// Ends the leases of the process before; tries until the store has done it.
    async fn lapse(&self) {
        let mut backoff = Backoff::default();
        loop {
            let now = self.context.clock.now();
            match self.context.store.lapse(now).await {
                Ok(0) => return,
                Ok(ended) => {
                    tracing::info!(ended, "deliveries that were under way are due again");
                    return;
                }
                Err(error) => {
                    let pause = backoff.failed(now).since(now);
                    let pause_ms = pause.as_millis();
                    tracing::warn!(%error, pause_ms, "the store is not ready to send from");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

/// Something that the loop waited for.
enum Event {
    Claimed(Claimed),
    AllDue(Result<Vec<LaneDue>, StoreError>),
    Recorded((Vec<Settlement>, Result<Vec<Settled>, StoreError>)),
    Finished(Result<Finished, JoinError>),
    Stepped(Result<JobStep, StoreError>),
    /// Something came in, or it is time.
    Woken,
}

/// A running engine.
struct Node {
    context: Arc<Context>,
    intake: Arc<Intake>,
    scheduler: Scheduler,
    attempts: JoinSet<Finished>,
    recorder: Recorder,
    jobs: JobRunner,
    claim: Option<BoxFuture<'static, Claimed>>,
    all_due: Option<BoxFuture<'static, Result<Vec<LaneDue>, StoreError>>>,
    /// The table must be asked for all that is due: at the start and after a failed claim.
    ask_all: bool,
    directory_changed: bool,
    directory_backoff: Backoff,
    backoff: Backoff,
    stopping: bool,
}

impl Node {
    fn new(context: Arc<Context>, intake: Arc<Intake>) -> Self {
        let now = context.clock.now();
        let store = &context.store;
        Self {
            scheduler: Scheduler::new(&context.settings, Arc::clone(&intake), now),
            attempts: JoinSet::new(),
            recorder: Recorder::new(Arc::clone(store), context.settings.results_waiting_max),
            jobs: JobRunner::new(Arc::clone(store)),
            claim: None,
            all_due: None,
            ask_all: true,
            directory_changed: true,
            directory_backoff: Backoff::default(),
            backoff: Backoff::default(),
            stopping: false,
            context,
            intake,
        }
    }

    /// Takes what came in, decides, and begins what is to be done. Never waits.
    fn turn(&mut self) {
        let now = self.context.clock.now();
        self.take_in(now);
        if !self.stopping {
            self.begin_asking_all(now);
            if !self.recorder.is_full() {
                let claims = self.may_claim(now);
                for starting in self.scheduler.decide(claims, now) {
                    self.begin(starting);
                }
                if claims {
                    self.begin_claim(now);
                }
            }
            self.jobs.begin(now);
        }
        self.recorder.push(self.scheduler.take_given_up());
        if self.stopping || self.recorder.is_full() {
            self.recorder.hurry();
        }
        self.recorder.begin(now);
    }

    fn take_in(&mut self, now: Timestamp) {
        let inbox = self.intake.take();
        self.directory_changed |= inbox.directory_changed;
        if inbox.jobs_pending {
            self.jobs.pending();
        }
        if self.stopping {
            let handed = inbox.handed.into_iter().map(|(delivery, _permit)| released(delivery));
            self.recorder.push(handed);
            return;
        }
        for ((endpoint, share), at) in inbox.hints {
            self.scheduler.hint(endpoint, share, at, now);
        }
        self.refresh(now);
        self.scheduler.hand_over(inbox.handed, now);
    }

    fn refresh(&mut self, now: Timestamp) {
        if !self.directory_changed || self.directory_backoff.blocked(now).is_some() {
            return;
        }
        match self.context.store.directory() {
            Ok(directory) => {
                self.directory_changed = false;
                self.directory_backoff.succeeded();
                self.context.preparations.retain_live(&directory);
                self.scheduler.refresh(directory, now);
            }
            Err(error) => {
                let until = self.directory_backoff.failed(now);
                warn_of(&error, "the endpoints could not be read", until.since(now));
            }
        }
    }

    fn may_claim(&self, now: Timestamp) -> bool {
        !self.ask_all && self.all_due.is_none() && self.backoff.blocked(now).is_none()
    }

    fn begin(&mut self, starting: Starting) {
        self.attempts.spawn(attempt(Arc::clone(&self.context), starting));
    }

    fn begin_claim(&mut self, now: Timestamp) {
        if let Some((wanted, budget)) = self.scheduler.claim() {
            let store = Arc::clone(&self.context.store);
            self.claim = Some(async move { store.claim(wanted, budget, now).await }.boxed());
        }
    }

    fn begin_asking_all(&mut self, now: Timestamp) {
        if self.ask_all && self.all_due.is_none() && self.backoff.blocked(now).is_none() {
            self.scheduler.asking_all();
            self.ask_all = false;
            let store = Arc::clone(&self.context.store);
            self.all_due = Some(async move { store.due().await }.boxed());
        }
    }

    /// Waits for the next event. Dropping the future loses nothing.
    async fn event(&mut self) -> Event {
        let wake = self.sleep();
        let claim = async {
            match &mut self.claim {
                Some(claim) => claim.await,
                None => std::future::pending().await,
            }
        };
        let all_due = async {
            match &mut self.all_due {
                Some(all_due) => all_due.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            claimed = claim => Event::Claimed(claimed),
            dues = all_due => Event::AllDue(dues),
            answer = self.recorder.answered() => Event::Recorded(answer),
            Some(finished) = self.attempts.join_next() => Event::Finished(finished),
            () = self.intake.notified() => Event::Woken,
            step = self.jobs.stepped() => Event::Stepped(step),
            () = wake => Event::Woken,
        }
    }

    /// Sleeps until something is due; for ever if nothing is.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let now = self.context.clock.now();
        let blocked = self.backoff.blocked(now).into_iter();
        let blocked = blocked.chain(self.directory_backoff.blocked(now)).min();
        let lanes = self
            .scheduler
            .wake_at(self.may_claim(now), now)
            .filter(|_| !self.stopping && !self.recorder.is_full());
        let jobs = self.jobs.wake_at(now).filter(|_| !self.stopping);
        let wakes = [lanes, blocked, self.recorder.wake_at(now), jobs];
        let longest = self.context.settings.sleep_max;
        let length = wakes.into_iter().flatten().min().map(|at| at.since(now).min(longest));
        async move {
            match length {
                Some(length) => tokio::time::sleep(length).await,
                None => std::future::pending().await,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.context.clock.now();
        match event {
            Event::Claimed(claimed) => self.claimed(claimed, now),
            Event::AllDue(dues) => {
                self.all_due = None;
                match dues {
                    Ok(dues) => self.scheduler.all_due(dues, now),
                    Err(error) => {
                        self.ask_all = true;
                        self.store_failed("what is due could not be read", &error, now);
                    }
                }
            }
            Event::Recorded(answer) => self.recorder.finish(answer, now),
            Event::Finished(finished) => {
                self.finished(finished, now);
                // All that have ended by now share one turn and one group of results.
                while let Some(finished) = self.attempts.try_join_next() {
                    self.finished(finished, now);
                }
            }
            Event::Stepped(step) => self.jobs.finish(step, now),
            Event::Woken => {}
        }
    }

    fn claimed(&mut self, claimed: Claimed, now: Timestamp) {
        self.claim = None;
        match claimed {
            Ok((leased, dues)) => {
                self.backoff.succeeded();
                if !leased.is_empty() {
                    fault::reach(Step::Claimed);
                }
                if self.stopping {
                    self.recorder.push(leased.into_iter().map(released));
                } else if let Some(suspect) = self.scheduler.claimed(leased, dues, now) {
                    self.begin(suspect);
                }
            }
            Err(error) => {
                self.scheduler.claim_failed(now);
                self.ask_all = true;
                self.store_failed("due deliveries could not be claimed", &error, now);
            }
        }
    }

    fn finished(&mut self, finished: Result<Finished, JoinError>, now: Timestamp) {
        match finished {
            Ok(Finished { ended, settlement }) => {
                let endpoint = ended.endpoint;
                let failed_before = self.scheduler.is_failing(endpoint);
                self.scheduler.ended(ended, now);
                if self.scheduler.is_failing(endpoint) {
                    self.recorder.push_patient(settlement, now);
                    return;
                }
                // Its health is counted in the order of its attempts.
                if failed_before {
                    self.recorder.hurry();
                }
                self.recorder.push([settlement]);
            }
            // An attempt catches its own panics and is never cancelled while the loop runs.
            Err(error) => tracing::error!(%error, "an attempt was lost; a restart finds it"),
        }
    }

    fn store_failed(&mut self, what: &'static str, error: &StoreError, now: Timestamp) {
        let until = self.backoff.failed(now);
        warn_of(error, what, until.since(now));
    }

    async fn stop(mut self) {
        let now = self.context.clock.now();
        let deadline = now + self.context.settings.timeout + STOP_GRACE;
        self.stopping = true;
        self.intake.close();
        self.scheduler.empty(now);
        loop {
            self.turn();
            if self.is_done() {
                return;
            }
            let left = deadline.since(self.context.clock.now());
            let event = tokio::select! {
                biased;
                event = self.event() => event,
                () = tokio::time::sleep(left) => break,
            };
            self.handle(event);
        }
        tracing::warn!(
            "the store did not take every result in time; those deliveries go out again"
        );
    }

    fn is_done(&self) -> bool {
        self.attempts.is_empty()
            && self.claim.is_none()
            && self.recorder.is_empty()
            && !self.intake.is_owed()
    }
}

/// One line for each growing pause: a store that is away for long fills no log.
fn warn_of(error: &StoreError, what: &'static str, pause: Duration) {
    tracing::warn!(%error, pause_ms = pause.as_millis(), "{what}; it is tried again");
}
