//! `/api/v1/idempotency-records`: what is remembered under keys, and settling what nobody knows.

use std::borrow::Cow;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::Response;
use everhook_domain::id::{Id, RecordId};
use everhook_domain::idempotency::Answer;
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{KeyRecord, RecordOrigin, RecordQuery, RecordState, RecordStateWord};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::answer::{self, JSON, Rendered};
use crate::app::{Admitted, App};
use crate::cursor::CursorScope;
use crate::json::{self, Members};
use crate::post::Answering;
use crate::problem::{FieldErrors, Problem};
use crate::query::{Query, ShownPage};

const WHAT: &str = "idempotency record";
/// Statuses that end a request.
const STATUS: std::ops::RangeInclusive<u32> = 200..=599;
/// Of these, those whose answers have no body (RFC 9110 §6.4.1, §15.3.6).
const BODILESS: [u32; 3] = [204, 205, 304];
const TEXT: &str = "text/plain; charset=utf-8";

/// `GET /api/v1/idempotency-records`: those that are live, newest first.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let known = ["origin", "state", "limit", "cursor"];
    let mut query = Query::parse(request.uri().query(), &known);
    let wanted = RecordQuery {
        origin: query.value("origin", |word| {
            RecordOrigin::from_word(word).ok_or("must be one of api, proxy, claim")
        }),
        state: query.value("state", |word| {
            RecordStateWord::from_word(word).ok_or("must be one of in_progress, unknown, completed")
        }),
    };
    let filters = [query.text("origin"), query.text("state")];
    let scope = CursorScope::new("idempotency-records", &tenant, &filters);
    let page = query.page(&scope)?;
    let page = app.store.records(tenant, wanted, page, app.now()).await;
    let page = page.map_err(|error| app.problem(&error))?;
    Ok(answer::ok(&ShownPage::new(&page, &scope, ShownRecord::new)))
}

/// `GET /api/v1/idempotency-records/{id}`: without what is remembered, which may hold a secret.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    name: Name,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    Query::parse(request.uri().query(), &[]).check()?;
    let id = name.find(&app, &tenant).await?.ok_or_else(|| Problem::not_found(WHAT))?;
    let found = find(&app, &tenant, id).await?.ok_or_else(|| Problem::not_found(WHAT))?;
    Ok(answer::ok(&ShownRecord::new(&found)))
}

/// `DELETE /api/v1/idempotency-records/{id}`: 204; its key is new.
pub(super) async fn forget(
    State(app): State<Arc<App>>,
    name: Name,
    request: Request,
) -> Result<Response, Problem> {
    let tenant = Admitted::noted(request.extensions())?.caller.tenant;
    let id = name.find(&app, &tenant).await?.ok_or_else(|| Problem::not_found(WHAT))?;
    let forgotten = app.store.forget(tenant, id, app.now()).await;
    forgotten.map_err(|error| app.problem(&error).about(WHAT))?;
    app.waiters.wake(id);
    Ok(answer::empty())
}

/// `POST /api/v1/idempotency-records/{id}/resolve`: 200; from now on its key is answered with this.
pub(super) async fn resolve(
    State(app): State<Arc<App>>,
    name: Name,
    request: Request,
) -> Result<Response, Problem> {
    let sent = app.admit_post(request, app.settings.body_limits.body_bytes_max).await?;
    let tenant = sent.admitted.caller.tenant.clone();
    let id = name.find(&app, &tenant).await?;
    let found = match id {
        Some(id) => find(&app, &tenant, id).await?,
        None => None,
    };
    let answer = parse_answer(sent.body.bytes(), found.map(|record| record.name.origin))?;
    let answering = Answering::plain(|record: &KeyRecord| {
        Rendered::json(StatusCode::OK, &ShownRecord::new(record))
    });
    let claim = answering.claim(sent.keyed.as_ref(), &app.settings.entropy);
    // What is not there is for the store to say, after it has looked for the request's own key.
    let id = id.unwrap_or(Id::from_bits(0));
    let resolved = app.store.resolve(tenant, id, answer, claim, app.now()).await;
    app.waiters.wake(id);
    answering.respond(&app, sent.keyed.as_ref(), resolved).map_err(|problem| problem.about(WHAT))
}

async fn find(app: &App, tenant: &TenantId, id: RecordId) -> Result<Option<KeyRecord>, Problem> {
    let found = app.store.record(tenant.clone(), id, app.now()).await;
    found.map_err(|error| app.problem(&error))
}

/// The `{id}` in a path: a record's id, or the name that a 409 `outcome-unknown` tells.
pub(super) enum Name {
    Id(RecordId),
    Key(KeyHash),
    None,
}

impl Name {
    /// The id of what is named; it may be over.
    async fn find(self, app: &App, tenant: &TenantId) -> Result<Option<RecordId>, Problem> {
        match self {
            Self::Id(id) => Ok(Some(id)),
            Self::Key(key) => {
                let found = app.store.look(tenant.clone(), key).await;
                Ok(found.map_err(|error| app.problem(&error))?.map(|claim| claim.id))
            }
            Self::None => Ok(None),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let Ok(Path(text)) = Path::<String>::from_request_parts(parts, state).await else {
            return Ok(Self::None);
        };
        let key = text.parse::<everhook_idempotency::RecordId>();
        Ok(match (text.parse(), key) {
            (Ok(id), _) => Self::Id(id),
            (Err(_), Ok(key)) => Self::Key(key.key()),
            (Err(_), Err(_)) => Self::None,
        })
    }
}

/// What a record is to be answered with.
///
/// A `body` that is a string is sent as text, any other JSON as it was written. To a claim it is
/// the result, a string too.
fn parse_answer(body: &[u8], origin: Option<RecordOrigin>) -> Result<Answer, Problem> {
    let members = Members::of_body(body, &["status", "headers", "body"])?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let status = members.read("status", &mut errors, |value| json::whole_number(value, STATUS));
    let body = members.get("body");
    let answer = if origin == Some(RecordOrigin::Claim) {
        if members.optional("headers").is_some() {
            errors.add("", "headers", "the result of a claim has none");
        }
        let body = body.map_or("null", RawValue::get).as_bytes().to_vec();
        Answer { status: 200, headers: Vec::new(), body }
    } else {
        let mut headers = HeaderMap::new();
        let bytes = match members.read_optional("body", &mut errors, bytes) {
            Some(_) if status.is_some_and(|status| BODILESS.contains(&status)) => {
                errors.add("", "body", "an answer with this status has none (RFC 9110 §6.4.1)");
                Vec::new()
            }
            Some((media_type, bytes)) => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
                bytes
            }
            None => Vec::new(),
        };
        if let Some(named) = members.read_optional("headers", &mut errors, json::object) {
            let named = Members::new(named, "/headers", &[])?;
            read_headers(&named, &mut headers, &mut errors);
        }
        Answer::remember(200, &headers, bytes)
    };
    errors.check()?;
    let status = status.and_then(|status| u16::try_from(status).ok());
    Ok(Answer { status: status.ok_or_else(Problem::internal)?, ..answer })
}

fn bytes(value: &RawValue) -> Result<(&'static str, Vec<u8>), Cow<'static, str>> {
    match value.get().starts_with('"') {
        true => Ok((TEXT, json::text(value)?.into_owned().into_bytes())),
        false => Ok((JSON, value.get().as_bytes().to_vec())),
    }
}

/// Adds the headers that an answer can be remembered with, in place of ours.
fn read_headers(named: &Members<'_>, headers: &mut HeaderMap, errors: &mut FieldErrors) {
    let mut read = HashSet::new();
    for (name, value) in named.iter() {
        match read_header(name, value) {
            Ok((known, _)) if !read.insert(known.clone()) => {
                errors.add(named.base(), name, "is there twice: upper and lower case are the same");
            }
            Ok((name, value)) => drop(headers.insert(name, value)),
            Err(detail) => errors.add(named.base(), name, detail),
        }
    }
    named.refuse_unread(errors);
}

fn read_header(
    name: &str,
    value: &RawValue,
) -> Result<(HeaderName, HeaderValue), Cow<'static, str>> {
    let name =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| Cow::from("is no name of a header"))?;
    let text = json::text(value)?;
    let value = HeaderValue::from_str(&text).ok().filter(|_| text.is_ascii());
    let value = value.ok_or("must be visible ASCII text in one line")?;
    let alone = HeaderMap::from_iter([(name.clone(), value.clone())]);
    match Answer::remember(200, &alone, Vec::new()).headers.is_empty() {
        true => Err(Cow::from("speaks of one answer alone and is never given again")),
        false => Ok((name, value)),
    }
}

/// A record as it is shown.
#[derive(Debug, Serialize)]
struct ShownRecord<'a> {
    id: RecordId,
    origin: &'static str,
    account: &'a str,
    /// A method and a path, or the scope of a claim.
    subject: &'a str,
    state: &'static str,
    /// When its key was first claimed, or its work was done.
    created_at: Timestamp,
    /// Of what is not completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
    /// What was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayable: Option<bool>,
    /// When its key is forgotten.
    expires_at: Timestamp,
}

impl<'a> ShownRecord<'a> {
    fn new(record: &'a KeyRecord) -> Self {
        let (lease_until, status, replayable) = match record.state {
            RecordState::InProgress { lease_until } => (Some(lease_until), None, None),
            RecordState::Unknown { since } => (Some(since), None, None),
            RecordState::Completed { status, replayable } => (None, Some(status), Some(replayable)),
        };
        Self {
            id: record.id,
            origin: record.name.origin.as_str(),
            account: &record.name.account,
            subject: &record.name.subject,
            state: RecordStateWord::of(&record.state).as_str(),
            created_at: record.id.created_at(),
            lease_until,
            status,
            replayable,
            expires_at: record.expires_at,
        }
    }
}
