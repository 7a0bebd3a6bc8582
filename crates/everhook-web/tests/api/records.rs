//! Idempotency records of every origin: listed, read, settled, forgotten; and the tower layer whose
//! keys they are.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use everhook_domain::id::RecordId;
use everhook_domain::tenant::TenantId;
use everhook_idempotency::store::{Store, Terms};
use everhook_idempotency::{Account, AccountOf, IdempotencyLayer, Lapse, Settings};
use everhook_store::Keys;
use everhook_web::LayerKeys;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower_layer::Layer;
use tower_service::Service;

use crate::harness::{Api, Reply, request, text};
use crate::idempotency::{DAY_MS, EVENT, check_replay};

const PATH: &str = "/api/v1/idempotency-records";
const LEASE: Duration = Duration::from_secs(30);

async fn claim(api: &Api, key: &str) -> Value {
    let body = json!({"scope": "mail", "key": key, "lease_ms": 1_000, "ttl_s": 600});
    api.post("/api/v1/claims", &body.to_string()).await.expect(StatusCode::OK)
}

/// A service behind the layer, with its keys in an API's store; how often its handler ran.
struct Behind {
    layer: IdempotencyLayer,
    runs: Arc<AtomicU32>,
}

impl Behind {
    fn new(api: &Api, lapse: Lapse) -> Self {
        let account = AccountOf::request(|parts| {
            let name = parts.headers.get("x-account")?.to_str().ok()?;
            Some(Account::new(name))
        });
        let settings = Settings { lapse, lease: LEASE, ..Settings::default() };
        let layer = IdempotencyLayer::new(Arc::new(keys(api)), account, settings);
        Self { layer: layer.expect("legal settings"), runs: Arc::default() }
    }

    async fn post(&self, account: &str, key: &str, body: &str) -> Reply {
        let runs = Arc::clone(&self.runs);
        let service = Handler(move |_: Request<Body>| {
            let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
            let mut response = Response::new(Body::from(format!("run {run}")));
            response.headers_mut().insert("x-run", run.into());
            *response.status_mut() = StatusCode::CREATED;
            response
        });
        let headers = [("idempotency-key", key), ("x-account", account)];
        let asked = request("POST", "/orders?dry=1", &headers, body.as_bytes());
        let answered = self.layer.layer(service).call(asked).await.expect("infallible");
        let (parts, body) = answered.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes().to_vec();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

fn keys(api: &Api) -> LayerKeys {
    let store = Arc::clone(&api.store) as Arc<dyn Keys>;
    LayerKeys::new(store, TenantId::default_tenant(), api.clock())
}

#[derive(Clone)]
struct Handler<F>(F);

impl<F: FnMut(Request<Body>) -> Response> Service<Request<Body>> for Handler<F> {
    type Response = Response;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        std::future::ready(Ok((self.0)(request)))
    }
}

/// A claim of the layer's that nobody has finished, and its name.
async fn left_open(api: &Api, behind: &Behind, key: &str) -> String {
    // The handler's process is gone: its claim is all there is.
    let keys = keys(api);
    let first = behind.post("shop", key, "a").await;
    first.expect_text(201);
    let id = api.list(&format!("{PATH}?origin=proxy")).await.remove(0);
    let id: RecordId = id.parse().expect("an id");
    let stored = api.store.look_at(TenantId::default_tenant(), id).await.expect("a look");
    let stored = stored.expect("there");
    let name = everhook_idempotency::RecordId::from(stored.key).to_string();
    api.store.forget(TenantId::default_tenant(), id, api.now()).await.expect("forgotten");
    let taking = everhook_idempotency::store::Taking {
        key: stored.key,
        account: stored.record.account,
        account_name: "shop".to_owned(),
        subject: "POST /orders".to_owned(),
        rule: stored.record.rule,
        fingerprint: stored.record.fingerprint,
        token: stored.record.token,
        checkpoint: None,
    };
    let terms = Terms { lease: LEASE, ttl: Duration::from_millis(DAY_MS.unsigned_abs()) };
    let quota = everhook_idempotency::store::Quota { keys: 100, bytes: 100_000 };
    keys.take(&taking, None, terms, quota).await.expect("taken");
    name
}

impl Reply {
    #[track_caller]
    fn expect_text(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        String::from_utf8(self.body.clone()).expect("text")
    }
}

#[tokio::test]
async fn records_of_every_origin_are_listed_and_filtered() {
    let api = Api::new();
    api.create_tenant("acme").await;
    api.post_keyed("/api/v1/events", "k", EVENT).await.expect(StatusCode::ACCEPTED);
    api.advance_ms(1);
    claim(&api, "k").await;
    api.advance_ms(1);
    Behind::new(&api, Lapse::Unknown).post("shop", "k", "a").await.expect_text(201);
    let rows = api.rows(PATH).await;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| [&row["origin"], &row["account"], &row["subject"], &row["state"]])
        .collect();
    assert_eq!(
        json!(shown),
        json!([
            ["proxy", "shop", "POST /orders", "completed"],
            ["claim", "admin", "mail", "in_progress"],
            ["api", "admin", "POST /api/v1/events", "completed"],
        ])
    );
    let ids: Vec<_> = rows.iter().map(|row| text(&row["id"])).collect();
    assert_eq!((&rows[0]["status"], &rows[0]["replayable"]), (&json!(201), &json!(true)));
    assert_eq!(rows[1]["lease_until"], "2026-01-01T00:00:01.001Z");
    assert_eq!((&rows[2]["status"], &rows[2]["lease_until"]), (&json!(202), &Value::Null));
    for (query, expected) in [
        ("?limit=1", &ids[..]),
        ("?origin=proxy", &ids[..1]),
        ("?origin=claim", &ids[1..2]),
        ("?origin=api", &ids[2..]),
        ("?state=in_progress", &ids[1..2]),
        ("?state=unknown", &[]),
        ("?state=completed&origin=api", &ids[2..]),
    ] {
        assert_eq!(api.list(&format!("{PATH}{query}")).await, expected, "{query}");
    }
    for (id, row) in ids.iter().zip(&rows) {
        assert_eq!(api.get(&format!("{PATH}/{id}")).await.expect(StatusCode::OK), *row);
    }
    let theirs = api.send("GET", PATH, &[("everhook-tenant", "acme")], b"").await;
    assert_eq!(theirs.expect(StatusCode::OK)["data"], json!([]));
    api.advance_ms(1_000);
    assert_eq!(api.list(&format!("{PATH}?state=unknown")).await, ids[1..2]);
    api.advance_ms(DAY_MS);
    assert_eq!(api.list(PATH).await, Vec::<String>::new(), "what is over is not shown");
    for query in ["origin=x", "state=x", "more=1"] {
        let refused = api.get(&format!("{PATH}?{query}")).await;
        assert_eq!((refused.status, refused.slug().as_str()), (400, "invalid-parameter"));
    }
    for id in ["x", "idr_00000000000000000000000000", &"0".repeat(32)] {
        let missing = api.get(&format!("{PATH}/{id}")).await;
        assert_eq!((missing.status, missing.slug().as_str()), (404, "not-found"), "{id}");
    }
}

#[tokio::test]
async fn a_record_is_forgotten_unless_its_owner_is_at_work() {
    let api = Api::new();
    let first = api.post_keyed("/api/v1/events", "k", EVENT).await;
    let made = claim(&api, "k").await;
    let [claimed, event] = <[String; 2]>::try_from(api.list(PATH).await).expect("two");
    assert_eq!(claimed, text(&made["id"]));
    let delete = async |id: &str| api.send("DELETE", &format!("{PATH}/{id}"), &[], b"").await;
    let refused = delete(&claimed).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "record-state"));
    delete(&event).await.expect(StatusCode::NO_CONTENT);
    delete(&event).await.expect(StatusCode::NOT_FOUND);
    let again = api.post_keyed("/api/v1/events", "k", EVENT).await;
    assert_eq!(again.header("idempotency-replayed"), None);
    assert_ne!(again.body, first.body);
    api.advance_ms(1_000);
    delete(&claimed).await.expect(StatusCode::NO_CONTENT);
    assert_eq!(claim(&api, "k").await["outcome"], "new");
}

#[tokio::test]
async fn a_claim_that_nobody_finished_is_settled_with_a_result() {
    let api = Api::new();
    let made = claim(&api, "k").await;
    let path = format!("{PATH}/{}/resolve", text(&made["id"]));
    let body = r#"{"status":200,"body": "paid" }"#;
    let refused = api.post_keyed(&path, "settle", body).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "record-state"));
    api.advance_ms(1_000);
    let headers = json!({"status": 200, "headers": {"x-a": "b"}}).to_string();
    assert_eq!(api.post(&path, &headers).await.pointers(), ["/headers"]);
    let settled = api.post_keyed(&path, "settle", body).await;
    assert_eq!(settled.expect(StatusCode::OK)["state"], "completed");
    check_replay(&settled, &api.post_keyed(&path, "settle", body).await);
    let refused = api.post_keyed(&path, "again", body).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "record-state"));
    let known = claim(&api, "k").await;
    assert_eq!((&known["outcome"], &known["result"]), (&json!("completed"), &json!("paid")));
    let complete = json!({"token": made["token"], "result": 1}).to_string();
    let late = format!("/api/v1/claims/{}/complete", text(&made["id"]));
    assert_eq!(api.post(&late, &complete).await.slug(), "claim-lost");
    // A retry of the settlement is answered also when the record is gone.
    let record = format!("{PATH}/{}", text(&made["id"]));
    api.send("DELETE", &record, &[], b"").await.expect(StatusCode::NO_CONTENT);
    check_replay(&settled, &api.post_keyed(&path, "settle", body).await);
    let missing = api.post_keyed(&path, "new", body).await;
    assert_eq!((missing.status, missing.slug().as_str()), (404, "not-found"));
}

#[tokio::test]
async fn the_layer_runs_once_with_its_keys_in_our_store() {
    let api = Api::new();
    let behind = Behind::new(&api, Lapse::Unknown);
    let first = behind.post("shop", "k", "a").await;
    assert_eq!(first.expect_text(201), "run 1");
    let again = behind.post("shop", "\"k\"", "a").await;
    assert_eq!((again.expect_text(201), again.header("x-run")), ("run 1".to_owned(), Some("1")));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(behind.post("shop", "k", "b").await.slug(), "idempotency-key-reused");
    assert_eq!(behind.post("mall", "k", "a").await.expect_text(201), "run 2");
    api.advance_ms(DAY_MS - 1);
    assert_eq!(behind.post("shop", "k", "a").await.expect_text(201), "run 1");
    api.advance_ms(1);
    assert_eq!(behind.post("shop", "k", "a").await.expect_text(201), "run 3");
}

#[tokio::test]
async fn what_the_layer_does_not_know_is_settled_by_the_name_that_it_tells() {
    let api = Api::new();
    let behind = Behind::new(&api, Lapse::Unknown);
    let name = left_open(&api, &behind, "k").await;
    assert_eq!(behind.post("shop", "k", "a").await.slug(), "idempotency-in-progress");
    api.advance_ms(30_000);
    let unknown = behind.post("shop", "k", "a").await;
    assert_eq!((unknown.status, unknown.slug().as_str()), (409, "outcome-unknown"));
    assert_eq!(unknown.json()["record"], json!(name));
    assert_eq!(keys(&api).lapsed(10).await.expect("a list").len(), 1);
    let record = api.get(&format!("{PATH}/{name}")).await.expect(StatusCode::OK);
    assert_eq!((&record["state"], &record["subject"]), (&json!("unknown"), &json!("POST /orders")));

    let path = format!("{PATH}/{name}/resolve");
    for (body, pointers) in [
        (json!({}), vec!["/status"]),
        (json!({"status": 199, "headers": [], "more": 1}), vec!["/more", "/status", "/headers"]),
        (
            json!({"status": 600, "headers": {"set-cookie": "a", "a b": "c", "x": "\n", "y": 1}}),
            vec!["/status", "/headers/a b", "/headers/set-cookie", "/headers/x", "/headers/y"],
        ),
        (json!({"status": 204, "body": "x"}), vec!["/body"]),
        (json!({"status": 205, "body": {}}), vec!["/body"]),
        (json!({"status": 304, "body": ""}), vec!["/body"]),
        (json!({"status": 200, "headers": {"X-A": "1", "x-a": "2"}}), vec!["/headers/x-a"]),
        (json!({"status": 200, "headers": {"x": "ü"}}), vec!["/headers/x"]),
    ] {
        let refused = api.post(&path, &body.to_string()).await;
        assert_eq!(refused.status, 422);
        let mut found = refused.pointers();
        found.sort();
        let mut expected = pointers.clone();
        expected.sort_unstable();
        assert_eq!(found, expected, "{body}");
    }
    let body = r#"{"status":201,"headers":{"Location":"/orders/7"},"body":{ "id": 7.0 }}"#;
    let settled = api.post(&path, body).await.expect(StatusCode::OK);
    assert_eq!((&settled["state"], &settled["status"]), (&json!("completed"), &json!(201)));
    let replayed = behind.post("shop", "k", "a").await;
    assert_eq!(replayed.expect_text(201), r#"{ "id": 7.0 }"#);
    for (name, value) in [
        ("location", "/orders/7"),
        ("content-type", "application/json"),
        ("idempotency-replayed", "true"),
    ] {
        assert_eq!(replayed.header(name), Some(value));
    }
    assert_eq!(behind.runs.load(Ordering::SeqCst), 1, "what was left open ran before, never again");
}

#[tokio::test]
async fn the_bodies_of_settlements_are_text_or_json() {
    for (body, media_type, sent) in [
        (r#"{"status":200,"body":"a\nä"}"#, Some("text/plain; charset=utf-8"), "a\nä"),
        (r#"{"status":200,"body":[1, 2]}"#, Some("application/json"), "[1, 2]"),
        (r#"{"status":204}"#, None, ""),
        (r#"{"status":200,"body":null}"#, None, ""),
        (
            r#"{"status":200,"headers":{"content-type":"text/csv"},"body":"1,2"}"#,
            Some("text/csv"),
            "1,2",
        ),
    ] {
        let api = Api::new();
        let behind = Behind::new(&api, Lapse::Unknown);
        let name = left_open(&api, &behind, "k").await;
        api.advance_ms(30_000);
        api.post(&format!("{PATH}/{name}/resolve"), body).await.expect(StatusCode::OK);
        let replayed = behind.post("shop", "k", "a").await;
        assert_eq!(replayed.expect_text(replayed.status), sent, "{body}");
        assert_eq!(replayed.header("content-type"), media_type, "{body}");
    }
}

#[tokio::test]
async fn what_may_run_again_does_after_its_lease() {
    let api = Api::new();
    let behind = Behind::new(&api, Lapse::Rerun);
    left_open(&api, &behind, "k").await;
    api.advance_ms(29_999);
    assert_eq!(behind.post("shop", "k", "a").await.slug(), "idempotency-in-progress");
    api.advance_ms(1);
    assert_eq!(behind.post("shop", "k", "a").await.expect_text(201), "run 2");
    assert_eq!(api.list(&format!("{PATH}?origin=proxy")).await.len(), 1);
}
