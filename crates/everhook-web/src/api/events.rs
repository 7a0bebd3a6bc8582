//! `/api/v1/events`: publishing, reading, sending again.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::event::{EventType, NewEvent, Origin, data_of_stored};
use everhook_domain::fault::{self, Fate, Step};
use everhook_domain::id::{EndpointId, EventId, ReceiptId, SourceId, kind};
use everhook_domain::source::SourceName;
use everhook_domain::time::Timestamp;
use everhook_store::{
    AcceptedEvent, Directory, EventDetail, EventQuery, EventRecord, Publish, Published, SentAgain,
    Targets,
};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::Named;
use super::deliveries::Shower;
use crate::answer::{self, Rendered};
use crate::app::{Admitted, App, Sent};
use crate::cursor::CursorScope;
use crate::event::{parse_batch, parse_event};
use crate::json::{self, Members};
use crate::post::Answering;
use crate::problem::{FieldErrors, Problem};
use crate::query::{Query, ShownPage};
use crate::received::{ShownBody, shown_headers};

/// `POST /api/v1/events`: 202 with the event, 200 with the first event for a duplicate.
pub(super) async fn publish(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let now = app.now();
    let event = parse_event(sent.body.bytes(), now)?;
    accept(&app, sent, vec![event], now, Answering::plain(render_one)).await
}

/// `POST /api/v1/events/batch`: 202 with all events, duplicates marked in place.
pub(super) async fn publish_batch(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.batch_bytes_max).await?;
    let now = app.now();
    let events = parse_batch(sent.body.bytes(), now)?;
    accept(&app, sent, events, now, Answering::plain(render_batch)).await
}

async fn accept(
    app: &App,
    sent: Sent<'_>,
    events: Vec<NewEvent>,
    now: Timestamp,
    answering: Answering<Published>,
) -> Result<Response, Problem> {
    if fault::reach(Step::AcceptParsed) == Fate::Fail {
        return Err(Problem::store_unavailable());
    }
    let tenant = sent.admitted.caller.tenant.clone();
    let publish = Publish { tenant, events, targets: Targets::Subscribed };
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.publish(publish, claim, now).await;
    answering.respond(app, sent.keyed.as_ref(), claimed)
}

fn render_one(published: &Published) -> Rendered {
    match published.first() {
        Some(event) if event.duplicate => {
            Rendered::json(StatusCode::OK, &ShownAccepted::new(event))
        }
        Some(event) => Rendered::json(StatusCode::ACCEPTED, &ShownAccepted::new(event)),
        None => Rendered::json(StatusCode::ACCEPTED, &()),
    }
}

fn render_batch(published: &Published) -> Rendered {
    let events = published.iter().map(ShownAccepted::new).collect();
    Rendered::json(StatusCode::ACCEPTED, &ShownBatch { events })
}

/// An accepted event as it is answered.
#[derive(Debug, Serialize)]
pub(super) struct ShownAccepted<'a> {
    id: EventId,
    r#type: &'a EventType,
    timestamp: Timestamp,
    duplicate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    differs: bool,
    deliveries: u32,
}

impl<'a> ShownAccepted<'a> {
    pub(super) fn new(event: &'a AcceptedEvent) -> Self {
        Self {
            id: event.id,
            r#type: &event.event_type,
            timestamp: event.timestamp,
            duplicate: event.duplicate,
            differs: event.differs,
            deliveries: event.deliveries,
        }
    }
}

#[derive(Debug, Serialize)]
struct ShownBatch<'a> {
    events: Vec<ShownAccepted<'a>>,
}

/// `GET /api/v1/events`: newest first, without their data.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    let (tenant, directory) = (admitted.caller.tenant, admitted.directory);
    let known = ["type", "from", "to", "limit", "cursor"];
    let mut query = Query::parse(request.uri().query(), &known);
    let wanted = EventQuery {
        event_type: query.value("type", EventType::any),
        from: query.time("from"),
        to: query.time("to"),
    };
    let [from, to] = [wanted.from, wanted.to].map(|time| time.map(|time| time.to_string()));
    let filters = [query.text("type"), from.as_deref(), to.as_deref()];
    let scope = CursorScope::new("events", &tenant, &filters);
    let page = query.page(&scope)?;
    let page = app.store.events(tenant, wanted, page).await.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, |record| ShownEvent::new(record, &directory))))
}

/// `GET /api/v1/events/{id}`: one event, with its data as the publisher wrote it.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Event>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.event(admitted.caller.tenant, id.id()?).await;
    let found = found.map_err(|error| app.problem(&error))?;
    let EventDetail { record, body, headers } = found.ok_or_else(|| Problem::not_found("event"))?;
    // What was received is kept as it came; only our own envelope has data.
    let body = match record.origin {
        Origin::Published | Origin::System => {
            data_of_stored(&record.event_type, &body).map(ShownBody::new)
        }
        Origin::Received => Some(ShownBody::new(&body)),
    };
    let headers = headers.as_deref().map(shown_headers);
    let shown = ShownEvent { headers, body, ..ShownEvent::new(&record, &admitted.directory) };
    Ok(answer::ok(&shown))
}

/// `GET /api/v1/events/{id}/body`: the bytes that are sent to endpoints, whatever they are.
pub(super) async fn body(
    State(app): State<Arc<App>>,
    id: Named<kind::Event>,
    request: Request,
) -> Result<Response, Problem> {
    let admitted = Admitted::noted(request.extensions())?;
    Query::parse(request.uri().query(), &[]).check()?;
    let found = app.store.event(admitted.caller.tenant, id.id()?).await;
    let found = found.map_err(|error| app.problem(&error))?;
    let EventDetail { body, .. } = found.ok_or_else(|| Problem::not_found("event"))?;
    Ok(answer::response(StatusCode::OK, BYTES, Body::from(body)))
}

/// Foreign bytes: no program may take them for something to show or run.
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A stored event as it is shown. In lists it has neither headers nor body.
#[derive(Debug, Serialize)]
struct ShownEvent<'a> {
    id: EventId,
    r#type: &'a EventType,
    timestamp: Timestamp,
    origin: &'static str,
    source_event_id: Option<&'a str>,
    #[serde(flatten)]
    received: Option<ShownOrigin<'a>>,
    created_at: Timestamp,
    /// As many as it was given at acceptance.
    deliveries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<&'a str, String>>,
    #[serde(flatten)]
    body: Option<ShownBody<'a>>,
}

/// Where an event was received.
#[derive(Debug, Serialize)]
struct ShownOrigin<'a> {
    /// The source's name; of a deleted one, the last.
    source: &'a str,
    source_id: SourceId,
    receipt_id: ReceiptId,
}

impl<'a> ShownEvent<'a> {
    fn new(record: &'a EventRecord, directory: &'a Directory) -> Self {
        let received = record.source.map(|source| ShownOrigin {
            source: directory.source_name(source).map_or("", SourceName::as_str),
            source_id: source,
            receipt_id: record.id.receipt(),
        });
        Self {
            id: record.id,
            r#type: &record.event_type,
            timestamp: record.timestamp,
            origin: record.origin.as_str(),
            source_event_id: record.source_event_id.as_deref(),
            received,
            created_at: record.id.created_at(),
            deliveries: record.deliveries,
            headers: None,
            body: None,
        }
    }
}

/// `POST /api/v1/events/{id}/replay`: 202 with the deliveries that were set going. With
/// `endpoint_id` that is the one to this endpoint, even if the event had none there.
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    id: Named<kind::Event>,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let event = id.id()?;
    let endpoint = parse_replay(sent.body.bytes())?;
    let (tenant, now) = (sent.admitted.caller.tenant.clone(), app.now());
    let shower = Shower::new(&sent.admitted.directory, now);
    let answering = Answering::plain(move |deliveries: &SentAgain| {
        let deliveries = deliveries.iter().map(|record| shower.show(record)).collect();
        Rendered::json(StatusCode::ACCEPTED, &ShownReplay { deliveries })
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    let claimed = app.store.send_again(tenant, event, endpoint, claim, now).await;
    let what = if endpoint.is_some() { "event or endpoint" } else { "event" };
    answering.respond(&app, sent.keyed.as_ref(), claimed).map_err(|problem| problem.about(what))
}

#[derive(Debug, Serialize)]
struct ShownReplay<'a> {
    deliveries: Vec<super::deliveries::ShownDelivery<'a>>,
}

/// The endpoint that is named, if one is; the body may be empty.
fn parse_replay(body: &[u8]) -> Result<Option<EndpointId>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let members = Members::of_body(body, &["endpoint_id"])?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let endpoint = members.optional("endpoint_id").and_then(|value| {
        let id = json::text(value)
            .and_then(|text| text.parse::<EndpointId>().map_err(|error| error.to_string().into()));
        id.map_err(|detail| errors.add("", "endpoint_id", detail)).ok()
    });
    errors.check()?;
    Ok(endpoint)
}
