//! `/api/v1/sources`: making, reading, changing, deleting.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::id::{SourceId, kind};
use everhook_domain::source::Source;
use everhook_domain::tenant::TenantId;
use everhook_store::{Change, Changed, Directory, Page, Position, Refusal, StoreError};
use http::{HeaderMap, StatusCode};

use super::{Named, version};
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App};
use crate::base_url::BaseUrl;
use crate::cursor::CursorScope;
use crate::intake::ShownRejections;
use crate::post::Answering;
use crate::problem::Problem;
use crate::query::{Query, ShownPage};
use crate::source::{ShownSource, parse_source, parse_source_patch};

/// `POST /api/v1/sources`: 201 with the source and the URL that its provider is to call.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let base = base_url(&app, request.headers());
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let change = Change::CreateSource {
        tenant: sent.admitted.caller.tenant.clone(),
        settings: Box::new(parse_source(sent.body.bytes())?),
    };
    // What the kinds' options hold is not to be stored open.
    let answering = Answering::secret(move |changed: &Changed| match changed {
        Changed::Source(source) => {
            let shown = ShownSource::new(source, base.as_ref(), ShownRejections::default());
            Rendered::json(StatusCode::CREATED, &shown)
        }
        Changed::Endpoint(_) | Changed::Nothing => Rendered::json(StatusCode::CREATED, &()),
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.change(change, claim, app.now()).await;
    answering.respond(&app, sent.keyed.as_ref(), claimed)
}

/// `GET /api/v1/sources`: newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let tenant = &admitted.caller.tenant;
    let mut query = Query::parse(request.uri().query(), &["limit", "cursor"]);
    let scope = CursorScope::new("sources", tenant, &[]);
    let wanted = query.page(&scope)?;
    let unseen =
        |source: &&Arc<Source>| wanted.after.is_none_or(|after| source.id.bits() < after.0);
    let mut items: Vec<_> = admitted.directory.sources_of(tenant).filter(unseen).collect();
    items.sort_by_key(|source| std::cmp::Reverse(source.id));
    let more = items.len() > wanted.limit;
    items.truncate(wanted.limit);
    let next = items.last().filter(|_| more).map(|last| Position(last.id.bits()));
    let base = base_url(&app, request.headers());
    let page = Page { items, next };
    Ok(answer::ok(&ShownPage::new(&page, &scope, |source| show(&app, source, base.as_ref()))))
}

/// `GET /api/v1/sources/{id}`, with its version as `ETag`.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Source>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let source = find(&admitted.directory, &admitted.caller.tenant, id.id()?)?;
    let base = base_url(&app, request.headers());
    Ok(version::shown(source.version, &show(&app, source, base.as_ref())))
}

/// `PATCH /api/v1/sources/{id}`: see [`parse_source_patch`]. With `If-Match`, only the version that
/// is named there.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    id: Named<kind::Source>,
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
        let settings = parse_source_patch(sent.body.bytes(), &current.settings)?;
        let change = Change::UpdateSource {
            tenant: tenant.clone(),
            source: id,
            expected_version: current.version,
            settings: Box::new(settings),
        };
        match app.store.change(change, None, app.now()).await {
            Ok(claimed) => Ok(Some(claimed)),
            Err(StoreError::Refused(Refusal::VersionChanged)) => Ok(None),
            Err(error) => Err(app.problem(&error).about("source")),
        }
    };
    let changed = version::until_it_holds(attempt).await?;
    let source = changed.done().and_then(Changed::source).ok_or_else(Problem::internal)?;
    let base = base_url(&app, &parts.headers);
    Ok(version::shown(source.version, &show(&app, &source, base.as_ref())))
}

/// `DELETE /api/v1/sources/{id}`: 204. It takes nothing any more; what it has received stays.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    id: Named<kind::Source>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let source = id.id()?;
    let changed = app.store.change(Change::DeleteSource { tenant, source }, None, app.now()).await;
    changed.map_err(|error| app.problem(&error).about("source"))?;
    app.intake.rejections.forget(source);
    Ok(answer::empty())
}

/// What the URLs begin with that the caller is given.
fn base_url(app: &App, headers: &HeaderMap) -> Option<BaseUrl> {
    app.settings.public_url.clone().or_else(|| BaseUrl::of_request(headers))
}

fn show<'a>(app: &App, source: &'a Source, base: Option<&BaseUrl>) -> ShownSource<'a> {
    ShownSource::new(source, base, app.intake.rejections.of(source.id))
}

/// A source of this tenant.
///
/// # Errors
/// `not-found`.
pub(super) fn find<'d>(
    directory: &'d Directory,
    tenant: &TenantId,
    id: SourceId,
) -> Result<&'d Arc<Source>, Problem> {
    directory.source_of(tenant, id).ok_or_else(|| Problem::not_found("source"))
}
