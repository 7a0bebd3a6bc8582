//! Everything that a layer answers itself, as `application/problem+json` (RFC 9457).
//!
//! Types are `urn:everhook:problem:<slug>`; where Everhook's own API answers the same, the slug is
//! the same. Nothing here was done by the handler, unless the text says so.

use std::time::Duration;

use bytes::Bytes;
use everhook_domain::idempotency::InvalidIdempotencyKey;
use everhook_domain::key::KeyHash;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::claim::RecordId;

/// A request that was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    InvalidKey(InvalidIdempotencyKey),
    MissingKey,
    MissingAccount,
    UnreadableBody,
    BodyTooLarge { max: usize },
    InProgress,
    Unknown(KeyHash),
    NotReplayable { status: u16 },
    Mismatch,
    OverQuota,
    StoreAway,
    Unanswered,
    CutOff(KeyHash),
    Unrecorded(KeyHash),
}

/// When to ask again.
const SOON: Duration = Duration::from_secs(1);
const STORE_AWAY: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

impl Problem {
    fn row(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::InvalidKey(_) => (
                StatusCode::BAD_REQUEST,
                "invalid-idempotency-key",
                "The Idempotency-Key is malformed",
            ),
            Self::MissingKey => (
                StatusCode::BAD_REQUEST,
                "missing-idempotency-key",
                "An Idempotency-Key is required",
            ),
            Self::MissingAccount => {
                (StatusCode::BAD_REQUEST, "missing-account", "Nobody knows whose key it is")
            }
            Self::UnreadableBody => {
                (StatusCode::BAD_REQUEST, "unreadable-body", "The body could not be read")
            }
            Self::BodyTooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large")
            }
            Self::InProgress => {
                (StatusCode::CONFLICT, "idempotency-in-progress", "The first request still runs")
            }
            Self::Unknown(_) => (
                StatusCode::CONFLICT,
                "outcome-unknown",
                "Nobody knows how the first request ended",
            ),
            Self::NotReplayable { .. } => (
                StatusCode::CONFLICT,
                "answer-not-replayable",
                "The first request's answer was not kept",
            ),
            Self::Mismatch => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "idempotency-key-reused",
                "The Idempotency-Key was used before",
            ),
            Self::OverQuota => (
                StatusCode::TOO_MANY_REQUESTS,
                "idempotency-quota",
                "The account has too many keys",
            ),
            Self::StoreAway => (
                StatusCode::SERVICE_UNAVAILABLE,
                "store-unavailable",
                "The store takes nothing now",
            ),
            Self::Unanswered => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "The service failed")
            }
            Self::CutOff(_) => (StatusCode::BAD_GATEWAY, "outcome-unknown", "The answer broke off"),
            Self::Unrecorded(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "outcome-unknown",
                "The answer could not be recorded",
            ),
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::InvalidKey(invalid) => invalid.to_string(),
            Self::MissingKey => "send an Idempotency-Key: 1 to 255 visible ASCII characters, \
                                 random, the same one at each try of this request"
                .to_owned(),
            Self::MissingAccount => "a request with an Idempotency-Key must say whose it is; \
                                     authenticate, or send it without the key"
                .to_owned(),
            Self::UnreadableBody => {
                "the body broke off before its end; nothing was done, send it again".to_owned()
            }
            Self::BodyTooLarge { max } => {
                format!("a request with an Idempotency-Key may have {max} bytes; nothing was done")
            }
            Self::InProgress => "a request with this Idempotency-Key has not been answered yet; \
                                 ask again with the same key"
                .to_owned(),
            Self::Unknown(_) => "a request with this Idempotency-Key began and was lost before it \
                                 was answered; it is not run again. Find out whether its work was \
                                 done, or have the operator settle the record"
                .to_owned(),
            Self::NotReplayable { .. } => "the request with this Idempotency-Key was done and \
                                           answered once; its answer was too large, or a stream, \
                                           so it cannot be given again. It is not run again"
                .to_owned(),
            Self::Mismatch => "this Idempotency-Key was used here for a request with another body \
                               or content type; nothing was done. Use a new key for a new request"
                .to_owned(),
            Self::OverQuota => "this account has as many Idempotency-Keys, or as much remembered \
                                for them, as it may have; nothing was done. Keys end after some \
                                time"
                .to_owned(),
            Self::StoreAway => "requests with an Idempotency-Key cannot be taken now; nothing was \
                                done. Try again later with the same key"
                .to_owned(),
            Self::Unanswered => "the service failed before it answered; whether the work was done \
                                 is not known. Ask again with the same Idempotency-Key"
                .to_owned(),
            Self::CutOff(_) => "the service began to answer and broke off; whether the work was \
                                done is not known. Ask again with the same Idempotency-Key"
                .to_owned(),
            Self::Unrecorded(_) => "the request ran, and its answer could not be recorded. Ask \
                                    again with the same Idempotency-Key"
                .to_owned(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InProgress => Some(SOON),
            Self::StoreAway | Self::Unrecorded(_) => Some(STORE_AWAY),
            Self::Unknown(_) | Self::OverQuota => Some(MINUTE),
            Self::InvalidKey(_)
            | Self::MissingKey
            | Self::MissingAccount
            | Self::UnreadableBody
            | Self::BodyTooLarge { .. }
            | Self::NotReplayable { .. }
            | Self::Mismatch
            | Self::Unanswered
            | Self::CutOff(_) => None,
        }
    }

    pub(crate) fn response(&self) -> Response<Bytes> {
        let (status, slug, title) = self.row();
        let mut body = json!({
            "type": format!("urn:everhook:problem:{slug}"),
            "title": title,
            "status": status.as_u16(),
            "detail": self.detail(),
        });
        match self {
            Self::Unknown(key) | Self::CutOff(key) | Self::Unrecorded(key) => {
                body["record"] = json!(RecordId::from(*key).to_string());
            }
            Self::NotReplayable { status } => body["original_status"] = json!(status),
            _ => {}
        }
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let problem = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        response
    }
}
