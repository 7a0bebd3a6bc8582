//! Making, reading, changing, rotating, pausing, disabling, testing.

use std::sync::Arc;

use everhook_domain::address::AddressGuard;
use everhook_store::DirectoryStore;
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};

const FULL: &str = r#"{"url":"https://user:pa%20ss@Bücher.example:8443/a b?c=%2F","kind":"http",
    "options":{},"event_types":["invoice.*","everhook.delivery.dead"],"sources":["stripe"],
    "conditions":[{"pointer":"/a/b","equals":1.0}],"description":"Bücher",
    "headers":{"X-Team":"red","X-Api-Key":"hunter2"},"requests_per_second":5,"max_in_flight":2}"#;

/// A change, and what must be different in the endpoint then.
async fn check_patch(api: &Api, path: &str, body: &str, different: Value) {
    let before = api.get(path).await.expect(StatusCode::OK);
    let after = api.patch(path, body).await.expect(StatusCode::OK);
    let mut expected = before;
    expected["version"] = json!(expected["version"].as_u64().expect("a number") + 1);
    expected["updated_at"] = after["updated_at"].clone();
    for (name, value) in different.as_object().expect("an object") {
        expected[name] = value.clone();
    }
    assert_eq!(after, expected, "{body}");
    assert_eq!(api.get(path).await.json(), after);
}

#[tokio::test]
async fn an_endpoint_is_made_and_its_credentials_are_shown_never_or_once() {
    let api = Api::new();
    let reply = api.post("/api/v1/endpoints", FULL).await;
    let mut made = reply.expect(StatusCode::CREATED);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let secret = text(&made["secret"]);
    assert!(secret.starts_with("whsec_") && secret.len() == 6 + 44, "32 bytes in base64");
    let id = text(&made["id"]);
    assert_eq!(
        made,
        json!({
            "id": id,
            "url": "https://***:***@xn--bcher-kva.example:8443/a%20b?c=%2F",
            "kind": "http",
            "options": {},
            "state": "enabled",
            "disabled_at": null,
            "disabled_reason": null,
            "health": {"status": "healthy", "consecutive_failures": 0, "failing_since": null},
            "event_types": ["invoice.*", "everhook.delivery.dead"],
            "sources": ["stripe"],
            "conditions": [{"pointer": "/a/b", "equals": 1.0}],
            "description": "Bücher",
            "headers": {"x-team": "red", "x-api-key": "***"},
            "requests_per_second": 5,
            "max_in_flight": 2,
            "ca_certificates": null,
            "version": 1,
            "created_at": "2026-01-01T00:00:00.000Z",
            "updated_at": "2026-01-01T00:00:00.000Z",
            "old_secrets_expire_at": [],
            "secret": secret,
        })
    );
    made.as_object_mut().expect("an object").remove("secret");
    let read = api.get(&format!("/api/v1/endpoints/{id}")).await;
    assert_eq!(read.expect(StatusCode::OK), made);
    assert_eq!(read.header("etag"), Some("\"1\""));
    let list = api.get("/api/v1/endpoints").await;
    assert_eq!(list.expect(StatusCode::OK), json!({"data": [made], "next_cursor": null}));
    for shown in [&read.body, &list.body] {
        let shown = String::from_utf8_lossy(shown);
        assert!(!["pa%20ss", "user", "hunter2", "whsec_"].iter().any(|s| shown.contains(s)));
    }
    let stored = api.store.directory().expect("a directory");
    let stored = stored.endpoint(id.parse().expect("an id")).expect("stored");
    assert_eq!(stored.secrets.live(api.now()).next().map(|s| s.expose()), Some(secret));
    assert!(stored.settings.url.basic_auth().is_some());
}

#[tokio::test]
async fn what_is_left_out_takes_its_default() {
    let api = Api::new();
    for body in [
        r#"{"url":"http://example.com"}"#,
        r#"{"url":"http://example.com","kind":null,"options":null,"event_types":null,
            "sources":null,"conditions":null,"description":null,"headers":null,
            "requests_per_second":null,"max_in_flight":null,"ca_certificates":null}"#,
    ] {
        let made = api.post("/api/v1/endpoints", body).await.expect(StatusCode::CREATED);
        assert_eq!(made["url"], "http://example.com/");
        assert_eq!(made["event_types"], json!(["*"]));
        assert_eq!((&made["sources"], &made["conditions"]), (&json!([]), &json!([])));
        assert_eq!((&made["description"], &made["headers"]), (&json!(""), &json!({})));
        assert_eq!(
            (&made["requests_per_second"], &made["max_in_flight"]),
            (&Value::Null, &Value::Null)
        );
    }
}

#[tokio::test]
async fn rules_of_the_installation() {
    let api = Api::with(|settings| {
        settings.endpoint_rules.https_only = true;
        settings.endpoint_rules.header_prefix = "Acme-".parse().expect("legal");
        let loopback = "127.0.0.0/8".parse().expect("legal");
        settings.endpoint_rules.address_guard = AddressGuard::new(vec![loopback]);
    });
    for (body, pointers) in [
        (r#"{"url":"https://127.0.0.1:9/"}"#, &[][..]),
        (r#"{"url":"https://127.0.0.1:9/","headers":{"X-Message-Id":"1"}}"#, &[]),
        (r#"{"url":"http://127.0.0.1:9/"}"#, &["/url"]),
        (r#"{"url":"https://10.0.0.1/","headers":{"acme-x":"1"}}"#, &["/url", "/headers/acme-x"]),
    ] {
        let reply = api.post("/api/v1/endpoints", body).await;
        assert_eq!(reply.status == 201, pointers.is_empty(), "{body}");
        assert_eq!(reply.pointers(), pointers, "{body}");
    }
}

#[tokio::test]
async fn a_patch_changes_what_it_names() {
    let api = Api::new();
    let made = api.post("/api/v1/endpoints", FULL).await.expect(StatusCode::CREATED);
    let path = format!("/api/v1/endpoints/{}", text(&made["id"]));
    api.advance_ms(1);
    check_patch(&api, &path, "{}", json!({})).await;
    check_patch(&api, &path, r#"{"description":"x"}"#, json!({"description": "x"})).await;
    let clear = r#"{"headers":null,"requests_per_second":null,"event_types":null,"sources":null}"#;
    let cleared = json!({
        "headers": {}, "requests_per_second": null, "event_types": ["*"], "sources": [],
    });
    check_patch(&api, &path, clear, cleared).await;
    let conditions = r#"{"conditions":[{"pointer":"","equals":null}]}"#;
    let condition = json!({"conditions": [{"pointer": "", "equals": null}]});
    check_patch(&api, &path, conditions, condition).await;
    let url = json!({"url": "https://example.com/"});
    check_patch(&api, &path, r#"{"url":"https://example.com"}"#, url).await;

    let before = api.get(&path).await.json();
    for (body, pointers) in [
        (r#"{"url":null,"x":1}"#, &["/x", "/url"][..]),
        (r#"{"kind":"bullmq","headers":{"cookie":"***"}}"#, &["/kind", "/headers/cookie"]),
        (r#"{"state":"paused"}"#, &["/state"]),
    ] {
        let reply = api.patch(&path, body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (422, "invalid"), "{body}");
        assert_eq!(reply.pointers(), pointers, "{body}");
    }
    assert_eq!(api.get(&path).await.json(), before);
}

#[tokio::test]
async fn if_match_names_the_version() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    for (value, status, slug) in [
        ("\"1\"", 200, ""),
        ("\"1\"", 412, "precondition-failed"),
        ("2", 200, ""),
        ("*", 200, ""),
        ("\"x\"", 400, "invalid-header"),
        ("", 400, "invalid-header"),
        ("\"4\", \"5\"", 400, "invalid-header"),
    ] {
        let reply = api.send("PATCH", &path, &[("if-match", value)], b"{}").await;
        assert_eq!(reply.status, status, "{value}");
        assert!(slug.is_empty() || reply.slug() == slug, "{value}");
    }
    assert_eq!(api.get(&path).await.header("etag"), Some("\"4\""));
}

#[tokio::test]
async fn concurrent_patches_all_take_effect() {
    let api = Arc::new(Api::new());
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    let mut tasks = tokio::task::JoinSet::new();
    for body in [
        r#"{"description":"x"}"#,
        r#"{"max_in_flight":3}"#,
        r#"{"requests_per_second":4}"#,
        r#"{"sources":["a"]}"#,
    ] {
        let (api, path) = (Arc::clone(&api), path.clone());
        tasks.spawn(async move { api.patch(&path, body).await.expect(StatusCode::OK) });
    }
    tasks.join_all().await;
    let read = api.get(&path).await.json();
    assert_eq!(read["version"], 5);
    assert_eq!((&read["description"], &read["max_in_flight"]), (&json!("x"), &json!(3)));
    assert_eq!((&read["requests_per_second"], &read["sources"]), (&json!(4), &json!(["a"])));
}

#[tokio::test]
async fn case_025_a_rotated_secret_overlaps_and_neither_is_shown_again() {
    let api = Api::new();
    let made = api.post("/api/v1/endpoints", r#"{"url":"https://a.example"}"#).await.json();
    let id = text(&made["id"]);
    let path = format!("/api/v1/endpoints/{id}/rotate-secret");
    let reply = api.post(&path, "").await;
    let rotated = reply.expect(StatusCode::OK);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_ne!(rotated["secret"], made["secret"]);
    assert_eq!(rotated["old_secrets_expire_at"], json!(["2026-01-02T00:00:00.000Z"]));
    let directory = api.store.directory().expect("a directory");
    let endpoint = directory.endpoint(id.parse().expect("an id")).expect("stored");
    let live: Vec<_> = endpoint.secrets.live(api.now()).map(|s| s.expose()).collect();
    assert_eq!(live, [text(&rotated["secret"]), text(&made["secret"])]);
    for _ in 0..2 {
        api.post(&path, "{}").await.expect(StatusCode::OK);
    }
    let refused = api.post(&path, "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "too-many-secrets"));
    api.advance_ms(24 * 3_600 * 1_000);
    let reply = api.post(&path, "").await.expect(StatusCode::OK);
    assert_eq!(reply["old_secrets_expire_at"].as_array().map(Vec::len), Some(1));
    let read = api.get(&format!("/api/v1/endpoints/{id}")).await;
    assert!(read.json().get("secret").is_none());
}

#[tokio::test]
async fn states() {
    let api = Api::new();
    let id = api.endpoint().await;
    let path = format!("/api/v1/endpoints/{id}");
    for (verb, status, expected) in [
        ("pause", 200, "paused"),
        ("pause", 200, "paused"),
        ("resume", 200, "enabled"),
        ("enable", 200, "enabled"),
        ("pause", 200, "paused"),
        ("disable", 200, "disabled"),
        ("disable", 200, "disabled"),
        ("pause", 409, "endpoint-disabled"),
        ("resume", 409, "endpoint-disabled"),
        ("test", 409, "endpoint-disabled"),
        ("enable", 200, "enabled"),
        ("resume", 200, "enabled"),
    ] {
        let reply = api.post(&format!("{path}/{verb}"), "").await;
        assert_eq!(reply.status, status, "{verb}");
        match status {
            200 => assert_eq!(reply.json()["state"], expected, "{verb}"),
            _ => assert_eq!(reply.slug(), expected, "{verb}"),
        }
    }
    let refused = api.post(&format!("{path}/pause"), r#"{"for":"1h"}"#).await;
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/for".to_owned()]));
}

/// A key remembers what was done, also when it could not be done any more.
#[tokio::test]
async fn a_state_verb_that_was_done_is_remembered() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    let paused = api.post_keyed(&format!("{path}/pause"), "k", "").await;
    api.post(&format!("{path}/disable"), "").await.expect(StatusCode::OK);
    let again = api.post_keyed(&format!("{path}/pause"), "k", "").await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (200, Some("true")));
    assert_eq!(again.body, paused.body);
    let other = api.post_keyed(&format!("{path}/pause"), "other", "").await;
    assert_eq!((other.status, other.slug().as_str()), (409, "endpoint-disabled"));
    api.post(&format!("{path}/enable"), "").await.expect(StatusCode::OK);
    let later = api.post_keyed(&format!("{path}/pause"), "other", "").await;
    assert_eq!(later.expect(StatusCode::OK)["state"], "paused", "a refusal leaves the key free");
}

#[tokio::test]
async fn enabling_waits_only_for_what_is_being_cancelled() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    api.event("a").await;
    api.post(&format!("{path}/disable"), "").await.expect(StatusCode::OK);
    let waits = api.post(&format!("{path}/enable"), "").await;
    assert_eq!((waits.status, waits.slug().as_str()), (409, "still-cancelling"));
    assert_eq!(waits.header("retry-after"), Some("1"));
    assert!(text(&waits.json()["detail"]).contains("still being cancelled"));
    while everhook_store::Jobs::step(&*api.store, api.now()).await.expect("a step")
        == everhook_store::JobStep::More
    {}
    let enabled = api.post(&format!("{path}/enable"), "").await.expect(StatusCode::OK);
    assert_eq!(enabled["state"], "enabled");
}

#[tokio::test]
async fn a_deleted_endpoint_is_gone_and_its_history_stays() {
    let api = Api::new();
    let (kept, id) = (api.endpoint().await, api.endpoint().await);
    api.event("a").await;
    api.deliver(&id, &answered(200)).await;
    let path = format!("/api/v1/endpoints/{id}");
    for _ in 0..3 {
        api.post(&format!("{path}/rotate-secret"), "").await.expect(StatusCode::OK);
    }
    let deleted = api.send("DELETE", &path, &[], b"").await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    assert_eq!(deleted.header("content-type"), None);
    for (method, path) in [
        ("DELETE", path.clone()),
        ("GET", path.clone()),
        ("PATCH", path.clone()),
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/enable")),
        ("POST", format!("{path}/rotate-secret")),
        ("POST", format!("{path}/test")),
    ] {
        let body: &[u8] = if method == "PATCH" { b"{}" } else { b"" };
        let reply = api.send(method, &path, &[], body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"), "{method} {path}");
    }
    assert_eq!(api.list("/api/v1/endpoints").await, [kept]);
    let deliveries = api.list(&format!("/api/v1/deliveries?endpoint_id={id}")).await;
    let read = api.get(&format!("/api/v1/deliveries/{}", deliveries[0])).await;
    assert_eq!(read.expect(StatusCode::OK)["status"], "delivered");
    let refused = api.post(&format!("/api/v1/deliveries/{}/replay", deliveries[0]), "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "endpoint-deleted"));
}

#[tokio::test]
async fn lists_page_newest_first() {
    let api = Api::new();
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(api.endpoint().await);
    }
    ids.reverse();
    for limit in 1..=6 {
        assert_eq!(api.list(&format!("/api/v1/endpoints?limit={limit}")).await, ids, "{limit}");
    }
    let page = api.get("/api/v1/endpoints?limit=2").await.json();
    api.send("DELETE", &format!("/api/v1/endpoints/{}", ids[1]), &[], b"").await;
    let cursor = text(&page["next_cursor"]);
    let next = api.list(&format!("/api/v1/endpoints?cursor={cursor}")).await;
    assert_eq!(next, ids[2..], "case 59: the boundary row is gone, nothing is skipped");
}

#[tokio::test]
async fn a_test_is_sent_at_once_and_once() {
    let api = Api::new();
    let id = api.endpoint().await;
    let reply = api.post(&format!("/api/v1/endpoints/{id}/test"), "").await;
    let sent = reply.expect(StatusCode::ACCEPTED);
    assert_eq!((&sent["type"], &sent["deliveries"]), (&json!("everhook.test"), &json!(1)));
    assert_eq!(api.deliver(&id, &answered(500)).await, 1);
    let path = format!("/api/v1/deliveries/{}", text(&sent["delivery_id"]));
    let delivery = api.get(&path).await.expect(StatusCode::OK);
    assert_eq!((&delivery["status"], &delivery["event_id"]), (&json!("dead"), &sent["id"]));
    assert_ne!(delivery["acknowledged_at"], Value::Null, "no warning");
    assert_eq!(delivery["attempts"][0]["trigger"], "test");
    let event = api.get(&format!("/api/v1/events/{}", text(&sent["id"]))).await;
    let event = event.expect(StatusCode::OK);
    assert_eq!((&event["origin"], &event["data"]["endpoint_id"]), (&json!("system"), &json!(id)));
}
