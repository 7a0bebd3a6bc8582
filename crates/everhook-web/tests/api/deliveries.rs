//! Reading, sending again, cancelling, taking note.

use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_domain::budget::Budget;
use everhook_store::{Sending, Wanted};
use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, answered, text};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// A dead delivery: its id, and its endpoint's.
async fn dead(api: &Api) -> (String, String) {
    let endpoint = api.endpoint().await;
    api.event("a").await;
    for _ in 0..7 {
        assert_eq!(api.deliver(&endpoint, &answered(500)).await, 1);
        api.advance_ms(DAY_MS);
    }
    (api.list("/api/v1/deliveries").await.remove(0), endpoint)
}

async fn read(api: &Api, id: &str) -> Value {
    api.get(&format!("/api/v1/deliveries/{id}")).await.expect(StatusCode::OK)
}

#[tokio::test]
async fn the_shape_of_a_delivery_that_waits() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let event = api.event("invoice.paid").await;
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let mut expected = json!({
        "id": id,
        "event_id": event,
        "endpoint_id": endpoint,
        "type": "invoice.paid",
        "status": "due",
        "round": 1,
        "attempt_count": 0,
        "interruptions": 0,
        "created_at": "2026-01-01T00:00:00.000Z",
        "next_attempt_at": "2026-01-01T00:00:00.000Z",
        "acknowledged_at": null,
    });
    let list = api.get("/api/v1/deliveries").await.json();
    assert_eq!(list["data"], json!([expected]));
    expected["attempts"] = json!([]);
    assert_eq!(read(&api, &id).await, expected);
}

/// Every text in it that is a time, by the name of its member.
fn times(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(time) if name.ends_with("_at") || name == "timestamp" => {
                        found.push(time.clone());
                    }
                    other => times(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| times(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn case_107_times_carry_their_zone_and_the_next_attempt_is_when_it_says() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let event = api.event("a").await;
    assert_eq!(api.deliver(&endpoint, &answered(500)).await, 1);
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let mut found = Vec::new();
    for path in [
        format!("/api/v1/deliveries/{id}"),
        format!("/api/v1/events/{event}"),
        format!("/api/v1/endpoints/{endpoint}"),
    ] {
        times(&api.get(&path).await.expect(StatusCode::OK), &mut found);
    }
    assert!(found.len() >= 6, "{found:?}");
    for time in &found {
        assert!(time.len() == 24 && time.ends_with('Z'), "{time} is UTC and says so");
    }
    assert_eq!(read(&api, &id).await["next_attempt_at"], "2026-01-01T00:01:00.000Z");
    api.advance_ms(60_000 - 1);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 0, "not a millisecond earlier");
    api.advance_ms(1);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 1);
    let attempts = &read(&api, &id).await["attempts"];
    assert_eq!(attempts[1]["started_at"], "2026-01-01T00:01:00.000Z");
}

#[tokio::test]
async fn what_a_due_delivery_waits_for() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    api.event("a").await;
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let path = format!("/api/v1/endpoints/{endpoint}");
    api.advance_ms(249);
    assert_eq!(read(&api, &id).await.get("waiting_for"), None, "not late yet");
    api.advance_ms(1);
    assert_eq!(read(&api, &id).await["waiting_for"], "slot");
    api.patch(&path, r#"{"requests_per_second":1}"#).await.expect(StatusCode::OK);
    assert_eq!(read(&api, &id).await["waiting_for"], "rate");
    api.post(&format!("{path}/pause"), "").await.expect(StatusCode::OK);
    assert_eq!(read(&api, &id).await["waiting_for"], "paused");
    api.post(&format!("{path}/resume"), "").await.expect(StatusCode::OK);
    api.deliver(&endpoint, &answered(500)).await;
    let later = read(&api, &id).await;
    assert_eq!(later.get("waiting_for"), None, "its time has not come");
    assert_eq!(later["next_attempt_at"], "2026-01-01T00:01:00.250Z");
}

#[tokio::test]
async fn attempts_are_shown_as_they_went() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    api.event("a").await;
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let mut asked = answered(500);
    asked.retry_after = Some(Duration::from_secs(30));
    api.deliver(&endpoint, &asked).await;
    api.advance_ms(60_000);
    let mut reset = AttemptOutcome::failed(ErrorClass::Reset, "the connection was reset");
    reset.resent = true;
    api.deliver(&endpoint, &reset).await;
    api.post(&format!("/api/v1/deliveries/{id}/replay"), "").await.expect(StatusCode::ACCEPTED);
    api.deliver(&endpoint, &answered(204)).await;
    let delivery = read(&api, &id).await;
    assert_eq!((&delivery["status"], &delivery["attempt_count"]), (&json!("delivered"), &json!(3)));
    assert_eq!(delivery["next_attempt_at"], Value::Null);
    let common = |number, at: &str| {
        json!({
            "number": number, "round": 1, "started_at": at, "duration_ms": 12,
            "url": "https://example.com/hook",
        })
    };
    let with = |mut base: Value, rest: Value| {
        for (name, value) in rest.as_object().expect("an object") {
            base[name] = value.clone();
        }
        base
    };
    let headers = json!({"content-type": "text/plain", "via": "a, b"});
    let detail = "the endpoint answered with status 500";
    let first = json!({
        "status_code": 500, "error": {"class": "status", "detail": detail},
        "response_headers": headers, "response_body": "<b>no</b>", "response_truncated": true,
        "retry_after_ms": 30_000, "trigger": "schedule",
    });
    let second = json!({
        "error": {"class": "reset", "detail": "the connection was reset"}, "resent": true,
        "trigger": "schedule",
    });
    let third = json!({
        "status_code": 204, "response_headers": headers, "response_body": "<b>no</b>",
        "trigger": "replay",
    });
    let late = "2026-01-01T00:01:00.000Z";
    let expected = [
        with(common(1, "2026-01-01T00:00:00.000Z"), first),
        with(common(2, late), second),
        with(common(3, late), third),
    ];
    assert_eq!(delivery["attempts"], json!(expected));
}

#[tokio::test]
async fn a_leased_delivery_has_no_next_time() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    api.event("a").await;
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let wanted = Wanted {
        endpoint: endpoint.parse().expect("an id"),
        fresh: 1,
        retry: 0,
        suspect: 0,
        held: 0,
    };
    api.store.claim(vec![wanted], Budget::new(usize::MAX), api.now()).await.expect("a claim");
    let delivery = read(&api, &id).await;
    assert_eq!(
        (&delivery["status"], &delivery["next_attempt_at"]),
        (&json!("leased"), &Value::Null)
    );
    assert_eq!(delivery.get("waiting_for"), None);
    let cancelled = api.post(&format!("/api/v1/deliveries/{id}/cancel"), "").await;
    assert_eq!(cancelled.expect(StatusCode::OK)["status"], "leased", "when its attempt fails");
}

#[tokio::test]
async fn a_dead_delivery_is_acknowledged_and_replayed() {
    let api = Api::new();
    let (id, endpoint) = dead(&api).await;
    let delivery = read(&api, &id).await;
    assert_eq!((&delivery["status"], &delivery["reason"]), (&json!("dead"), &json!("exhausted")));
    assert_eq!(
        (&delivery["attempt_count"], &delivery["acknowledged_at"]),
        (&json!(7), &Value::Null)
    );
    let path = format!("/api/v1/deliveries/{id}");
    let noted = api.post(&format!("{path}/acknowledge"), "").await.expect(StatusCode::OK);
    let at = noted["acknowledged_at"].clone();
    assert!(at.is_string());
    api.advance_ms(1);
    let again = api.post(&format!("{path}/acknowledge"), "").await.expect(StatusCode::OK);
    assert_eq!(again["acknowledged_at"], at);
    let refused = api.post(&format!("{path}/cancel"), "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "delivery-ended"));
    let replayed = api.post(&format!("{path}/replay"), "").await.expect(StatusCode::ACCEPTED);
    assert_eq!((&replayed["status"], &replayed["round"]), (&json!("due"), &json!(2)));
    assert_eq!(replayed.get("attempts"), None);
    api.deliver(&endpoint, &answered(200)).await;
    let delivery = read(&api, &id).await;
    assert_eq!((&delivery["status"], &delivery["attempt_count"]), (&json!("delivered"), &json!(8)));
    let refused = api.post(&format!("{path}/acknowledge"), "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "delivery-not-dead"));
}

#[tokio::test]
async fn case_073_only_the_named_delivery_is_cancelled() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    for _ in 0..3 {
        api.event("a").await;
    }
    let ids = api.list("/api/v1/deliveries").await;
    let before = [read(&api, &ids[0]).await, read(&api, &ids[2]).await];
    let path = format!("/api/v1/deliveries/{}/cancel", ids[1]);
    let cancelled = api.post(&path, "").await.expect(StatusCode::OK);
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled["reason"], "requested");
    assert_eq!([read(&api, &ids[0]).await, read(&api, &ids[2]).await], before);
    let refused = api.post(&path, "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "delivery-ended"));
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 2);
}

#[tokio::test]
async fn case_056_every_delivery_is_under_exactly_one_status() {
    let api = Api::new();
    let (dead, endpoint) = dead(&api).await;
    let other = api.endpoint().await;
    let event = api.event("b").await;
    let path = format!("/api/v1/deliveries?event_id={event}&endpoint_id={other}");
    let due = api.list(&path).await;
    assert_eq!(due.len(), 1);
    api.deliver(&endpoint, &answered(200)).await;
    let mut found = Vec::new();
    for status in ["due", "leased", "delivered", "dead", "cancelled"] {
        found.extend(api.list(&format!("/api/v1/deliveries?status={status}&limit=1")).await);
    }
    let mut all = api.list("/api/v1/deliveries").await;
    found.sort_unstable();
    all.sort_unstable();
    assert_eq!((found.len(), found), (3, all));
    let path = format!("/api/v1/deliveries?status=dead&endpoint_id={endpoint}&type=a");
    assert_eq!(api.list(&path).await, [dead]);
    assert!(api.list(&format!("{path}&from=2026-01-01T00:00:00.001Z")).await.is_empty());
    assert!(
        api.list("/api/v1/deliveries?endpoint_id=ep_00000000000000000000000000").await.is_empty()
    );
}

#[tokio::test]
async fn case_104_a_disabled_endpoint_refuses_replays() {
    let api = Api::new();
    let (id, endpoint) = dead(&api).await;
    api.post(&format!("/api/v1/endpoints/{endpoint}/disable"), "").await.expect(StatusCode::OK);
    let refused = api.post(&format!("/api/v1/deliveries/{id}/replay"), "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "endpoint-disabled"));
    assert!(text(&refused.json()["detail"]).contains("enable"));
    assert_eq!(read(&api, &id).await["status"], "dead");
}
