//! What was found: the rows, as a table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Found, Trouble};

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// It does what it should.
    Pass,
    /// It does not.
    Fail,
    /// It could not be found out, which is no pass.
    NotTried,
    /// The kind has no such thing.
    DoesNotApply,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "FAIL",
            Self::NotTried => "not tried",
            Self::DoesNotApply => "does not apply",
        }
    }
}

/// What is tried in a row, and what to do where it fails.
#[derive(Debug)]
pub(super) struct RowKind {
    pub(super) name: &'static str,
    what: &'static str,
    advice: &'static str,
}

macro_rules! rows {
    ($($constant:ident $name:literal $what:literal $advice:literal)*) => {
        $(pub(super) const $constant: RowKind =
            RowKind { name: $name, what: $what, advice: $advice };)*
        /// Every row, in the order in which they are tried.
        pub(super) const ROWS: &[RowKind] = &[$($constant),*];
    };
}

rows! {
    ACCEPTED "accepted" "a genuine webhook is accepted"
        "verify the raw bytes of the body, before anything parses and rewrites them; see that the \
         secret is the right one and the clock is set"
    BAD_SIGNATURE "bad-signature" "a bad signature is refused"
        "compare the signature, in constant time, and answer 401 where it does not fit"
    MISSING_SIGNATURE "missing-signature" "a missing signature is refused"
        "answer 401 where a header of the signature is missing"
    STALE_SIGNATURE "stale-signature" "a signature of an hour ago is refused"
        "refuse a signed timestamp that is more than five minutes from your clock"
    CHANGED_BODY "changed-body" "a changed body is refused"
        "compute the signature over the whole body as it came"
    UNREAD "unread" "what is not genuine is not parsed"
        "verify first, and parse only what is genuine"
    DUPLICATE "duplicate" "a duplicate is a success"
        "answer 2xx to what you have seen: anything else makes the sender try again"
    OVERLAP "overlap" "50 duplicates at once are applied once"
        "claim the event id by one atomic insert (a unique index), never look first and insert \
         then"
    SAME_CONTENT "same-content" "two events with the same content are two"
        "deduplicate by the event's id, not by a hash of its content"
    ORDER "order" "an old version after a new one is not applied"
        "compare the object's version with the one that you hold, in the same transaction as the \
         write; answer 2xx to what is older"
    SLOW "slow" "it is acknowledged in time"
        "store the event and answer; do the work afterwards"
    LARGE_BODY "large-body" "a large body is accepted"
        "raise the body limit of your server and of every proxy before it"
    FAILURE "failure" "an event whose handler failed is applied by the next try"
        "mark an event as processed together with its effect, not before it"
    CRASH "crash" "a crash after the effect does not repeat it"
        "commit the effect and the mark in one transaction, or give the effect a key of its own"
    RESTART "restart" "what was seen is known after a restart"
        "keep the ids of events in a database, not in memory"
    LATER "later" "what was seen is known an hour later"
        "keep the ids for at least as long as the sender tries, and replays: days"
}

/// A row that was tried.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    row: &'static str,
    what: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn note(&mut self, kind: &RowKind, found: Found) {
        let (verdict, found) = match found {
            Ok(found) => found,
            Err(Trouble::Receiver(found)) => (Verdict::Fail, found),
            Err(Trouble::Effects(found)) => (Verdict::NotTried, found),
        };
        let advice = (verdict == Verdict::Fail).then_some(kind.advice);
        self.rows.push(Row { row: kind.name, what: kind.what, verdict, found, advice });
    }

    /// Whether every row passes, or does not apply.
    pub(crate) fn passes(&self) -> bool {
        self.count(Verdict::Fail) + self.count(Verdict::NotTried) == 0
    }

    /// Whether a row fails.
    pub(super) fn has_failed(&self) -> bool {
        self.count(Verdict::Fail) > 0
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// As a table for a person.
    pub(crate) fn as_text(&self) -> String {
        let mut text = String::new();
        for Row { what, verdict, found, advice, .. } in &self.rows {
            // Writing to a string does not fail.
            let _ok = writeln!(text, "{:<14}  {what}: {found}", verdict.word());
            if let Some(advice) = advice {
                let _ok = writeln!(text, "{:<14}  -> {advice}", "");
            }
        }
        text.push_str(&self.in_a_sentence());
        text
    }

    /// As one JSON object.
    pub(crate) fn as_json(&self) -> serde_json::Value {
        serde_json::json!({ "passes": self.passes(), "rows": self.rows })
    }

    /// How many rows there are of each verdict.
    pub(crate) fn in_a_sentence(&self) -> String {
        let count = |verdict| self.count(verdict);
        format!(
            "{} pass, {} fail, {} were not tried, {} do not apply",
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::NotTried),
            count(Verdict::DoesNotApply)
        )
    }
}
