//! `/api/v1/receipts`: what has come in, and deciding about it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::event::EventType;
use everhook_domain::id::{EventId, ReceiptId, SourceId, kind};
use everhook_domain::source::SourceName;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Decision, Directory, ReceiptQuery, ReceiptReason, ReceiptRecord, ReceiptStatus,
};
use http::StatusCode;
use serde::Serialize;

use super::{Named, expect_nothing};
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App};
use crate::cursor::CursorScope;
use crate::post::Answering;
use crate::problem::Problem;
use crate::query::{Query, ShownPage};

/// `GET /api/v1/receipts`: newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let (tenant, directory) = (&admitted.caller.tenant, &admitted.directory);
    let known = ["source", "status", "duplicates_min", "limit", "cursor"];
    let mut query = Query::parse(request.uri().query(), &known);
    let wanted = ReceiptQuery {
        source: query.value("source", |text| source(directory, tenant, text)),
        status: query.value("status", |word| {
            ReceiptStatus::from_word(word).ok_or("must be one of accepted, conflict, dead")
        }),
        duplicates_min: query.value("duplicates_min", |text| {
            text.parse::<u64>().map_err(|_| "must be a whole number")
        }),
    };
    // By id: the cursor of a renamed source goes on.
    let by_id = wanted.source.map(|id| id.to_string());
    let filters = [by_id.as_deref(), query.text("status"), query.text("duplicates_min")];
    let scope = CursorScope::new("receipts", tenant, &filters);
    let page = query.page(&scope)?;
    let page = app.store.receipts(tenant.clone(), wanted, page).await;
    let page = page.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, |record| ShownReceipt::new(record, directory))))
}

/// A source by its id, deleted ones among them, or by its name.
fn source(directory: &Directory, tenant: &TenantId, text: &str) -> Result<SourceId, &'static str> {
    let by_name = || {
        let name = text.parse::<SourceName>().ok()?;
        Some(directory.source_named(tenant, &name)?.id)
    };
    text.parse().ok().or_else(by_name).ok_or("there is no source with this id or name")
}

/// `GET /api/v1/receipts/{id}`.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Receipt>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.receipt(admitted.caller.tenant, id.id()?).await;
    let found = found.map_err(|error| app.problem(&error))?;
    let record = found.ok_or_else(|| Problem::not_found("receipt"))?;
    Ok(answer::ok(&ShownReceipt::new(&record, &admitted.directory)))
}

/// `POST /api/v1/receipts/{id}/release`: 200; a conflict, or what could not be read, is given its
/// deliveries.
pub(super) async fn release(
    State(app): State<Arc<App>>,
    id: Named<kind::Receipt>,
    request: Request,
) -> Result<Response, Problem> {
    decide(&app, id, request, Decision::Release).await
}

/// `POST /api/v1/receipts/{id}/discard`: 200; a conflict never runs.
pub(super) async fn discard(
    State(app): State<Arc<App>>,
    id: Named<kind::Receipt>,
    request: Request,
) -> Result<Response, Problem> {
    decide(&app, id, request, Decision::Discard).await
}

/// `POST /api/v1/receipts/{id}/force`: 202; its event is sent once more.
pub(super) async fn force(
    State(app): State<Arc<App>>,
    id: Named<kind::Receipt>,
    request: Request,
) -> Result<Response, Problem> {
    decide(&app, id, request, Decision::Force).await
}

async fn decide(
    app: &App,
    id: Named<kind::Receipt>,
    request: Request,
    decision: Decision,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let receipt = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let status = match decision {
        Decision::Release | Decision::Discard => StatusCode::OK,
        Decision::Force => StatusCode::ACCEPTED,
    };
    let directory = Arc::clone(&sent.admitted.directory);
    let answering = Answering::plain(move |record: &ReceiptRecord| {
        Rendered::json(status, &ShownReceipt::new(record, &directory))
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let tenant = sent.admitted.caller.tenant.clone();
    let claimed = app.store.decide(tenant, receipt, decision, claim, app.now()).await;
    answering.respond(app, sent.keyed.as_ref(), claimed).map_err(|problem| problem.about("receipt"))
}

/// A receipt as it is shown.
#[derive(Debug, Serialize)]
struct ShownReceipt<'a> {
    id: ReceiptId,
    /// The source's name; of a deleted one, the last.
    source: &'a str,
    source_id: SourceId,
    key: &'a str,
    event_id: EventId,
    r#type: &'a EventType,
    first_seen_at: Timestamp,
    last_seen_at: Timestamp,
    duplicates: u64,
    body_changed: bool,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Of a conflict: the receipt that was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    conflicts_with: Option<ReceiptId>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    /// How many its event has: 0 where no endpoint names the source.
    deliveries: u32,
    processed_at: Option<Timestamp>,
    released_at: Option<Timestamp>,
}

impl<'a> ShownReceipt<'a> {
    fn new(record: &'a ReceiptRecord, directory: &'a Directory) -> Self {
        let (reason, conflicts_with, detail) = match &record.reason {
            None => (None, None, None),
            Some(ReceiptReason::OtherContent(first)) => (Some("other_content"), Some(*first), None),
            Some(ReceiptReason::OtherKey(first)) => (Some("other_key"), Some(*first), None),
            Some(ReceiptReason::Unreadable(why)) => (Some("unreadable"), None, Some(why.as_str())),
            Some(ReceiptReason::Discarded) => (Some("discarded"), None, None),
        };
        Self {
            id: record.id,
            source: directory.source_name(record.source).map_or("", SourceName::as_str),
            source_id: record.source,
            key: &record.key,
            event_id: record.event(),
            r#type: &record.event_type,
            first_seen_at: record.first_seen_at,
            last_seen_at: record.last_seen_at,
            duplicates: record.duplicates,
            body_changed: record.body_changed,
            status: record.status.as_str(),
            reason,
            conflicts_with,
            detail,
            deliveries: record.deliveries,
            processed_at: record.processed_at,
            released_at: record.released_at,
        }
    }
}
