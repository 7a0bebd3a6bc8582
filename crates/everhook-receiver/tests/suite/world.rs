//! Senders, and what they send.

use axum::body::{Body, to_bytes};
use everhook_domain::secret::Secret;
use everhook_domain::signature;
use everhook_receiver::{Clock as _, Event, EventKey, SystemClock, Verifier};
use http::{Request, Response, StatusCode};
use tower_service::Service;

/// What the sender of these tests signs with.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub(crate) fn verifier() -> Verifier {
    Verifier::new("message", [SECRET]).unwrap()
}

/// An event as a verifier gives it.
pub(crate) fn event(number: u32) -> Event {
    Event {
        key: EventKey::new("message", &format!("evt_{number}")),
        guard: None,
        event_type: "message.test".to_owned(),
        item: None,
        unreadable: None,
    }
}

/// One attempt of Everhook to send an event.
pub(crate) fn attempt(id: &str, body: &str) -> Request<Body> {
    let at = SystemClock::start().wall().as_secs();
    let secret = Secret::parse(SECRET).unwrap();
    let signature = signature::sign([&secret].into_iter(), id, at, body.as_bytes());
    Request::post("/hooks")
        .header("webhook-id", id)
        .header("webhook-timestamp", at)
        .header("webhook-signature", signature)
        .body(Body::from(body.to_owned()))
        .unwrap()
}

/// What a sender is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    pub(crate) retry_after: bool,
}

impl Answered {
    pub(crate) fn is_duplicate(&self) -> bool {
        self.status == StatusCode::OK && self.body == r#"{"status":"duplicate"}"#
    }
}

pub(crate) async fn send<S, B, E>(service: &S, request: Request<Body>) -> Answered
where
    S: Service<Request<Body>, Response = Response<B>, Error = E> + Clone,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    E: std::fmt::Debug,
{
    let mut service = service.clone();
    let response = service.call(request).await.unwrap().map(Body::new);
    let status = response.status();
    let retry_after = response.headers().contains_key("retry-after");
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answered { status, body: String::from_utf8(body.to_vec()).unwrap(), retry_after }
}
