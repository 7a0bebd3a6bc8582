//! Endpoints with stored settings that this version cannot use.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, text};

/// An endpoint whose stored settings and secrets are these.
async fn stored_as(settings: &str, secrets: Option<&str>) -> (Api, String) {
    let api = Api::new();
    let id = api.endpoint().await;
    let api = api.restart_after(|database| {
        let changed = database.execute("UPDATE endpoints SET settings = ?1", [settings]);
        assert_eq!(changed, Ok(1));
        if let Some(secrets) = secrets {
            let changed = database.execute("UPDATE endpoints SET secrets = ?1", [secrets]);
            assert_eq!(changed, Ok(1));
        }
    });
    (api, format!("/api/v1/endpoints/{id}"))
}

fn pointers(endpoint: &Value) -> Vec<String> {
    let unusable = endpoint["unusable"].as_array().cloned().unwrap_or_default();
    unusable.iter().map(|entry| text(&entry["pointer"])).collect()
}

#[tokio::test]
async fn case_068_a_stored_header_with_a_line_feed_is_shown_and_repaired() {
    let stored = r#"{"url":"http://user:hunter2@example.com/","subscription":{},
        "headers":{"x-a":"hunter2\nx-b: c"}}"#;
    let (api, path) = stored_as(stored, None).await;
    let shown = api.get(&path).await.expect(StatusCode::OK);
    let detail = "header 'x-a': a value must not hold line breaks or control characters";
    assert_eq!(shown["unusable"], json!([{"pointer": "/headers", "detail": detail}]));
    assert_eq!(
        (&shown["url"], &shown["headers"]),
        (&json!("http://***:***@example.com/"), &json!({}))
    );
    assert!(!shown.to_string().contains("hunter2"));
    let listed = api.get("/api/v1/endpoints").await.expect(StatusCode::OK);
    assert_eq!(listed["data"][0], shown);
    // What it does not touch stays as it is.
    let changed = api.patch(&path, r#"{"description":"x"}"#).await.expect(StatusCode::OK);
    assert_eq!(pointers(&changed), ["/headers"]);
    let refused = api.patch(&path, r#"{"headers":{"x-a":"b\nc"}}"#).await;
    assert_eq!(refused.pointers(), ["/headers/x-a"]);
    let repaired = api.patch(&path, r#"{"headers":{"x-a":"b"}}"#).await.expect(StatusCode::OK);
    assert_eq!((repaired.get("unusable"), &repaired["headers"]), (None, &json!({"x-a": "b"})));
    let read = api.restart_after(|_| {}).get(&path).await.expect(StatusCode::OK);
    assert_eq!(read, repaired);
}

#[tokio::test]
async fn everything_broken_is_repaired_part_by_part() {
    let (api, path) = stored_as("hunter2", Some("hunter2")).await;
    let shown = api.get(&path).await.expect(StatusCode::OK);
    let own =
        ["/description", "/headers", "/ca_certificates", "/requests_per_second", "/max_in_flight"];
    let lists = ["/event_types", "/sources", "/conditions"];
    let all: Vec<_> = [&["/url"][..], &own, &lists, &["/secret"]].concat();
    assert_eq!(pointers(&shown), all);
    assert_eq!(shown["url"], Value::Null);
    assert!(!shown.to_string().contains("hunter2"));
    let url = r#"{"url":"https://example.com/"}"#;
    let changed = api.patch(&path, url).await.expect(StatusCode::OK);
    assert_eq!(pointers(&changed), all[1..]);
    let rotated = api.post(&format!("{path}/rotate-secret"), "").await.expect(StatusCode::OK);
    assert_eq!(pointers(&rotated), all[1..all.len() - 1]);
    assert_eq!(rotated["old_secrets_expire_at"], json!([]));
    let settings = r#"{"description":"","headers":{},"ca_certificates":null,
        "requests_per_second":null,"max_in_flight":null}"#;
    let changed = api.patch(&path, settings).await.expect(StatusCode::OK);
    assert_eq!(pointers(&changed), lists);
    let lists = r#"{"event_types":null,"sources":[],"conditions":null}"#;
    let repaired = api.patch(&path, lists).await.expect(StatusCode::OK);
    assert_eq!((repaired.get("unusable"), &repaired["event_types"]), (None, &json!(["*"])));
}

#[tokio::test]
async fn a_broken_endpoint_can_be_deleted() {
    let (api, path) = stored_as("[]", Some("[]")).await;
    let deleted = api.send("DELETE", &path, &[], b"").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(api.get(&path).await.status, 404);
}
