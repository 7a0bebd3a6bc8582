//! `POST /api/v1/sources/{id}/preview`: what would become of a request, without anything of it
//! being stored, counted or sent. Under a key its answer is remembered.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use everhook_domain::event::EventType;
use everhook_domain::id::kind;
use everhook_domain::inbound::{Handshake, Judgement, OnChange, ReceivedItem, look};
use everhook_domain::source::Source;
use everhook_domain::time::Timestamp;
use everhook_store::Claimed;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::BodyExt;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Named, sources};
use crate::answer::Rendered;
use crate::app::App;
use crate::intake::{self, Arrived, TurnedAway};
use crate::json::{self, Members};
use crate::post::Answering;
use crate::problem::{FieldErrors, Problem};
use crate::received::{ShownBody, shown_headers};

const MEMBERS: &[&str] = &["method", "url", "headers", "body", "body_base64", "now"];

/// 200, whatever would be answered.
pub(super) async fn preview(
    State(app): State<Arc<App>>,
    id: Named<kind::Source>,
    request: Request,
) -> Result<Response, Problem> {
    // A body of a webhook is in it, as text.
    let sent = app.admit_post(request, app.settings.body_limits.batch_bytes_max).await?;
    let source = sources::find(&sent.admitted.directory, &sent.admitted.caller.tenant, id.id()?)?;
    let now = (app.settings.wall_clock)();
    let arrived = Arc::new(parse(sent.body.bytes(), source, now)?);
    let judged = match &source.unusable {
        Some(why) => Err(TurnedAway::unusable(why)),
        None => app.intake.judge(&arrived, source, app.now()).await,
    };
    let prefix = &app.settings.endpoint_rules.header_prefix;
    let (items, rejected, answer) = outcome(source, &arrived, judged);
    let headers = arrived.forwarded(&source.settings, prefix).for_items(&items);
    let shown = Shown {
        verified: rejected.is_none(),
        rejected,
        events: items.iter().map(|item| ShownItem::new(item, &arrived)).collect(),
        forwarded_headers: shown_headers(&headers),
        answer: ShownAnswer::new(answer).await,
    };
    let rendered = Rendered::json(StatusCode::OK, &shown);
    let answering = Answering::plain(move |()| rendered.clone());
    let remembered = match answering.claim(sent.keyed.as_ref(), &app.settings.entropy) {
        Some(claim) => app.store.remember(claim, app.now()).await,
        None => Ok(Claimed::Done(())),
    };
    answering.respond(&app, sent.keyed.as_ref(), remembered)
}

/// The events, why it would be turned away, and the answer as if nothing had been seen before.
fn outcome(
    source: &Source,
    arrived: &Arrived,
    judged: Result<Judgement, TurnedAway>,
) -> (Vec<ReceivedItem>, Option<ShownRejection>, Response) {
    let settings = &source.settings;
    match judged {
        Ok(Judgement::Store(items)) => (items, None, intake::success(settings, false)),
        Ok(Judgement::Ignore) => (Vec::new(), None, intake::success(settings, false)),
        Ok(Judgement::Handshake(Handshake::Answer(answer))) => {
            (Vec::new(), None, intake::given(answer))
        }
        // Not confirmed here: only what the provider sends does that.
        Ok(Judgement::Handshake(Handshake::Confirm(_))) => (Vec::new(), None, intake::confirmed()),
        Err(TurnedAway { cause, reason, problem }) => {
            let items = arrived.with(settings, None, look);
            let rejected = ShownRejection { cause: cause.as_str(), reason };
            (items, Some(rejected), problem.into_response())
        }
    }
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    verified: bool,
    rejected: Option<ShownRejection>,
    /// Those that are in it, also where it would be turned away.
    events: Vec<ShownItem<'a>>,
    forwarded_headers: BTreeMap<&'a str, String>,
    answer: ShownAnswer,
}

#[derive(Debug, Serialize)]
struct ShownRejection {
    cause: &'static str,
    reason: String,
}

/// One event as it would be stored.
#[derive(Debug, Serialize)]
struct ShownItem<'a> {
    r#type: &'a EventType,
    key: &'a str,
    /// `kind`, `header …`, `pointers …` or `fallback`.
    key_from: &'a str,
    /// Why the source's own rule found no key here, so that another one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_failed: Option<&'a str>,
    /// What another body under this key would be: a `duplicate` or a `conflict`.
    other_content: &'static str,
    unreadable: Option<&'a str>,
    #[serde(flatten)]
    body: ShownBody<'a>,
}

impl<'a> ShownItem<'a> {
    fn new(item: &'a ReceivedItem, arrived: &'a Arrived) -> Self {
        Self {
            r#type: &item.event_type,
            key: item.key.shown(),
            key_from: &item.key_from,
            dedupe_failed: item.own_rule_failed.as_deref(),
            other_content: match item.on_change {
                OnChange::Mark => "duplicate",
                OnChange::Conflict => "conflict",
            },
            unreadable: item.unreadable.as_deref(),
            body: ShownBody::new(item.body.as_deref().unwrap_or(&arrived.body)),
        }
    }
}

#[derive(Debug, Serialize)]
struct ShownAnswer {
    status: u16,
    content_type: Option<String>,
    body: String,
}

impl ShownAnswer {
    async fn new(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        // It is in memory.
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Self {
            status: parts.status.as_u16(),
            content_type: content_type.map(str::to_owned),
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }
}

/// The request that a body describes. Left out are: the kind's first method, the source's own path,
/// no headers, no body, and the present.
fn parse(body: &[u8], source: &Source, now: Timestamp) -> Result<Arrived, Problem> {
    let members = Members::of_body(body, MEMBERS)?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let mut noted = |name: &str, detail: Cow<'static, str>| errors.add("", name, detail);
    let method = member(&members, "method", &mut noted, method);
    let target = member(&members, "url", &mut noted, target);
    let at = member(&members, "now", &mut noted, time);
    let text = member(&members, "body", &mut noted, text_body);
    let bytes = member(&members, "body_base64", &mut noted, base64_body);
    if members.optional("body").is_some() && members.optional("body_base64").is_some() {
        noted("body_base64", Cow::from("send body or body_base64, not both"));
    }
    let headers = headers(&members, &mut errors)?;
    errors.check()?;
    let first = source.settings.kind.methods().first().and_then(|word| word.parse().ok());
    Ok(Arrived {
        method: method.or(first).unwrap_or(Method::POST),
        target: target.unwrap_or_else(|| format!("/in/{}", source.id)),
        headers,
        body: text.or(bytes).unwrap_or_default(),
        at: at.unwrap_or(now),
    })
}

fn member<T>(
    members: &Members<'_>,
    name: &str,
    noted: &mut impl FnMut(&str, Cow<'static, str>),
    read: impl Fn(&RawValue) -> Result<T, Cow<'static, str>>,
) -> Option<T> {
    read(members.optional(name)?).map_err(|detail| noted(name, detail)).ok()
}

fn method(value: &RawValue) -> Result<Method, Cow<'static, str>> {
    json::text(value)?.parse().map_err(|_| Cow::from("must be a method, such as POST"))
}

/// Path and query of a URL, or of a path with a query.
fn target(value: &RawValue) -> Result<String, Cow<'static, str>> {
    let uri: Option<Uri> = json::text(value)?.parse().ok();
    let target = uri.as_ref().and_then(Uri::path_and_query);
    let target = target.map(|target| target.as_str().to_owned());
    target.ok_or_else(|| Cow::from("must be a URL, or a path that begins with '/'"))
}

fn time(value: &RawValue) -> Result<Timestamp, Cow<'static, str>> {
    Timestamp::parse(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn text_body(value: &RawValue) -> Result<Bytes, Cow<'static, str>> {
    json::text(value).map(|text| Bytes::from(text.into_owned()))
}

fn base64_body(value: &RawValue) -> Result<Bytes, Cow<'static, str>> {
    let bytes = STANDARD.decode(json::text(value)?.as_bytes());
    bytes.map(Bytes::from).map_err(|_| Cow::from("must be standard base64 with its padding"))
}

/// `{name: value}` or `{name: [value, …]}`.
fn headers(members: &Members<'_>, errors: &mut FieldErrors) -> Result<HeaderMap, Problem> {
    let mut map = HeaderMap::new();
    let Some(value) = members.optional("headers") else { return Ok(map) };
    let object = match json::object(value) {
        Ok(object) => object,
        Err(detail) => {
            errors.add("", "headers", detail);
            return Ok(map);
        }
    };
    for (name, value) in Members::new(object, "/headers", &[])?.iter() {
        match header(name, value) {
            Ok((name, values)) => values.into_iter().for_each(|value| {
                map.append(name.clone(), value);
            }),
            Err(detail) => errors.add("/headers", name, detail),
        }
    }
    Ok(map)
}

/// The most values of one header.
const VALUES_MAX: usize = 64;

fn header(
    name: &str,
    value: &RawValue,
) -> Result<(HeaderName, Vec<HeaderValue>), Cow<'static, str>> {
    let name = HeaderName::from_bytes(name.as_bytes());
    let name = name.map_err(|_| Cow::from("is not the name of a header"))?;
    let values = match value.get().starts_with('[') {
        true => json::items::<VALUES_MAX>(value)?,
        false => vec![value],
    };
    let legal = |value: &RawValue| {
        let value = HeaderValue::from_bytes(json::text(value)?.as_bytes());
        value.map_err(|_| Cow::from("a value must not hold line breaks or control characters"))
    };
    let values: Result<_, _> = values.into_iter().map(legal).collect();
    Ok((name, values?))
}
