//! Making, reading and deleting tenants.

use everhook_store::{JobStep, Jobs};
use http::StatusCode;
use serde_json::json;

use crate::harness::{Api, Reply, text};

const PATH: &str = "/api/v1/tenants";

async fn in_tenant(api: &Api, tenant: &str, method: &str, path: &str, body: &str) -> Reply {
    api.send(method, path, &[("everhook-tenant", tenant)], body.as_bytes()).await
}

async fn erase(api: &Api) {
    while api.store.step(api.now()).await.expect("a step") == JobStep::More {}
}

#[tokio::test]
async fn a_tenant_is_made_read_and_listed() {
    let api = Api::new();
    api.advance_ms(5);
    let made = api.post(PATH, r#"{"id":"shop","name":"K\u00e4se & Co"}"#).await;
    let made = made.expect(StatusCode::CREATED);
    let created_at = "2026-01-01T00:00:00.005Z";
    let expected = json!({"id": "shop", "name": "Käse & Co", "created_at": created_at});
    assert_eq!(made, expected);
    assert_eq!(api.get("/api/v1/tenants/shop").await.expect(StatusCode::OK), expected);
    api.advance_ms(5);
    let chosen = api.post(PATH, r#"{"name":"x","id":null}"#).await.expect(StatusCode::CREATED);
    let chosen = text(&chosen["id"]);
    assert!(chosen.starts_with("ten_") && chosen.len() == 30, "{chosen}");
    let used = in_tenant(&api, &chosen, "POST", "/api/v1/events", r#"{"type":"a","data":1}"#).await;
    used.expect(StatusCode::ACCEPTED);
    let all = api.list(PATH).await;
    assert_eq!(all.len(), 3);
    // The default tenant is as old as the store, which has a clock of its own here.
    let made: Vec<_> = all.iter().filter(|id| *id != "default").collect();
    assert_eq!(made, [&chosen, "shop"], "newest first");
    for limit in 1..=4 {
        assert_eq!(api.list(&format!("{PATH}?limit={limit}")).await, all, "{limit}");
    }
}

#[tokio::test]
async fn tenants_of_one_instant_are_all_listed() {
    let api = Api::new();
    api.advance_ms(1);
    for number in 0..20 {
        api.create_tenant(&format!("t{number}")).await;
    }
    let mut all = api.list(&format!("{PATH}?limit=3")).await;
    assert_eq!(all.len(), 21);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 21, "each of them once");
}

#[tokio::test]
async fn what_is_wrong_with_a_tenant_is_told() {
    let api = Api::new();
    api.create_tenant("shop").await;
    for (body, status, slug, pointers) in [
        (r#"{"name":"x","id":"shop"}"#, 409, "name-taken", &[][..]),
        (r#"{"name":"x","id":"default"}"#, 409, "name-taken", &[]),
        (r#"{"id":"Shop","x":1}"#, 422, "invalid", &["/x", "/id", "/name"]),
        (r#"{"id":"","name":" "}"#, 422, "invalid", &["/id", "/name"]),
        (r#"{"id":7,"name":7}"#, 422, "invalid", &["/id", "/name"]),
        (r#"{"name":"a\nb"}"#, 422, "invalid", &["/name"]),
        ("", 400, "malformed-json", &[]),
    ] {
        let reply = api.post(PATH, body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (status, slug), "{body}");
        assert_eq!(reply.pointers(), pointers, "{body}");
    }
    for (method, path) in [
        ("GET", "/api/v1/tenants/nobody"),
        ("DELETE", "/api/v1/tenants/nobody"),
        ("GET", "/api/v1/tenants/N%20O"),
    ] {
        let reply = api.send(method, path, &[], b"").await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "unknown-tenant"), "{path}");
    }
    let reply = api.send("PATCH", "/api/v1/tenants/shop", &[], b"{}").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET,HEAD,DELETE")));
    for (method, path) in [
        ("POST", PATH),
        ("GET", PATH),
        ("GET", "/api/v1/tenants/shop"),
        ("DELETE", "/api/v1/tenants/shop"),
    ] {
        assert_eq!(api.raw(method, path, &[], b"").await.status, 401, "{method} {path}");
    }
}

#[tokio::test]
async fn a_tenant_is_made_once_under_a_key() {
    let api = Api::new();
    let first = api.post_keyed(PATH, "k", r#"{"name":"x"}"#).await;
    first.expect(StatusCode::CREATED);
    let again = api.post_keyed(PATH, "k", r#"{"name":"x"}"#).await;
    assert_eq!((again.status, again.body), (201, first.body.clone()));
    assert_eq!(api.list(PATH).await.len(), 2);
}

#[tokio::test]
async fn a_deleted_tenant_is_gone_at_once_and_its_id_free_when_it_is_erased() {
    let api = Api::new();
    api.create_tenant("shop").await;
    let endpoint = r#"{"url":"https://a.example"}"#;
    let made = in_tenant(&api, "shop", "POST", "/api/v1/endpoints", endpoint).await;
    let id = text(&made.expect(StatusCode::CREATED)["id"]);
    let event = r#"{"type":"a","data":1,"source_event_id":"s"}"#;
    let sent = in_tenant(&api, "shop", "POST", "/api/v1/events", event).await;
    let event_id = text(&sent.expect(StatusCode::ACCEPTED)["id"]);
    let deleted = api.send("DELETE", "/api/v1/tenants/shop", &[], b"").await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    for (method, path, body) in [
        ("POST", "/api/v1/events".to_owned(), event),
        ("GET", "/api/v1/events".to_owned(), ""),
        ("GET", format!("/api/v1/events/{event_id}"), ""),
        ("GET", format!("/api/v1/endpoints/{id}"), ""),
        ("POST", format!("/api/v1/endpoints/{id}/enable"), ""),
        ("GET", "/api/v1/deliveries".to_owned(), ""),
    ] {
        let reply = in_tenant(&api, "shop", method, &path, body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "unknown-tenant"), "{path}");
    }
    let again = api.send("DELETE", "/api/v1/tenants/shop", &[], b"").await;
    assert_eq!((again.status, again.slug().as_str()), (404, "unknown-tenant"));
    assert_eq!(api.list(PATH).await, ["default"]);
    let waits = api.post(PATH, r#"{"id":"shop","name":"x"}"#).await;
    assert_eq!((waits.status, waits.slug().as_str()), (409, "still-erasing"));
    assert_eq!(waits.header("retry-after"), Some("1"));
    assert!(text(&waits.json()["detail"]).contains("still being erased"));
    erase(&api).await;
    api.post(PATH, r#"{"id":"shop","name":"x"}"#).await.expect(StatusCode::CREATED);
    for (path, what) in [("endpoints", &id), ("events", &event_id)] {
        let reply = in_tenant(&api, "shop", "GET", &format!("/api/v1/{path}/{what}"), "").await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"));
    }
    let sent = in_tenant(&api, "shop", "POST", "/api/v1/events", event).await;
    assert_eq!(sent.expect(StatusCode::ACCEPTED)["duplicate"], false);
}

#[tokio::test]
async fn the_default_tenant_stays() {
    let api = Api::new();
    let refused = api.send("DELETE", "/api/v1/tenants/default", &[], b"").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "default-tenant"));
    assert!(text(&refused.json()["detail"]).contains("requests that name no tenant"));
    api.event("a").await;
}
