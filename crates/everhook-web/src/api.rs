//! The routes. Each module is one resource; each function one route.

mod claims;
mod conversations;
mod deliveries;
mod endpoints;
mod events;
mod health;
mod intake;
mod preview;
mod receipts;
mod records;
mod replays;
mod sources;
mod tenants;
mod version;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use axum::routing::{MethodRouter, any, get, post};
use everhook_domain::id::{Id, Kind};
use everhook_store::Store;
use http::request::Parts;

use crate::app::App;
use crate::json::Members;
use crate::problem::{FieldErrors, Problem, ProblemKind};
use crate::settings::WebSettings;

/// Everything that is served over HTTP.
pub fn router(store: Arc<dyn Store>, settings: WebSettings) -> Router {
    let router = routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods));
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(App::new(store, settings)))
}

/// The path of every route; each one answers a method that it does not have with those that it has.
pub fn paths() -> impl Iterator<Item = &'static str> {
    routes().into_iter().map(|(path, _)| path)
}

fn routes() -> Vec<(&'static str, MethodRouter<Arc<App>>)> {
    vec![
        ("/healthz", get(health::alive)),
        ("/readyz", get(health::ready)),
        ("/api/v1/events", post(events::publish).get(events::list)),
        ("/api/v1/events/batch", post(events::publish_batch)),
        ("/api/v1/events/{id}", get(events::read)),
        ("/api/v1/events/{id}/body", get(events::body)),
        ("/api/v1/events/{id}/replay", post(events::replay)),
        ("/api/v1/endpoints", post(endpoints::create).get(endpoints::list)),
        (
            "/api/v1/endpoints/{id}",
            get(endpoints::read).patch(endpoints::change).delete(endpoints::delete),
        ),
        ("/api/v1/endpoints/{id}/rotate-secret", post(endpoints::rotate_secret)),
        ("/api/v1/endpoints/{id}/pause", post(endpoints::pause)),
        ("/api/v1/endpoints/{id}/resume", post(endpoints::resume)),
        ("/api/v1/endpoints/{id}/disable", post(endpoints::disable)),
        ("/api/v1/endpoints/{id}/enable", post(endpoints::enable)),
        ("/api/v1/endpoints/{id}/test", post(endpoints::test)),
        ("/api/v1/endpoints/{id}/catch-up", post(replays::catch_up)),
        ("/api/v1/tenants", post(tenants::create).get(tenants::list)),
        ("/api/v1/tenants/{id}", get(tenants::read).delete(tenants::delete)),
        ("/api/v1/deliveries", get(deliveries::list)),
        ("/api/v1/deliveries/acknowledge", post(replays::acknowledge)),
        ("/api/v1/deliveries/{id}", get(deliveries::read)),
        ("/api/v1/deliveries/{id}/replay", post(deliveries::replay)),
        ("/api/v1/deliveries/{id}/cancel", post(deliveries::cancel)),
        ("/api/v1/deliveries/{id}/acknowledge", post(deliveries::acknowledge)),
        ("/in/{source}", any(intake::receive)),
        ("/api/v1/sources", post(sources::create).get(sources::list)),
        ("/api/v1/sources/{id}", get(sources::read).patch(sources::change).delete(sources::delete)),
        ("/api/v1/sources/{id}/preview", post(preview::preview)),
        ("/api/v1/receipts", get(receipts::list)),
        ("/api/v1/receipts/{id}", get(receipts::read)),
        ("/api/v1/receipts/{id}/release", post(receipts::release)),
        ("/api/v1/receipts/{id}/discard", post(receipts::discard)),
        ("/api/v1/receipts/{id}/force", post(receipts::force)),
        ("/api/v1/idempotency-records", get(records::list)),
        ("/api/v1/idempotency-records/{id}", get(records::read).delete(records::forget)),
        ("/api/v1/idempotency-records/{id}/resolve", post(records::resolve)),
        ("/api/v1/claims", post(claims::take)),
        ("/api/v1/claims/{id}", get(claims::read)),
        ("/api/v1/claims/{id}/complete", post(claims::complete)),
        ("/api/v1/claims/{id}/renew", post(claims::renew)),
        ("/api/v1/claims/{id}/release", post(claims::release)),
        ("/api/v1/replays", post(replays::create).get(replays::list)),
        ("/api/v1/replays/{id}", get(replays::read).delete(replays::cancel)),
        ("/api/v1/conversations", post(conversations::create).get(conversations::list)),
        (
            "/api/v1/conversations/{id}",
            get(conversations::read).patch(conversations::change).delete(conversations::delete),
        ),
        ("/api/v1/conversations/{id}/transfer", post(conversations::transfer)),
        (
            "/api/v1/conversations/{id}/messages",
            post(conversations::add_message).get(conversations::messages),
        ),
    ]
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
