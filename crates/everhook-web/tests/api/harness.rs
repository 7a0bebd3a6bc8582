//! A router on a store in memory, with a clock that stands until it is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use everhook_domain::attempt::{AttemptOutcome, AttemptReport, KeptResponse};
use everhook_domain::budget::Budget;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{SystemClock, Timestamp};
use everhook_store::sqlite::{SqliteOptions, SqliteStore};
use everhook_store::{
    Change, DirectoryStore, NoHandoff, Sealer, Sending, Settlement, SettlementResult, Store,
    StorePolicy, Wanted,
};
use everhook_web::{Access, WebSettings};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tower_service::Service;

/// The admin token.
pub(crate) const TOKEN: &str = "test-token-test-token-test-token";
/// 2026-01-01T00:00:00.000Z.
const START_MS: i64 = 1_767_225_600_000;

pub(crate) struct Api {
    pub(crate) router: Router,
    pub(crate) store: Arc<SqliteStore>,
    now: Arc<AtomicI64>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the answer is JSON")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// The slug of a problem, after checking that its form is right.
    pub(crate) fn slug(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status);
        for member in ["type", "title", "detail"] {
            assert!(json[member].as_str().is_some_and(|text| !text.is_empty()), "{json}");
        }
        let kind = json["type"].as_str().expect("text");
        kind.strip_prefix("urn:everhook:problem:").expect("our prefix").to_owned()
    }

    /// The pointers in `errors`, in order.
    pub(crate) fn pointers(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        let pointer = |error: &Value| error["pointer"].as_str().expect("text").to_owned();
        errors.iter().map(pointer).collect()
    }

    /// The body, after checking the status.
    #[track_caller]
    pub(crate) fn expect(&self, status: StatusCode) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        assert_eq!(self.status, status.as_u16(), "{text}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

pub(crate) fn options() -> SqliteOptions {
    SqliteOptions {
        policy: StorePolicy::default(),
        handoff: Arc::new(NoHandoff),
        clock: Arc::new(SystemClock::start()),
        new_tag: 7,
        group_commit: everhook_store::sqlite::GroupCommit::default(),
        sealer: Sealer::default(),
    }
}

/// Settings for tests: `now` is the counter, random bytes count up.
pub(crate) fn settings(now: &Arc<AtomicI64>) -> WebSettings {
    let now = Arc::clone(now);
    let drawn = AtomicU64::new(1);
    WebSettings::new(
        Access::new(Sha256::digest(TOKEN).into()),
        Arc::new(move || Timestamp::from_millis(now.load(Ordering::SeqCst))),
        Arc::new(move |bytes: &mut [u8]| {
            let draw = drawn.fetch_add(1, Ordering::SeqCst);
            let digest = Sha256::digest(draw.to_be_bytes());
            bytes.iter_mut().zip(digest.iter().cycle()).for_each(|(byte, random)| *byte = *random);
        }),
    )
}

pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_vec())).expect("a legal request")
}

pub(crate) async fn call(router: &Router, request: Request<Body>) -> Reply {
    let mut router = router.clone();
    let response = router.call(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}

impl Api {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other settings than the usual ones.
    pub(crate) fn with(change: impl FnOnce(&mut WebSettings)) -> Self {
        Self::on(options(), change)
    }

    /// With other rules of the store than the usual ones.
    pub(crate) fn with_policy(policy: StorePolicy) -> Self {
        Self::on(SqliteOptions { policy, ..options() }, |_| {})
    }

    fn on(options: SqliteOptions, change: impl FnOnce(&mut WebSettings)) -> Self {
        let store = Arc::new(SqliteStore::open_in_memory(options).expect("a store"));
        let now = Arc::new(AtomicI64::new(START_MS));
        let mut settings = settings(&now);
        change(&mut settings);
        let router = everhook_web::router(Arc::clone(&store) as Arc<dyn Store>, settings);
        Self { router, store, now }
    }

    /// Starts anew on the same database, after something was done to it.
    pub(crate) fn restart_after(self, change: impl FnOnce(&rusqlite::Connection)) -> Self {
        let connection = self.store.into_connection().expect("the store");
        change(&connection);
        let store = Arc::new(SqliteStore::on_connection(connection, options()).expect("a store"));
        let settings = settings(&self.now);
        let router = everhook_web::router(Arc::clone(&store) as Arc<dyn Store>, settings);
        Self { router, store, now: self.now }
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    /// The clock, for what else stands on the store.
    pub(crate) fn clock(&self) -> everhook_web::Now {
        let now = Arc::clone(&self.now);
        Arc::new(move || Timestamp::from_millis(now.load(Ordering::SeqCst)))
    }

    /// Moves the clock.
    pub(crate) fn advance_ms(&self, ms: i64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
    }

    pub(crate) async fn create_tenant(&self, id: &str) {
        let id: TenantId = id.parse().expect("legal");
        let name = "A tenant".parse().expect("legal");
        let change = Change::CreateTenant { id, name };
        self.store.change(change, None, self.now()).await.expect("a new tenant");
    }

    /// A request with exactly these headers.
    pub(crate) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        call(&self.router, request(method, path, headers, body)).await
    }

    /// A request of the admin with these further headers.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let bearer = format!("Bearer {TOKEN}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        self.raw(method, path, &all, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Reply {
        self.send("POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    }

    pub(crate) async fn post_keyed(&self, path: &str, key: &str, body: &str) -> Reply {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", path, &headers, body.as_bytes()).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &str) -> Reply {
        self.send("PATCH", path, &[("content-type", "application/json")], body.as_bytes()).await
    }

    /// A new endpoint for all published events; its id.
    pub(crate) async fn endpoint(&self) -> String {
        let reply = self.post("/api/v1/endpoints", r#"{"url":"https://example.com/hook"}"#).await;
        text(&reply.expect(StatusCode::CREATED)["id"])
    }

    /// A new event; its id.
    pub(crate) async fn event(&self, event_type: &str) -> String {
        let body = format!(r#"{{"type":"{event_type}","data":{{}}}}"#);
        let reply = self.post("/api/v1/events", &body).await;
        text(&reply.expect(StatusCode::ACCEPTED)["id"])
    }

    /// The ids of a list, all pages of it.
    pub(crate) async fn list(&self, path: &str) -> Vec<String> {
        let mut ids = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("{path}{cursor}")).await.expect(StatusCode::OK);
            ids.extend(page["data"].as_array().expect("a list").iter().map(|row| text(&row["id"])));
            let Some(next) = page["next_cursor"].as_str() else { return ids };
            let sign = if path.contains('?') { '&' } else { '?' };
            cursor = format!("{sign}cursor={next}");
        }
    }

    /// Sends what is due for an endpoint and records this result for each; how many there were.
    pub(crate) async fn deliver(&self, endpoint: &str, outcome: &AttemptOutcome) -> usize {
        let endpoint = endpoint.parse().expect("an id");
        let wanted = Wanted { endpoint, fresh: 100, retry: 100, suspect: 100, held: 0 };
        let (leased, _) = self
            .store
            .claim(vec![wanted], Budget::new(usize::MAX), self.now())
            .await
            .expect("a claim");
        let settlements: Vec<_> = leased
            .iter()
            .map(|leased| Settlement {
                delivery: leased.id,
                token: leased.token,
                result: SettlementResult::Finished(Box::new(AttemptReport {
                    started_at: self.now(),
                    duration: std::time::Duration::from_millis(12),
                    url: "https://example.com/hook".to_owned(),
                    outcome: outcome.clone(),
                })),
            })
            .collect();
        let count = settlements.len();
        self.store.settle(settlements, self.now()).await.expect("recorded");
        count
    }
}

/// An answer of the endpoint.
pub(crate) fn answered(status: u16) -> AttemptOutcome {
    let response = KeptResponse {
        status,
        headers: vec![
            ("content-type".to_owned(), "text/plain".to_owned()),
            ("via".to_owned(), "a".to_owned()),
            ("via".to_owned(), "b".to_owned()),
        ],
        body: "<b>no</b>".to_owned(),
        truncated: status == 500,
    };
    AttemptOutcome::answered(response, None)
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// What signs the sources of [`Api::stripe`].
pub(crate) const SECRET: &str = "whsec_test";

/// The value of `Stripe-Signature` for a body at this time.
pub(crate) fn stripe_signature(secret: &str, at: Timestamp, body: &[u8]) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [format!("{}.", at.as_secs()).as_bytes(), body].concat();
    let mac = ring::hmac::sign(&key, &signed);
    let hex: String = mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={},v1={hex}", at.as_secs())
}

impl Api {
    /// A new source; what was answered.
    pub(crate) async fn source(&self, body: &Value) -> Value {
        self.post("/api/v1/sources", &body.to_string()).await.expect(StatusCode::CREATED)
    }

    /// A new source of the kind `stripe` with this name and these options; its id.
    pub(crate) async fn stripe(&self, name: &str, options: Value) -> String {
        let body = serde_json::json!({
            "name": name, "kind": "stripe", "secrets": [SECRET], "options": options,
        });
        text(&self.source(&body).await["id"])
    }

    /// What is answered at the door of a source for a body that was signed just now.
    pub(crate) async fn signed(&self, source: &str, body: &[u8]) -> Reply {
        let signature = stripe_signature(SECRET, self.now(), body);
        self.raw("POST", &format!("/in/{source}"), &[("stripe-signature", &signature)], body).await
    }

    /// The rows of a list, all in one page.
    pub(crate) async fn rows(&self, path: &str) -> Vec<Value> {
        let page = self.get(path).await.expect(StatusCode::OK);
        page["data"].as_array().expect("a list").clone()
    }
}
