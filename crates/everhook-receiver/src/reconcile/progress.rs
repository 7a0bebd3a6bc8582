//! How far a reconciler is, kept where a restart finds it.

use std::fmt;

use async_trait::async_trait;
use everhook_domain::time::Timestamp;

/// How far a reconciler is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Everything that changed before this instant of the API's clock has been applied, but for
    /// what the API showed late; `None` before the first complete pass.
    pub complete_until: Option<Timestamp>,
    /// The pass that has begun and is not complete.
    pub pass: Option<Pass>,
}

/// A pass that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    /// Since when changes are asked for; `None`: from the beginning.
    pub from: Option<Timestamp>,
    /// When its first page was read, on the API's clock: where it ends.
    pub until: Option<Timestamp>,
    /// The next page's cursor.
    pub cursor: Option<String>,
    /// What is being done.
    pub stage: Stage,
}

/// A part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Pages are being read.
    Listing,
    /// All pages were read; what was on none of them is being asked for.
    Confirming,
}

/// Progress could not be kept. What it says is for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the progress of reconciling: {0}")]
pub struct ProgressError(pub String);

impl ProgressError {
    /// From what a database says.
    pub fn new(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// Keeps progress. Every verb is one transaction.
///
/// One process at a time should reconcile under a name. Several do no harm: pages are read more
/// than once, which the version gate sees, and nothing is left out.
#[async_trait]
pub trait ProgressStore: Send + Sync {
    /// What is kept under a name; the default for one that is new.
    async fn load(&self, name: &str) -> Result<Progress, ProgressError>;

    /// Keeps the progress of a pass that begins, and the ids that are to be looked for in it
    /// instead of those of any pass before.
    async fn begin(
        &self,
        name: &str,
        progress: &Progress,
        unseen: &[String],
    ) -> Result<(), ProgressError>;

    /// Keeps progress, and forgets the ids that were seen.
    async fn save(
        &self,
        name: &str,
        progress: &Progress,
        seen: &[String],
    ) -> Result<(), ProgressError>;

    /// Some of the ids that were not seen, at most `limit`, in a fixed order.
    async fn unseen(&self, name: &str, limit: u32) -> Result<Vec<String>, ProgressError>;
}

/// The columns of progress, as the databases have them.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) complete_until: Option<i64>,
    /// `null` without a pass.
    pub(super) stage: Option<i64>,
    pub(super) pass_from: Option<i64>,
    pub(super) pass_until: Option<i64>,
    pub(super) cursor: Option<String>,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Columns {
    pub(super) fn of(progress: &Progress) -> Self {
        let pass = progress.pass.as_ref();
        Self {
            complete_until: progress.complete_until.map(Timestamp::as_millis),
            stage: pass.map(|pass| match pass.stage {
                Stage::Listing => 0,
                Stage::Confirming => 1,
            }),
            pass_from: pass.and_then(|pass| pass.from).map(Timestamp::as_millis),
            pass_until: pass.and_then(|pass| pass.until).map(Timestamp::as_millis),
            cursor: pass.and_then(|pass| pass.cursor.clone()),
        }
    }

    pub(super) fn progress(self) -> Progress {
        let pass = self.stage.map(|stage| Pass {
            from: self.pass_from.map(Timestamp::from_millis),
            until: self.pass_until.map(Timestamp::from_millis),
            cursor: self.cursor,
            stage: if stage == 0 { Stage::Listing } else { Stage::Confirming },
        });
        Progress { complete_until: self.complete_until.map(Timestamp::from_millis), pass }
    }
}
