//! `/healthz`, `/readyz`, and paths and methods that are not there.

use http::StatusCode;

use crate::harness::{Api, answered};

#[tokio::test]
async fn alive_and_ready_need_no_credentials() {
    let api = Api::new();
    let alive = api.raw("GET", "/healthz", &[], b"").await;
    assert_eq!(alive.expect(StatusCode::OK)["alive"], true);
    let ready = api.raw("GET", "/readyz", &[], b"").await.expect(StatusCode::OK);
    assert_eq!(
        (ready["ready"].as_bool(), ready["oldest_due_age_ms"].as_i64()),
        (Some(true), Some(0))
    );
}

#[tokio::test]
async fn case_020_an_overdue_delivery_turns_readyz_bad() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    api.event("a").await;
    api.advance_ms(300_000);
    let ready = api.raw("GET", "/readyz", &[], b"").await.expect(StatusCode::OK);
    assert_eq!(ready["oldest_due_age_ms"], 300_000);
    api.advance_ms(1_000);
    let bad = api.raw("GET", "/readyz", &[], b"").await;
    assert_eq!((bad.status, bad.slug().as_str()), (503, "not-ready"));
    assert_eq!(bad.header("retry-after"), Some("5"));
    let reasons = bad.json()["reasons"].to_string();
    assert!(reasons.contains("301 s"), "{reasons}");
    api.deliver(&endpoint, &answered(200)).await;
    api.raw("GET", "/readyz", &[], b"").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn a_closed_store_is_told() {
    let api = Api::new();
    api.store.close();
    let bad = api.raw("GET", "/readyz", &[], b"").await;
    assert_eq!((bad.status, bad.slug().as_str()), (503, "not-ready"));
    assert_eq!(bad.json()["reasons"].as_array().map(Vec::len), Some(1));
    let refused = api.post("/api/v1/events", r#"{"type":"a","data":1}"#).await;
    assert_eq!((refused.status, refused.slug().as_str()), (503, "store-unavailable"));
    assert_eq!(refused.header("retry-after"), Some("5"));
}

#[tokio::test]
async fn paths_and_methods() {
    let api = Api::new();
    for (method, path, status, slug, allow) in [
        ("GET", "/", 404, "unknown-path", None),
        ("GET", "/api/v1/event", 404, "unknown-path", None),
        ("POST", "/api/v1/replay", 404, "unknown-path", None),
        ("GET", "/api/v1/events/", 404, "unknown-path", None),
        ("DELETE", "/api/v1/events", 405, "method-not-allowed", Some("GET,HEAD,POST")),
        ("DELETE", "/api/v1/events/x", 405, "method-not-allowed", Some("GET,HEAD")),
        ("PUT", "/api/v1/endpoints/x", 405, "method-not-allowed", Some("DELETE,GET,HEAD,PATCH")),
        ("GET", "/api/v1/events/batch", 405, "method-not-allowed", Some("POST")),
        ("POST", "/healthz", 405, "method-not-allowed", Some("GET,HEAD")),
    ] {
        let reply = api.send(method, path, &[], b"").await;
        assert_eq!((reply.status, reply.slug().as_str()), (status, slug), "{method} {path}");
        let mut found: Vec<_> = reply.header("allow").unwrap_or_default().split(',').collect();
        found.sort_unstable();
        assert_eq!(found.join(","), allow.unwrap_or_default(), "{method} {path}");
    }
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let api = Api::new();
    for path in ["/healthz", "/api/v1/events"] {
        let (get, head) = (api.get(path).await, api.send("HEAD", path, &[], b"").await);
        assert_eq!((head.status, head.body.len()), (200, 0));
        let length = Some(get.body.len().to_string());
        assert_eq!(head.header("content-length").map(str::to_owned), length);
    }
}

#[tokio::test]
async fn every_answer_has_the_security_headers() {
    let api = Api::new();
    for path in ["/healthz", "/nowhere", "/api/v1/events", "/api/v1/events?x=1"] {
        let reply = api.get(path).await;
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{path}");
        let policy = reply.header("content-security-policy").unwrap_or_default();
        assert!(policy.contains("default-src 'none'"), "{path}");
    }
}
