//! `/api/v1/conversations`: the built-in resource with versions.
//!
//! Every verb takes `If-Match`, and every answer with a conversation has its version as `ETag`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::conversation::{Command, Outcome};
use everhook_domain::id::kind;
use everhook_domain::tenant::TenantId;
use everhook_store::{Converse, ConverseRequest};
use http::StatusCode;

use super::{Named, version};
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App, Sent};
use crate::conversation::{
    parse_conversation, parse_conversation_patch, parse_message, parse_transfer,
};
use crate::cursor::CursorScope;
use crate::post::Answering;
use crate::problem::Problem;
use crate::query::{Query, ShownPage};

/// `POST /api/v1/conversations`: 201.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let request = ConverseRequest::Create(parse_conversation(sent.body.bytes())?);
    run(&app, &sent, request, |outcome| render(StatusCode::CREATED, outcome)).await
}

/// `GET /api/v1/conversations`: the one whose last change is oldest first. With `from`, what has
/// changed since, deleted ones among them.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let mut query = Query::parse(request.uri().query(), &["from", "limit", "cursor"]);
    let from = query.time("from");
    let filter = from.map(|from| from.to_string());
    let scope = CursorScope::new("conversations", &tenant, &[filter.as_deref()]);
    let page = query.page(&scope)?;
    let page = app.store.changed_since(tenant, from, page).await;
    let page = page.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, |conversation| conversation)))
}

/// `GET /api/v1/conversations/{id}`.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.conversation(tenant, id.id()?).await;
    let found = found.map_err(|error| app.problem(&error))?.ok_or_else(not_found)?;
    Ok(version::shown(found.version, &found))
}

/// `PATCH /api/v1/conversations/{id}`: 200, as it is then; the same version if it was so already.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let expected = version::expected(&parts.headers);
    let request = changing(id, parse_conversation_patch(sent.body.bytes())?, expected)?;
    run(&app, &sent, request, |outcome| render(StatusCode::OK, outcome)).await
}

/// `DELETE /api/v1/conversations/{id}`: 204.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let expected = version::expected(request.headers());
    let converse = Converse { tenant, request: changing(id, Command::Delete, expected)? };
    let deleted = app.store.converse(converse, None, app.now()).await;
    deleted.map_err(|error| app.problem(&error).about("conversation"))?;
    Ok(answer::empty())
}

/// `POST /api/v1/conversations/{id}/transfer`: 200; assignee and status in one change.
pub(super) async fn transfer(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let expected = version::expected(request.headers());
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let request = changing(id, parse_transfer(sent.body.bytes())?, expected)?;
    run(&app, &sent, request, |outcome| render(StatusCode::OK, outcome)).await
}

/// `POST /api/v1/conversations/{id}/messages`: 201 with the message, and the version by it.
pub(super) async fn add_message(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let expected = version::expected(request.headers());
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let request = changing(id, parse_message(sent.body.bytes())?, expected)?;
    run(&app, &sent, request, |outcome| Rendered::json(StatusCode::CREATED, &outcome.message()))
        .await
}

/// `GET /api/v1/conversations/{id}/messages`: newest first.
pub(super) async fn messages(
    State(app): State<Arc<App>>,
    id: Named<kind::Conversation>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let id = id.id()?;
    let mut query = Query::parse(request.uri().query(), &["limit", "cursor"]);
    let scope = CursorScope::new("messages", &tenant, &[Some(&id.to_string())]);
    let page = query.page(&scope)?;
    let found = app.store.messages(tenant, id, page).await;
    let page = found.map_err(|error| app.problem(&error))?.ok_or_else(not_found)?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, |message| message)))
}

fn changing(
    id: Named<kind::Conversation>,
    command: Command,
    expected: Result<Option<u64>, Problem>,
) -> Result<ConverseRequest, Problem> {
    Ok(ConverseRequest::Change { conversation: id.id()?, command, expected: expected? })
}

async fn run(
    app: &App,
    sent: &Sent<'_>,
    request: ConverseRequest,
    render: impl Fn(&Outcome) -> Rendered + Send + Sync + 'static,
) -> Result<Response, Problem> {
    let tenant: TenantId = sent.admitted.caller.tenant.clone();
    let answering = Answering::plain(render);
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.converse(Converse { tenant, request }, claim, app.now()).await;
    let answered = answering.respond(app, sent.keyed.as_ref(), claimed);
    answered.map_err(|problem| problem.about("conversation"))
}

fn render(status: StatusCode, outcome: &Outcome) -> Rendered {
    let conversation = outcome.conversation();
    Rendered::json(status, conversation).versioned(conversation.version)
}

fn not_found() -> Problem {
    Problem::not_found("conversation")
}
