//! `/api/v1/endpoints`: making, reading, changing, rotating, pausing, disabling, testing.
//!
//! A deleted endpoint does not exist here; its deliveries are still read under `/deliveries`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::endpoint::{Endpoint, EndpointState, EndpointVerb};
use everhook_domain::event::{Envelope, EventType, NewEvent, Origin, TEST_TYPE};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::{DeliveryId, EndpointId, kind};
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Change, Changed, Directory, Page, Position, Publish, Published, Refusal, StoreError, Targets,
};
use http::StatusCode;
use serde::Serialize;

use super::events::ShownAccepted;
use super::{Named, expect_nothing, version};
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App, Sent};
use crate::cursor::CursorScope;
use crate::endpoint::{ShownEndpoint, parse_endpoint, parse_endpoint_patch};
use crate::post::Answering;
use crate::problem::{Problem, ProblemKind};
use crate::query::{Query, ShownPage};

/// `POST /api/v1/endpoints`: 201 with the endpoint and, this once, its secret.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let settings = parse_endpoint(sent.body.bytes(), &app.settings.endpoint_rules)?;
    let (secret, now) = (new_secret(&app), app.now());
    let change = Change::CreateEndpoint {
        tenant: sent.admitted.caller.tenant.clone(),
        settings: Box::new(settings),
        secrets: SecretSet::new(secret.clone()),
    };
    let health = EndpointHealth::default();
    let answering = answer_with_secret(StatusCode::CREATED, secret, (health, now));
    run(&app, &sent, change, &answering, now).await
}

/// `GET /api/v1/endpoints`: newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let tenant = &admitted.caller.tenant;
    let mut query = Query::parse(request.uri().query(), &["limit", "cursor"]);
    let scope = CursorScope::new("endpoints", tenant, &[]);
    let wanted = query.page(&scope)?;
    let mut rest = admitted.directory.endpoints_of(tenant).iter().rev().filter(|endpoint| {
        let unseen = wanted.after.is_none_or(|after| endpoint.id.bits() < after.0);
        unseen && endpoint.state != EndpointState::Deleted
    });
    let items: Vec<_> = rest.by_ref().take(wanted.limit).collect();
    let more = rest.next().is_some();
    let next = items.last().filter(|_| more).map(|last| Position(last.id.bits()));
    let ids = items.iter().map(|endpoint| endpoint.id).collect();
    let healths = app.store.endpoint_health(tenant.clone(), ids).await;
    let healths = healths.map_err(|error| app.problem(&error))?;
    let now = app.now();
    let page = Page { items, next };
    Ok(answer::ok(&ShownPage::new(&page, &scope, |endpoint| {
        let health = healths.get(&endpoint.id).copied().unwrap_or_default();
        ShownEndpoint::new(endpoint, health, now)
    })))
}

/// `GET /api/v1/endpoints/{id}`, with its version as `ETag`.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let tenant = &admitted.caller.tenant;
    let endpoint = find(&admitted.directory, tenant, id.id()?)?;
    let health = health_of(&app, tenant, endpoint.id).await?;
    let shown = ShownEndpoint::new(endpoint, health, app.now());
    Ok(version::shown(endpoint.version, &shown))
}

/// `PATCH /api/v1/endpoints/{id}`: replaces the members that are there (`null`: back to what it is
/// when left out at creation). With `If-Match`, only the version that is named there.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let (id, tenant) = (id.id()?, &sent.admitted.caller.tenant);
    let expected = version::expected(&parts.headers)?;
    let attempt = || async {
        let directory = app.store.directory().map_err(|error| app.problem(&error))?;
        let current = find(&directory, tenant, id)?;
        if expected.is_some_and(|expected| expected != current.version) {
            return Err(version::stale(current.version));
        }
        let rules = &app.settings.endpoint_rules;
        let settings = parse_endpoint_patch(sent.body.bytes(), &current.settings, rules)?;
        let change = Change::UpdateEndpoint {
            tenant: tenant.clone(),
            endpoint: id,
            expected_version: current.version,
            settings: Box::new(settings),
        };
        let now = app.now();
        match app.store.change(change, None, now).await {
            Ok(claimed) => Ok(Some((claimed, now))),
            Err(StoreError::Refused(Refusal::VersionChanged)) => Ok(None),
            Err(error) => Err(gone_is_not_found(app.problem(&error))),
        }
    };
    let (changed, now) = version::until_it_holds(attempt).await?;
    let endpoint = changed.done().and_then(Changed::endpoint).ok_or_else(Problem::internal)?;
    let health = health_of(&app, tenant, id).await?;
    Ok(version::shown(endpoint.version, &ShownEndpoint::new(&endpoint, health, now)))
}

/// `DELETE /api/v1/endpoints/{id}`: 204. What waits for it is cancelled; its history stays.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let (id, tenant) = (id.id()?, admitted.caller.tenant);
    let change = Change::ActOnEndpoint { tenant, endpoint: id, verb: EndpointVerb::Delete };
    let changed = app.store.change(change, None, app.now()).await;
    changed.map_err(|error| gone_is_not_found(app.problem(&error)))?;
    Ok(answer::empty())
}

/// `POST /api/v1/endpoints/{id}/rotate-secret`: 200 with the endpoint and, this once, its new
/// secret. The old one signs on for `secrets.overlap`.
pub(super) async fn rotate_secret(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let id = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let (secret, now) = (new_secret(&app), app.now());
    let change = Change::RotateSecret {
        tenant: sent.admitted.caller.tenant.clone(),
        endpoint: id,
        secret: secret.clone(),
        overlap: app.settings.secret_overlap,
    };
    let health = health_of(&app, &sent.admitted.caller.tenant, id).await?;
    let answering = answer_with_secret(StatusCode::OK, secret, (health, now));
    run(&app, &sent, change, &answering, now).await.map_err(gone_is_not_found)
}

/// `POST /api/v1/endpoints/{id}/pause`: 200; deliveries are made and wait.
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, EndpointVerb::Pause).await
}

/// `POST /api/v1/endpoints/{id}/resume`: 200; what has waited is sent.
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, EndpointVerb::Resume).await
}

/// `POST /api/v1/endpoints/{id}/disable`: 200; no request starts after this, what waits is
/// cancelled.
pub(super) async fn disable(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, EndpointVerb::Disable).await
}

/// `POST /api/v1/endpoints/{id}/enable`: 200; events accepted from now on are delivered.
pub(super) async fn enable(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, EndpointVerb::Enable).await
}

async fn act(
    app: &App,
    id: Named<kind::Endpoint>,
    request: Request,
    verb: EndpointVerb,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let id = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let (tenant, now) = (sent.admitted.caller.tenant.clone(), app.now());
    let before = health_of(app, &tenant, id).await?;
    let was_disabled = sent
        .admitted
        .directory
        .endpoint_of(&tenant, id)
        .is_some_and(|endpoint| endpoint.state == EndpointState::Disabled);
    // Custom headers are in it, and they are not to be stored open.
    let answering = Answering::secret(move |changed: &Changed| match changed {
        Changed::Endpoint(endpoint) => {
            // Enabling what was disabled begins its health anew.
            let anew = was_disabled && endpoint.state == EndpointState::Enabled;
            let health = if anew { EndpointHealth::default() } else { before };
            Rendered::json(StatusCode::OK, &ShownEndpoint::new(endpoint, health, now))
        }
        Changed::Nothing | Changed::Source(_) => Rendered::json(StatusCode::OK, &()),
    });
    let change = Change::ActOnEndpoint { tenant, endpoint: id, verb };
    run(app, &sent, change, &answering, now).await.map_err(gone_is_not_found)
}

/// `POST /api/v1/endpoints/{id}/test`: 202; sends `everhook.test` there once, at once.
pub(super) async fn test(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let id = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let now = app.now();
    let publish = Publish {
        tenant: sent.admitted.caller.tenant.clone(),
        events: vec![test_event(id, now)?],
        targets: Targets::Test(id),
    };
    let answering = Answering::plain(render_test);
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.publish(publish, claim, now).await;
    answering.respond(&app, sent.keyed.as_ref(), claimed).map_err(gone_is_not_found)
}

fn test_event(endpoint: EndpointId, now: Timestamp) -> Result<NewEvent, Problem> {
    #[derive(Serialize)]
    struct Data {
        endpoint_id: EndpointId,
        message: &'static str,
    }
    let data = Data { endpoint_id: endpoint, message: "This is a test event from Everhook." };
    let data = serde_json::value::to_raw_value(&data).map_err(|_| Problem::internal())?;
    let event_type = EventType::any(TEST_TYPE).map_err(|_| Problem::internal())?;
    Ok(NewEvent {
        envelope: Envelope::compose(&event_type, now, &data),
        event_type,
        origin: Origin::System,
        source_event_id: None,
        timestamp: now,
    })
}

fn render_test(published: &Published) -> Rendered {
    #[derive(Serialize)]
    struct ShownTest<'a> {
        #[serde(flatten)]
        event: ShownAccepted<'a>,
        delivery_id: DeliveryId,
    }
    match published.first() {
        Some(event) => {
            let shown =
                ShownTest { event: ShownAccepted::new(event), delivery_id: event.id.delivery(1) };
            Rendered::json(StatusCode::ACCEPTED, &shown)
        }
        None => Rendered::json(StatusCode::ACCEPTED, &()),
    }
}

async fn run(
    app: &App,
    sent: &Sent<'_>,
    change: Change,
    answering: &Answering<Changed>,
    now: Timestamp,
) -> Result<Response, Problem> {
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.change(change, claim, now).await;
    answering.respond(app, sent.keyed.as_ref(), claimed)
}

fn new_secret(app: &App) -> Secret {
    let mut bytes = [0; 32];
    (app.settings.entropy)(&mut bytes);
    Secret::from_bytes(bytes)
}

/// The endpoint with its new secret, made before the store is asked: however often the answer is
/// rendered, it is the same one.
fn answer_with_secret(
    status: StatusCode,
    secret: Secret,
    (health, now): (EndpointHealth, Timestamp),
) -> Answering<Changed> {
    Answering::secret(move |changed: &Changed| match changed {
        Changed::Endpoint(endpoint) => {
            let secret = secret.expose();
            let shown = ShownEndpoint::new(endpoint, health, now);
            Rendered::json(status, &shown.with_secret(&secret))
        }
        Changed::Nothing | Changed::Source(_) => Rendered::json(status, &()),
    })
}

/// The endpoint's failures since its last success, as of now.
async fn health_of(
    app: &App,
    tenant: &TenantId,
    id: EndpointId,
) -> Result<EndpointHealth, Problem> {
    let health = app.store.endpoint_health(tenant.clone(), vec![id]).await;
    let mut health = health.map_err(|error| app.problem(&error))?;
    Ok(health.remove(&id).unwrap_or_default())
}

fn find<'d>(
    directory: &'d Directory,
    tenant: &TenantId,
    id: EndpointId,
) -> Result<&'d Arc<Endpoint>, Problem> {
    let endpoint = directory.endpoint_of(tenant, id);
    endpoint.filter(|endpoint| endpoint.state != EndpointState::Deleted).ok_or_else(not_found)
}

fn not_found() -> Problem {
    Problem::not_found("endpoint")
}

/// Under this path a deleted endpoint does not exist.
fn gone_is_not_found(problem: Problem) -> Problem {
    match problem.kind() {
        ProblemKind::EndpointDeleted | ProblemKind::NotFound => not_found(),
        _ => problem,
    }
}
