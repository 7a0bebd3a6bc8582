//! Long work in small steps: never a long transaction, always behind what is accepted.

use async_trait::async_trait;
use everhook_domain::time::Timestamp;

use crate::error::StoreError;

/// What one step left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// More work may be waiting: ask again.
    More,
    /// Nothing is to be done before this instant: what is left is paced.
    NotBefore(Timestamp),
    /// Nothing is left to do.
    Idle,
}

impl JobStep {
    /// What two kinds of work, neither of which has anything to do now, leave together.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::More, _) | (_, Self::More) => Self::More,
            (Self::NotBefore(one), Self::NotBefore(two)) => Self::NotBefore(one.min(two)),
            (Self::NotBefore(at), Self::Idle) | (Self::Idle, Self::NotBefore(at)) => {
                Self::NotBefore(at)
            }
            (Self::Idle, Self::Idle) => Self::Idle,
        }
    }
}

/// Long work: cancelling what waits for a disabled endpoint, work on many deliveries, erasing
/// deleted tenants, forgetting what has expired.
#[async_trait]
pub trait Jobs: Send + Sync {
    /// Does one bounded step (500 rows) of one job, with its cursor, in one transaction. The kinds
    /// of work take turns, so that none of them waits for another to end. A job is durable: after a
    /// crash it goes on where its last step ended.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] or [`StoreError::Failed`]; the step has not happened.
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn together_they_leave_what_comes_first() {
        let at = |millis| JobStep::NotBefore(Timestamp::from_millis(millis));
        for (one, two, expected) in [
            (JobStep::Idle, JobStep::Idle, JobStep::Idle),
            (JobStep::Idle, at(5), at(5)),
            (at(5), JobStep::Idle, at(5)),
            (at(7), at(5), at(5)),
            (at(7), JobStep::More, JobStep::More),
            (JobStep::More, JobStep::Idle, JobStep::More),
        ] {
            assert_eq!(one.and(two), expected, "{one:?} and {two:?}");
        }
    }
}
