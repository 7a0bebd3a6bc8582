//! Every kind of problem. Slugs, statuses and titles are part of the contract.

use http::StatusCode;

/// Every kind of problem: what it is called and which status it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The body is not JSON.
    MalformedJson,
    /// A member is there twice.
    DuplicateMember,
    /// The body could not be read.
    UnreadableBody,
    /// A path that could lead elsewhere than it seems.
    UnsafePath,
    /// A header cannot be understood.
    InvalidHeader,
    /// A query parameter is unknown or cannot be understood.
    InvalidParameter,
    /// A cursor that this list did not give out for these filters.
    InvalidCursor,
    /// An `Idempotency-Key` that is none.
    InvalidIdempotencyKey,
    /// A webhook without a body, where the source refuses that.
    EmptyBody,
    /// A body that is not what its content coding says.
    BrokenCoding,
    /// No credentials, or wrong ones.
    Unauthorized,
    /// A webhook that is not shown to be its provider's.
    Unverified,
    /// The credentials do not reach as far.
    Forbidden,
    /// There is no such thing in this tenant.
    NotFound,
    /// There is no such path.
    UnknownPath,
    /// There is no such tenant.
    UnknownTenant,
    /// There is no such source to send to.
    UnknownSource,
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
    /// Endpoints take what a source receives by the name that it has.
    SourceStillNamed,
    /// The tenant has as many sources as it may have.
    TooManySources,
    /// The receipt's state forbids it.
    ReceiptState,
    /// How far the idempotency record has come forbids it.
    RecordState,
    /// The claim is somebody else's by now, or settled.
    ClaimLost,
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
    /// The key was claimed for other work.
    ClaimMismatch,
    /// The account has as many keys as it may have, or as much remembered for them.
    IdempotencyQuota,
    /// Our own failure.
    Internal,
    /// The store takes nothing at the moment.
    StoreUnavailable,
    /// Too much is under way.
    Overloaded,
    /// The server is not ready.
    NotReady,
    /// A source cannot verify anything.
    SourceNotReady,
    /// A request with an `Idempotency-Key` was handed on, and its answer was lost.
    OutcomeUnknown,
    /// What was asked of the proxy cannot be handed on.
    NotForwarded,
    /// The service behind the proxy broke off.
    UpstreamFailed,
    /// The service behind the proxy cannot be reached.
    UpstreamUnreachable,
    /// The service behind the proxy went silent.
    UpstreamTimeout,
}

impl ProblemKind {
    /// Every kind, by status.
    pub const ALL: [Self; 52] = [
        Self::MalformedJson,
        Self::DuplicateMember,
        Self::UnreadableBody,
        Self::UnsafePath,
        Self::InvalidHeader,
        Self::InvalidParameter,
        Self::InvalidCursor,
        Self::InvalidIdempotencyKey,
        Self::EmptyBody,
        Self::BrokenCoding,
        Self::Unauthorized,
        Self::Unverified,
        Self::Forbidden,
        Self::NotFound,
        Self::UnknownPath,
        Self::UnknownTenant,
        Self::UnknownSource,
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
        Self::SourceStillNamed,
        Self::TooManySources,
        Self::ReceiptState,
        Self::RecordState,
        Self::ClaimLost,
        Self::OutcomeUnknown,
        Self::PreconditionFailed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::Invalid,
        Self::IdempotencyKeyReused,
        Self::ClaimMismatch,
        Self::IdempotencyQuota,
        Self::Internal,
        Self::NotForwarded,
        Self::UpstreamFailed,
        Self::StoreUnavailable,
        Self::Overloaded,
        Self::NotReady,
        Self::SourceNotReady,
        Self::UpstreamUnreachable,
        Self::UpstreamTimeout,
    ];

    /// Status, slug and title.
    const fn row(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::MalformedJson => (400, "malformed-json", "The body is not valid JSON"),
            Self::DuplicateMember => (400, "duplicate-member", "A member is there twice"),
            Self::UnreadableBody => (400, "unreadable-body", "The body could not be read"),
            Self::UnsafePath => (400, "unsafe-path", "The path could lead elsewhere"),
            Self::InvalidHeader => (400, "invalid-header", "A header is malformed"),
            Self::InvalidParameter => (400, "invalid-parameter", "A query parameter is wrong"),
            Self::InvalidCursor => (400, "invalid-cursor", "The cursor cannot be used"),
            Self::InvalidIdempotencyKey => {
                (400, "invalid-idempotency-key", "The Idempotency-Key is malformed")
            }
            Self::EmptyBody => (400, "empty-body", "The body is empty"),
            Self::BrokenCoding => (400, "broken-coding", "The body cannot be decoded"),
            Self::Unverified => (401, "unverified", "The request is not verified"),
            Self::Unauthorized => (401, "unauthorized", "Credentials are missing or wrong"),
            Self::Forbidden => (403, "forbidden", "The credentials do not reach this far"),
            Self::NotFound => (404, "not-found", "There is no such thing"),
            Self::UnknownPath => (404, "unknown-path", "There is no such path"),
            Self::UnknownTenant => (404, "unknown-tenant", "There is no such tenant"),
            Self::UnknownSource => (404, "unknown-source", "There is no such source"),
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
            Self::SourceStillNamed => (409, "source-still-named", "Endpoints name the source"),
            Self::TooManySources => (409, "too-many-sources", "Too many sources"),
            Self::ReceiptState => (409, "receipt-state", "The receipt's state forbids it"),
            Self::RecordState => (409, "record-state", "The record's state forbids it"),
            Self::ClaimLost => (409, "claim-lost", "The claim is somebody else's"),
            Self::OutcomeUnknown => (409, "outcome-unknown", "Nobody knows how the request ended"),
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
            Self::ClaimMismatch => (422, "claim-mismatch", "The key was claimed for other work"),
            Self::IdempotencyQuota => (429, "idempotency-quota", "The account has too many keys"),
            Self::Internal => (500, "internal", "Everhook failed"),
            Self::NotForwarded => (501, "not-forwarded", "This cannot be handed on"),
            Self::UpstreamFailed => (502, "upstream-failed", "The service broke off"),
            Self::StoreUnavailable => (503, "store-unavailable", "The store takes nothing now"),
            Self::Overloaded => (503, "overloaded", "Too much is under way"),
            Self::NotReady => (503, "not-ready", "The server is not ready"),
            Self::SourceNotReady => (503, "source-not-ready", "The source cannot verify now"),
            Self::UpstreamUnreachable => {
                (503, "upstream-unreachable", "The service cannot be reached")
            }
            Self::UpstreamTimeout => (504, "upstream-timeout", "The service went silent"),
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
