//! `/api/v1/tenants`: making, reading and deleting, by the admin.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::response::Response;
use everhook_domain::id::{Id, kind};
use everhook_domain::tenant::{Tenant, TenantId, TenantName};
use everhook_domain::time::Timestamp;
use everhook_store::{Change, Page, Position, Refusal, StoreError};
use http::StatusCode;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::answer::{self, Rendered};
use crate::app::{Admitted, App};
use crate::cursor::CursorScope;
use crate::json::{self, Members};
use crate::post::Answering;
use crate::problem::{FieldErrors, Problem, ProblemKind};
use crate::query::{Query, ShownPage};

/// A tenant as it is shown.
#[derive(Serialize)]
struct ShownTenant<'a> {
    id: &'a TenantId,
    name: &'a str,
    created_at: Timestamp,
}

impl<'a> ShownTenant<'a> {
    fn new(tenant: &'a Tenant) -> Self {
        Self { id: &tenant.id, name: tenant.name.as_str(), created_at: tenant.created_at }
    }
}

/// `POST /api/v1/tenants`: 201. Without an id it is given one.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let now = app.now();
    let (id, name) = parse(sent.body.bytes())?;
    let tenant = Tenant { id: id.unwrap_or_else(|| new_id(&app, now)), name, created_at: now };
    let change = Change::CreateTenant { id: tenant.id.clone(), name: tenant.name.clone() };
    let answering = Answering::plain(move |_: &_| {
        Rendered::json(StatusCode::CREATED, &ShownTenant::new(&tenant))
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.change(change, claim, now).await;
    answering.respond(&app, sent.keyed.as_ref(), claimed)
}

/// `GET /api/v1/tenants`: newest first.
pub(super) async fn list(request: Request) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let mut query = Query::parse(request.uri().query(), &["limit", "cursor"]);
    // The list is the same for every tenant that an admin may name.
    let scope = CursorScope::new("tenants", &TenantId::default_tenant(), &[]);
    let wanted = query.page(&scope)?;
    let mut tenants: Vec<(Position, &Tenant)> = admitted
        .directory
        .tenants()
        .map(|tenant| (position(tenant), tenant))
        .filter(|(at, _)| wanted.after.is_none_or(|after| at.0 < after.0))
        .collect();
    tenants.sort_by_key(|(at, _)| std::cmp::Reverse(at.0));
    let more = tenants.len() > wanted.limit;
    tenants.truncate(wanted.limit);
    let next = tenants.last().filter(|_| more).map(|(at, _)| *at);
    let page = Page { items: tenants, next };
    Ok(answer::ok(&ShownPage::new(&page, &scope, |(_, tenant)| ShownTenant::new(tenant))))
}

/// `GET /api/v1/tenants/{id}`.
pub(super) async fn read(Path(id): Path<String>, request: Request) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let id = known(&id)?;
    let tenant = admitted.directory.tenant(&id).ok_or_else(unknown)?;
    Ok(answer::ok(&ShownTenant::new(tenant)))
}

/// `DELETE /api/v1/tenants/{id}`: 204. Nothing of it is accepted, read or sent from then on; what
/// it had is erased in the background.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = known(&id)?;
    match app.store.change(Change::DeleteTenant(id), None, app.now()).await {
        Ok(_) => Ok(answer::empty()),
        Err(StoreError::Refused(Refusal::NotFound)) => Err(unknown()),
        Err(error) => Err(app.problem(&error)),
    }
}

fn parse(body: &[u8]) -> Result<(Option<TenantId>, TenantName), Problem> {
    let members = Members::of_body(body, &["id", "name"])?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let id = members.optional("id").and_then(|value| {
        let parsed = json::text(value).and_then(|text| {
            text.parse().map_err(|_| "must be 1 to 64 characters of a-z, 0-9, _ and -".into())
        });
        parsed.map_err(|detail| errors.add("", "id", detail)).ok()
    });
    let name: Option<TenantName> = members.required("name", &mut errors).and_then(|value| {
        let parsed = json::text(value).and_then(|text| {
            text.parse().map_err(|error: everhook_domain::tenant::InvalidTenantName| {
                error.to_string().into()
            })
        });
        parsed.map_err(|detail| errors.add("", "name", detail)).ok()
    });
    errors.check()?;
    Ok((id, name.ok_or_else(Problem::internal)?))
}

fn new_id(app: &App, now: Timestamp) -> TenantId {
    let mut random = [0; 8];
    (app.settings.entropy)(&mut random);
    let [high, low, rest @ ..] = random;
    let sequence = rest.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    Id::<kind::Tenant>::from_parts(millis, sequence, u16::from_be_bytes([high, low]), 0).into()
}

/// Where a tenant is in the list: by its age, and among those of one millisecond by a hash, because
/// a cursor has no room for an id of any length.
fn position(tenant: &Tenant) -> Position {
    let digest = Sha256::digest(tenant.id.as_str());
    let hash = digest.iter().take(8).fold(0_u128, |hash, byte| hash << 8 | u128::from(*byte));
    let millis = u128::try_from(tenant.created_at.as_millis()).unwrap_or(0);
    Position(millis << 64 | hash)
}

/// An id that is malformed is one that does not exist.
fn known(id: &str) -> Result<TenantId, Problem> {
    id.parse().map_err(|_| unknown())
}

fn unknown() -> Problem {
    Problem::new(ProblemKind::UnknownTenant, "there is no tenant with this id")
}
