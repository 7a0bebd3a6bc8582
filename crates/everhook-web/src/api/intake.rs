//! `/in/{source}`: where webhooks come in, without credentials of ours. 2xx is answered only for
//! what the disk has.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use everhook_domain::fault::{self, Fate, Plant, Step};
use everhook_domain::id::SourceId;
use everhook_domain::inbound::{Handshake, Judgement, ReceivedItem, look};
use everhook_domain::source::{Source, SourceName};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{NewReceipt, Receive, Received, Refusal, StoreError, Verdict};
use http::request::Parts;

use crate::app::App;
use crate::body::Held;
use crate::intake::{self, Arrived, TurnedAway};
use crate::problem::{Problem, ProblemKind};

/// Any method: which ones a source takes, its kind says.
pub(super) async fn receive(
    State(app): State<Arc<App>>,
    named: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let at = (app.settings.wall_clock)();
    let (parts, mut body) = request.into_parts();
    let source = match find(&app, named) {
        Ok(source) => source,
        Err(problem) => return problem.into_response(),
    };
    match take(&app, &source, &parts, &mut body, at).await {
        Ok(response) => response,
        Err(Refused::Store(error)) => store_problem(&app, &error).into_response(),
        Err(Refused::TurnedAway(turned_away)) => {
            app.intake.rejections.note(&source, &turned_away, app.now());
            turned_away.problem.into_response()
        }
    }
}

/// Why a request was not taken.
enum Refused {
    TurnedAway(Box<TurnedAway>),
    Store(StoreError),
}

impl From<TurnedAway> for Refused {
    fn from(turned_away: TurnedAway) -> Self {
        Self::TurnedAway(Box::new(turned_away))
    }
}

/// The source with this id, of any tenant, or with this name, of the default tenant.
fn find(app: &App, named: Result<Path<String>, PathRejection>) -> Result<Arc<Source>, Problem> {
    let directory = app.store.directory().map_err(|error| store_problem(app, &error))?;
    let source = named.ok().and_then(|Path(text)| match text.parse::<SourceId>() {
        Ok(id) => directory.source(id).cloned(),
        Err(_) => {
            let name = text.parse::<SourceName>().ok()?;
            directory.source_named(&TenantId::default_tenant(), &name).cloned()
        }
    });
    source.ok_or_else(unknown)
}

fn unknown() -> Problem {
    let detail = "there is no source here; its ingest_url is the whole address";
    Problem::new(ProblemKind::UnknownSource, detail)
}

/// What the store does not do is ours to mend, so the provider must try again: never a 500, which
/// some of them take for final.
fn store_problem(app: &App, error: &StoreError) -> Problem {
    let problem = app.problem(error);
    match error {
        StoreError::Refused(Refusal::NotFound) => unknown(),
        StoreError::Refused(_) | StoreError::Failed(_) => Problem::store_unavailable(),
        StoreError::Unavailable(_) => problem,
    }
}

async fn take(
    app: &App,
    source: &Arc<Source>,
    parts: &Parts,
    body: &mut Body,
    at: Timestamp,
) -> Result<Response, Refused> {
    if let Some(why) = &source.unusable {
        return Err(TurnedAway::unusable(why).into());
    }
    let settings = &source.settings;
    // Of another method no body is read: it is a greeting, or refused.
    let held = match settings.kind.methods().contains(&parts.method.as_str()) {
        true => Some(read(app, source, body).await?),
        false => None,
    };
    let arrived = Arc::new(Arrived {
        method: parts.method.clone(),
        target: parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
        headers: parts.headers.clone(),
        body: held.as_ref().map(|held| held.bytes().clone()).unwrap_or_default(),
        at,
    });
    if fault::planted(Plant::DedupeBeforeVerification) {
        let seen = arrived.with(settings, None, look);
        store(app, source, &arrived, seen).await?;
    }
    let judgement = app.intake.judge(&arrived, source, app.now()).await?;
    match judgement {
        Judgement::Store(items) if items.is_empty() => Ok(intake::success(settings, false)),
        Judgement::Store(items) => store(app, source, &arrived, items).await,
        Judgement::Ignore => Ok(intake::success(settings, false)),
        Judgement::Handshake(Handshake::Answer(answer)) => Ok(intake::given(answer)),
        Judgement::Handshake(Handshake::Confirm(url)) => {
            let confirmed = app.intake.certificates.confirm(&url).await;
            confirmed.map_err(|error| TurnedAway::no_certificate(&error))?;
            Ok(intake::confirmed())
        }
    }
}

async fn read<'a>(app: &'a App, source: &Source, body: &mut Body) -> Result<Held<'a>, TurnedAway> {
    let limit = source.settings.options.body_max.min(app.settings.receive_limits.body_bytes_max);
    app.intake.bodies.read(Some(source.id), body, limit).await.map_err(TurnedAway::unread)
}

async fn store(
    app: &App,
    source: &Source,
    arrived: &Arrived,
    items: Vec<ReceivedItem>,
) -> Result<Response, Refused> {
    if fault::reach(Step::AcceptParsed) == Fate::Fail {
        return Err(Refused::Store(StoreError::Unavailable("a planted fault".to_owned())));
    }
    let prefix = &app.settings.endpoint_rules.header_prefix;
    let receive = Receive {
        tenant: source.tenant.clone(),
        source: source.id,
        headers: arrived.forwarded(&source.settings, prefix).for_items(&items),
        items: items.into_iter().map(|item| receipt(item, &arrived.body)).collect(),
    };
    let received = app.store.receive(receive, app.now()).await.map_err(Refused::Store)?;
    if fault::reach(Step::AnswerBefore) == Fate::Fail {
        return Err(Refused::Store(StoreError::Unavailable("a planted fault".to_owned())));
    }
    Ok(intake::success(&source.settings, is_duplicate(&received)))
}

fn receipt(item: ReceivedItem, whole: &Bytes) -> NewReceipt {
    NewReceipt {
        key: item.key,
        on_change: item.on_change,
        content: item.content,
        guard: item.guard,
        event_type: item.event_type,
        body: item.body.map_or_else(|| whole.clone(), Bytes::from),
        unreadable: item.unreadable,
    }
}

/// Whether all of it was seen before.
fn is_duplicate(received: &[Received]) -> bool {
    received.iter().all(|received| match received.verdict {
        Verdict::Duplicate => true,
        Verdict::Accepted | Verdict::Conflict | Verdict::Unreadable => false,
    })
}
