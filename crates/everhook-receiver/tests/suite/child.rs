//! A process to be killed: this very program, started with `child`.
//!
//! It makes one order for one event, by one of the ways of processing once. At one named step it
//! says so and goes no further.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use everhook_receiver::KEEP;
use everhook_receiver::once::{Once, OnceSettings, Ran};
use everhook_receiver::store::Store;

use crate::backend::{kind, runtime};
use crate::hooked::{Hook, Hooked};
use crate::world::event;

/// The lease of what it claims and takes.
pub(crate) const LEASE: Duration = Duration::from_millis(300);

/// What it is to do: the words after `child`.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// The kind of store, and where it is.
    pub(crate) kind: String,
    pub(crate) address: String,
    /// `claim` for a claim, the work and a mark; `fail` for the same with work that fails;
    /// `together` for the receipt in the work's transaction; `inbox` and `inbox_together`.
    pub(crate) way: String,
    /// The step at which it goes no further, or `none`.
    pub(crate) halt: String,
    /// The file of orders that are no row of the database.
    pub(crate) ledger: String,
}

/// What became of an attempt to process the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// The order was made.
    Done,
    /// The work failed, and its event was given back.
    Failed,
    /// It was made before.
    Duplicate,
    /// Somebody is at work on it: the sender comes again.
    InProgress,
}

impl Task {
    pub(crate) fn words(&self) -> [&str; 6] {
        let Self { kind, address, way, halt, ledger } = self;
        ["child", kind, address, way, halt, ledger]
    }

    /// One attempt of the sender, and of an inbox's worker what is due.
    pub(crate) async fn run(&self, store: Arc<dyn Store>) -> Came {
        match self.way.as_str() {
            "claim" | "fail" => self.claim(store).await,
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            "together" => self.together().await,
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            "inbox" | "inbox_together" => inbox::run(self).await,
            other => panic!("{other} is no way"),
        }
    }

    async fn claim(&self, store: Arc<dyn Store>) -> Came {
        let store = Arc::new(Hooked { inner: store, hook: self.hook() });
        let once =
            Once::new(store, OnceSettings { lease: LEASE, keep: KEEP, ..OnceSettings::default() });
        let handler = async |_| {
            self.reach("work:before").await;
            if self.way == "fail" {
                return Err(());
            }
            self.note();
            self.reach("work:after").await;
            Ok(())
        };
        match once.run(&[event(1)], handler).await {
            Ok(Ran::Done(())) => Came::Done,
            Ok(Ran::Duplicate) => Came::Duplicate,
            Ok(Ran::InProgress) => Came::InProgress,
            Err(_) => Came::Failed,
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    async fn together(&self) -> Came {
        use crate::transaction::{End, Orders, With};
        use everhook_receiver::store::Claimed;

        let orders = Orders::of(kind(&self.kind), &self.address);
        let key = event(1).key;
        let step = async |step: &'static str| self.reach(step).await;
        match orders.order(With::Receipt(&key), End::Commit, step).await {
            Claimed::Yes => Came::Done,
            Claimed::Processed => Came::Duplicate,
            Claimed::InProgress => Came::InProgress,
        }
    }

    fn hook(&self) -> Hook {
        let task = self.clone();
        Arc::new(move |step| {
            let task = task.clone();
            Box::pin(async move {
                task.reach(step).await;
                Ok(())
            })
        })
    }

    /// Goes no further if this is the step.
    async fn reach(&self, step: &str) {
        if self.halt == step {
            say("halted");
            std::future::pending::<()>().await;
        }
    }

    /// One order in the file, on the disk.
    fn note(&self) {
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(&self.ledger).unwrap();
        file.write_all(b"order\n").unwrap();
        file.sync_all().unwrap();
    }
}

/// Tells whoever started us.
fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}").unwrap();
    out.flush().unwrap();
}

/// Does its task and waits to be killed, if the program was started to.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [child, kind, address, way, halt, ledger] = <[String; 6]>::try_from(words).ok()?;
    (child == "child").then_some(())?;
    let task = Task { kind, address, way, halt, ledger };
    let runtime = runtime();
    let store = (crate::backend::kind(&task.kind).open)(&task.address, &runtime);
    let came = runtime.block_on(task.run(store));
    panic!("it was to be killed at {}, and came to {came:?}", task.halt);
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod inbox {
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use everhook_receiver::EventKey;
    use everhook_receiver::inbox::{Dead, Inbox, Job, Letter, Stored, Worker, WorkerSettings};
    use everhook_receiver::store::{StoreError, Token};
    use tokio::sync::Notify;

    use super::{Came, LEASE, Task};
    use crate::backend::kind;
    use crate::hooked::Hook;
    use crate::inbox::letter;
    use crate::transaction::{End, Orders, With};

    /// The attempt is stored, and what is due is worked on.
    pub(super) async fn run(task: &Task) -> Came {
        let (open, address) = (kind(&task.kind).inbox, task.address.clone());
        // Opening one may wait for its own runtime.
        let opened = tokio::task::spawn_blocking(move || {
            let runtime = crate::backend::runtime();
            let inbox = open(&address, &runtime);
            (inbox, runtime)
        });
        let (inner, runtime) = opened.await.unwrap();
        let inbox = Arc::new(HookedInbox { inner, hook: task.hook() });
        let stored = inbox.store(&[letter(1)]).await.unwrap();
        let retries = vec![Duration::ZERO; 9];
        let settings = WorkerSettings { retries, lease: LEASE, ..WorkerSettings::default() };
        let worker = Worker::new(inbox.clone(), settings);
        let working = task.clone();
        let handler = move |job: Job| {
            let task = working.clone();
            // Apart, since a transaction of SQLite stays in its thread.
            async move {
                let done = tokio::task::spawn_blocking(move || {
                    let runtime = crate::backend::runtime();
                    runtime.block_on(work(&task, &job))
                });
                done.await.map_err(|error| error.to_string())
            }
        };
        worker.run_once(&handler).await.unwrap();
        let due_in = inbox.due_in().await.unwrap();
        runtime.shutdown_background();
        match (due_in, &stored[..]) {
            // Whoever had it is dead, and its lease is not over.
            (Some(_), _) => Came::InProgress,
            (None, [Stored::New]) => Came::Done,
            (None, _) => Came::Duplicate,
        }
    }

    async fn work(task: &Task, job: &Job) {
        task.reach("work:before").await;
        if task.way == "inbox" {
            task.note();
        } else {
            let orders = Orders::of(kind(&task.kind), &task.address);
            let step = async |step: &'static str| task.reach(step).await;
            orders.order(With::Mark(job), End::Commit, step).await;
        }
        task.reach("work:after").await;
    }

    /// An inbox in front of an inbox, which asks before and after what a worker does.
    struct HookedInbox {
        inner: Arc<dyn Inbox>,
        hook: Hook,
    }

    impl std::fmt::Debug for HookedInbox {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("HookedInbox")
        }
    }

    #[async_trait]
    impl Inbox for HookedInbox {
        async fn store(&self, letters: &[Letter]) -> Result<Vec<Stored>, StoreError> {
            (self.hook)("store:before").await?;
            let stored = self.inner.store(letters).await?;
            (self.hook)("store:after").await?;
            Ok(stored)
        }

        async fn take(&self, token: Token, lease: Duration) -> Result<Option<Job>, StoreError> {
            (self.hook)("take:before").await?;
            let taken = self.inner.take(token, lease).await?;
            (self.hook)("take:after").await?;
            Ok(taken)
        }

        async fn renew(
            &self,
            key: &EventKey,
            token: Token,
            lease: Duration,
        ) -> Result<bool, StoreError> {
            self.inner.renew(key, token, lease).await
        }

        async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
            (self.hook)("finish:before").await?;
            let finished = self.inner.finish(key, token).await?;
            (self.hook)("finish:after").await?;
            Ok(finished)
        }

        async fn retry(
            &self,
            key: &EventKey,
            token: Token,
            after: Duration,
            reason: &str,
        ) -> Result<bool, StoreError> {
            self.inner.retry(key, token, after, reason).await
        }

        async fn bury(
            &self,
            key: &EventKey,
            token: Token,
            reason: &str,
        ) -> Result<bool, StoreError> {
            self.inner.bury(key, token, reason).await
        }

        async fn dead(&self, limit: u32) -> Result<Vec<Dead>, StoreError> {
            self.inner.dead(limit).await
        }

        async fn revive(&self, key: &EventKey) -> Result<bool, StoreError> {
            self.inner.revive(key).await
        }

        async fn due_in(&self) -> Result<Option<Duration>, StoreError> {
            self.inner.due_in().await
        }

        async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
            self.inner.prune(keep, limit).await
        }

        fn arrived(&self) -> &Notify {
            self.inner.arrived()
        }
    }
}
