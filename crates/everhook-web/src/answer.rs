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
    /// The version of what is shown, as it is sent in `ETag`.
    etag: Option<String>,
}

impl Rendered {
    /// A JSON body.
    pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, body: serde_json::to_vec(body).unwrap_or_default(), etag: None }
    }

    /// The same, of something that has this version.
    pub(crate) fn versioned(self, version: u64) -> Self {
        Self { etag: Some(format!("\"{version}\"")), ..self }
    }

    /// The form that is remembered under a key.
    pub(crate) fn into_answer(self) -> Answer {
        let mut headers = vec![(header::CONTENT_TYPE.as_str().to_owned(), JSON.to_owned())];
        headers.extend(self.etag.map(|etag| (header::ETAG.as_str().to_owned(), etag)));
        Answer { status: self.status.as_u16(), headers, body: self.body }
    }

    /// The form that is sent now.
    pub(crate) fn into_response(self) -> Response {
        let body = Body::from(self.body);
        let mut response = response(self.status, HeaderValue::from_static(JSON), body);
        if let Some(etag) = self.etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response
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
