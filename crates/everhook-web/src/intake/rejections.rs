//! What was turned away, counted by source and cause, and told in the log.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use everhook_domain::id::SourceId;
use everhook_domain::inbound::Rejection;
use everhook_domain::source::{Source, SourceSettings};
use everhook_domain::time::Timestamp;
use http::StatusCode;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::fetch::FetchFailed;
use crate::pace::LogPace;
use crate::problem::{Problem, ProblemKind};

/// The longest reason that is kept, told and shown, in bytes. What a reason is made of may come
/// from others: names of headers, words of a name server.
const REASON_BYTES_MAX: usize = 300;

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It is not shown to be the provider's.
    Signature,
    /// Its signed timestamp is too far from the time of arrival.
    Stale,
    /// The kind has no such method.
    Method,
    /// It has no body, and the source refuses that.
    Empty,
    /// Its body is larger than the source takes.
    TooLarge,
    /// Its content coding is not known, or not what it is said to be.
    Coding,
    /// Its body did not come, or not whole.
    Incomplete,
    /// Nothing can be verified with the source's settings.
    Misconfigured,
    /// The certificate that it is signed with could not be fetched.
    Certificate,
    /// Too much was under way.
    Overloaded,
}

impl Cause {
    const ALL: [Self; 10] = [
        Self::Signature,
        Self::Stale,
        Self::Method,
        Self::Empty,
        Self::TooLarge,
        Self::Coding,
        Self::Incomplete,
        Self::Misconfigured,
        Self::Certificate,
        Self::Overloaded,
    ];

    /// The word used in JSON and logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Signature => "signature",
            Self::Stale => "stale",
            Self::Method => "method",
            Self::Empty => "empty",
            Self::TooLarge => "too_large",
            Self::Coding => "coding",
            Self::Incomplete => "incomplete",
            Self::Misconfigured => "misconfigured",
            Self::Certificate => "certificate",
            Self::Overloaded => "overloaded",
        }
    }
}

/// A request that was turned away: why, for the source's owner, and what its sender is told, who
/// could be anybody.
#[derive(Debug)]
pub(crate) struct TurnedAway {
    pub(crate) cause: Cause,
    /// Holds neither secrets nor what was sent.
    pub(crate) reason: String,
    pub(crate) problem: Problem,
}

impl TurnedAway {
    /// By what the domain says of a request to a source with these settings.
    pub(crate) fn new(rejection: &Rejection, settings: &SourceSettings) -> Self {
        let reason = rejection.to_string();
        let (cause, problem) = match rejection {
            Rejection::Method { allow } => (Cause::Method, Problem::other_methods(allow)),
            Rejection::Signature(_) => (Cause::Signature, unverified(settings)),
            // As for a wrong one: a sender learns nothing from the difference.
            Rejection::Stale { .. } => (Cause::Stale, unverified(settings)),
            Rejection::Misconfigured(_) => (Cause::Misconfigured, not_ready()),
            Rejection::CertificateNeeded(_) => (Cause::Certificate, not_ready()),
            Rejection::Empty => {
                (Cause::Empty, Problem::new(ProblemKind::EmptyBody, reason.clone()))
            }
            Rejection::TooLarge { .. } => {
                (Cause::TooLarge, Problem::new(ProblemKind::BodyTooLarge, reason.clone()))
            }
            Rejection::UnknownCoding => {
                (Cause::Coding, Problem::new(ProblemKind::UnsupportedMediaType, reason.clone()))
            }
            Rejection::BrokenCoding => {
                (Cause::Coding, Problem::new(ProblemKind::BrokenCoding, reason.clone()))
            }
        };
        Self { cause, reason, problem }
    }

    /// What is stored of the source cannot be used.
    pub(crate) fn unusable(why: &str) -> Self {
        let reason = format!("{why}; set them anew with a PATCH of the source");
        Self { cause: Cause::Misconfigured, reason, problem: not_ready() }
    }

    /// A certificate, or a confirmation, could not be had.
    pub(crate) fn no_certificate(error: &FetchFailed) -> Self {
        Self { cause: Cause::Certificate, reason: error.to_string(), problem: not_ready() }
    }

    /// Too many requests like it are being judged.
    pub(crate) fn no_place() -> Self {
        let detail = "too many large or compressed requests are being verified at the moment; \
                      nothing was stored";
        let problem = Problem::new(ProblemKind::Overloaded, detail);
        Self { cause: Cause::Overloaded, reason: problem.detail().to_owned(), problem }
    }

    /// The body could not be read.
    pub(crate) fn unread(problem: Problem) -> Self {
        let cause = match problem.kind() {
            ProblemKind::BodyTooLarge => Cause::TooLarge,
            ProblemKind::Overloaded => Cause::Overloaded,
            _ => Cause::Incomplete,
        };
        Self { cause, reason: problem.detail().to_owned(), problem }
    }
}

fn unverified(settings: &SourceSettings) -> Problem {
    let detail = "this request is not shown to come from the provider; the owner of the source \
                  sees why. Nothing was stored";
    let status = StatusCode::from_u16(settings.options.reject_status);
    Problem::new(ProblemKind::Unverified, detail).answered(status.unwrap_or_default())
}

/// Ours to mend, so the provider must try again.
fn not_ready() -> Problem {
    let detail = "nothing can be verified at the moment, and nothing was stored; send it again \
                  later. The server's log says why";
    Problem::new(ProblemKind::SourceNotReady, detail)
}

/// Counts of all sources, since the process began.
#[derive(Debug, Default)]
pub(crate) struct Rejections {
    by_source: Mutex<HashMap<SourceId, Tally>>,
}

#[derive(Debug, Default)]
struct Tally {
    counts: [u64; Cause::ALL.len()],
    last: Option<(Cause, String, Timestamp)>,
    pace: LogPace,
}

impl Rejections {
    /// Counts one, and tells of it in the log, at most once a second for each source.
    pub(crate) fn note(&self, source: &Source, turned_away: &TurnedAway, now: Timestamp) {
        let TurnedAway { cause, reason, .. } = turned_away;
        let reason = short(reason);
        let left_out = {
            let mut by_source = self.by_source.lock().unwrap_or_else(PoisonError::into_inner);
            let tally = by_source.entry(source.id).or_default();
            tally.counts[*cause as usize] += 1;
            tally.last = Some((*cause, reason.to_owned(), now));
            tally.pace.due(now)
        };
        if let Some(left_out) = left_out {
            let (id, name) = (source.id, &source.settings.name);
            let cause = cause.as_str();
            tracing::warn!(
                source = %id, %name, cause, reason, left_out, "a webhook was turned away"
            );
        }
    }

    /// Those of a source.
    pub(crate) fn of(&self, source: SourceId) -> ShownRejections {
        let by_source = self.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = by_source.get(&source);
        ShownRejections {
            counts: tally.map(|tally| tally.counts).unwrap_or_default(),
            last: tally.and_then(|tally| tally.last.clone()),
        }
    }

    /// Forgets a source that is no more.
    pub(crate) fn forget(&self, source: SourceId) {
        self.by_source.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
    }
}

/// The beginning, if it is too long.
fn short(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

/// What was turned away at one source, as it is shown: every cause with its count.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownRejections {
    counts: [u64; Cause::ALL.len()],
    last: Option<(Cause, String, Timestamp)>,
}

impl Serialize for ShownRejections {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(serde::Serialize)]
        struct Last<'a> {
            cause: &'static str,
            reason: &'a str,
            at: Timestamp,
        }
        let mut map = serializer.serialize_map(None)?;
        for (cause, count) in Cause::ALL.iter().zip(self.counts) {
            map.serialize_entry(cause.as_str(), &count)?;
        }
        let last = self.last.as_ref().map(|(cause, reason, at)| Last {
            cause: cause.as_str(),
            reason,
            at: *at,
        });
        map.serialize_entry("last", &last)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_short() {
        for (reason, length) in [
            ("why".to_owned(), 3),
            ("x".repeat(REASON_BYTES_MAX), REASON_BYTES_MAX),
            ("x".repeat(1_000_000), REASON_BYTES_MAX),
            ("x".to_owned() + &"\u{e4}".repeat(REASON_BYTES_MAX), REASON_BYTES_MAX - 1),
        ] {
            assert_eq!(short(&reason).len(), length);
        }
    }
}
