//! Every POST of the API honours `Idempotency-Key`: a table with one row for each route, and a
//! comparison of the table with the router, so that no new route is forgotten.

use std::collections::BTreeSet;

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};
use crate::idempotency::{DAY_MS, check_replay};

/// A POST and what shows its effect. Names in braces are those of [`Stage`].
struct Row {
    /// As the router has it.
    route: &'static str,
    /// The place of `{id}`.
    id: &'static str,
    body: &'static str,
    /// Another body that would be accepted as well.
    other: &'static str,
    /// What is different after the first request, and as it was then after any further one.
    shown: &'static str,
}

const fn row(
    route: &'static str,
    id: &'static str,
    [body, other]: [&'static str; 2],
    shown: &'static str,
) -> Row {
    Row { route, id, body, other, shown }
}

/// Bodies of verbs that take none.
const NOTHING: [&str; 2] = ["", "{}"];
/// Nothing shows it.
const NO_EFFECT: &str = "";

const ROWS: [Row; 27] = [
    row(
        "/api/v1/events",
        "",
        [r#"{"type":"a","data":1}"#, r#"{"type":"a","data":2}"#],
        "/api/v1/events",
    ),
    row(
        "/api/v1/events/batch",
        "",
        [r#"{"events":[{"type":"a","data":1}]}"#, r#"{"events":[{"type":"b","data":1}]}"#],
        "/api/v1/events",
    ),
    row("/api/v1/events/{id}/replay", "event", NOTHING, "/api/v1/deliveries"),
    row(
        "/api/v1/endpoints",
        "",
        [r#"{"url":"https://example.com/1"}"#, r#"{"url":"https://example.com/2"}"#],
        "/api/v1/endpoints",
    ),
    row(
        "/api/v1/endpoints/{id}/rotate-secret",
        "endpoint",
        NOTHING,
        "/api/v1/endpoints/{endpoint}",
    ),
    row("/api/v1/endpoints/{id}/pause", "endpoint", NOTHING, "/api/v1/endpoints/{endpoint}"),
    row("/api/v1/endpoints/{id}/resume", "paused", NOTHING, "/api/v1/endpoints/{paused}"),
    row("/api/v1/endpoints/{id}/disable", "endpoint", NOTHING, "/api/v1/endpoints/{endpoint}"),
    row("/api/v1/endpoints/{id}/enable", "disabled", NOTHING, "/api/v1/endpoints/{disabled}"),
    row("/api/v1/endpoints/{id}/test", "endpoint", NOTHING, "/api/v1/deliveries"),
    row(
        "/api/v1/endpoints/{id}/catch-up",
        "endpoint",
        [r#"{"from":"2026-01-01T00:00:00Z"}"#, r#"{"from":"2026-01-02T00:00:00Z"}"#],
        "/api/v1/replays",
    ),
    row("/api/v1/tenants", "", [r#"{"name":"A"}"#, r#"{"name":"B"}"#], "/api/v1/tenants"),
    row("/api/v1/deliveries/acknowledge", "", ["{}", r#"{"dry_run":false}"#], "/api/v1/replays"),
    row("/api/v1/deliveries/{id}/replay", "dead", NOTHING, "/api/v1/deliveries/{dead}"),
    row("/api/v1/deliveries/{id}/cancel", "due", NOTHING, "/api/v1/deliveries/{due}"),
    row("/api/v1/deliveries/{id}/acknowledge", "dead", NOTHING, "/api/v1/deliveries/{dead}"),
    row(
        "/api/v1/sources",
        "",
        [r#"{"name":"a","kind":"none"}"#, r#"{"name":"b","kind":"none"}"#],
        "/api/v1/sources",
    ),
    row(
        "/api/v1/sources/{id}/preview",
        "source",
        [r#"{"body":"a"}"#, r#"{"body":"b"}"#],
        NO_EFFECT,
    ),
    row("/api/v1/receipts/{id}/release", "conflict", NOTHING, "/api/v1/receipts/{conflict}"),
    row("/api/v1/receipts/{id}/discard", "conflict", NOTHING, "/api/v1/receipts/{conflict}"),
    row("/api/v1/receipts/{id}/force", "receipt", NOTHING, "/api/v1/deliveries"),
    row("/api/v1/replays", "", ["{}", r#"{"status":"dead"}"#], "/api/v1/replays"),
    row(
        "/api/v1/idempotency-records/{id}/resolve",
        "claim",
        [r#"{"status":200}"#, r#"{"status":201}"#],
        "/api/v1/idempotency-records/{claim}",
    ),
    row(
        "/api/v1/conversations",
        "",
        [r#"{"subject":"a"}"#, r#"{"subject":"b"}"#],
        "/api/v1/conversations",
    ),
    row(
        "/api/v1/conversations/{id}/transfer",
        "conversation",
        [r#"{"assignee":"a"}"#, r#"{"assignee":"b"}"#],
        "/api/v1/conversations/{conversation}",
    ),
    row(
        "/api/v1/conversations/{id}/messages",
        "conversation",
        [r#"{"body":"a"}"#, r#"{"body":"b"}"#],
        "/api/v1/conversations/{conversation}/messages",
    ),
    // It counts, and must count the same when it is asked again.
    row("/api/v1/replays", "", [r#"{"dry_run":true}"#, r#"{"dry_run":true }"#], NO_EFFECT),
];

/// Where no key is taken: the senders of webhooks have keys of their own, and a claim is one.
fn takes_no_key(path: &str) -> bool {
    path.starts_with("/in/") || path.starts_with("/api/v1/claims")
}

/// An installation with one thing in every state that a POST needs.
pub(crate) struct Stage {
    pub(crate) api: Api,
    pub(crate) names: Vec<(&'static str, String)>,
}

impl Stage {
    pub(crate) async fn on(api: Api) -> Self {
        let endpoint = api.endpoint().await;
        api.event("a").await;
        for _ in 0..7 {
            assert_eq!(api.deliver(&endpoint, &answered(500)).await, 1);
            api.advance_ms(DAY_MS);
        }
        let event = api.event("a").await;
        let [due, dead] =
            <[String; 2]>::try_from(api.list("/api/v1/deliveries").await).expect("two deliveries");
        let (paused, disabled) = (api.endpoint().await, api.endpoint().await);
        for (id, verb) in [(&paused, "pause"), (&disabled, "disable")] {
            let path = format!("/api/v1/endpoints/{id}/{verb}");
            api.post(&path, "").await.expect(StatusCode::OK);
        }
        let source = text(&api.source(&json!({"name": "open", "kind": "none"})).await["id"]);
        let wants = json!({"url": "https://example.com/", "event_types": [], "sources": ["open"]});
        api.post("/api/v1/endpoints", &wants.to_string()).await.expect(StatusCode::CREATED);
        for body in [b"one", b"two"] {
            let reply = api.raw("POST", "/in/open", &[("idempotency-key", "k")], body).await;
            reply.expect(StatusCode::OK);
            api.advance_ms(1);
        }
        let [conflict, receipt] =
            <[String; 2]>::try_from(api.list("/api/v1/receipts").await).expect("two receipts");
        let claim = r#"{"scope":"a","key":"k","lease_ms":50,"ttl_s":60}"#;
        let claim = text(&api.post("/api/v1/claims", claim).await.expect(StatusCode::OK)["id"]);
        let conversation = api.post("/api/v1/conversations", "{}").await;
        let conversation = text(&conversation.expect(StatusCode::CREATED)["id"]);
        let names = vec![
            ("conversation", conversation),
            ("claim", claim),
            ("endpoint", endpoint),
            ("paused", paused),
            ("disabled", disabled),
            ("event", event),
            ("due", due),
            ("dead", dead),
            ("source", source),
            ("conflict", conflict),
            ("receipt", receipt),
        ];
        Self { api, names }
    }

    /// The path with the ids of this stage.
    fn path(&self, path: &str, id: &str) -> String {
        let own = path.replace("{id}", &format!("{{{id}}}"));
        self.names.iter().fold(own, |path, (name, id)| path.replace(&format!("{{{name}}}"), id))
    }

    async fn look(&self, path: &str) -> Value {
        if path == NO_EFFECT {
            return Value::Null;
        }
        self.api.get(path).await.expect(StatusCode::OK)
    }
}

/// One effect, one answer, and a key that another request cannot use.
async fn check(row: &Row) {
    let stage = Stage::on(Api::new()).await;
    let (path, shown) = (stage.path(row.route, row.id), stage.path(row.shown, ""));
    stage.api.advance_ms(1_000);
    let before = stage.look(&shown).await;
    let first = stage.api.post_keyed(&path, "key", row.body).await;
    assert!((200..300).contains(&first.status), "{path}: {first:?}");
    // What was done anew would have another time.
    stage.api.advance_ms(1_000);
    let after = stage.look(&shown).await;
    assert_eq!(before == after, row.shown == NO_EFFECT, "{path}: the effect shows");
    for key in ["key", "\"key\""] {
        check_replay(&first, &stage.api.post_keyed(&path, key, row.body).await);
    }
    let mismatched = stage.api.post_keyed(&path, "key", row.other).await;
    let said = (mismatched.status, mismatched.slug());
    assert_eq!(said, (422, "idempotency-key-reused".to_owned()), "{path}");
    assert_eq!(stage.look(&shown).await, after, "{path}: one effect");
}

#[tokio::test]
async fn every_post_runs_once_and_replays_byte_for_byte() {
    for row in &ROWS {
        check(row).await;
    }
}

#[tokio::test]
async fn every_post_of_the_router_is_in_the_table() {
    let api = Api::new();
    let mut posts = BTreeSet::new();
    for path in everhook_web::api::paths().filter(|path| !takes_no_key(path)) {
        // No route has this method, and each one says which it has.
        let reply = api.raw("TRACE", &path.replace(['{', '}'], ""), &[], b"").await;
        let allow = reply.header("allow").unwrap_or_else(|| panic!("{path}: {reply:?}"));
        if allow.split(',').any(|method| method.trim() == "POST") {
            posts.insert(path);
        }
    }
    assert_eq!(posts, ROWS.iter().map(|row| row.route).collect());
}
