//! What senders are answered. Providers look at the status; people read the rest.

use axum::body::Body;
use axum::response::Response;
use everhook_domain::inbound::Answer;
use everhook_domain::source::SourceSettings;
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::answer::{self, JSON};

/// The answer for what was accepted, or seen before: the source's own, the kind's, or the usual.
pub(crate) fn success(source: &SourceSettings, duplicate: bool) -> Response {
    if let Some(own) = &source.options.answer {
        let content_type = own.content_type.iter().map(|text| ("content-type", text.clone()));
        return given(Answer {
            status: own.status,
            headers: content_type.collect(),
            body: own.body.clone().into_bytes(),
        });
    }
    match source.kind.answer(duplicate) {
        Some(answer) => given(answer),
        None => status(if duplicate { "duplicate" } else { "accepted" }),
    }
}

/// The answer for a subscription that was confirmed.
pub(crate) fn confirmed() -> Response {
    status("confirmed")
}

fn status(word: &str) -> Response {
    let body = format!("{{\"status\":\"{word}\"}}");
    answer::response(StatusCode::OK, HeaderValue::from_static(JSON), Body::from(body))
}

/// An answer that the domain gives.
pub(crate) fn given(answer: Answer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let body = Body::from(answer.body);
    let mut response = answer::response(status, HeaderValue::from_static(JSON), body);
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in answer.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    response
}
