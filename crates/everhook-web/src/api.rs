//! The routes. Each module is one resource; each function one route.

mod conversations;
mod deliveries;
mod endpoints;
mod events;
mod health;
mod intake;
mod preview;
mod receipts;
mod replays;
mod sources;
mod tenants;
mod version;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::{any, get, post};
use everhook_domain::id::{Id, Kind};
use everhook_store::Store;
use http::request::Parts;

use crate::app::App;
use crate::json::Members;
use crate::problem::{FieldErrors, Problem, ProblemKind};
use crate::settings::WebSettings;

/// Everything that is served over HTTP.
pub fn router(store: Arc<dyn Store>, settings: WebSettings) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/api/v1/events", post(events::publish).get(events::list))
        .route("/api/v1/events/batch", post(events::publish_batch))
        .route("/api/v1/events/{id}", get(events::read))
        .route("/api/v1/events/{id}/body", get(events::body))
        .route("/api/v1/events/{id}/replay", post(events::replay))
        .route("/api/v1/endpoints", post(endpoints::create).get(endpoints::list))
        .route(
            "/api/v1/endpoints/{id}",
            get(endpoints::read).patch(endpoints::change).delete(endpoints::delete),
        )
        .route("/api/v1/endpoints/{id}/rotate-secret", post(endpoints::rotate_secret))
        .route("/api/v1/endpoints/{id}/pause", post(endpoints::pause))
        .route("/api/v1/endpoints/{id}/resume", post(endpoints::resume))
        .route("/api/v1/endpoints/{id}/disable", post(endpoints::disable))
        .route("/api/v1/endpoints/{id}/enable", post(endpoints::enable))
        .route("/api/v1/endpoints/{id}/test", post(endpoints::test))
        .route("/api/v1/endpoints/{id}/catch-up", post(replays::catch_up))
        .route("/api/v1/tenants", post(tenants::create).get(tenants::list))
        .route("/api/v1/tenants/{id}", get(tenants::read).delete(tenants::delete))
        .route("/api/v1/deliveries", get(deliveries::list))
        .route("/api/v1/deliveries/acknowledge", post(replays::acknowledge))
        .route("/api/v1/deliveries/{id}", get(deliveries::read))
        .route("/api/v1/deliveries/{id}/replay", post(deliveries::replay))
        .route("/api/v1/deliveries/{id}/cancel", post(deliveries::cancel))
        .route("/api/v1/deliveries/{id}/acknowledge", post(deliveries::acknowledge))
        .route("/in/{source}", any(intake::receive))
        .route("/api/v1/sources", post(sources::create).get(sources::list))
        .route(
            "/api/v1/sources/{id}",
            get(sources::read).patch(sources::change).delete(sources::delete),
        )
        .route("/api/v1/sources/{id}/preview", post(preview::preview))
        .route("/api/v1/receipts", get(receipts::list))
        .route("/api/v1/receipts/{id}", get(receipts::read))
        .route("/api/v1/receipts/{id}/release", post(receipts::release))
        .route("/api/v1/receipts/{id}/discard", post(receipts::discard))
        .route("/api/v1/receipts/{id}/force", post(receipts::force))
        .route("/api/v1/replays", post(replays::create).get(replays::list))
        .route("/api/v1/replays/{id}", get(replays::read).delete(replays::cancel))
        .route("/api/v1/conversations", post(conversations::create).get(conversations::list))
        .route(
            "/api/v1/conversations/{id}",
            get(conversations::read).patch(conversations::change).delete(conversations::delete),
        )
        .route("/api/v1/conversations/{id}/transfer", post(conversations::transfer))
        .route(
            "/api/v1/conversations/{id}/messages",
            post(conversations::add_message).get(conversations::messages),
        )
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(App::new(store, settings)))
}

async fn unknown_path() -> Problem {
    Problem::new(ProblemKind::UnknownPath, "there is nothing at this path; the API is at /api/v1")
}

async fn method_not_allowed() -> Problem {
    let detail = "this path does not have this method; see the header Allow";
    Problem::new(ProblemKind::MethodNotAllowed, detail)
}

/// The `{id}` in a path. Asked for only once the caller was let in, so that nobody else learns
/// what there is.
struct Named<K>(Option<Id<K>>);

impl<K: Kind> Named<K> {
    /// The id. One that is malformed is one that does not exist.
    fn id(self) -> Result<Id<K>, Problem> {
        self.0.ok_or_else(|| Problem::not_found(K::NAME))
    }
}

impl<K: Kind, S: Send + Sync> FromRequestParts<S> for Named<K> {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let text = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(text.ok().and_then(|Path(text)| Id::from_str(&text).ok())))
    }
}

/// Checks the body of a verb that takes none: empty, or an object without members.
fn expect_nothing(body: &[u8]) -> Result<(), Problem> {
    if body.is_empty() {
        return Ok(());
    }
    let mut errors = FieldErrors::default();
    Members::of_body(body, &[])?.refuse_unknown(&mut errors);
    errors.check()
}
