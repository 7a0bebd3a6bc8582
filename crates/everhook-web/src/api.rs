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
mod route;
mod sources;
mod tenants;
mod version;

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, Path};
use everhook_domain::access::Scope;
use everhook_domain::id::{Id, Kind};
use everhook_store::Store;
use http::request::Parts;

use crate::app::App;
use crate::json::Members;
use crate::problem::{FieldErrors, Problem, ProblemKind};
use crate::settings::WebSettings;

use route::Route;
pub use route::{ANY_METHOD, Door};

/// Everything that is served over HTTP.
pub fn router(store: Arc<dyn Store>, settings: WebSettings) -> Router {
    let router = routes()
        .into_iter()
        .fold(Router::new(), |router, Route { path, methods, .. }| router.route(path, methods));
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(Arc::new(App::new(store, settings)))
}

/// The path of every route; each one answers a method that it does not have with those that it has.
pub fn paths() -> impl Iterator<Item = &'static str> {
    routes().into_iter().map(|route| route.path)
}

/// Every method of every route, with what it asks of who calls.
pub fn doors() -> impl Iterator<Item = (&'static str, &'static str, Door)> {
    routes().into_iter().flat_map(|Route { path, doors, .. }| {
        doors.into_iter().map(move |(method, door)| (path, method, door))
    })
}

/// The table of all routes: what is here is served, and what a method needs stands beside it.
fn routes() -> Vec<Route> {
    const OPEN: Door = Door::Open;
    const WRITE: Door = Door::Needs(Scope::EventsWrite);
    const READ: Door = Door::Needs(Scope::Read);
    const MANAGE: Door = Door::Needs(Scope::Manage);
    const ADMIN: Door = Door::Needs(Scope::Admin);
    vec![
        Route::at("/healthz").get(OPEN, health::alive),
        Route::at("/readyz").get(OPEN, health::ready),
        Route::at("/api/v1/events").post(WRITE, events::publish).get(READ, events::list),
        Route::at("/api/v1/events/batch").post(WRITE, events::publish_batch),
        Route::at("/api/v1/events/{id}").get(READ, events::read),
        Route::at("/api/v1/events/{id}/body").get(READ, events::body),
        Route::at("/api/v1/events/{id}/replay").post(MANAGE, events::replay),
        Route::at("/api/v1/endpoints").post(MANAGE, endpoints::create).get(READ, endpoints::list),
        Route::at("/api/v1/endpoints/{id}")
            .get(READ, endpoints::read)
            .patch(MANAGE, endpoints::change)
            .delete(MANAGE, endpoints::delete),
        Route::at("/api/v1/endpoints/{id}/rotate-secret").post(MANAGE, endpoints::rotate_secret),
        Route::at("/api/v1/endpoints/{id}/pause").post(MANAGE, endpoints::pause),
        Route::at("/api/v1/endpoints/{id}/resume").post(MANAGE, endpoints::resume),
        Route::at("/api/v1/endpoints/{id}/disable").post(MANAGE, endpoints::disable),
        Route::at("/api/v1/endpoints/{id}/enable").post(MANAGE, endpoints::enable),
        Route::at("/api/v1/endpoints/{id}/test").post(MANAGE, endpoints::test),
        Route::at("/api/v1/endpoints/{id}/catch-up").post(MANAGE, replays::catch_up),
        Route::at("/api/v1/tenants").post(ADMIN, tenants::create).get(ADMIN, tenants::list),
        Route::at("/api/v1/tenants/{id}").get(ADMIN, tenants::read).delete(ADMIN, tenants::delete),
        Route::at("/api/v1/deliveries").get(READ, deliveries::list),
        Route::at("/api/v1/deliveries/acknowledge").post(MANAGE, replays::acknowledge),
        Route::at("/api/v1/deliveries/{id}").get(READ, deliveries::read),
        Route::at("/api/v1/deliveries/{id}/replay").post(MANAGE, deliveries::replay),
        Route::at("/api/v1/deliveries/{id}/cancel").post(MANAGE, deliveries::cancel),
        Route::at("/api/v1/deliveries/{id}/acknowledge").post(MANAGE, deliveries::acknowledge),
        Route::at("/in/{source}").any(OPEN, intake::receive),
        Route::at("/api/v1/sources").post(MANAGE, sources::create).get(READ, sources::list),
        Route::at("/api/v1/sources/{id}")
            .get(READ, sources::read)
            .patch(MANAGE, sources::change)
            .delete(MANAGE, sources::delete),
        Route::at("/api/v1/sources/{id}/preview").post(MANAGE, preview::preview),
        Route::at("/api/v1/receipts").get(READ, receipts::list),
        Route::at("/api/v1/receipts/{id}").get(READ, receipts::read),
        Route::at("/api/v1/receipts/{id}/release").post(MANAGE, receipts::release),
        Route::at("/api/v1/receipts/{id}/discard").post(MANAGE, receipts::discard),
        Route::at("/api/v1/receipts/{id}/force").post(MANAGE, receipts::force),
        Route::at("/api/v1/idempotency-records").get(READ, records::list),
        Route::at("/api/v1/idempotency-records/{id}")
            .get(READ, records::read)
            .delete(MANAGE, records::forget),
        Route::at("/api/v1/idempotency-records/{id}/resolve").post(MANAGE, records::resolve),
        Route::at("/api/v1/claims").post(WRITE, claims::take),
        Route::at("/api/v1/claims/{id}").get(WRITE, claims::read),
        Route::at("/api/v1/claims/{id}/complete").post(WRITE, claims::complete),
        Route::at("/api/v1/claims/{id}/renew").post(WRITE, claims::renew),
        Route::at("/api/v1/claims/{id}/release").post(WRITE, claims::release),
        Route::at("/api/v1/replays").post(MANAGE, replays::create).get(READ, replays::list),
        Route::at("/api/v1/replays/{id}").get(READ, replays::read).delete(MANAGE, replays::cancel),
        Route::at("/api/v1/conversations")
            .post(WRITE, conversations::create)
            .get(READ, conversations::list),
        Route::at("/api/v1/conversations/{id}")
            .get(READ, conversations::read)
            .patch(WRITE, conversations::change)
            .delete(WRITE, conversations::delete),
        Route::at("/api/v1/conversations/{id}/transfer").post(WRITE, conversations::transfer),
        Route::at("/api/v1/conversations/{id}/messages")
            .post(WRITE, conversations::add_message)
            .get(READ, conversations::messages),
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
