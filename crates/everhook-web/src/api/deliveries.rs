//! `/api/v1/deliveries`: reading, sending again, cancelling, taking note.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::attempt::{Attempt, AttemptError, KeptResponse};
use everhook_domain::delivery::{Due, State as DeliveryState};
use everhook_domain::endpoint::EndpointState;
use everhook_domain::event::EventType;
use everhook_domain::id::{DeliveryId, EndpointId, EventId, kind};
use everhook_domain::time::{Timestamp, millis};
use everhook_store::{Act, DeliveryDetail, DeliveryQuery, DeliveryRecord, Directory, StatusFilter};
use http::StatusCode;
use serde::Serialize;

use super::{Named, expect_nothing};
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App};
use crate::cursor::CursorScope;
use crate::post::Answering;
use crate::problem::Problem;
use crate::query::{Query, ShownPage};

/// A free attempt starts within this time; one that has not is waiting for something.
const LATE: Duration = Duration::from_millis(250);

/// `GET /api/v1/deliveries`: newest first, without their attempts.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let known = ["status", "endpoint_id", "event_id", "type", "from", "to", "limit", "cursor"];
    let mut query = Query::parse(request.uri().query(), &known);
    let wanted = DeliveryQuery {
        status: query.value("status", |word| {
            StatusFilter::from_word(word)
                .ok_or("must be one of due, leased, delivered, dead, cancelled")
        }),
        endpoint: query.value("endpoint_id", str::parse::<EndpointId>),
        event: query.value("event_id", str::parse::<EventId>),
        event_type: query.value("type", EventType::any),
        from: query.time("from"),
        to: query.time("to"),
    };
    let [from, to] = [wanted.from, wanted.to].map(|time| time.map(|time| time.to_string()));
    let [status, endpoint, event, event_type] =
        ["status", "endpoint_id", "event_id", "type"].map(|name| query.text(name));
    let filters = [status, endpoint, event, event_type, from.as_deref(), to.as_deref()];
    let scope = CursorScope::new("deliveries", &admitted.caller.tenant, &filters);
    let page = query.page(&scope)?;
    let page = app.store.deliveries(admitted.caller.tenant, wanted, page).await;
    let page = page.map_err(|error| app.problem(&error))?;
    let shower = Shower::new(&admitted.directory, app.now());
    Ok(answer::ok(&ShownPage::new(&page, &scope, |record| shower.show(record))))
}

/// `GET /api/v1/deliveries/{id}`: one delivery with its attempts, oldest first.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Delivery>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.delivery(admitted.caller.tenant, id.id()?).await;
    let found = found.map_err(|error| app.problem(&error))?;
    let DeliveryDetail { record, attempts } =
        found.ok_or_else(|| Problem::not_found("delivery"))?;
    let shower = Shower::new(&admitted.directory, app.now());
    let attempts = attempts.iter().map(ShownAttempt::new).collect();
    Ok(answer::ok(&ShownDelivery { attempts: Some(attempts), ..shower.show(&record) }))
}

/// `POST /api/v1/deliveries/{id}/replay`: 202 with the delivery.
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    id: Named<kind::Delivery>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, Act::Replay).await
}

/// `POST /api/v1/deliveries/{id}/cancel`: 200 with the delivery. One in flight is cancelled when
/// its attempt fails; if that succeeds, it is delivered.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    id: Named<kind::Delivery>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, Act::Cancel).await
}

/// `POST /api/v1/deliveries/{id}/acknowledge`: 200 with the delivery.
pub(super) async fn acknowledge(
    State(app): State<Arc<App>>,
    id: Named<kind::Delivery>,
    request: Request,
) -> Result<Response, Problem> {
    act(&app, id, request, Act::Acknowledge).await
}

async fn act(
    app: &App,
    id: Named<kind::Delivery>,
    request: Request,
    act: Act,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let delivery = id.id()?;
    expect_nothing(sent.body.bytes())?;
    let (tenant, now) = (sent.admitted.caller.tenant.clone(), app.now());
    let status = match act {
        Act::Replay => StatusCode::ACCEPTED,
        Act::Cancel | Act::Acknowledge => StatusCode::OK,
    };
    let shower = Shower::new(&sent.admitted.directory, now);
    let answering = Answering::plain(move |record: &DeliveryRecord| {
        Rendered::json(status, &shower.show(record))
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.act(tenant, delivery, act, claim, now).await;
    answering
        .respond(app, sent.keyed.as_ref(), claimed)
        .map_err(|problem| problem.about("delivery"))
}

/// What showing a delivery depends on besides the delivery.
#[derive(Clone, Debug)]
pub(super) struct Shower {
    directory: Arc<Directory>,
    now: Timestamp,
}

impl Shower {
    pub(super) fn new(directory: &Arc<Directory>, now: Timestamp) -> Self {
        Self { directory: Arc::clone(directory), now }
    }

    /// A delivery as it is shown, without its attempts.
    pub(super) fn show<'a>(&self, record: &'a DeliveryRecord) -> ShownDelivery<'a> {
        let progress = &record.progress;
        let (reason, acknowledged_at) = match &record.state {
            DeliveryState::Dead(dead) => (Some(dead.reason.as_str()), dead.acknowledged_at),
            DeliveryState::Cancelled(reason) => (Some(reason.as_str()), None),
            DeliveryState::Due(_) | DeliveryState::Leased(_) | DeliveryState::Delivered => {
                (None, None)
            }
        };
        let due = match &record.state {
            DeliveryState::Due(due) => Some(due),
            DeliveryState::Leased(_)
            | DeliveryState::Delivered
            | DeliveryState::Dead(_)
            | DeliveryState::Cancelled(_) => None,
        };
        ShownDelivery {
            id: record.id,
            event_id: record.id.event(),
            endpoint_id: record.endpoint,
            r#type: record.event_type.as_str(),
            status: StatusFilter::of(&record.state).as_str(),
            waiting_for: due.and_then(|due| self.waiting_for(record.endpoint, due)),
            reason,
            round: progress.round,
            attempt_count: progress.number,
            interruptions: progress.interruptions,
            created_at: record.created_at,
            next_attempt_at: due.map(|due| due.at),
            acknowledged_at,
            attempts: None,
        }
    }

    /// What keeps a due delivery from being sent, once it is late or cannot go at all.
    fn waiting_for(&self, endpoint: EndpointId, due: &Due) -> Option<&'static str> {
        let endpoint = self.directory.endpoint(endpoint)?;
        match endpoint.state {
            EndpointState::Paused => Some("paused"),
            EndpointState::Enabled if self.now.since(due.at) >= LATE => {
                Some(match endpoint.settings.requests_per_second {
                    Some(_) => "rate",
                    None => "slot",
                })
            }
            EndpointState::Enabled | EndpointState::Disabled | EndpointState::Deleted => None,
        }
    }
}

/// A delivery as it is shown. In lists it has no attempts.
#[derive(Debug, Serialize)]
pub(super) struct ShownDelivery<'a> {
    id: DeliveryId,
    event_id: EventId,
    endpoint_id: EndpointId,
    r#type: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    round: u32,
    attempt_count: u32,
    interruptions: u32,
    created_at: Timestamp,
    next_attempt_at: Option<Timestamp>,
    acknowledged_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<ShownAttempt<'a>>>,
}

/// One attempt as it is shown.
#[derive(Debug, Serialize)]
struct ShownAttempt<'a> {
    number: u32,
    round: u32,
    started_at: Timestamp,
    duration_ms: i64,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a AttemptError>,
    /// By name; values of a repeated name are joined by `, ` (RFC 9110 §5.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    response_headers: Option<BTreeMap<&'a str, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_body: Option<&'a str>,
    /// The body went on beyond what was kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    response_truncated: bool,
    /// The wait that the answer asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<i64>,
    /// Sent once more on a fresh connection, because a pooled one had been closed under it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    resent: bool,
    trigger: &'static str,
}

impl<'a> ShownAttempt<'a> {
    fn new(attempt: &'a Attempt) -> Self {
        let (report, outcome) = (&attempt.report, &attempt.report.outcome);
        let response = outcome.response.as_ref();
        Self {
            number: attempt.number,
            round: attempt.round,
            started_at: report.started_at,
            duration_ms: millis(report.duration),
            url: &report.url,
            status_code: response.map(|response| response.status),
            error: outcome.error.as_ref(),
            response_headers: response.map(headers_by_name),
            response_body: response.map(|response| response.body.as_str()),
            response_truncated: response.is_some_and(|response| response.truncated),
            retry_after_ms: outcome.retry_after.map(millis),
            resent: outcome.resent,
            trigger: attempt.trigger.as_str(),
        }
    }
}

fn headers_by_name(response: &KeptResponse) -> BTreeMap<&str, String> {
    let mut headers = BTreeMap::<&str, String>::new();
    for (name, value) in &response.headers {
        let joined = headers.entry(name).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(value);
    }
    headers
}
