//! `/api/v1/replays`, and what else is done to many deliveries at once: acknowledging them, and the
//! catch-up of an endpoint. All of it is read, listed and cancelled here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::bulk::{BulkKind, SkipReason};
use everhook_domain::event::EventType;
use everhook_domain::id::{EndpointId, ReplayId, kind};
use everhook_domain::time::Timestamp;
use everhook_store::{BulkRecord, BulkRequest, BulkStarted, DeliveryQuery, StatusFilter};
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use super::Named;
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App, Sent};
use crate::cursor::CursorScope;
use crate::json::{self, Members};
use crate::post::Answering;
use crate::problem::{FieldErrors, Problem};
use crate::query::{Query, ShownPage};

const REPLAY_MEMBERS: &[&str] =
    &["status", "endpoint_id", "type", "from", "to", "rate_per_second", "dry_run"];
const ACKNOWLEDGE_MEMBERS: &[&str] = &["endpoint_id", "type", "from", "to", "dry_run"];
const CATCH_UP_MEMBERS: &[&str] = &["from"];

/// `POST /api/v1/replays`: 202 with the id and how many deliveries match; a dry run has no id.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let wanted = Wanted::parse(&app, sent.body.bytes(), REPLAY_MEMBERS)?;
    start(&app, sent, BulkKind::Replay, wanted).await
}

/// `POST /api/v1/deliveries/acknowledge`: 202 as for a replay. They stay dead and replayable.
pub(super) async fn acknowledge(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let mut wanted = Wanted::parse(&app, sent.body.bytes(), ACKNOWLEDGE_MEMBERS)?;
    wanted.filter.status = Some(StatusFilter::Dead);
    // It sends nothing, so nobody has to be spared.
    wanted.rate_per_second = app.settings.replay_rates.max_per_second;
    start(&app, sent, BulkKind::Acknowledge, wanted).await
}

/// `POST /api/v1/endpoints/{id}/catch-up`: 202 with the id; how many there are shows only then.
pub(super) async fn catch_up(
    State(app): State<Arc<App>>,
    id: Named<kind::Endpoint>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let endpoint = id.id()?;
    let mut wanted = Wanted::parse(&app, sent.body.bytes(), CATCH_UP_MEMBERS)?;
    if wanted.filter.from.is_none() {
        let mut errors = FieldErrors::default();
        errors.add("", "from", "is missing: name the time of acceptance to begin at");
        errors.check()?;
    }
    wanted.filter.endpoint = Some(endpoint);
    start(&app, sent, BulkKind::CatchUp, wanted).await
}

async fn start(
    app: &App,
    sent: Sent<'_>,
    kind: BulkKind,
    wanted: Wanted,
) -> Result<Response, Problem> {
    let Wanted { filter, rate_per_second, dry_run } = wanted;
    let tenant = sent.admitted.caller.tenant.clone();
    let request = BulkRequest { tenant, kind, filter, rate_per_second, dry_run };
    let answering = Answering::plain(|started: &BulkStarted| {
        let shown = ShownStarted { id: started.id, matched: started.matched };
        Rendered::json(StatusCode::ACCEPTED, &shown)
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.start_bulk(request, claim, app.now()).await;
    answering
        .respond(app, sent.keyed.as_ref(), claimed)
        .map_err(|problem| problem.about("endpoint"))
}

/// `GET /api/v1/replays`: newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let mut query = Query::parse(request.uri().query(), &["limit", "cursor"]);
    let scope = CursorScope::new("replays", &tenant, &[]);
    let page = query.page(&scope)?;
    let page = app.store.bulks(tenant, page).await.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, ShownReplay::new)))
}

/// `GET /api/v1/replays/{id}`: how far it has come.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Replay>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.bulk(tenant, id.id()?).await.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownReplay::new(&found.ok_or_else(|| Problem::not_found("replay"))?)))
}

/// `DELETE /api/v1/replays/{id}`: 204. What is left of it is not done; what was set going stays.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    id: Named<kind::Replay>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let cancelled = app.store.cancel_bulk(tenant, id.id()?, app.now()).await;
    cancelled.map_err(|error| app.problem(&error).about("replay"))?;
    Ok(answer::empty())
}

/// What a body asks for.
struct Wanted {
    filter: DeliveryQuery,
    rate_per_second: u32,
    dry_run: bool,
}

impl Wanted {
    /// Reads a body that may have these members.
    fn parse(app: &App, body: &[u8], known: &'static [&'static str]) -> Result<Self, Problem> {
        let members = Members::of_body(body, known)?;
        let mut errors = FieldErrors::default();
        members.refuse_unknown(&mut errors);
        let rates = app.settings.replay_rates;
        let filter = DeliveryQuery {
            status: members.read_optional("status", &mut errors, status),
            endpoint: members.read_optional("endpoint_id", &mut errors, endpoint_id),
            event: None,
            event_type: members.read_optional("type", &mut errors, event_type),
            from: members.read_optional("from", &mut errors, time),
            to: members.read_optional("to", &mut errors, time),
        };
        let rate = members.read_optional("rate_per_second", &mut errors, |value| {
            json::whole_number(value, 1..=rates.max_per_second)
        });
        let dry_run = members.read_optional("dry_run", &mut errors, truth);
        errors.check()?;
        let rate_per_second = rate.unwrap_or(rates.default_per_second);
        Ok(Self { filter, rate_per_second, dry_run: dry_run.unwrap_or(false) })
    }
}

fn status(value: &RawValue) -> Result<StatusFilter, Cow<'static, str>> {
    StatusFilter::from_word(&json::text(value)?)
        .ok_or(Cow::from("must be one of due, leased, delivered, dead, cancelled"))
}

fn endpoint_id(value: &RawValue) -> Result<EndpointId, Cow<'static, str>> {
    json::text(value)?.parse().map_err(|error| Cow::from(format!("{error}")))
}

fn event_type(value: &RawValue) -> Result<EventType, Cow<'static, str>> {
    EventType::any(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn time(value: &RawValue) -> Result<Timestamp, Cow<'static, str>> {
    Timestamp::parse(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn truth(value: &RawValue) -> Result<bool, Cow<'static, str>> {
    match value.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Cow::from(format!("must be true or false, not {}", json::kind_of(value)))),
    }
}

/// Work that was begun, as it is answered.
#[derive(Debug, Serialize)]
struct ShownStarted {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ReplayId>,
    matched: Option<u64>,
}

/// Work as it is shown.
#[derive(Debug, Serialize)]
struct ShownReplay<'a> {
    id: ReplayId,
    kind: &'static str,
    status: &'static str,
    filter: ShownFilter<'a>,
    rate_per_second: u32,
    /// Unknown for a catch-up.
    matched: Option<u64>,
    /// Set going; for what is acknowledged that is the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acknowledged: Option<u64>,
    skipped: u64,
    skipped_by_reason: &'a BTreeMap<SkipReason, u64>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
struct ShownFilter<'a> {
    status: Option<&'static str>,
    endpoint_id: Option<EndpointId>,
    r#type: Option<&'a EventType>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

impl<'a> ShownReplay<'a> {
    fn new(record: &'a BulkRecord) -> Self {
        let filter = &record.filter;
        let done = Some(record.tally.done);
        let (sent, acknowledged) = match record.kind {
            BulkKind::Replay | BulkKind::CatchUp => (done, None),
            BulkKind::Acknowledge => (None, done),
        };
        Self {
            id: record.id,
            kind: record.kind.as_str(),
            status: record.status.as_str(),
            filter: ShownFilter {
                status: filter.status.map(StatusFilter::as_str),
                endpoint_id: filter.endpoint,
                r#type: filter.event_type.as_ref(),
                from: filter.from,
                to: filter.to,
            },
            rate_per_second: record.rate_per_second,
            matched: record.matched,
            sent,
            acknowledged,
            skipped: record.tally.skipped_total(),
            skipped_by_reason: &record.tally.skipped,
            created_at: record.created_at,
            ended_at: record.ended_at,
        }
    }
}
