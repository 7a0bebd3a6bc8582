//! Sources: made, read, changed, deleted, and tried without effect.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, SECRET, stripe_signature, text};

#[tokio::test]
async fn a_change_that_names_no_version_holds_however_many_come_at_once() {
    let api = Arc::new(Api::new());
    let source = api.stripe("shop", json!({})).await;
    let (sources, endpoints) = ("/api/v1/sources", "/api/v1/endpoints");
    let paths = [format!("{sources}/{source}"), format!("{endpoints}/{}", api.endpoint().await)];
    for path in paths {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (api, path) = (Arc::clone(&api), path.clone());
            tasks.spawn(async move { api.patch(&path, "{}").await.expect(StatusCode::OK) });
        }
        tasks.join_all().await;
        assert_eq!(api.get(&path).await.json()["version"], 41, "{path}");
    }
}

#[tokio::test]
async fn a_source_is_made_read_changed_and_deleted() {
    let api = Api::new();
    let body = json!({"name": "shop", "kind": "stripe", "secrets": ["whsec_hunter2"]});
    let made = api.source(&body).await;
    let id = text(&made["id"]);
    let path = format!("/api/v1/sources/{id}");
    assert_eq!(made["ingest_url"], format!("/in/{id}"), "no Host, no public URL");
    for (name, expected) in [
        ("name", json!("shop")),
        ("kind", json!("stripe")),
        ("secrets_count", json!(1)),
        ("window_s", json!(96 * 3_600)),
        ("tolerance_s", json!(300)),
        ("public_url", Value::Null),
        ("dedupe", Value::Null),
        ("options", json!({})),
        ("warnings", json!([])),
        ("version", json!(1)),
        ("created_at", json!("2026-01-01T00:00:00.000Z")),
    ] {
        assert_eq!(made[name], expected, "{name}");
    }
    let read = api.get(&path).await;
    assert_eq!((read.expect(StatusCode::OK), read.header("etag")), (made.clone(), Some("\"1\"")));
    assert_eq!(api.rows("/api/v1/sources").await, std::slice::from_ref(&made));

    api.advance_ms(1_000);
    let patch = json!({"name": "shop-eu", "window_s": 60, "secrets": ["a", "b"],
        "dedupe": {"pointers": ["/id"]}, "options": {"empty": "ignore"}});
    let changed = api.patch(&path, &patch.to_string()).await.expect(StatusCode::OK);
    for (name, expected) in [
        ("name", json!("shop-eu")),
        ("secrets_count", json!(2)),
        ("window_s", json!(60)),
        ("dedupe", json!({"pointers": ["/id"]})),
        ("options", json!({"empty": "ignore"})),
        ("version", json!(2)),
        ("updated_at", json!("2026-01-01T00:00:01.000Z")),
    ] {
        assert_eq!(changed[name], expected, "{name}");
    }
    let stale = api.send("PATCH", &path, &[("if-match", "\"1\"")], b"{}").await;
    assert_eq!((stale.status, stale.slug().as_str()), (412, "precondition-failed"));
    assert!(!changed.to_string().contains("hunter2"));

    assert_eq!(api.send("DELETE", &path, &[], b"").await.status, 204);
    for reply in [api.get(&path).await, api.patch(&path, "{}").await] {
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"));
    }
    assert_eq!(api.send("DELETE", &path, &[], b"").await.status, 404);
    assert!(api.rows("/api/v1/sources").await.is_empty());
    api.source(&json!({"name": "shop-eu", "kind": "none"})).await;
}

#[tokio::test]
async fn names_are_unique_in_a_tenant() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let body = json!({"name": "shop", "kind": "none"}).to_string();
    api.post("/api/v1/sources", &body).await.expect(StatusCode::CREATED);
    let taken = api.post("/api/v1/sources", &body).await;
    assert_eq!((taken.status, taken.slug().as_str()), (409, "name-taken"));
    let other = api.source(&json!({"name": "other", "kind": "none"})).await;
    let path = format!("/api/v1/sources/{}", text(&other["id"]));
    let taken = api.patch(&path, r#"{"name":"shop"}"#).await;
    assert_eq!((taken.status, taken.slug().as_str()), (409, "name-taken"));
    let tenant = [("everhook-tenant", "acme")];
    let theirs = api.send("POST", "/api/v1/sources", &tenant, body.as_bytes()).await;
    theirs.expect(StatusCode::CREATED);
    let foreign = api.send("GET", &path, &tenant, b"").await;
    assert_eq!((foreign.status, foreign.slug().as_str()), (404, "not-found"));
}

#[tokio::test]
async fn a_source_is_not_renamed_under_the_endpoints_that_name_it() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    let path = format!("/api/v1/sources/{source}");
    let endpoint = json!({"url": "https://a.test/", "event_types": [], "sources": ["shop"]});
    let endpoint = api.post("/api/v1/endpoints", &endpoint.to_string()).await;
    let endpoint = text(&endpoint.expect(StatusCode::CREATED)["id"]);
    let refused = api.patch(&path, r#"{"name":"shop-eu"}"#).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "source-still-named"));
    let detail = text(&refused.json()["detail"]);
    assert!(detail.contains(&endpoint), "{detail}");
    // Everything else of it may change.
    api.patch(&path, r#"{"name":"shop","window_s":60}"#).await.expect(StatusCode::OK);
    let of_endpoint = format!("/api/v1/endpoints/{endpoint}");
    let name_both = api.patch(&of_endpoint, r#"{"sources":["shop","shop-eu"]}"#).await;
    name_both.expect(StatusCode::OK);
    let renamed = api.patch(&path, r#"{"name":"shop-eu"}"#).await.expect(StatusCode::OK);
    assert_eq!(renamed["name"], "shop-eu");
    api.patch(&of_endpoint, r#"{"sources":["shop-eu"]}"#).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_source_is_told() {
    let api = Api::new();
    let body = json!({"name": "Shop", "kind": "stripe", "secrets": [""], "window_s": 0,
        "public_url": "x", "options": {"reject_status": 500}, "more": 1});
    let refused = api.post("/api/v1/sources", &body.to_string()).await;
    assert_eq!((refused.status, refused.slug().as_str()), (422, "invalid"));
    let mut pointers = refused.pointers();
    pointers.sort();
    let expected = ["/more", "/name", "/options/reject_status", "/public_url", "/secrets/0"];
    assert_eq!(pointers, [&expected[..], &["/window_s"]].concat());
    for (path, body) in [("/api/v1/sources", "["), ("/api/v1/sources", "")] {
        assert_eq!(api.post(path, body).await.slug(), "malformed-json");
    }
    let bare = api.raw("POST", "/api/v1/sources", &[], b"{}").await;
    assert_eq!(bare.status, 401);
}

#[tokio::test]
async fn case_089_white_space_around_a_secret_is_told() {
    let api = Api::new();
    for secret in ["whsec_a\n", "whsec_a\r\n", "whsec_a ", "\twhsec_a"] {
        let body = json!({"name": "shop", "kind": "stripe", "secrets": ["whsec_a", secret]});
        let made = api.source(&body).await;
        assert_eq!(made["warnings"][0]["pointer"], "/secrets/1", "{secret:?}");
        let path = format!("/api/v1/sources/{}", text(&made["id"]));
        let mended = api.patch(&path, r#"{"secrets":["whsec_a"]}"#).await.expect(StatusCode::OK);
        assert_eq!(mended["warnings"], json!([]));
        assert_eq!(api.send("DELETE", &path, &[], b"").await.status, 204);
    }
}

#[tokio::test]
async fn a_url_begins_as_the_installation_says_or_as_it_was_called() {
    let body = json!({"name": "shop", "kind": "none"}).to_string();
    let host = [("host", "127.0.0.1:8080"), ("x-forwarded-host", "evil.example")];
    let api = Api::new();
    let made = api.send("POST", "/api/v1/sources", &host, body.as_bytes()).await;
    let made = made.expect(StatusCode::CREATED);
    let id = text(&made["id"]);
    assert_eq!(made["ingest_url"], format!("http://127.0.0.1:8080/in/{id}"));
    let api = Api::with(|settings| {
        settings.public_url = Some("https://hooks.example.com/".parse().expect("legal"));
    });
    let made = api.send("POST", "/api/v1/sources", &host, body.as_bytes()).await;
    let made = made.expect(StatusCode::CREATED);
    let id = text(&made["id"]);
    assert_eq!(made["ingest_url"], format!("https://hooks.example.com/in/{id}"));
}

#[tokio::test]
async fn credentials_in_a_public_url_are_masked_and_kept() {
    let api = Api::new();
    let url = "https://user:hunter2@hooks.example.com/x";
    let made = api.source(&json!({"name": "shop", "kind": "none", "public_url": url})).await;
    assert_eq!(made["public_url"], "https://***:***@hooks.example.com/x");
    let path = format!("/api/v1/sources/{}", text(&made["id"]));
    let back = json!({ "public_url": made["public_url"] }).to_string();
    assert_eq!(api.patch(&path, &back).await.pointers(), ["/public_url"]);
    let changed = api.patch(&path, r#"{"window_s":60}"#).await.expect(StatusCode::OK);
    assert_eq!(changed["public_url"], made["public_url"]);
}

#[tokio::test]
async fn a_key_makes_one_source() {
    let api = Api::new();
    let body = json!({"name": "shop", "kind": "stripe", "secrets": ["whsec_hunter2"]}).to_string();
    let first = api.post_keyed("/api/v1/sources", "k", &body).await;
    first.expect(StatusCode::CREATED);
    let again = api.post_keyed("/api/v1/sources", "k", &body).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(api.rows("/api/v1/sources").await.len(), 1);
}

#[tokio::test]
async fn lists_of_sources_page_newest_first() {
    let api = Api::new();
    let mut ids = Vec::new();
    for name in ["b", "c", "a", "e", "d"] {
        ids.push(text(&api.source(&json!({"name": name, "kind": "none"})).await["id"]));
        api.advance_ms(1);
    }
    ids.reverse();
    assert_eq!(api.list("/api/v1/sources?limit=2").await, ids);
}

#[tokio::test]
async fn stored_settings_that_cannot_be_used_answer_503_until_they_are_mended() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    let path = format!("/api/v1/sources/{source}");
    let api = api.restart_after(|database| {
        let changed = database.execute("UPDATE sources SET settings = 'hunter2'", []);
        assert_eq!(changed, Ok(1));
    });
    let shown = api.get(&path).await.expect(StatusCode::OK);
    assert!(shown["unusable"].as_str().is_some_and(|why| !why.contains("hunter2")), "{shown}");
    let reply = api.signed(&source, b"{}").await;
    assert_eq!((reply.status, reply.slug().as_str()), (503, "source-not-ready"));
    assert!(reply.header("retry-after").is_some());
    let shown = api.get(&path).await.expect(StatusCode::OK);
    assert_eq!(shown["rejected"]["misconfigured"], 1);
    let whole = json!({"name": "shop", "kind": "stripe", "secrets": [SECRET]}).to_string();
    let mended = api.patch(&path, &whole).await.expect(StatusCode::OK);
    assert_eq!(mended.get("unusable"), None);
    assert_eq!(api.signed(&source, b"{}").await.status, 200);
}

#[tokio::test]
async fn a_preview_shows_keys_and_verdict_and_stores_nothing() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    let path = format!("/api/v1/sources/{source}/preview");
    let body = r#"{"id":"evt_1","type":"invoice.paid"}"#;
    let signature = stripe_signature(SECRET, api.now(), body.as_bytes());
    let headers = json!({"Stripe-Signature": signature, "Host": "x", "X-A": ["1", "2"]});
    let ask = |more: Value| {
        let mut request = json!({"headers": headers, "body": body});
        let members = request.as_object_mut().expect("an object");
        members.extend(more.as_object().expect("an object").clone());
        request.to_string()
    };
    let shown = api.post(&path, &ask(json!({}))).await.expect(StatusCode::OK);
    assert_eq!((&shown["verified"], &shown["rejected"]), (&json!(true), &Value::Null));
    let event = &shown["events"][0];
    let found = ["type", "key", "key_from", "other_content"].map(|name| text(&event[name]));
    assert_eq!(found, ["shop.invoice.paid", "evt_1", "kind", "duplicate"]);
    assert_eq!(event["data"], json!({"id": "evt_1", "type": "invoice.paid"}));
    let forwarded = json!({"stripe-signature": signature, "x-a": "1, 2",
        "x-message-received-method": "POST", "x-message-received-url": format!("/in/{source}")});
    assert_eq!(shown["forwarded_headers"], forwarded);
    let answer = &shown["answer"];
    assert_eq!(
        (&answer["status"], &answer["body"]),
        (&json!(200), &json!(r#"{"status":"accepted"}"#))
    );

    let bytes = STANDARD.encode(body);
    let same = json!({"headers": headers, "body_base64": bytes}).to_string();
    assert_eq!(api.post(&path, &same).await.expect(StatusCode::OK), shown);
    let late = ask(json!({"now": "2026-01-01T01:00:00Z"}));
    let late = api.post(&path, &late).await.expect(StatusCode::OK);
    assert_eq!((&late["verified"], &late["rejected"]["cause"]), (&json!(false), &json!("stale")));
    assert_eq!(
        (&late["answer"]["status"], &late["events"][0]["key"]),
        (&json!(401), &json!("evt_1"))
    );
    let unsigned = api.post(&path, &json!({ "body": body }).to_string()).await;
    let unsigned = unsigned.expect(StatusCode::OK);
    assert_eq!(unsigned["rejected"]["cause"], "signature");
    assert_eq!(unsigned["events"][0]["key_from"], "kind");
    let method = api.post(&path, r#"{"method":"GET"}"#).await.expect(StatusCode::OK);
    assert_eq!(method["answer"]["status"], 405);

    assert!(api.list("/api/v1/receipts").await.is_empty());
    let read = api.get(&format!("/api/v1/sources/{source}")).await.expect(StatusCode::OK);
    assert_eq!(read["rejected"]["last"], Value::Null, "nothing is counted");
    let wrong = json!({"headers": {"a b": "x", "x-b": "1\n2", "x-c": 1}, "url": "a b", "now": "x",
        "method": " ", "body": "x", "body_base64": "x", "more": 1});
    let refused = api.post(&path, &wrong.to_string()).await;
    let mut pointers = refused.pointers();
    pointers.sort();
    pointers.dedup();
    let expected = ["/body_base64", "/headers/a b", "/headers/x-b", "/headers/x-c", "/method"];
    assert_eq!(pointers, [&expected[..], &["/more", "/now", "/url"]].concat());
}

#[tokio::test]
async fn an_own_rule_is_tried_before_it_is_trusted() {
    let api = Api::new();
    let body =
        json!({"name": "calls", "kind": "none", "dedupe": {"pointers": ["/callId", "/event"]}});
    let source = api.source(&body).await;
    let path = format!("/api/v1/sources/{}/preview", text(&source["id"]));
    for (body, key, from, failed) in [
        (r#"{"callId":7,"event":"ended"}"#, Some("7:ended"), "pointers /callId /event", None),
        (r#"{"other":1}"#, None, "fallback", Some("/callId")),
        (r#"{"callId":7,"event":null}"#, None, "fallback", Some("/event")),
    ] {
        let shown = api.post(&path, &json!({ "body": body }).to_string()).await;
        let event = shown.expect(StatusCode::OK)["events"][0].clone();
        assert_eq!(event["key_from"], from);
        let said = event["dedupe_failed"].as_str();
        assert_eq!(said.is_some(), failed.is_some(), "{event}");
        assert!(failed.is_none_or(|failed| said.is_some_and(|said| said.contains(failed))));
        assert!(key.is_none_or(|key| event["key"] == key), "{event}");
        assert_eq!(event["other_content"], "conflict");
    }
}
