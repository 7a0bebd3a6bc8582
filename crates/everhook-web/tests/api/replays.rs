//! Replaying, acknowledging and catching up in bulk.

use everhook_domain::time::Timestamp;
use everhook_store::{JobStep, Jobs};
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};

const REPLAYS: &str = "/api/v1/replays";
const ACKNOWLEDGE: &str = "/api/v1/deliveries/acknowledge";

/// So many dead deliveries to one endpoint; its id.
async fn dead(api: &Api, count: usize) -> String {
    let endpoint = api.endpoint().await;
    for _ in 0..count {
        api.event("a").await;
    }
    for _ in 0..7 {
        assert_eq!(api.deliver(&endpoint, &answered(500)).await, count);
        api.advance_ms(24 * 3_600 * 1_000);
    }
    endpoint
}

/// Does all long work, letting time pass where it is paced.
async fn run_jobs(api: &Api) {
    loop {
        match api.store.step(api.now()).await.expect("a step") {
            JobStep::More => {}
            JobStep::NotBefore(at) => api.advance_ms(at.as_millis() - api.now().as_millis()),
            JobStep::Idle => return,
        }
    }
}

async fn read(api: &Api, id: &str) -> Value {
    api.get(&format!("{REPLAYS}/{id}")).await.expect(StatusCode::OK)
}

/// Begins what this body asks for; its id.
async fn begin(api: &Api, path: &str, body: &str) -> String {
    text(&api.post(path, body).await.expect(StatusCode::ACCEPTED)["id"])
}

#[tokio::test]
async fn case_054_all_that_match_are_replayed_after_an_exact_preview() {
    let api = Api::new();
    let endpoint = dead(&api, 60).await;
    let begun_at = api.now();
    let page = api.get("/api/v1/deliveries?status=dead&limit=20").await.json();
    assert_eq!(page["data"].as_array().expect("a list").len(), 20);
    let filter = format!(r#""status":"dead","endpoint_id":"{endpoint}","type":"a""#);
    let preview = api.post(REPLAYS, &format!(r#"{{{filter},"dry_run":true}}"#)).await;
    assert_eq!(preview.expect(StatusCode::ACCEPTED), json!({"matched": 60}));
    assert_eq!(api.list(REPLAYS).await, Vec::<String>::new());
    let begun = api.post(REPLAYS, &format!(r#"{{{filter},"rate_per_second":20}}"#)).await;
    let begun = begun.expect(StatusCode::ACCEPTED);
    let id = text(&begun["id"]);
    assert!(id.starts_with("rpl_"), "{id}");
    assert_eq!(begun, json!({"id": id, "matched": 60}));
    let mut expected = json!({
        "id": id,
        "kind": "replay",
        "status": "running",
        "filter": {
            "status": "dead", "endpoint_id": endpoint, "type": "a", "from": null, "to": null,
        },
        "rate_per_second": 20,
        "matched": 60,
        "sent": 0,
        "skipped": 0,
        "skipped_by_reason": {},
        "created_at": begun_at,
        "ended_at": null,
    });
    assert_eq!(read(&api, &id).await, expected);
    run_jobs(&api).await;
    expected["status"] = json!("done");
    expected["sent"] = json!(60);
    let ended_at = Timestamp::from_millis(begun_at.as_millis() + 59 * 50);
    expected["ended_at"] = json!(ended_at);
    assert_eq!(read(&api, &id).await, expected);
    let list = api.get(REPLAYS).await.json();
    assert_eq!(list, json!({"data": [expected], "next_cursor": null}));
    assert_eq!(api.list("/api/v1/deliveries?status=dead").await.len(), 0);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 60);
}

#[tokio::test]
async fn what_is_left_can_be_cancelled() {
    let api = Api::new();
    dead(&api, 5).await;
    let id = begin(&api, REPLAYS, r#"{"status":"dead","rate_per_second":1}"#).await;
    assert_eq!(api.store.step(api.now()).await, Ok(JobStep::More));
    let path = format!("{REPLAYS}/{id}");
    for _ in 0..2 {
        let cancelled = api.send("DELETE", &path, &[], b"").await;
        assert_eq!((cancelled.status, cancelled.body.len()), (204, 0));
    }
    run_jobs(&api).await;
    let record = read(&api, &id).await;
    assert_eq!((&record["status"], &record["sent"]), (&json!("cancelled"), &json!(1)));
    assert_eq!(record["ended_at"], json!(api.now()));
    assert_eq!(api.list("/api/v1/deliveries?status=dead").await.len(), 4);
}

#[tokio::test]
async fn what_cannot_be_sent_is_told_by_reason() {
    let api = Api::new();
    let endpoint = dead(&api, 3).await;
    let id = begin(&api, REPLAYS, r#"{"status":"dead"}"#).await;
    api.post(&format!("/api/v1/endpoints/{endpoint}/disable"), "").await.expect(StatusCode::OK);
    run_jobs(&api).await;
    let record = read(&api, &id).await;
    assert_eq!((&record["matched"], &record["sent"]), (&json!(3), &json!(0)));
    assert_eq!(record["skipped"], json!(3));
    assert_eq!(record["skipped_by_reason"], json!({"endpoint_disabled": 3}));
}

#[tokio::test]
async fn dead_ones_are_acknowledged_in_bulk() {
    let api = Api::new();
    dead(&api, 3).await;
    let preview = api.post(ACKNOWLEDGE, r#"{"dry_run":true}"#).await;
    assert_eq!(preview.expect(StatusCode::ACCEPTED), json!({"matched": 3}));
    let id = begin(&api, ACKNOWLEDGE, r#"{"type":"a"}"#).await;
    run_jobs(&api).await;
    let record = read(&api, &id).await;
    assert_eq!((&record["kind"], &record["status"]), (&json!("acknowledge"), &json!("done")));
    assert_eq!((&record["acknowledged"], &record["sent"]), (&json!(3), &Value::Null));
    let list = api.get("/api/v1/deliveries?status=dead").await.json();
    let dead = list["data"].as_array().expect("a list");
    assert_eq!(dead.len(), 3, "they stay dead");
    assert!(dead.iter().all(|delivery| delivery["acknowledged_at"].is_string()), "{list}");
    let again = api.post(ACKNOWLEDGE, "{}").await.expect(StatusCode::ACCEPTED);
    assert_eq!(again["matched"], 0);
}

#[tokio::test]
async fn an_endpoint_catches_up() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let path = format!("/api/v1/endpoints/{endpoint}");
    let body = format!(r#"{{"from":"{}"}}"#, api.now());
    api.event("cancelled").await;
    api.post(&format!("{path}/disable"), "").await.expect(StatusCode::OK);
    run_jobs(&api).await;
    api.advance_ms(1_000);
    let missed = api.event("missed").await;
    let refused = api.post(&format!("{path}/catch-up"), &body).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "endpoint-disabled"));
    api.post(&format!("{path}/enable"), "").await.expect(StatusCode::OK);
    for (body, pointer) in [("{}", "/from"), (r#"{"from":"now"}"#, "/from")] {
        let refused = api.post(&format!("{path}/catch-up"), body).await;
        assert_eq!((refused.status, refused.pointers()), (422, vec![pointer.to_owned()]));
    }
    let begun = api.post(&format!("{path}/catch-up"), &body).await.expect(StatusCode::ACCEPTED);
    assert_eq!(begun["matched"], Value::Null);
    run_jobs(&api).await;
    let record = read(&api, &text(&begun["id"])).await;
    assert_eq!((&record["kind"], &record["sent"]), (&json!("catch_up"), &json!(2)));
    assert_eq!(record["filter"]["endpoint_id"], json!(endpoint));
    let made = api.list(&format!("/api/v1/deliveries?event_id={missed}")).await;
    assert_eq!(made.len(), 1);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 2);
    let again = begin(&api, &format!("{path}/catch-up"), &body).await;
    run_jobs(&api).await;
    assert_eq!(read(&api, &again).await["sent"], json!(0));
    api.send("DELETE", &path, &[], b"").await;
    let refused = api.post(&format!("{path}/catch-up"), &body).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "endpoint-deleted"));
}

#[tokio::test]
async fn a_key_begins_one() {
    let api = Api::new();
    let endpoint = dead(&api, 2).await;
    let from = format!(r#"{{"from":"{}"}}"#, api.now());
    for (path, body) in [
        (REPLAYS.to_owned(), r#"{"status":"dead"}"#),
        (ACKNOWLEDGE.to_owned(), "{}"),
        (format!("/api/v1/endpoints/{endpoint}/catch-up"), from.as_str()),
    ] {
        let first = api.post_keyed(&path, "k", body).await;
        let second = api.post_keyed(&path, "k", body).await;
        assert_eq!((first.status, second.status), (202, 202), "{path}");
        assert_eq!(first.body, second.body, "{path}");
        assert_eq!(second.header("idempotency-replayed"), Some("true"), "{path}");
        let other = api.post_keyed(&path, "k", r#"{"from":"2020-01-01T00:00:00Z"}"#).await;
        assert_eq!(other.slug(), "idempotency-key-reused", "{path}");
    }
    assert_eq!(api.list(REPLAYS).await.len(), 3);
}

#[tokio::test]
async fn what_is_wrong_is_told_at_once() {
    let api = Api::new();
    let wrong = r#"{"status":"sent","endpoint_id":"x","type":"","from":"now","to":1,
                    "rate_per_second":10001,"dry_run":"yes","all":true}"#;
    let refused = api.post(REPLAYS, wrong).await;
    assert_eq!(refused.status, 422);
    let mut pointers = refused.pointers();
    pointers.sort();
    let expected = [
        "/all",
        "/dry_run",
        "/endpoint_id",
        "/from",
        "/rate_per_second",
        "/status",
        "/to",
        "/type",
    ];
    assert_eq!(pointers, expected);
    for (path, body, status) in [
        (REPLAYS, "", 400),
        (REPLAYS, "[]", 422),
        (REPLAYS, r#"{"rate_per_second":0}"#, 422),
        (ACKNOWLEDGE, r#"{"status":"dead"}"#, 422),
        (REPLAYS, r#"{"status":null}"#, 202),
    ] {
        assert_eq!(api.post(path, body).await.status, status, "{path} {body}");
    }
    assert_eq!(api.get(&format!("{REPLAYS}?status=done")).await.slug(), "invalid-parameter");
}

#[tokio::test]
async fn what_belongs_to_others_is_not_found() {
    let api = Api::new();
    let endpoint = dead(&api, 1).await;
    let id = begin(&api, REPLAYS, r#"{"rate_per_second":1}"#).await;
    api.create_tenant("other").await;
    let other = [("everhook-tenant", "other"), ("content-type", "application/json")];
    let filter = format!(r#"{{"endpoint_id":"{endpoint}"}}"#);
    let from = r#"{"from":"2026-01-01T00:00:00Z"}"#;
    let catch_up = format!("/api/v1/endpoints/{endpoint}/catch-up");
    let replay = format!("{REPLAYS}/{id}");
    for (method, path, body) in [
        ("POST", REPLAYS, filter.as_str()),
        ("POST", ACKNOWLEDGE, filter.as_str()),
        ("POST", &catch_up, from),
        ("GET", &replay, ""),
        ("DELETE", &replay, ""),
    ] {
        let reply = api.send(method, path, &other, body.as_bytes()).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"), "{method} {path}");
    }
    let list = api.send("GET", REPLAYS, &other, b"").await.json();
    assert_eq!(list, json!({"data": [], "next_cursor": null}));
    assert_eq!(read(&api, &id).await["status"], "running");
    for path in ["rpl_x", "rpl_00000000000000000000000000", &endpoint] {
        assert_eq!(api.get(&format!("{REPLAYS}/{path}")).await.status, 404, "{path}");
    }
}
