//! `/api/v1/endpoints`: making, reading, changing, rotating, pausing, disabling, testing.
//!
//! A deleted endpoint does not exist here; its deliveries are still read under `/deliveries`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::endpoint::{Endpoint, EndpointState};
use everhook_domain::event::{Envelope, EventType, NewEvent, Origin, TEST_TYPE};
use everhook_domain::id::{DeliveryId, EndpointId, kind};
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Change, Claimed, Directory, Page, Position, Publish, Published, Refusal, StoreError, Targets,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use super::events::ShownAccepted;
use super::{Named, expect_nothing};
use crate::answer::{self, Rendered};
use crate::app::{App, Sent};
use crate::cursor::CursorScope;
use crate::endpoint::{ShownEndpoint, parse_endpoint, parse_endpoint_patch};
use crate::post::Answering;
use crate::problem::{Problem, ProblemKind};
use crate::query::{Query, ShownPage};

/// How often a change is made anew because another came in between.
const CHANGE_TRIES: u32 = 8;

/// What a change of the directory comes to.
type Changed = Option<Arc<Endpoint>>;

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
    let answering = answer_with_secret(StatusCode::CREATED, secret, now);
    run(&app, &sent, change, &answering, now).await
}

/// `GET /api/v1/endpoints`: newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = app.admit(request.headers())?;
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
    let now = app.now();
    let page = Page { items, next };
    Ok(answer::ok(&ShownPage::new(&page, &scope, |endpoint| ShownEndpoint::new(endpoint, now))))
}

/// `GET /api/v1/endpoints/{id}`, with its version as `ETag`.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = app.admit(request.headers())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let endpoint = find(&admitted.directory, &admitted.caller.tenant, id.id()?)?;
    Ok(with_version(endpoint, app.now()))
}

/// `PATCH /api/v1/endpoints/{id}`: replaces the members that are there (`null`: back to what it is
/// when left out at creation). With `If-Match`, only the version that is named there.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_patch(&parts, body).await?;
    let (id, tenant) = (id.id()?, &sent.admitted.caller.tenant);
    let expected = expected_version(&parts.headers)?;
    for _ in 0..CHANGE_TRIES {
        let directory = app.store.directory().map_err(|error| app.problem(&error))?;
        let current = find(&directory, tenant, id)?;
        if expected.is_some_and(|expected| expected != current.version) {
            return Err(stale(current.version));
        }
        let rules = &app.settings.endpoint_rules;
        let settings = parse_endpoint_patch(sent.body.bytes(), &current.settings, rules)?;
        let change = Change::UpdateEndpoint {
            tenant: tenant.clone(),
            endpoint: id,
            expected_version: current.version,
            settings: Box::new(settings),
            secrets: current.secrets.clone(),
        };
        let now = app.now();
        match app.store.change(change, None, now).await {
            Ok(claimed) => {
                let endpoint = claimed.done().flatten().ok_or_else(Problem::internal)?;
                return Ok(with_version(&endpoint, now));
            }
            Err(StoreError::Refused(Refusal::VersionChanged)) => {}
            Err(error) => return Err(gone_is_not_found(app.problem(&error))),
        }
    }
    Err(Problem::from(Refusal::VersionChanged))
}

/// `DELETE /api/v1/endpoints/{id}`: 204. What waits for it is cancelled; its history stays.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = app.admit(request.headers())?;
    let (id, tenant) = (id.id()?, admitted.caller.tenant);
    find(&admitted.directory, &tenant, id)?;
    let change = Change::SetEndpointState { tenant, endpoint: id, state: EndpointState::Deleted };
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
    let tenant = &sent.admitted.caller.tenant;
    let (secret, now) = (new_secret(&app), app.now());
    let answering = answer_with_secret(StatusCode::OK, secret.clone(), now);
    for _ in 0..CHANGE_TRIES {
        let directory = app.store.directory().map_err(|error| app.problem(&error))?;
        let current = directory.endpoint_of(tenant, id).ok_or_else(not_found)?;
        let rotated = current.secrets.rotate(secret.clone(), now, app.settings.secret_overlap);
        let secrets = match rotated {
            Ok(secrets) => secrets,
            Err(error) => {
                let gone = current.state == EndpointState::Deleted;
                let refused = Problem::from(Refusal::Secrets(error));
                let problem = if gone { not_found() } else { refused };
                return unless_remembered(&app, &sent, current, &answering, problem).await;
            }
        };
        let change = update(current, current.version, secrets);
        let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
        match app.store.change(change, claim, now).await {
            Err(StoreError::Refused(Refusal::VersionChanged)) => {}
            claimed => {
                return answering
                    .respond(&app, sent.keyed.as_ref(), claimed)
                    .map_err(gone_is_not_found);
            }
        }
    }
    Err(Problem::from(Refusal::VersionChanged))
}

/// `POST /api/v1/endpoints/{id}/pause`: 200; deliveries are made and wait.
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    set_state(&app, id, request, StateVerb::Pause).await
}

/// `POST /api/v1/endpoints/{id}/resume`: 200; what has waited is sent.
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    set_state(&app, id, request, StateVerb::Resume).await
}

/// `POST /api/v1/endpoints/{id}/disable`: 200; no request starts after this, what waits is
/// cancelled.
pub(super) async fn disable(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    set_state(&app, id, request, StateVerb::Disable).await
}

/// `POST /api/v1/endpoints/{id}/enable`: 200; events accepted from now on are delivered.
pub(super) async fn enable(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    set_state(&app, id, request, StateVerb::Enable).await
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateVerb {
    Pause,
    Resume,
    Disable,
    Enable,
}

impl StateVerb {
    const fn state(self) -> EndpointState {
        match self {
            Self::Pause => EndpointState::Paused,
            Self::Resume | Self::Enable => EndpointState::Enabled,
            Self::Disable => EndpointState::Disabled,
        }
    }

    /// Pausing and resuming are no way around enabling.
    const fn needs_usable(self) -> bool {
        matches!(self, Self::Pause | Self::Resume)
    }
}

async fn set_state(
    app: &App,
    id: Named<kind::Endpoint>,
    request: Request,
    verb: StateVerb,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let id = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let (tenant, now) = (&sent.admitted.caller.tenant, app.now());
    let answering = Answering::plain(move |changed: &Changed| match changed {
        Some(endpoint) => Rendered::json(StatusCode::OK, &ShownEndpoint::new(endpoint, now)),
        None => Rendered::json(StatusCode::OK, &()),
    });
    let current = sent.admitted.directory.endpoint_of(tenant, id).ok_or_else(not_found)?;
    if let Some(reason) = current.state.gone().filter(|_| verb.needs_usable()) {
        let problem = gone_is_not_found(Problem::from(reason));
        return unless_remembered(app, &sent, current, &answering, problem).await;
    }
    let change =
        Change::SetEndpointState { tenant: tenant.clone(), endpoint: id, state: verb.state() };
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

/// The answer that the request's key remembers, if there is one, else the problem: a request that
/// would be refused today may still be the retry of one that was done. The store is asked with a
/// change of a version that no endpoint has, which it can only answer from its records.
async fn unless_remembered(
    app: &App,
    sent: &Sent<'_>,
    current: &Endpoint,
    answering: &Answering<Changed>,
    problem: Problem,
) -> Result<Response, Problem> {
    let Some(claim) = answering.claim(sent.keyed.as_ref(), &app.settings.entropy) else {
        return Err(problem);
    };
    let impossible = update(current, 0, current.secrets.clone());
    match app.store.change(impossible, Some(claim), app.now()).await {
        Ok(claimed @ (Claimed::Replayed(_) | Claimed::Mismatch)) => {
            answering.respond(app, sent.keyed.as_ref(), Ok(claimed))
        }
        Ok(Claimed::Done(_)) | Err(StoreError::Refused(_)) => Err(problem),
        Err(error) => Err(app.problem(&error)),
    }
}

fn update(current: &Endpoint, expected_version: u64, secrets: SecretSet) -> Change {
    Change::UpdateEndpoint {
        tenant: current.tenant.clone(),
        endpoint: current.id,
        expected_version,
        settings: Box::new(current.settings.clone()),
        secrets,
    }
}

fn new_secret(app: &App) -> Secret {
    let mut bytes = [0; 32];
    (app.settings.entropy)(&mut bytes);
    Secret::from_bytes(bytes)
}

/// The endpoint with its new secret, made before the store is asked: however often the answer is
/// rendered, it is the same one.
fn answer_with_secret(status: StatusCode, secret: Secret, now: Timestamp) -> Answering<Changed> {
    Answering::secret(move |changed: &Changed| match changed {
        Some(endpoint) => {
            let secret = secret.expose();
            Rendered::json(status, &ShownEndpoint::new(endpoint, now).with_secret(&secret))
        }
        None => Rendered::json(status, &()),
    })
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

fn with_version(endpoint: &Endpoint, now: Timestamp) -> Response {
    let mut response = answer::ok(&ShownEndpoint::new(endpoint, now));
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", endpoint.version)) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// The version in `If-Match`; `None` where any is right.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => value.to_str().unwrap_or_default().trim(),
        (Some(_), Some(_)) => "",
    };
    if value == "*" {
        return Ok(None);
    }
    let digits = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    digits.parse().map(Some).map_err(|_| {
        let detail = "If-Match must be one version, as in the header ETag of the endpoint";
        Problem::new(ProblemKind::InvalidHeader, detail)
    })
}

fn stale(current: u64) -> Problem {
    let detail = format!("the endpoint has version {current} now; read it again");
    Problem::new(ProblemKind::PreconditionFailed, detail)
}
