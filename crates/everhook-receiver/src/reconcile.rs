//! Getting from a publisher's API what no webhook has brought.
//!
//! A [`Reconciler`] reads pages of what has changed and hands each object to the same function that
//! live webhooks go through, so that the version gate decides and both may run at once. It asks for
//! everything since its last *complete* pass, and somewhat before, because an API shows what has
//! just changed a little late. Times are the publisher's own; no clock is read here.

mod memory;
#[cfg(feature = "postgres")]
mod postgres;
mod progress;
mod shared;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::Timestamp;
use everhook_domain::version::Verdict;

pub use memory::MemoryProgress;
#[cfg(feature = "postgres")]
pub use postgres::PostgresProgress;
pub use progress::{Pass, Progress, ProgressError, ProgressStore, Stage};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteProgress;

/// How far before the end of its last complete pass a reconciler begins, unless it is told
/// otherwise. Longer than a change takes to be seen in the API.
pub const OVERLAP: Duration = Duration::from_secs(5 * 60);

/// What a `Date` header leaves out: it has whole seconds.
const DATE_RESOLUTION: Duration = Duration::from_secs(1);
/// How many objects are confirmed to be missing before progress is kept.
const CONFIRM_STEP: u32 = 100;

/// An object as the API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    /// What identifies it there.
    pub id: String,
    /// When it was changed last, on the API's clock.
    pub changed_at: Timestamp,
    /// The object.
    pub object: T,
}

/// What is asked for: the objects that changed at `from` or later, oldest change first; or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Since when, inclusive; `None`: from the beginning.
    pub from: Option<Timestamp>,
    /// `next` of the page before; `None` for the first one.
    pub cursor: Option<String>,
}

/// A part of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, oldest change first.
    pub objects: Vec<Listed<T>>,
    /// The cursor of the next page; `None` after the last one.
    pub next: Option<String>,
    /// When the API answered, on its own clock: its `Date` header.
    pub now: Timestamp,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPage<E> {
    /// The API does not know the cursor any more: the pass begins anew.
    CursorGone,
    /// Anything else: the pass goes on from this page next time.
    Failed(E),
}

/// The API, asked in whatever way.
#[async_trait]
pub trait Pages: Send + Sync {
    /// What it lists.
    type Object: Send;
    /// How asking fails.
    type Error: Send;

    /// One page.
    ///
    /// The cursor is the API's own. One that has none is given one of the time *and* the id of the
    /// last object: with the time alone, of objects that changed in one instant those beyond the
    /// end of a page would be passed over.
    async fn page(&self, ask: &Ask) -> Result<Page<Self::Object>, NoPage<Self::Error>>;

    /// One object as it is now; `None` if there is none.
    async fn one(&self, id: &str) -> Result<Option<Listed<Self::Object>>, Self::Error>;
}

/// What the receiver holds of the objects.
#[async_trait]
pub trait Objects<T>: Send + Sync {
    /// How holding them fails.
    type Error: Send;

    /// Applies an object if it is newer than what is held: the very function that live webhooks
    /// go through. After a conflict, what was fetched should be settled there; a conflict that is
    /// returned is in the [`Report`].
    async fn apply(&self, listed: Listed<T>) -> Result<Verdict, Self::Error>;

    /// The ids of all objects that are held and not deleted.
    async fn held(&self) -> Result<Vec<String>, Self::Error>;

    /// Deletes an object that the API has no more, if it is still as it was held: `settle` it with
    /// the version held and [`Content::Deleted`](crate::version::Content::Deleted). May be called
    /// again for the same object.
    async fn missing(&self, id: &str) -> Result<(), Self::Error>;
}

/// What a call has done; after a resumed pass, the part of it that was left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether a pass that had failed was gone on with.
    pub resumed: bool,
    /// Pages that were read.
    pub pages: u64,
    /// Objects that were applied.
    pub fresh: u64,
    /// Objects of which something newer was held.
    pub stale: u64,
    /// Objects that were held just so.
    pub duplicates: u64,
    /// Objects whose version is held with another content, and that were not settled.
    pub conflicts: Vec<String>,
    /// Objects that were held and are no more; only ever after a whole sweep.
    pub missing: Vec<String>,
}

/// Why a pass is not complete. It is gone on with by the next call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReconcileError<P, O> {
    /// The API could not be asked.
    #[error("the API that is reconciled with: {0}")]
    Pages(P),
    /// An object could not be applied.
    #[error("an object that was listed could not be applied: {0}")]
    Objects(O),
    /// Progress could not be kept.
    #[error(transparent)]
    Progress(#[from] ProgressError),
    /// The API gives a cursor that it does not take.
    #[error("the API refused the cursor of its own last page twice: begin again later")]
    CursorGone,
    /// The API leads nowhere.
    #[error("the API gave as next page the page that was asked for: its cursor must move on")]
    Stuck,
}

/// Reads what has changed in an API and applies it.
#[derive(Debug)]
pub struct Reconciler<P, O, S> {
    /// What its progress is kept under: a name for each API.
    pub name: String,
    /// The API.
    pub pages: P,
    /// What is held of its objects.
    pub objects: O,
    /// Where progress is kept.
    pub progress: S,
    /// How far before the end of the last complete pass a new one begins: longer than a change
    /// takes to be seen in the API.
    pub overlap: Duration,
}

/// What one of its calls returns.
type Ran<P, O, T> =
    Result<T, ReconcileError<<P as Pages>::Error, <O as Objects<<P as Pages>::Object>>::Error>>;

impl<P: Pages, O: Objects<P::Object>, S: ProgressStore> Reconciler<P, O, S> {
    /// A reconciler with the usual overlap.
    pub fn new(name: impl Into<String>, pages: P, objects: O, progress: S) -> Self {
        Self { name: name.into(), pages, objects, progress, overlap: OVERLAP }
    }

    /// Applies what has changed since the last complete pass; all there is at the first time.
    /// Deletions are not listed by most APIs: for those there is [`Self::sweep`].
    ///
    /// # Errors
    /// The pass is not complete. The next call goes on with the page at which it failed.
    pub async fn changes(&self) -> Ran<P, O, Report> {
        self.run(&format!("{}/changes", self.name), false).await
    }

    /// Applies all there is, and tells which of the objects that are held are missing.
    ///
    /// Missing is what was held when the sweep began, was on none of its pages, and is not found
    /// when it is asked for by its id. A list that is read half tells nothing.
    ///
    /// # Errors
    /// The sweep is not complete. The next call goes on where it failed.
    pub async fn sweep(&self) -> Ran<P, O, Report> {
        self.run(&format!("{}/sweep", self.name), true).await
    }

    async fn run(&self, name: &str, sweep: bool) -> Ran<P, O, Report> {
        let progress = self.progress.load(name).await?;
        let mut report = Report { resumed: progress.pass.is_some(), ..Report::default() };
        let mut pass = match progress.pass {
            Some(pass) => pass,
            None => self.begin(name, sweep, progress.complete_until).await?,
        };
        let mut cursor_lost = false;
        while pass.stage == Stage::Listing {
            let ask = Ask { from: pass.from, cursor: pass.cursor.take() };
            match self.pages.page(&ask).await {
                Ok(page) if page.next.is_some() && page.next == ask.cursor => {
                    return Err(ReconcileError::Stuck);
                }
                Ok(page) => {
                    let seen = self.apply_page(page, &mut pass, &mut report).await?;
                    let progress = Progress {
                        pass: Some(pass.clone()),
                        complete_until: progress.complete_until,
                    };
                    self.progress.save(name, &progress, &seen).await?;
                }
                Err(NoPage::CursorGone) if !cursor_lost && ask.cursor.is_some() => {
                    cursor_lost = true;
                }
                Err(NoPage::CursorGone) => return Err(ReconcileError::CursorGone),
                Err(NoPage::Failed(error)) => return Err(ReconcileError::Pages(error)),
            }
        }
        if sweep {
            let progress =
                Progress { pass: Some(pass.clone()), complete_until: progress.complete_until };
            self.confirm(name, &progress, &mut report).await?;
        }
        let progress = Progress { complete_until: pass.until, pass: None };
        self.progress.save(name, &progress, &[]).await?;
        Ok(report)
    }

    async fn begin(
        &self,
        name: &str,
        sweep: bool,
        complete_until: Option<Timestamp>,
    ) -> Ran<P, O, Pass> {
        let from = complete_until.filter(|_| !sweep).map(|until| until.minus(self.overlap));
        let pass = Pass { from, until: None, cursor: None, stage: Stage::Listing };
        let held = match sweep {
            true => self.objects.held().await.map_err(ReconcileError::Objects)?,
            false => Vec::new(),
        };
        let progress = Progress { complete_until, pass: Some(pass.clone()) };
        self.progress.begin(name, &progress, &held).await?;
        Ok(pass)
    }

    /// Applies a page and moves the pass behind it; returns what was on it.
    async fn apply_page(
        &self,
        page: Page<P::Object>,
        pass: &mut Pass,
        report: &mut Report,
    ) -> Ran<P, O, Vec<String>> {
        report.pages += 1;
        // What changes after the first page was read is for the next pass, so that this one ends.
        let until = *pass.until.get_or_insert(page.now) + DATE_RESOLUTION;
        let beyond = page.objects.last().is_some_and(|last| last.changed_at > until);
        let mut seen = Vec::with_capacity(page.objects.len());
        for listed in page.objects {
            seen.push(listed.id.clone());
            self.apply(listed, report).await?;
        }
        pass.cursor = page.next;
        if pass.cursor.is_none() || beyond {
            pass.stage = Stage::Confirming;
        }
        Ok(seen)
    }

    async fn apply(&self, listed: Listed<P::Object>, report: &mut Report) -> Ran<P, O, ()> {
        let id = listed.id.clone();
        match self.objects.apply(listed).await.map_err(ReconcileError::Objects)? {
            Verdict::Fresh => report.fresh += 1,
            Verdict::Stale => report.stale += 1,
            Verdict::Duplicate => report.duplicates += 1,
            Verdict::Conflict { .. } => report.conflicts.push(id),
        }
        Ok(())
    }

    /// Asks by their ids for those objects that were on no page: pages shift while they are read.
    async fn confirm(&self, name: &str, progress: &Progress, report: &mut Report) -> Ran<P, O, ()> {
        loop {
            let unseen = self.progress.unseen(name, CONFIRM_STEP).await?;
            if unseen.is_empty() {
                return Ok(());
            }
            for id in &unseen {
                match self.pages.one(id).await.map_err(ReconcileError::Pages)? {
                    Some(listed) => self.apply(listed, report).await?,
                    None => {
                        self.objects.missing(id).await.map_err(ReconcileError::Objects)?;
                        report.missing.push(id.clone());
                    }
                }
            }
            self.progress.save(name, progress, &unseen).await?;
        }
    }
}
