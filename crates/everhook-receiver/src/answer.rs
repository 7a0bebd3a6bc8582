//! What senders are answered. They look at the status; people read the rest.

use bytes::Bytes;
use everhook_domain::inbound::{Answer, Rejection};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::verify::Verifier;

/// When an event is to come again that somebody is at work on, or that could not be taken. Senders
/// mostly have a schedule of their own; those that listen need no more than this.
const RETRY_AFTER_S: u16 = 5;

/// A request that is not taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// It is not shown to be the provider's, or it is stale: a sender learns no difference.
    Unverified(StatusCode),
    /// The kind has no such method.
    Method(&'static [&'static str]),
    /// Nothing can be verified now, which is ours to mend.
    NotReady,
    EmptyBody,
    BodyTooLarge,
    UnknownCoding,
    BrokenCoding,
    /// The body broke off.
    Incomplete,
    /// Another attempt is at work on one of its events.
    InProgress,
    /// The store is away, or the work could not be recorded.
    StoreAway,
    /// The handler panicked.
    Broken,
}

impl Refusal {
    pub(crate) fn of(rejection: &Rejection, verifier: &Verifier) -> Self {
        match rejection {
            Rejection::Signature(_) | Rejection::Stale { .. } => {
                let status = StatusCode::from_u16(verifier.reject_status());
                Self::Unverified(status.unwrap_or(StatusCode::UNAUTHORIZED))
            }
            Rejection::Method { allow } => Self::Method(allow),
            Rejection::Misconfigured(_) | Rejection::CertificateNeeded(_) => Self::NotReady,
            Rejection::Empty => Self::EmptyBody,
            Rejection::TooLarge { .. } => Self::BodyTooLarge,
            Rejection::UnknownCoding => Self::UnknownCoding,
            Rejection::BrokenCoding => Self::BrokenCoding,
        }
    }

    fn row(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Unverified(status) => {
                (status, "unverified", "The request is not shown to come from the provider")
            }
            Self::Method(_) => (
                StatusCode::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "The provider uses another method",
            ),
            Self::NotReady => (
                StatusCode::SERVICE_UNAVAILABLE,
                "source-not-ready",
                "Nothing can be verified at the moment; send it again",
            ),
            Self::EmptyBody => (StatusCode::BAD_REQUEST, "empty-body", "The body is empty"),
            Self::BodyTooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large")
            }
            Self::UnknownCoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "The content coding is not known",
            ),
            Self::BrokenCoding => (
                StatusCode::BAD_REQUEST,
                "broken-coding",
                "The body is not what its Content-Encoding says",
            ),
            Self::Incomplete => {
                (StatusCode::BAD_REQUEST, "unreadable-body", "The body could not be read")
            }
            Self::InProgress => (
                StatusCode::SERVICE_UNAVAILABLE,
                "event-in-progress",
                "An earlier attempt is being worked on; send it again",
            ),
            Self::StoreAway => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The event could not be recorded; send it again",
            ),
            Self::Broken => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "The service failed; send it again")
            }
        }
    }

    pub(crate) fn response(self) -> Response<Bytes> {
        let (status, slug, title) = self.row();
        let body = format!(
            r#"{{"type":"urn:everhook:problem:{slug}","title":"{title}","status":{}}}"#,
            status.as_u16()
        );
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        if let Self::Method(allow) = self
            && let Ok(allow) = HeaderValue::from_str(&allow.join(", "))
        {
            headers.insert(header::ALLOW, allow);
        }
        response
    }
}

/// The answer for what was taken without a handler, or is known.
pub(crate) fn success(verifier: &Verifier, is_duplicate: bool) -> Response<Bytes> {
    let word = if is_duplicate { "duplicate" } else { "accepted" };
    given(verifier.answer(is_duplicate).unwrap_or_else(|| Answer {
        status: 200,
        headers: vec![("content-type", "application/json".to_owned())],
        body: format!(r#"{{"status":"{word}"}}"#).into_bytes(),
    }))
}

/// An answer that the domain gives.
pub(crate) fn given(answer: Answer) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
