//! Everything that is answered when a request is not done: the one place that knows which error has
//! which status code.
//!
//! The form is `application/problem+json` (RFC 9457). `type` is `urn:everhook:problem:<slug>`;
//! slugs are part of the contract and compared with a golden file. A detail says what was wrong,
//! where, and what to do; it never holds payloads, credentials or the store's own words.

mod kind;

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use everhook_domain::access::Scope;
use everhook_domain::delivery::{CancelReason, IllegalStep};
use everhook_domain::endpoint::IllegalVerb;
use everhook_store::{Refusal, StoreError};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::answer;

pub use kind::ProblemKind;

/// What every problem's `type` begins with.
pub const TYPE_PREFIX: &str = "urn:everhook:problem:";
/// The most entries of `errors` that one answer lists.
pub const ERRORS_MAX: usize = 1_000;
/// The longest pointer that is shown whole, in characters.
const POINTER_CHARS_MAX: usize = 256;
/// What `Retry-After` says while the store takes nothing.
const STORE_RETRY_AFTER_S: u32 = 5;
/// What `Retry-After` says while too much is under way.
const OVERLOAD_RETRY_AFTER_S: u32 = 1;
/// How long a client whose account has too many keys waits: some are over by then, or none.
const QUOTA_RETRY_AFTER_S: u32 = 60;

/// One thing that is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where, as a JSON pointer (RFC 6901) into the body.
    pub pointer: String,
    /// What, and what is right.
    pub detail: Cow<'static, str>,
}

/// A request that was not done, as it is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    /// The methods that the path has.
    allow: &'static [&'static str],
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    reasons: Vec<Cow<'static, str>>,
    /// The idempotency record that it is about.
    record: Option<String>,
}

/// The answer's body.
#[derive(Serialize)]
struct Shown<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "<[Cow<'static, str>]>::is_empty")]
    reasons: &'a [Cow<'static, str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a str>,
}

impl Problem {
    /// A problem of this kind. The detail must hold no payload and no credentials.
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            status: kind.status(),
            allow: &[],
            detail: detail.into(),
            errors: Vec::new(),
            reasons: Vec::new(),
            record: None,
        }
    }

    /// The same problem, answered with another status.
    pub(crate) fn answered(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The same problem, naming the idempotency record that it is about.
    pub(crate) fn with_record(self, record: String) -> Self {
        Self { record: Some(record), ..self }
    }

    /// The path has these methods, and no other.
    pub(crate) fn other_methods(allow: &'static [&'static str]) -> Self {
        let detail = "this path does not have this method; see the header Allow";
        Self { allow, ..Self::new(ProblemKind::MethodNotAllowed, detail) }
    }

    /// The credentials do not reach as far as this.
    pub(crate) fn forbidden(needed: Scope) -> Self {
        Self::new(
            ProblemKind::Forbidden,
            format!("this needs the scope '{needed}', which these credentials do not have"),
        )
    }

    /// Nothing with this id in the caller's tenant.
    pub(crate) fn not_found(what: &'static str) -> Self {
        Self::new(ProblemKind::NotFound, format!("there is no such {what} in this tenant"))
    }

    /// The same problem, saying what it was that was not found.
    pub(crate) fn about(self, what: &'static str) -> Self {
        match self.kind {
            ProblemKind::NotFound => Self::not_found(what),
            _ => self,
        }
    }

    /// Our own failure. What it was is in the log.
    pub(crate) fn internal() -> Self {
        Self::new(
            ProblemKind::Internal,
            "Everhook could not do this; the server's log says why. Trying again is safe with an \
             Idempotency-Key",
        )
    }

    /// The store takes nothing at the moment.
    pub(crate) fn store_unavailable() -> Self {
        Self::new(
            ProblemKind::StoreUnavailable,
            "nothing was changed; try again later. The server's log says why",
        )
    }

    /// The server is not ready, for these reasons.
    pub(crate) fn not_ready(reasons: Vec<Cow<'static, str>>) -> Self {
        Self { reasons, ..Self::new(ProblemKind::NotReady, "see reasons") }
    }

    /// What kind of problem it is.
    pub const fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// What was wrong, where, and what to do.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What is wrong with the request, at most [`ERRORS_MAX`] entries.
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// The body that is answered.
    pub fn to_json(&self) -> Vec<u8> {
        let shown = Shown {
            r#type: format!("{TYPE_PREFIX}{}", self.kind.slug()),
            title: self.kind.title(),
            status: self.status.as_u16(),
            detail: &self.detail,
            errors: &self.errors,
            reasons: &self.reasons,
            record: self.record.as_deref(),
        };
        serde_json::to_vec(&shown).unwrap_or_default()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = answer::response(
            self.status,
            HeaderValue::from_static("application/problem+json"),
            Body::from(self.to_json()),
        );
        let headers = response.headers_mut();
        match self.kind {
            ProblemKind::Unauthorized => {
                let challenge = HeaderValue::from_static("Bearer realm=\"everhook\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            // Every 401 has a challenge (RFC 9110 §15.5.2).
            ProblemKind::Unverified if self.status == StatusCode::UNAUTHORIZED => {
                let challenge = HeaderValue::from_static("Signature realm=\"webhooks\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            ProblemKind::MethodNotAllowed if !self.allow.is_empty() => {
                if let Ok(allow) = HeaderValue::from_str(&self.allow.join(", ")) {
                    headers.insert(header::ALLOW, allow);
                }
            }
            ProblemKind::StoreUnavailable
            | ProblemKind::NotReady
            | ProblemKind::SourceNotReady
            | ProblemKind::UpstreamUnreachable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(STORE_RETRY_AFTER_S));
            }
            ProblemKind::IdempotencyQuota => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(QUOTA_RETRY_AFTER_S));
            }
            ProblemKind::Overloaded | ProblemKind::StillCancelling | ProblemKind::StillErasing => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(OVERLOAD_RETRY_AFTER_S));
            }
            _ => {}
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::NotFound => ProblemKind::NotFound,
            Refusal::Step(IllegalStep::Ended) => ProblemKind::DeliveryEnded,
            Refusal::Step(IllegalStep::NotDead) => ProblemKind::DeliveryNotDead,
            Refusal::Step(IllegalStep::EndpointGone(reason)) => return Self::from(*reason),
            // Only a lease's owner meets these.
            Refusal::Step(IllegalStep::Stale | IllegalStep::NotDue) => ProblemKind::Changed,
            Refusal::VersionChanged => ProblemKind::Changed,
            Refusal::Stale { .. } => ProblemKind::PreconditionFailed,
            Refusal::Endpoint(IllegalVerb::Disabled) => ProblemKind::EndpointDisabled,
            Refusal::Endpoint(IllegalVerb::Deleted) => ProblemKind::EndpointDeleted,
            Refusal::StillCancelling => ProblemKind::StillCancelling,
            Refusal::StillErasing => ProblemKind::StillErasing,
            Refusal::DefaultTenant => ProblemKind::DefaultTenant,
            Refusal::Taken => ProblemKind::NameTaken,
            Refusal::TooManyEndpoints => ProblemKind::TooManyEndpoints,
            Refusal::NameTaken => ProblemKind::NameTaken,
            Refusal::StillNamed(_) => ProblemKind::SourceStillNamed,
            Refusal::TooManySources => ProblemKind::TooManySources,
            Refusal::Receipt(_) => ProblemKind::ReceiptState,
            Refusal::Record(_) => ProblemKind::RecordState,
            Refusal::Secrets(_) => ProblemKind::TooManySecrets,
        };
        Self::new(kind, refusal.to_string())
    }
}

/// The endpoint takes no requests.
impl From<CancelReason> for Problem {
    fn from(reason: CancelReason) -> Self {
        match reason {
            CancelReason::EndpointDeleted => {
                Self::new(ProblemKind::EndpointDeleted, "a deleted endpoint takes no requests")
            }
            CancelReason::EndpointDisabled | CancelReason::Requested => Self::new(
                ProblemKind::EndpointDisabled,
                "a disabled endpoint takes no requests; enable it first",
            ),
        }
    }
}

/// What the store's words are is for the log; see `FailureLog`.
impl From<&StoreError> for Problem {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Refused(refusal) => Self::from(refusal.clone()),
            StoreError::Unavailable(_) => Self::store_unavailable(),
            StoreError::Failed(_) => Self::internal(),
        }
    }
}

/// Collects everything that is wrong with a request.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors {
    listed: Vec<FieldError>,
    total: usize,
}

impl FieldErrors {
    /// Notes one thing that is wrong at `base` and then `name`, which is escaped here.
    pub(crate) fn add(&mut self, base: &str, name: &str, detail: impl Into<Cow<'static, str>>) {
        self.total += 1;
        if self.listed.len() < ERRORS_MAX {
            let pointer = pointer(base, name);
            self.listed.push(FieldError { pointer, detail: detail.into() });
        }
    }

    /// Notes one thing that is wrong with the value at `pointer` itself.
    pub(crate) fn add_at(&mut self, pointer: &str, detail: impl Into<Cow<'static, str>>) {
        self.total += 1;
        if self.listed.len() < ERRORS_MAX {
            self.listed.push(FieldError { pointer: pointer.to_owned(), detail: detail.into() });
        }
    }

    /// Whether something is wrong with the value at `pointer` itself.
    pub(crate) fn has_at(&self, pointer: &str) -> bool {
        self.listed.iter().any(|error| error.pointer == pointer)
    }

    /// Whether nothing was wrong.
    pub(crate) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Nothing, or one problem with everything in it.
    pub(crate) fn check(self) -> Result<(), Problem> {
        if self.is_empty() {
            return Ok(());
        }
        let detail = match (self.total, self.listed.len()) {
            (1, _) => Cow::from("one thing is wrong, see errors; nothing was stored"),
            (total, listed) if total == listed => {
                Cow::from(format!("{total} things are wrong, see errors; nothing was stored"))
            }
            (total, listed) => Cow::from(format!(
                "{total} things are wrong, the first {listed} are in errors; nothing was stored"
            )),
        };
        let errors = self.listed;
        Err(Problem { errors, ..Problem::new(ProblemKind::Invalid, detail) })
    }
}

/// The pointer to the member `name` of what is at `base`. A very long name is cut.
pub(crate) fn pointer(base: &str, name: &str) -> String {
    let mut pointer = format!("{base}/");
    for (place, character) in name.chars().enumerate() {
        match character {
            _ if place == POINTER_CHARS_MAX => {
                pointer.push('…');
                break;
            }
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_escape_and_are_bounded() {
        for (base, name, expected) in
            [("", "type", "/type"), ("/events/3", "a/b~c", "/events/3/a~1b~0c"), ("", "", "/")]
        {
            assert_eq!(pointer(base, name), expected);
        }
        assert_eq!(pointer("", &"x".repeat(1_000)).chars().count(), 1 + POINTER_CHARS_MAX + 1);
    }

    #[test]
    fn many_errors_are_counted_and_the_first_listed() {
        let mut errors = FieldErrors::default();
        for n in 0..ERRORS_MAX + 5 {
            errors.add("", &n.to_string(), "unknown member");
        }
        let problem = errors.check().expect_err("something is wrong");
        assert_eq!(problem.errors().len(), ERRORS_MAX);
        assert!(problem.detail().contains("1005"), "{}", problem.detail());
    }

    #[test]
    fn the_stores_words_stay_inside() {
        for error in [
            StoreError::Unavailable("disk /secret full".to_owned()),
            StoreError::Failed("SELECT secret".to_owned()),
        ] {
            let body = String::from_utf8(Problem::from(&error).to_json()).expect("UTF-8");
            assert!(!body.contains("secret"), "{body}");
        }
    }
}
