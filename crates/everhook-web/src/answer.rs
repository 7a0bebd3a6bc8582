//! How every response is put together: status, content headers, body, and the headers that keep a
//! browser from doing anything with it.

use axum::body::Body;
use axum::response::Response;
use everhook_domain::idempotency::{self, Answer};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

/// The media type of everything that is not a problem.
pub(crate) const JSON: &str = "application/json";
/// Marks an answer that was given before.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static(idempotency::answer::REPLAYED);

/// A response with the security headers that all have: answers are for programs that ask with
/// credentials, so nothing may cache, sniff, frame or render them.
pub(crate) fn response(status: StatusCode, content_type: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.reserve(6);
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    response
}

/// A 200 with this body.
pub(crate) fn ok(body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    response(StatusCode::OK, HeaderValue::from_static(JSON), Body::from(bytes))
}

/// What a verb's result is answered with: the same for the direct answer and the remembered one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
}

impl Rendered {
    /// A JSON body.
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, body: serde_json::to_vec(body).unwrap_or_default() }
    }

    /// The form that is remembered under a key.
    pub(crate) fn into_answer(self) -> Answer {
        Answer {
            status: self.status.as_u16(),
            headers: vec![(header::CONTENT_TYPE.as_str().to_owned(), JSON.to_owned())],
            body: self.body,
        }
    }

    /// The form that is sent now.
    pub(crate) fn into_response(self) -> Response {
        response(self.status, HeaderValue::from_static(JSON), Body::from(self.body))
    }
}

/// The response for a remembered answer: status, content headers and bytes as they were.
pub(crate) fn replayed(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let remembered = answer.header_map();
    let mut response = response(status, HeaderValue::from_static(JSON), Body::from(answer.body));
    let headers = response.headers_mut();
    headers.extend(remembered);
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// A 204.
pub(crate) fn empty() -> Response {
    let mut response =
        response(StatusCode::NO_CONTENT, HeaderValue::from_static(JSON), Body::empty());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}
