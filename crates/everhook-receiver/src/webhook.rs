//! What a handler is given of a request that was verified.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::verify::Event;

/// A webhook, verified: the events that its handler is to process, and the bytes. The layer puts it
/// into the request's extensions; with the feature `axum` it is an extractor. Cheap to clone.
///
/// Of an array it has those events only that were not processed yet, while the body is whole: take
/// the bytes of each by [`Self::bytes_of`].
#[derive(Clone, Debug)]
pub struct Webhook {
    pub(crate) events: Arc<[Event]>,
    pub(crate) body: Bytes,
    pub(crate) keep: Duration,
}

impl Webhook {
    /// The events to process, in their order. The handler answers for all of them: with any other
    /// status than a 2xx all of them come again.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The whole body, as it came.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The bytes of one of the events: its item of an array, else the whole body.
    pub fn bytes_of(&self, event: &Event) -> Bytes {
        event.item.clone().unwrap_or_else(|| self.body.clone())
    }

    /// How long the keys are to be remembered, by the verifier: for `claim_in` of a store.
    pub fn keep(&self) -> Duration {
        self.keep
    }
}

#[cfg(feature = "axum")]
mod extractor {
    use std::convert::Infallible;

    use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
    use axum_core::response::{IntoResponse, Response};
    use http::StatusCode;
    use http::request::Parts;

    use super::Webhook;

    /// There is no [`WebhookLayer`](crate::WebhookLayer) around the route.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("no WebhookLayer is around this route, so that nothing was verified")]
    pub struct NotVerified;

    impl IntoResponse for NotVerified {
        fn into_response(self) -> Response {
            tracing::error!("{self}: add one with route_layer");
            (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
        }
    }

    impl<S: Sync> FromRequestParts<S> for Webhook {
        type Rejection = NotVerified;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NotVerified> {
            parts.extensions.get::<Self>().cloned().ok_or(NotVerified)
        }
    }

    impl<S: Sync> OptionalFromRequestParts<S> for Webhook {
        type Rejection = Infallible;

        async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
            Ok(parts.extensions.get::<Self>().cloned())
        }
    }
}

#[cfg(feature = "axum")]
pub use extractor::NotVerified;
