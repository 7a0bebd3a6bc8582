//! Long work in small steps: never a long transaction, always behind what is accepted.

use async_trait::async_trait;
use everhook_domain::time::Timestamp;

use crate::error::StoreError;

/// What one step left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// More work is waiting.
    More,
    /// Nothing is left to do.
    Idle,
}

/// Long work: cancelling what waits for a disabled endpoint; later bulk replays, retention and
/// erasure.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Does one bounded step (500 rows) of the oldest job, with its cursor, in one transaction. A
    /// job is durable: after a crash it goes on where its last step ended.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Failed`]; the step has not happened.
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError>;
}
