//! Conversations: versions over HTTP, and the events that tell of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};

const ALL: &str = "/api/v1/conversations";

/// Makes a conversation; its path and how it was answered.
async fn create(api: &Api, body: &str) -> (String, Value) {
    let made = api.post(ALL, body).await.expect(StatusCode::CREATED);
    (format!("{ALL}/{}", text(&made["id"])), made)
}

/// The events so far, oldest first: type, source event ID, data.
async fn told(api: &Api) -> Vec<(String, String, Value)> {
    let mut told = Vec::new();
    for row in api.rows("/api/v1/events?limit=250").await.into_iter().rev() {
        let event = api.get(&format!("/api/v1/events/{}", text(&row["id"]))).await.json();
        let source_event_id = text(&event["source_event_id"]);
        told.push((text(&event["type"]), source_event_id, event["data"].clone()));
    }
    told
}

#[tokio::test]
async fn a_conversation_is_made_read_changed_and_deleted() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let (path, made) = create(&api, r#"{"subject": "Äpfel", "status": "pending"}"#).await;
    let id = text(&made["id"]);
    let expected = json!({
        "id": id,
        "subject": "Äpfel",
        "status": "pending",
        "assignee": null,
        "version": 1,
        "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": "2026-01-01T00:00:00.000Z",
    });
    assert_eq!(made, expected);
    assert!(id.starts_with("cnv_"), "{id}");
    let read = api.get(&path).await;
    assert_eq!((read.json(), read.header("etag")), (made.clone(), Some("\"1\"")));

    api.advance_ms(1_000);
    let transfer = r#"{"assignee": "a", "status": "open"}"#;
    let given = api.post(&format!("{path}/transfer"), transfer).await;
    let etag = given.header("etag").map(ToOwned::to_owned);
    let given = given.expect(StatusCode::OK);
    assert_eq!((&given["assignee"], &given["status"]), (&json!("a"), &json!("open")));
    assert_eq!((&given["version"], etag.as_deref()), (&json!(2), Some("\"2\"")));
    assert_eq!(given["updated_at"], "2026-01-01T00:00:01.000Z");
    for (body, what) in [("{}", "nothing"), (r#"{"status": "open"}"#, "what it is already")] {
        let same = api.patch(&path, body).await;
        assert_eq!((same.json(), same.header("etag")), (given.clone(), Some("\"2\"")), "{what}");
    }
    let messages = format!("{path}/messages");
    let said = api.post(&messages, r#"{"body": "Hello"}"#).await.expect(StatusCode::CREATED);
    let expected = json!({
        "id": said["id"],
        "conversation_id": id,
        "body": "Hello",
        "created_at": "2026-01-01T00:00:01.000Z",
        "conversation_version": 3,
    });
    assert_eq!(said, expected);
    assert!(text(&said["id"]).starts_with("msg_"));
    assert_eq!(api.rows(&messages).await, std::slice::from_ref(&said));
    let freed = api.patch(&path, r#"{"assignee": null}"#).await.expect(StatusCode::OK);
    assert_eq!((&freed["assignee"], &freed["version"]), (&Value::Null, &json!(4)));

    api.advance_ms(1);
    assert_eq!(api.send("DELETE", &path, &[], b"").await.status, 204);
    for (method, path) in [("GET", &path), ("GET", &messages), ("DELETE", &path)] {
        let reply = api.send(method, path, &[], b"").await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"), "{method} {path}");
    }
    assert_eq!(api.rows(ALL).await, [] as [Value; 0]);
    let since = api.rows(&format!("{ALL}?from=2026-01-01T00:00:01.001Z")).await;
    assert_eq!(
        (&since[0]["version"], &since[0]["deleted_at"]),
        (&json!(5), &since[0]["updated_at"])
    );

    let told = told(&api).await;
    for ((number, told), (event_type, data)) in (1..).zip(&told).zip([
        ("conversation.created", &made),
        ("conversation.updated", &given),
        ("message.created", &said),
        ("conversation.updated", &freed),
        ("conversation.deleted", &since[0]),
    ]) {
        assert_eq!(*told, (event_type.to_owned(), format!("{id}:v{number}"), data.clone()));
    }
    assert_eq!((told.len(), api.deliver(&endpoint, &answered(200)).await), (5, 5));
}

#[tokio::test]
async fn a_stale_version_is_refused_by_every_verb() {
    let api = Api::new();
    let (path, _) = create(&api, "{}").await;
    api.patch(&path, r#"{"status": "closed"}"#).await.expect(StatusCode::OK);
    let (transfer, messages) = (format!("{path}/transfer"), format!("{path}/messages"));
    let verbs = [
        ("PATCH", &path, r#"{"status": "open"}"#, 200),
        ("POST", &transfer, r#"{"assignee": "a"}"#, 200),
        ("POST", &messages, r#"{"body": "Hello"}"#, 201),
        ("DELETE", &path, "", 204),
    ];
    for (version, (method, path, body, done)) in (2..).zip(verbs) {
        for (expected, status, slug) in [
            ("1", 412, "precondition-failed"),
            ("\"1\"", 412, "precondition-failed"),
            ("x", 400, "invalid-header"),
        ] {
            let reply = api.send(method, path, &[("if-match", expected)], body.as_bytes()).await;
            assert_eq!((reply.status, reply.slug().as_str()), (status, slug), "{method} {path}");
            if status == 412 {
                let detail = text(&reply.json()["detail"]);
                assert_eq!(detail, format!("it has version {version} now; read it again"));
            }
        }
        let version = version.to_string();
        let reply = api.send(method, path, &[("if-match", &version)], body.as_bytes()).await;
        assert_eq!(reply.status, done, "{method} {path}");
    }
    assert_eq!(told(&api).await.len(), 6);
}

#[tokio::test]
async fn what_is_wrong_is_told_all_at_once() {
    let api = Api::new();
    let (path, _) = create(&api, "{}").await;
    let (transfer, messages) = (format!("{path}/transfer"), format!("{path}/messages"));
    for (method, path, body, pointers) in [
        ("POST", ALL, r#"{"status": 1, "x": 1}"#, vec!["/x", "/status"]),
        ("PATCH", &path, r#"{"subject": "a", "assignee": ""}"#, vec!["/subject", "/assignee"]),
        ("POST", &transfer, r#"{"status": "gone"}"#, vec!["/assignee", "/status"]),
        ("POST", &messages, r#"{"body": ""}"#, vec!["/body"]),
    ] {
        let reply = api.send(method, path, &[], body.as_bytes()).await;
        assert_eq!((reply.status, reply.pointers()), (422, pointers_of(pointers)), "{body}");
    }
    for path in [format!("{ALL}/cnv_1"), path.replace("cnv_", "evt_")] {
        let reply = api.get(&path).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"));
        let said = text(&reply.json()["detail"]);
        assert_eq!(said, "there is no such conversation in this tenant");
    }
    for query in ["from=yesterday", "to=2026-01-01T00:00:00Z", "limit=0"] {
        let reply = api.get(&format!("{ALL}?{query}")).await;
        assert_eq!((reply.status, reply.slug().as_str()), (400, "invalid-parameter"), "{query}");
    }
    assert_eq!(told(&api).await.len(), 1);
}

fn pointers_of(pointers: Vec<&str>) -> Vec<String> {
    pointers.into_iter().map(ToOwned::to_owned).collect()
}

/// The answer is byte for byte the first one, its version in `ETag` too, whatever came after it.
#[tokio::test]
async fn a_post_with_a_key_runs_once() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let made = api.post_keyed(ALL, "create", r#"{"subject": "A bill"}"#).await;
    let path = format!("{ALL}/{}", text(&made.expect(StatusCode::CREATED)["id"]));
    let (transfer, messages) = (format!("{path}/transfer"), format!("{path}/messages"));
    let first = [
        made,
        api.post_keyed(&transfer, "give", r#"{"assignee": "a"}"#).await,
        api.post_keyed(&messages, "msg-a-1", r#"{"body": "Hello"}"#).await,
    ];
    api.patch(&path, r#"{"status": "closed", "assignee": "b"}"#).await.expect(StatusCode::OK);
    let again = [
        api.post_keyed(ALL, "create", r#"{"subject": "A bill"}"#).await,
        api.post_keyed(&transfer, "give", r#"{"assignee": "a"}"#).await,
        api.post_keyed(&messages, "msg-a-1", r#"{"body": "Hello"}"#).await,
    ];
    for (first, again) in first.iter().zip(&again) {
        assert_eq!((first.status, &first.body), (again.status, &again.body));
        assert_eq!(first.header("etag"), again.header("etag"));
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!(again[1].header("etag"), Some("\"2\""));
    let other = api.post_keyed(&messages, "msg-a-1", r#"{"body": "Other"}"#).await;
    assert_eq!((other.status, other.slug().as_str()), (422, "idempotency-key-reused"));
    assert_eq!(api.get(&path).await.json()["assignee"], "b");
    assert_eq!(told(&api).await.len(), 4);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 4);
}

#[tokio::test]
async fn a_racing_status_and_transfer_send_one_webhook_a_state() {
    let api = Arc::new(Api::new());
    let endpoint = api.endpoint().await;
    let (path, made) = create(&api, r#"{"status": "pending"}"#).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let (api, path) = (Arc::clone(&api), path.clone());
        tasks.spawn(async move {
            let reply = match number % 2 {
                0 => api.patch(&path, r#"{"status": "open"}"#).await,
                _ => {
                    let body = r#"{"assignee": "a", "status": "open"}"#;
                    api.post(&format!("{path}/transfer"), body).await
                }
            };
            reply.expect(StatusCode::OK)
        });
    }
    let mut shown = tasks.join_all().await;
    shown.push(made);
    let versions: BTreeSet<_> = shown.iter().map(|one| one["version"].as_u64()).collect();
    let states: BTreeSet<_> =
        shown.iter().map(|one| format!("{} {}", one["status"], one["assignee"])).collect();
    assert_eq!(versions.len(), states.len());
    let end = api.get(&path).await.json();
    assert_eq!((&end["status"], &end["assignee"]), (&json!("open"), &json!("a")));
    assert_eq!(end["version"].as_u64(), Some(states.len() as u64));
    assert_eq!(told(&api).await.len(), states.len());
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, states.len());
}

#[tokio::test]
async fn lists_go_on_by_change() {
    let api = Api::new();
    let mut paths = Vec::new();
    for number in 0..5 {
        let body = json!({ "subject": number.to_string() }).to_string();
        paths.push(create(&api, &body).await.0);
    }
    let subjects =
        |rows: &[Value]| -> Vec<String> { rows.iter().map(|row| text(&row["subject"])).collect() };
    let from = format!("{ALL}?limit=2&from=2026-01-01T00:00:00.000Z");
    let first = api.get(&from).await.expect(StatusCode::OK);
    assert_eq!(subjects(first["data"].as_array().expect("a list")), ["0", "1"]);
    // Two change under the pages: one that was listed, one that was not.
    api.patch(&paths[0], r#"{"status": "closed"}"#).await.expect(StatusCode::OK);
    api.patch(&paths[3], r#"{"status": "closed"}"#).await.expect(StatusCode::OK);
    let cursor = text(&first["next_cursor"]);
    let second = api.get(&format!("{from}&cursor={cursor}")).await.expect(StatusCode::OK);
    assert_eq!(subjects(second["data"].as_array().expect("a list")), ["2", "4"]);
    let cursor = text(&second["next_cursor"]);
    let third = api.get(&format!("{from}&cursor={cursor}")).await.expect(StatusCode::OK);
    assert_eq!(subjects(third["data"].as_array().expect("a list")), ["0", "3"]);
    assert_eq!(third["next_cursor"], Value::Null);
    for other in [ALL.to_owned(), format!("{ALL}?from=2026-01-01T00:00:00.001Z")] {
        let sign = if other.contains('?') { '&' } else { '?' };
        let reply = api.get(&format!("{other}{sign}cursor={cursor}")).await;
        assert_eq!((reply.status, reply.slug().as_str()), (400, "invalid-cursor"), "{other}");
    }
}

#[tokio::test]
async fn conversations_are_their_tenants_own() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let acme = [("everhook-tenant", "acme")];
    let made = api.send("POST", ALL, &acme, b"{}").await.expect(StatusCode::CREATED);
    let path = format!("{ALL}/{}", text(&made["id"]));
    assert_eq!(api.send("GET", &path, &acme, b"").await.status, 200);
    let transfer = format!("{path}/transfer");
    for (method, path, body) in [
        ("GET", &path, ""),
        ("PATCH", &path, "{}"),
        ("DELETE", &path, ""),
        ("POST", &transfer, r#"{"assignee": "a"}"#),
    ] {
        let reply = api.send(method, path, &[], body.as_bytes()).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"), "{method}");
    }
    let from = format!("{ALL}?from=2026-01-01T00:00:00Z");
    assert_eq!(api.rows(&from).await, [] as [Value; 0]);
}
