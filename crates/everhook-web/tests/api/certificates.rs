//! The member `ca_certificates` of an endpoint.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, text};

const AUTHORITY: &str = include_str!("../../../everhook-domain/tests/data/authority.pem");

fn endpoint(url: &str, certificates: &Value) -> String {
    json!({"url": url, "ca_certificates": certificates}).to_string()
}

#[tokio::test]
async fn certificates_are_shown_as_they_were_given_kept_and_removed() {
    let api = Api::new();
    let given = format!("# ours\n{AUTHORITY}");
    let body = endpoint("https://example.com/", &json!(given));
    let made = api.post("/api/v1/endpoints", &body).await.expect(StatusCode::CREATED);
    assert_eq!(made["ca_certificates"], given);
    let path = format!("/api/v1/endpoints/{}", text(&made["id"]));
    for (change, expected) in [
        (r#"{"description":"x"}"#, json!(given)),
        (r#"{"ca_certificates":null}"#, Value::Null),
        (r#"{"url":"http://example.com/"}"#, Value::Null),
    ] {
        let changed = api.patch(&path, change).await.expect(StatusCode::OK);
        assert_eq!(changed["ca_certificates"], expected, "{change}");
        assert_eq!(api.get(&path).await.expect(StatusCode::OK)["ca_certificates"], expected);
    }
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_by_name() {
    let api = Api::new();
    let key = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----";
    let no_x509 = AUTHORITY.replacen("MII", "MIII", 1);
    for (certificates, detail) in [
        (json!(7), "must be a string"),
        (json!(""), "holds no certificate"),
        (json!("x".repeat(32_769)), "has 32769 bytes: at most 32768"),
        (json!(key), "holds a private key"),
        (json!(no_x509), "certificate 1 is"),
    ] {
        let body = endpoint("https://example.com/", &certificates);
        let reply = api.post("/api/v1/endpoints", &body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (422, "invalid"));
        assert_eq!(reply.pointers(), ["/ca_certificates"]);
        let shown = reply.json()["errors"][0]["detail"].to_string();
        assert!(shown.contains(detail), "{shown}");
        assert!(!shown.contains("AA=="), "nothing of it is repeated");
    }
}

#[tokio::test]
async fn certificates_that_nobody_would_check_are_refused() {
    let api = Api::new();
    let body = endpoint("http://example.com/", &json!(AUTHORITY));
    let reply = api.post("/api/v1/endpoints", &body).await;
    assert_eq!(reply.pointers(), ["/ca_certificates"]);
    let body = endpoint("https://example.com/", &json!(AUTHORITY));
    let made = api.post("/api/v1/endpoints", &body).await.expect(StatusCode::CREATED);
    let path = format!("/api/v1/endpoints/{}", text(&made["id"]));
    let reply = api.patch(&path, r#"{"url":"http://example.com/"}"#).await;
    assert_eq!(reply.pointers(), ["/ca_certificates"]);
}
