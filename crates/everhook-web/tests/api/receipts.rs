//! Receipts: listed, read, decided about.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, text};

/// An open source with an endpoint, a receipt that was accepted and one in conflict with it.
async fn with_conflict() -> (Api, String, String) {
    let api = Api::new();
    api.source(&json!({"name": "open", "kind": "none"})).await;
    let endpoint = json!({"url": "https://example.com/", "event_types": [], "sources": ["open"]});
    api.post("/api/v1/endpoints", &endpoint.to_string()).await.expect(StatusCode::CREATED);
    for body in [b"one", b"two"] {
        let reply = api.raw("POST", "/in/open", &[("idempotency-key", "k")], body).await;
        reply.expect(StatusCode::OK);
        api.advance_ms(1);
    }
    let ids = api.list("/api/v1/receipts").await;
    let [conflict, accepted] = <[String; 2]>::try_from(ids).expect("two receipts");
    (api, accepted, conflict)
}

#[tokio::test]
async fn receipts_are_listed_and_filtered() {
    let (api, accepted, conflict) = with_conflict().await;
    let other = api.source(&json!({"name": "other", "kind": "none"})).await;
    for _ in 0..3 {
        api.raw("POST", "/in/other", &[], b"x").await.expect(StatusCode::OK);
    }
    api.advance_ms(2_000);
    let others = api.list("/api/v1/receipts?source=other").await;
    let [theirs] = &others[..] else { panic!("{others:?}") };
    let all = [theirs.clone(), conflict.clone(), accepted.clone()];
    for (query, expected) in [
        ("", &all[..]),
        ("?limit=1", &all),
        ("?source=open", &all[1..]),
        (&format!("?source={}", text(&other["id"])), &all[..1]),
        ("?status=conflict", &all[1..2]),
        ("?status=accepted&source=open", &all[2..]),
        ("?status=dead", &[]),
        ("?duplicates_min=2", &all[..1]),
        ("?duplicates_min=3", &[]),
    ] {
        assert_eq!(api.list(&format!("/api/v1/receipts{query}")).await, expected, "{query}");
    }
    for query in ["source=x", "status=x", "duplicates_min=-1", "more=1", "limit=0"] {
        let refused = api.get(&format!("/api/v1/receipts?{query}")).await;
        assert_eq!(
            (refused.status, refused.slug().as_str()),
            (400, "invalid-parameter"),
            "{query}"
        );
    }
    let read = api.get(&format!("/api/v1/receipts/{theirs}")).await.expect(StatusCode::OK);
    assert_eq!((&read["duplicates"], &read["body_changed"]), (&json!(2), &json!(false)));
    for path in ["/api/v1/receipts/x", "/api/v1/receipts/rcp_00000000000000000000000000"] {
        let missing = api.get(path).await;
        assert_eq!((missing.status, missing.slug().as_str()), (404, "not-found"));
    }
}

#[tokio::test]
async fn a_conflict_is_released_once() {
    let (api, accepted, conflict) = with_conflict().await;
    let read = api.get(&format!("/api/v1/receipts/{conflict}")).await.expect(StatusCode::OK);
    assert_eq!(
        (&read["reason"], &read["conflicts_with"]),
        (&json!("other_content"), &json!(accepted))
    );
    let path = format!("/api/v1/receipts/{conflict}/release");
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 1);
    let released = api.post_keyed(&path, "k", "").await;
    let shown = released.expect(StatusCode::OK);
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("accepted"), &json!("other_content")));
    assert_ne!(shown["released_at"], Value::Null);
    let again = api.post_keyed(&path, "k", "").await;
    assert_eq!((&again.body, again.header("idempotency-replayed")), (&released.body, Some("true")));
    api.post(&path, "").await.expect(StatusCode::OK);
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 2, "however often it is asked for");
    let refused = api.post(&format!("/api/v1/receipts/{conflict}/discard"), "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "receipt-state"));
}

#[tokio::test]
async fn a_conflict_is_discarded() {
    let (api, _, conflict) = with_conflict().await;
    let path = format!("/api/v1/receipts/{conflict}");
    let force = api.post(&format!("{path}/force"), "").await;
    assert_eq!((force.status, force.slug().as_str()), (409, "receipt-state"));
    let shown = api.post(&format!("{path}/discard"), "{}").await.expect(StatusCode::OK);
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("dead"), &json!("discarded")));
    let release = api.post(&format!("{path}/release"), "").await;
    assert_eq!((release.status, release.slug().as_str()), (409, "receipt-state"));
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 1);
}

#[tokio::test]
async fn what_was_accepted_is_forced_to_run_again() {
    let (api, accepted, _) = with_conflict().await;
    let endpoint = api.list("/api/v1/endpoints").await.remove(0);
    assert_eq!(api.deliver(&endpoint, &crate::harness::answered(200)).await, 1);
    let path = format!("/api/v1/receipts/{accepted}");
    let read = api.get(&path).await.expect(StatusCode::OK);
    assert_ne!(read["processed_at"], Value::Null);
    let forced = api.post(&format!("{path}/force"), "").await.expect(StatusCode::ACCEPTED);
    assert_eq!((&forced["id"], &forced["deliveries"]), (&json!(accepted), &json!(1)));
    assert_eq!(api.deliver(&endpoint, &crate::harness::answered(200)).await, 1);
    let refused = api.post(&format!("{path}/force"), r#"{"x":1}"#).await;
    assert_eq!((refused.status, refused.slug().as_str()), (422, "invalid"));
}
