//! The thread around [`WriterCore`]: gathers commands into batches and runs them.
//!
//! Commands that are waiting commit together. When the last batch held several, the writer waits a
//! moment for more, because a sync costs as much for one command as for a hundred; results alone
//! wait longer, since nobody outside is waiting for them, and ride with the next accept.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use everhook_domain::time::Clock;
use tokio::sync::watch;

use super::command::Command;
use super::writer::WriterCore;
use crate::error::StoreError;

/// How commands are gathered into one commit.
#[derive(Clone, Copy, Debug)]
pub struct GroupCommit {
    /// Commands that may wait for the writer; beyond it, callers are told that the store is busy.
    pub queue_max: usize,
    /// The most commands in one transaction.
    pub commands_max: usize,
    /// Enough commands not to wait for more.
    pub commands_enough: usize,
    /// Enough bytes not to wait for more.
    pub bytes_enough: usize,
    /// A batch of this many makes the next one wait for company.
    pub busy_from: usize,
    /// How long a batch waits for company.
    pub wait: Duration,
    /// How long results wait for an accept to ride with.
    pub linger: Duration,
}

impl Default for GroupCommit {
    fn default() -> Self {
        Self {
            queue_max: 8_192,
            commands_max: 512,
            commands_enough: 64,
            bytes_enough: 1 << 20,
            busy_from: 4,
            wait: Duration::from_millis(1),
            linger: Duration::from_millis(10),
        }
    }
}

/// The running writer.
pub(super) struct WriterThread {
    queue: RwLock<Option<SyncSender<Box<dyn Command>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    fatal: watch::Receiver<Option<String>>,
}

impl WriterThread {
    /// Starts the thread.
    pub(super) fn start(
        core: WriterCore,
        group: GroupCommit,
        clock: Arc<dyn Clock>,
    ) -> std::io::Result<Self> {
        let (queue, commands) = sync_channel(group.queue_max);
        let (fatal_sender, fatal) = watch::channel(None);
        let gather = Gather { commands, group, clock, last: 0 };
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || run(core, gather, &fatal_sender))?;
        Ok(Self { queue: RwLock::new(Some(queue)), thread: Mutex::new(Some(thread)), fatal })
    }

    /// Queues a command; its caller is answered when it has been committed.
    pub(super) fn submit(&self, command: Box<dyn Command>) -> Result<(), StoreError> {
        let queue = self.queue.read().unwrap_or_else(PoisonError::into_inner);
        let Some(queue) = queue.as_ref() else {
            return Err(StoreError::Unavailable("the store is closed".into()));
        };
        queue.try_send(command).map_err(|error| {
            StoreError::Unavailable(match error {
                TrySendError::Full(_) => "too many writes are waiting".into(),
                TrySendError::Disconnected(_) => "the writer has stopped".into(),
            })
        })
    }

    /// Finishes what is queued and ends the thread.
    pub(super) fn close(&self) {
        drop(self.queue.write().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic there has been reported by the panic hook already.
            let _panicked = thread.join();
        }
    }

    /// Returns when the writer has stopped for good without having been closed.
    pub(super) async fn failed(&self) -> String {
        let mut fatal = self.fatal.clone();
        if let Ok(why) = fatal.wait_for(Option::is_some).await {
            return why.clone().unwrap_or_default();
        }
        // The thread has ended: closed in good order, or by a panic.
        if self.queue.read().unwrap_or_else(PoisonError::into_inner).is_some() {
            return "the writer has panicked".into();
        }
        std::future::pending().await
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(mut core: WriterCore, mut gather: Gather, fatal: &watch::Sender<Option<String>>) {
    while let Some(batch) = gather.next() {
        core.run(batch);
        if let Some(why) = core.fatal() {
            fatal.send_if_modified(|seen| seen.replace(why.to_owned()).is_none());
        }
    }
}

struct Gather {
    commands: Receiver<Box<dyn Command>>,
    group: GroupCommit,
    clock: Arc<dyn Clock>,
    last: usize,
}

impl Gather {
    /// The next batch; `None` when nobody can send one any more.
    fn next(&mut self) -> Option<Vec<Box<dyn Command>>> {
        let mut batch = vec![self.commands.recv().ok()?];
        let began = self.clock.monotonic();
        let mut weight = batch[0].weight();
        let mut only_results = batch[0].may_linger();
        loop {
            while batch.len() < self.group.commands_max
                && let Ok(command) = self.commands.try_recv()
            {
                weight += command.weight();
                only_results &= command.may_linger();
                batch.push(command);
            }
            let enough =
                batch.len() >= self.group.commands_enough || weight >= self.group.bytes_enough;
            let patience = if enough {
                Duration::ZERO
            } else if only_results {
                self.group.linger
            } else if self.last >= self.group.busy_from {
                self.group.wait
            } else {
                Duration::ZERO
            };
            let left = patience.saturating_sub(self.clock.monotonic().saturating_sub(began));
            if left.is_zero() {
                break;
            }
            match self.commands.recv_timeout(left) {
                Ok(command) => {
                    weight += command.weight();
                    only_results &= command.may_linger();
                    batch.push(command);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.last = batch.len();
        Some(batch)
    }
}
