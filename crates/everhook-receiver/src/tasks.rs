//! The one owner of the tasks in which handlers run, so that none ends with its client.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::task::JoinSet;

/// Running handlers.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Waits until no task runs.
    pub(crate) async fn drain(&self) {
        loop {
            let mut tasks =
                std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
            if tasks.is_empty() {
                return;
            }
            while tasks.join_next().await.is_some() {}
        }
    }
}

impl Drop for Tasks {
    /// A layer that is thrown away leaves its handlers to their work.
    fn drop(&mut self) {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).detach_all();
    }
}
