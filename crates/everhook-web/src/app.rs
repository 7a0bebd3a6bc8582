//! What every route has at hand: the store, the settings, and how requests are let in.
//!
//! Order of a request: credentials, scope, tenant, headers, sizes, and only then its body. A
//! refusal at any of these costs no store call.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use everhook_domain::access::Scope;
use everhook_domain::idempotency::IdempotencyKey;
use everhook_domain::time::Timestamp;
use everhook_store::{Directory, Store, StoreError};
use http::request::Parts;
use http::{Extensions, HeaderMap, header};
use hyper::body::Body as _;

use crate::access::Caller;
use crate::body::{Bodies, Held};
use crate::claim::Waiters;
use crate::intake::Intake;
use crate::pace::LogPace;
use crate::post::Keyed;
use crate::problem::{Problem, ProblemKind};
use crate::settings::WebSettings;

/// What every route has at hand.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: WebSettings,
    bodies: Bodies,
    failures: LogPace,
    pub(crate) intake: Intake,
    /// Who waits for claims to end.
    pub(crate) waiters: Waiters,
}

/// A caller who was let in, and the directory at that time.
#[derive(Clone)]
pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    pub(crate) directory: Arc<Directory>,
}

/// A request with a body that was let in.
pub(crate) struct Sent<'a> {
    pub(crate) admitted: Admitted,
    pub(crate) body: Held<'a>,
    /// Where the request carries an `Idempotency-Key`.
    pub(crate) keyed: Option<Keyed>,
}

impl Admitted {
    /// Who was let in with a request, as [`App::let_in`] noted it.
    ///
    /// # Errors
    /// None, behind a door that needs a scope.
    pub(crate) fn noted(request: &Extensions) -> Result<Self, Problem> {
        request.get().cloned().ok_or_else(Problem::internal)
    }
}

impl App {
    pub(crate) fn new(store: Arc<dyn Store>, settings: WebSettings) -> Self {
        let bodies = Bodies::of_callers(&settings.body_limits);
        let intake = Intake::new(&settings);
        Self {
            store,
            settings,
            bodies,
            failures: LogPace::default(),
            intake,
            waiters: Waiters::default(),
        }
    }

    /// The present.
    pub(crate) fn now(&self) -> Timestamp {
        (self.settings.now)()
    }

    /// Lets a request in by its headers, and notes in it who calls.
    ///
    /// # Errors
    /// `unauthorized`, `forbidden`, `invalid-header`, `unknown-tenant`, or the store's.
    pub(crate) fn let_in(&self, needed: Scope, request: &mut Request) -> Result<(), Problem> {
        let caller =
            self.settings.access.authenticate(request.headers(), (self.settings.wall_clock)())?;
        if !caller.scopes.allow(needed) {
            return Err(Problem::forbidden(needed));
        }
        let directory = self.store.directory().map_err(|error| self.problem(&error))?;
        if !directory.has_tenant(&caller.tenant) {
            let detail = "there is no tenant with the id that Everhook-Tenant or the token names";
            return Err(Problem::new(ProblemKind::UnknownTenant, detail));
        }
        request.extensions_mut().insert(Admitted { caller, directory });
        Ok(())
    }

    /// Lets a POST in, with its whole body of at most `limit` bytes. `Idempotency-Key` is honoured.
    ///
    /// # Errors
    /// Those of the headers, the body and the key.
    pub(crate) async fn admit_post(
        &self,
        request: Request,
        limit: usize,
    ) -> Result<Sent<'_>, Problem> {
        let (parts, mut body) = request.into_parts();
        let admitted = Admitted::noted(&parts.extensions)?;
        let key = idempotency_key(&parts.headers)?;
        check_media_type(&parts.headers, &body)?;
        let body = self.bodies.read(None, &mut body, limit).await?;
        let keyed = key.map(|key| Keyed::new(key, &admitted.caller, &parts, body.bytes()));
        Ok(Sent { admitted, body, keyed })
    }

    /// Lets a PATCH in, or a POST that takes no `Idempotency-Key`, with its whole body.
    ///
    /// # Errors
    /// Those of the headers and the body.
    pub(crate) async fn admit_unkeyed(
        &self,
        parts: &Parts,
        mut body: Body,
    ) -> Result<Sent<'_>, Problem> {
        let admitted = Admitted::noted(&parts.extensions)?;
        check_media_type(&parts.headers, &body)?;
        let limit = self.settings.body_limits.body_bytes_max;
        let body = self.bodies.read(None, &mut body, limit).await?;
        Ok(Sent { admitted, body, keyed: None })
    }

    /// What is answered for an error of the store. What is ours to mend goes to the log.
    pub(crate) fn problem(&self, error: &StoreError) -> Problem {
        if !matches!(error, StoreError::Refused(_))
            && let Some(left_out) = self.failures.due(self.now())
        {
            tracing::error!(%error, left_out, "a request failed in the store");
        }
        Problem::from(error)
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let lines = headers.get_all("idempotency-key").iter().map(http::HeaderValue::as_bytes);
    IdempotencyKey::from_headers(lines)
        .map_err(|error| Problem::new(ProblemKind::InvalidIdempotencyKey, error.to_string()))
}

/// Refuses bodies that say of themselves that they are something else than plain JSON. One that
/// says nothing is taken for JSON, and of no body the type does not matter.
fn check_media_type(headers: &HeaderMap, body: &Body) -> Result<(), Problem> {
    if let Some(value) = headers.get(header::CONTENT_TYPE)
        && !body.is_end_stream()
        && !is_json(value.as_bytes())
    {
        let detail = "send JSON with the header 'Content-Type: application/json'";
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
    }
    let identity = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    if !headers.get_all(header::CONTENT_ENCODING).iter().all(identity) {
        let detail = "compressed bodies are not read; send it without Content-Encoding";
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
    }
    Ok(())
}

/// `application/json` or any `+json` (RFC 6839 §3.1), whatever the parameters.
fn is_json(media_type: &[u8]) -> bool {
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let suffix = essence.len().checked_sub(b"+json".len()).map(|at| &essence[at..]);
    essence.eq_ignore_ascii_case(b"application/json")
        || suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types() {
        for (text, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json ;x", true),
            ("application/cloudevents+json", true),
            ("text/json", false),
            ("application/x-www-form-urlencoded", false),
            ("text/plain", false),
            ("+json", true),
            ("json", false),
            ("", false),
        ] {
            assert_eq!(is_json(text.as_bytes()), json, "{text}");
        }
    }
}
