//! The result of one attempt. An expected failure is data here, never an `Err`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Why an attempt failed, as a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// An answer that is not 200–299.
    Status,
    /// No status line and headers within the deadline.
    Timeout,
    /// The name did not resolve.
    Dns,
    /// The connection was refused or no route led to it.
    Refused,
    /// The connection ended before the answer's headers were complete.
    Reset,
    /// The TLS handshake failed.
    Tls,
    /// The address may not be connected to.
    Blocked,
    /// The endpoint's own settings, or limits of this machine, make a request impossible.
    Configuration,
    /// The answer was not HTTP.
    Protocol,
}

impl ErrorClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Status,
        Self::Timeout,
        Self::Dns,
        Self::Refused,
        Self::Reset,
        Self::Tls,
        Self::Blocked,
        Self::Configuration,
        Self::Protocol,
    ];

    /// The word used in JSON, SQL, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Timeout => "timeout",
            Self::Dns => "dns",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Tls => "tls",
            Self::Blocked => "blocked",
            Self::Configuration => "configuration",
            Self::Protocol => "protocol",
        }
    }

    /// The class with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

/// Why an attempt failed: the class and one plain sentence without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptError {
    /// The kind of failure.
    pub class: ErrorClass,
    /// What happened, for a person.
    pub detail: String,
}

/// The part of an answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptResponse {
    /// The status code.
    pub status: u16,
    /// Header names and values as text, bytes that are not text escaped.
    pub headers: Vec<(String, String)>,
    /// The start of the body as text, cut on a character boundary, bytes that are not text escaped.
    pub body: String,
    /// Whether the body went on beyond what was kept.
    pub truncated: bool,
}

/// What one attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutcome {
    /// The answer, if its status line and headers arrived in time.
    pub response: Option<KeptResponse>,
    /// The failure; `None` exactly when the answer was 200–299.
    pub error: Option<AttemptError>,
    /// The wait that the answer's `Retry-After` asked for.
    pub retry_after: Option<Duration>,
    /// Whether the request was sent again on a fresh connection, because a pooled one had been
    /// closed under it before any byte of an answer.
    pub resent: bool,
}

impl AttemptOutcome {
    /// The outcome of an answer: 200–299 is a success, everything else a failure of class `status`.
    pub fn answered(response: KeptResponse, retry_after: Option<Duration>) -> Self {
        let status = response.status;
        let error = (!(200..300).contains(&status)).then(|| AttemptError {
            class: ErrorClass::Status,
            detail: format!("the endpoint answered with status {status}{}", advice(status)),
        });
        Self { response: Some(response), error, retry_after, resent: false }
    }

    /// A failure before an answer.
    pub fn failed(class: ErrorClass, detail: impl Into<String>) -> Self {
        let error = Some(AttemptError { class, detail: detail.into() });
        Self { response: None, error, retry_after: None, resent: false }
    }

    /// Whether the delivery is done.
    pub fn is_success(&self) -> bool {
        self.error.is_none()
    }
}

/// What to do about a status that many take for something else: redirects are widely followed, here
/// never. Not modified (RFC 9110 §15.4.5) points nowhere.
const fn advice(status: u16) -> &'static str {
    match status {
        300..=303 | 305..=399 => {
            ", a redirect, which is never followed: change the endpoint's URL if it has moved"
        }
        _ => "",
    }
}

/// What made an attempt happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The schedule.
    Schedule,
    /// A replay, by hand or in bulk.
    Replay,
    /// The endpoint's test button.
    Test,
}

impl Trigger {
    /// The word used in JSON, SQL, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Replay => "replay",
            Self::Test => "test",
        }
    }
}

/// What is known of an attempt when it has ended, as the engine reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// When name resolution began.
    pub started_at: Timestamp,
    /// From the start until nothing more of the answer was waited for: the part of the body that is
    /// kept counts, though it decides nothing, because the attempt held its slot for as long.
    pub duration: Duration,
    /// The URL that was used, without credentials.
    pub url: String,
    /// What it came to.
    pub outcome: AttemptOutcome,
}

/// One numbered attempt of a delivery, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Counts on from 1 through all rounds; the value of the attempt header.
    pub number: u32,
    /// The round it belongs to, from 1.
    pub round: u32,
    /// What made it happen.
    pub trigger: Trigger,
    /// Start, length, URL and result.
    pub report: AttemptReport,
}
