//! Everything that is answered when a request is not done: the one place that knows which error has
//! which status code.
//!
//! The form is `application/problem+json` (RFC 9457). `type` is `urn:everhook:problem:<slug>`;
//! slugs are part of the contract and compared with a golden file. A detail says what was wrong,
//! where, and what to do; it never holds payloads, credentials or the store's own words.

use std::borrow::Cow;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use everhook_domain::delivery::{CancelReason, IllegalStep};
use everhook_domain::endpoint::IllegalVerb;
use everhook_store::{Refusal, StoreError};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::answer;

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

/// Every kind of problem: what it is called and which status it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The body is not JSON.
    MalformedJson,
    /// A member is there twice.
    DuplicateMember,
    /// The body could not be read.
    UnreadableBody,
    /// A header cannot be understood.
    InvalidHeader,
    /// A query parameter is unknown or cannot be understood.
    InvalidParameter,
    /// A cursor that this list did not give out for these filters.
    InvalidCursor,
    /// An `Idempotency-Key` that is none.
    InvalidIdempotencyKey,
    /// No credentials, or wrong ones.
    Unauthorized,
    /// There is no such thing in this tenant.
    NotFound,
    /// There is no such path.
    UnknownPath,
    /// There is no such tenant.
    UnknownTenant,
    /// The path has other methods.
    MethodNotAllowed,
    /// The body did not arrive in time.
    RequestTimeout,
    /// The endpoint is disabled.
    EndpointDisabled,
    /// The endpoint is deleted.
    EndpointDeleted,
    /// The endpoint's deliveries are still being cancelled.
    StillCancelling,
    /// The tenant with this id is still being erased.
    StillErasing,
    /// The default tenant stays.
    DefaultTenant,
    /// The delivery has ended.
    DeliveryEnded,
    /// The delivery is not dead.
    DeliveryNotDead,
    /// It was changed in the meantime.
    Changed,
    /// The name is taken.
    NameTaken,
    /// Too many signing secrets are live.
    TooManySecrets,
    /// The tenant has as many endpoints as it may have.
    TooManyEndpoints,
    /// The tenant has as many sources as it may have.
    TooManySources,
    /// The receipt's state forbids it.
    ReceiptState,
    /// `If-Match` names another version.
    PreconditionFailed,
    /// The body is larger than allowed.
    BodyTooLarge,
    /// The body is not of a type that is understood.
    UnsupportedMediaType,
    /// Well-formed, but not what is asked for.
    Invalid,
    /// The `Idempotency-Key` was used for another request.
    IdempotencyKeyReused,
    /// Our own failure.
    Internal,
    /// The store takes nothing at the moment.
    StoreUnavailable,
    /// Too much is under way.
    Overloaded,
    /// The server is not ready.
    NotReady,
}

impl ProblemKind {
    /// Every kind, by status.
    pub const ALL: [Self; 35] = [
        Self::MalformedJson,
        Self::DuplicateMember,
        Self::UnreadableBody,
        Self::InvalidHeader,
        Self::InvalidParameter,
        Self::InvalidCursor,
        Self::InvalidIdempotencyKey,
        Self::Unauthorized,
        Self::NotFound,
        Self::UnknownPath,
        Self::UnknownTenant,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::EndpointDisabled,
        Self::EndpointDeleted,
        Self::StillCancelling,
        Self::StillErasing,
        Self::DefaultTenant,
        Self::DeliveryEnded,
        Self::DeliveryNotDead,
        Self::Changed,
        Self::NameTaken,
        Self::TooManySecrets,
        Self::TooManyEndpoints,
        Self::TooManySources,
        Self::ReceiptState,
        Self::PreconditionFailed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::Invalid,
        Self::IdempotencyKeyReused,
        Self::Internal,
        Self::StoreUnavailable,
        Self::Overloaded,
        Self::NotReady,
    ];

    /// Status, slug and title.
    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::MalformedJson => (400, "malformed-json", "The body is not valid JSON"),
            Self::DuplicateMember => (400, "duplicate-member", "A member is there twice"),
            Self::UnreadableBody => (400, "unreadable-body", "The body could not be read"),
            Self::InvalidHeader => (400, "invalid-header", "A header is malformed"),
            Self::InvalidParameter => (400, "invalid-parameter", "A query parameter is wrong"),
            Self::InvalidCursor => (400, "invalid-cursor", "The cursor cannot be used"),
            Self::InvalidIdempotencyKey => {
                (400, "invalid-idempotency-key", "The Idempotency-Key is malformed")
            }
            Self::Unauthorized => (401, "unauthorized", "Credentials are missing or wrong"),
            Self::NotFound => (404, "not-found", "There is no such thing"),
            Self::UnknownPath => (404, "unknown-path", "There is no such path"),
            Self::UnknownTenant => (404, "unknown-tenant", "There is no such tenant"),
            Self::MethodNotAllowed => (405, "method-not-allowed", "The path has other methods"),
            Self::RequestTimeout => (408, "request-timeout", "The body came too slowly"),
            Self::EndpointDisabled => (409, "endpoint-disabled", "The endpoint is disabled"),
            Self::EndpointDeleted => (409, "endpoint-deleted", "The endpoint is deleted"),
            Self::StillCancelling => {
                (409, "still-cancelling", "Deliveries are still being cancelled")
            }
            Self::StillErasing => (409, "still-erasing", "A tenant is still being erased"),
            Self::DefaultTenant => (409, "default-tenant", "The default tenant stays"),
            Self::DeliveryEnded => (409, "delivery-ended", "The delivery has ended"),
            Self::DeliveryNotDead => (409, "delivery-not-dead", "The delivery is not dead"),
            Self::Changed => (409, "changed", "It was changed in the meantime"),
            Self::NameTaken => (409, "name-taken", "The name is taken"),
            Self::TooManySecrets => (409, "too-many-secrets", "Too many secrets are in use"),
            Self::TooManyEndpoints => (409, "too-many-endpoints", "Too many endpoints"),
            Self::TooManySources => (409, "too-many-sources", "Too many sources"),
            Self::ReceiptState => (409, "receipt-state", "The receipt's state forbids it"),
            Self::PreconditionFailed => {
                (412, "precondition-failed", "If-Match names another version")
            }
            Self::BodyTooLarge => (413, "body-too-large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (415, "unsupported-media-type", "The body's type is not supported")
            }
            Self::Invalid => (422, "invalid", "The request is invalid"),
            Self::IdempotencyKeyReused => {
                (422, "idempotency-key-reused", "The Idempotency-Key was used before")
            }
            Self::Internal => (500, "internal", "Everhook failed"),
            Self::StoreUnavailable => (503, "store-unavailable", "The store takes nothing now"),
            Self::Overloaded => (503, "overloaded", "Too much is under way"),
            Self::NotReady => (503, "not-ready", "The server is not ready"),
        }
    }

    /// The last part of `type`.
    pub const fn slug(self) -> &'static str {
        self.row().1
    }

    /// The short text for the kind.
    pub const fn title(self) -> &'static str {
        self.row().2
    }

    /// The status code.
    pub fn status(self) -> StatusCode {
        StatusCode::from_u16(self.row().0).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

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
    detail: Cow<'static, str>,
    errors: Vec<FieldError>,
    reasons: Vec<Cow<'static, str>>,
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
}

impl Problem {
    /// A problem of this kind. The detail must hold no payload and no credentials.
    pub fn new(kind: ProblemKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), reasons: Vec::new() }
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
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            errors: &self.errors,
            reasons: &self.reasons,
        };
        serde_json::to_vec(&shown).unwrap_or_default()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = answer::response(
            self.kind.status(),
            HeaderValue::from_static("application/problem+json"),
            Body::from(self.to_json()),
        );
        let headers = response.headers_mut();
        match self.kind {
            ProblemKind::Unauthorized => {
                let challenge = HeaderValue::from_static("Bearer realm=\"everhook\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            ProblemKind::StoreUnavailable | ProblemKind::NotReady => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(STORE_RETRY_AFTER_S));
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
        let kind = match refusal {
            Refusal::NotFound => ProblemKind::NotFound,
            Refusal::Step(IllegalStep::Ended) => ProblemKind::DeliveryEnded,
            Refusal::Step(IllegalStep::NotDead) => ProblemKind::DeliveryNotDead,
            Refusal::Step(IllegalStep::EndpointGone(reason)) => return Self::from(reason),
            // Only a lease's owner meets these.
            Refusal::Step(IllegalStep::Stale | IllegalStep::NotDue) => ProblemKind::Changed,
            Refusal::VersionChanged => ProblemKind::Changed,
            Refusal::Endpoint(IllegalVerb::Disabled) => ProblemKind::EndpointDisabled,
            Refusal::Endpoint(IllegalVerb::Deleted) => ProblemKind::EndpointDeleted,
            Refusal::StillCancelling => ProblemKind::StillCancelling,
            Refusal::StillErasing => ProblemKind::StillErasing,
            Refusal::DefaultTenant => ProblemKind::DefaultTenant,
            Refusal::Taken => ProblemKind::NameTaken,
            Refusal::TooManyEndpoints => ProblemKind::TooManyEndpoints,
            Refusal::NameTaken => ProblemKind::NameTaken,
            Refusal::TooManySources => ProblemKind::TooManySources,
            Refusal::Receipt(_) => ProblemKind::ReceiptState,
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
            StoreError::Refused(refusal) => Self::from(*refusal),
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
