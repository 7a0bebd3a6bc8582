//! Tries a receiver from outside: what a sender does to it sooner or later, and what of that goes
//! wrong.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`receiver`] | makes webhooks, genuine and otherwise, and sends them |
//! | [`effects`] | asks the receiver what it has done, if it can tell |
//! | [`signatures`], [`repeats`], [`failures`] | the rows |
//! | [`report`] | what was found, as a table and as JSON |

mod effects;
mod failures;
mod place;
mod receiver;
mod repeats;
mod report;
mod signatures;

use std::time::Duration;

pub(crate) use effects::Effects;
pub(crate) use place::Place;
pub(crate) use receiver::Receiver;
use report::{Report, Verdict};

use crate::exit::{Exit, Failure};

/// A receiver that is tried.
pub(crate) struct Trial {
    /// The receiver.
    pub(crate) receiver: Receiver,
    /// What tells of its effects.
    pub(crate) effects: Option<Effects>,
    /// How soon a webhook should be answered.
    pub(crate) within: Duration,
    /// The size of a large body.
    pub(crate) body_bytes: usize,
}

/// Why a row ends early.
enum Trouble {
    /// The receiver did not answer, or not as it should: the row fails.
    Receiver(String),
    /// Its effects are not to be had: the row cannot be tried.
    Effects(String),
}

/// What a row comes to.
type Found = Result<(Verdict, String), Trouble>;

fn pass(found: impl Into<String>) -> Found {
    Ok((Verdict::Pass, found.into()))
}

fn fail<T>(found: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Receiver(found.into()))
}

/// The rest of a row that statuses cannot decide.
const NEEDS_EFFECTS: &str = "its answers are right; what it did shows only with --effects";

impl Trial {
    /// Tries every row, one after the other.
    ///
    /// # Errors
    /// The receiver cannot be reached at all.
    pub(crate) async fn run(&self) -> Result<Report, Failure> {
        let unreachable = |why| Failure::new(Exit::Unreachable, why);
        self.receiver.reach().await.map_err(unreachable)?;
        let mut report = Report::default();
        report.note(&report::ACCEPTED, self.accepted().await);
        if report.has_failed() {
            let why = "nothing that is genuine is accepted, so nothing else can be told";
            for row in report::ROWS.iter().skip(1) {
                report.note(row, Err(Trouble::Effects(why.to_owned())));
            }
            return Ok(report);
        }
        report.note(&report::BAD_SIGNATURE, self.bad_signature().await);
        report.note(&report::MISSING_SIGNATURE, self.missing_signature().await);
        report.note(&report::STALE_SIGNATURE, self.stale_signature().await);
        report.note(&report::CHANGED_BODY, self.changed_body().await);
        report.note(&report::UNREAD, self.unread().await);
        report.note(&report::DUPLICATE, self.duplicate().await);
        report.note(&report::OVERLAP, self.overlap().await);
        report.note(&report::SAME_CONTENT, self.same_content().await);
        report.note(&report::ORDER, self.order().await);
        report.note(&report::SLOW, self.slow().await);
        report.note(&report::LARGE_BODY, self.large_body().await);
        report.note(&report::FAILURE, self.failure().await);
        report.note(&report::CRASH, self.crash().await);
        report.note(&report::RESTART, self.restart().await);
        report.note(&report::LATER, self.later().await);
        Ok(report)
    }

    /// What tells of effects.
    fn effects(&self) -> Result<&Effects, Trouble> {
        self.effects.as_ref().ok_or_else(|| Trouble::Effects(NEEDS_EFFECTS.to_owned()))
    }
}
