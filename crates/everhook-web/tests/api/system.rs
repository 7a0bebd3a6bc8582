//! What is shown of an endpoint's health, of its being disabled, and of system events.

use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_store::{JobStep, Jobs};
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};

fn health(consecutive_failures: u32, failing_since: Value) -> Value {
    let status = if failing_since.is_null() { "healthy" } else { "failing" };
    json!({
        "status": status,
        "consecutive_failures": consecutive_failures,
        "failing_since": failing_since,
    })
}

async fn fail(api: &Api, endpoint: &str, times: usize, outcome: &AttemptOutcome) {
    for _ in 0..times {
        api.event("invoice.paid").await;
        assert_eq!(api.deliver(endpoint, outcome).await, 1);
    }
}

#[tokio::test]
async fn health_is_shown_wherever_an_endpoint_is() {
    let api = Api::new();
    let id = api.endpoint().await;
    let path = format!("/api/v1/endpoints/{id}");
    fail(&api, &id, 4, &answered(500)).await;
    assert_eq!(api.get(&path).await.json()["health"], health(4, Value::Null));
    fail(&api, &id, 1, &answered(410)).await;
    let failing = health(5, json!("2026-01-01T00:00:00.000Z"));
    assert_eq!(api.get(&path).await.json()["health"], failing);
    assert_eq!(api.get("/api/v1/endpoints").await.json()["data"][0]["health"], failing);
    for verb in ["pause", "resume", "rotate-secret", "disable"] {
        let shown = api.post(&format!("{path}/{verb}"), "").await.expect(StatusCode::OK);
        assert_eq!(shown["health"], failing, "{verb}");
    }
    assert_eq!(api.patch(&path, r#"{"description":"x"}"#).await.json()["health"], failing);
    while api.store.step(api.now()).await.expect("a step") == JobStep::More {}
    let enabled = api.post(&format!("{path}/enable"), "").await.expect(StatusCode::OK);
    assert_eq!(enabled["health"], health(0, Value::Null));
    assert_eq!(api.get(&path).await.json()["health"], health(0, Value::Null));
    fail(&api, &id, 1, &answered(500)).await;
    fail(&api, &id, 1, &answered(200)).await;
    assert_eq!(api.get(&path).await.json()["health"], health(0, Value::Null));
}

#[tokio::test]
async fn a_disabled_endpoint_says_since_when_and_why() {
    let api = Api::new();
    let id = api.endpoint().await;
    let path = format!("/api/v1/endpoints/{id}");
    api.advance_ms(1_000);
    let disabled = api.post(&format!("{path}/disable"), "").await.expect(StatusCode::OK);
    for shown in [&disabled, &api.get(&path).await.json()] {
        assert_eq!(shown["disabled_at"], "2026-01-01T00:00:01.000Z");
        assert_eq!(shown["disabled_reason"], "requested");
    }
    let enabled = api.post(&format!("{path}/enable"), "").await.expect(StatusCode::OK);
    assert_eq!((&enabled["disabled_at"], &enabled["disabled_reason"]), {
        (&Value::Null, &Value::Null)
    });
}

/// An endpoint that never answers, one with 404, one that resets: a failure with its class, in the
/// attempt, in the endpoint's health and in the system event.
#[tokio::test]
async fn case_075_a_failure_is_one_everywhere() {
    let timeout = AttemptOutcome::failed(ErrorClass::Timeout, "no answer");
    let reset = AttemptOutcome::failed(ErrorClass::Reset, "the connection ended");
    for (outcome, class) in [(timeout, "timeout"), (answered(404), "status"), (reset, "reset")] {
        let api = Api::new();
        let id = api.endpoint().await;
        fail(&api, &id, 5, &outcome).await;
        let deliveries = api.list(&format!("/api/v1/deliveries?endpoint_id={id}")).await;
        assert_eq!(deliveries.len(), 5);
        let delivery = api.get(&format!("/api/v1/deliveries/{}", deliveries[0])).await.json();
        assert_eq!(delivery["attempts"][0]["error"]["class"], class);
        assert_eq!(delivery["status"], "due");
        let shown = api.get(&format!("/api/v1/endpoints/{id}")).await.json();
        assert_eq!(shown["health"]["status"], "failing");
        let failing = api.list("/api/v1/events?type=everhook.endpoint.failing").await;
        let event = api.get(&format!("/api/v1/events/{}", failing[0])).await.json();
        assert_eq!(text(&event["data"]["last_attempt"]["error_class"]), class);
        assert_eq!(event["data"]["endpoint_id"], id);
    }
}
