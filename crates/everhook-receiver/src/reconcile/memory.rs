//! Progress in the memory of one process: after a restart everything is read once more.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{Progress, ProgressError, ProgressStore};

/// Progress in memory.
#[derive(Debug, Default)]
pub struct MemoryProgress(Mutex<HashMap<String, Kept>>);

#[derive(Debug, Default)]
struct Kept {
    progress: Progress,
    unseen: BTreeSet<String>,
}

impl MemoryProgress {
    fn with<T>(&self, name: &str, verb: impl FnOnce(&mut Kept) -> T) -> Result<T, ProgressError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(verb(kept.entry(name.to_owned()).or_default()))
    }
}

#[async_trait]
impl ProgressStore for MemoryProgress {
    async fn load(&self, name: &str) -> Result<Progress, ProgressError> {
        self.with(name, |kept| kept.progress.clone())
    }

    async fn begin(
        &self,
        name: &str,
        progress: &Progress,
        unseen: &[String],
    ) -> Result<(), ProgressError> {
        let (progress, unseen) = (progress.clone(), unseen.iter().cloned().collect());
        self.with(name, |kept| *kept = Kept { progress, unseen })
    }

    async fn save(
        &self,
        name: &str,
        progress: &Progress,
        seen: &[String],
    ) -> Result<(), ProgressError> {
        self.with(name, |kept| {
            kept.progress = progress.clone();
            seen.iter().for_each(|id| drop(kept.unseen.take(id)));
        })
    }

    async fn unseen(&self, name: &str, limit: u32) -> Result<Vec<String>, ProgressError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.with(name, |kept| kept.unseen.iter().take(limit).cloned().collect())
    }
}
