//! Publishing, reading, sending again.

use http::StatusCode;
use serde_json::{Value, json};

use crate::harness::{Api, text};

const DAY_MS: i64 = 24 * 3_600 * 1_000;

#[tokio::test]
async fn an_event_is_accepted_and_read_back() {
    let api = Api::new();
    api.endpoint().await;
    let data = "{\"b\": 1.0, \"a\":1e2,\"c\":\"\\u00e4\\ud83d \\u001B\",\"b\":0,\"ü\":\"😀\"}";
    let body = format!(
        "\n {{\"data\" :{data} , \"ty\\u0070e\":\"invoice.paid\",\"source_event_id\":\"in-1\",\
         \"timestamp\":\"2026-01-31T14:30:00.5+02:30\"}} "
    );
    let reply = api.post("/api/v1/events", &body).await;
    let accepted = reply.expect(StatusCode::ACCEPTED);
    let id = text(&accepted["id"]);
    let expected = format!(
        "{{\"id\":\"{id}\",\"type\":\"invoice.paid\",\"timestamp\":\"2026-01-31T12:00:00.500Z\",\
         \"duplicate\":false,\"deliveries\":1}}"
    );
    assert_eq!(String::from_utf8_lossy(&reply.body), expected);
    let read = api.get(&format!("/api/v1/events/{id}")).await;
    let body = String::from_utf8(read.body.clone()).expect("UTF-8");
    assert!(body.contains(&format!("\"data\":{data}}}")), "{body}");
    for part in [
        "\"origin\":\"published\"",
        "\"source_event_id\":\"in-1\"",
        "\"created_at\":\"2026-01-01T00:00:00.000Z\"",
        "\"timestamp\":\"2026-01-31T12:00:00.500Z\"",
    ] {
        assert!(body.contains(part), "{body}");
    }
}

#[tokio::test]
async fn what_is_left_out_takes_its_default() {
    let api = Api::new();
    for body in [
        r#"{"type":"a","data":null}"#,
        r#"{"type":"a","data":null,"source_event_id":null,"timestamp":null}"#,
    ] {
        let accepted = api.post("/api/v1/events", body).await.expect(StatusCode::ACCEPTED);
        assert_eq!(accepted["timestamp"], "2026-01-01T00:00:00.000Z");
        assert_eq!(accepted["deliveries"], 0, "nobody wants it, it is accepted all the same");
    }
}

#[tokio::test]
async fn any_json_is_data_with_any_content_type_that_is_json() {
    let api = Api::new();
    let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
    for data in ["null", "0", "-1.5e-300", "\"\\ud800\"", "[]", "{\"\\ud800\":1}", deep.as_str()] {
        for content_type in ["", "application/json", "application/vnd.x+json; charset=utf-8"] {
            let headers = [("content-type", content_type)];
            let headers = if content_type.is_empty() { &[][..] } else { &headers[..] };
            let body = format!(r#"{{"type":"a","data":{data}}}"#);
            let reply = api.send("POST", "/api/v1/events", headers, body.as_bytes()).await;
            reply.expect(StatusCode::ACCEPTED);
        }
    }
}

#[tokio::test]
async fn a_duplicate_is_answered_with_the_first_event() {
    let api = Api::new();
    let first = r#"{"type":"a","data":{"n":1},"source_event_id":"x"}"#;
    let accepted = api.post("/api/v1/events", first).await.expect(StatusCode::ACCEPTED);
    api.advance_ms(DAY_MS - 1);
    let again = api.post("/api/v1/events", first).await.expect(StatusCode::OK);
    let mut expected = accepted.clone();
    expected["duplicate"] = json!(true);
    assert_eq!(again, expected);
    for other in [
        r#"{"type":"b","data":{"n":1},"source_event_id":"x"}"#,
        r#"{"type":"a","data":{"n":2},"source_event_id":"x"}"#,
    ] {
        let differs = api.post("/api/v1/events", other).await.expect(StatusCode::OK);
        assert_eq!((&differs["id"], &differs["differs"]), (&accepted["id"], &json!(true)));
        assert_eq!(differs["type"], "a");
    }
    api.advance_ms(1);
    let new = api.post("/api/v1/events", first).await.expect(StatusCode::ACCEPTED);
    assert_ne!(new["id"], accepted["id"]);
}

#[tokio::test]
async fn the_same_source_event_id_in_two_tenants_is_two_events() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let body = br#"{"type":"a","data":1,"source_event_id":"x"}"#;
    let here = api.send("POST", "/api/v1/events", &[], body).await.expect(StatusCode::ACCEPTED);
    let headers = [("everhook-tenant", "acme")];
    let there = api.send("POST", "/api/v1/events", &headers, body).await;
    let there = there.expect(StatusCode::ACCEPTED);
    assert_ne!(here["id"], there["id"]);
    let path = format!("/api/v1/events/{}", text(&there["id"]));
    assert_eq!(api.get(&path).await.slug(), "not-found", "not the other tenant's");
    assert_eq!(api.list("/api/v1/events").await, [text(&here["id"])]);
}

#[tokio::test]
async fn a_batch_is_all_or_nothing_with_duplicates_in_place() {
    let api = Api::new();
    let body = r#"{"events":[
        {"type":"a","data":1,"source_event_id":"x"},
        {"type":"b","data":2},
        {"type":"a","data":3,"source_event_id":"x"}]}"#;
    let answer = api.post("/api/v1/events/batch", body).await.expect(StatusCode::ACCEPTED);
    let events = answer["events"].as_array().expect("a list");
    assert_eq!(events.len(), 3);
    assert_eq!(events[0]["duplicate"], false);
    assert_eq!(events[2]["duplicate"], true);
    assert_eq!(events[2]["differs"], true);
    assert_eq!(events[2]["id"], events[0]["id"]);
    let mut ids = [text(&events[1]["id"]), text(&events[0]["id"])];
    assert_eq!(api.list("/api/v1/events").await, ids);
    ids.sort_unstable();
    assert_eq!(ids, [text(&events[0]["id"]), text(&events[1]["id"])], "ids rise in order");

    let many: Vec<Value> = (0..1_000).map(|n| json!({"type": "a", "data": n})).collect();
    let body = json!({ "events": many }).to_string();
    let answer = api.post("/api/v1/events/batch", &body).await.expect(StatusCode::ACCEPTED);
    assert_eq!(answer["events"].as_array().map(Vec::len), Some(1_000));
}

#[tokio::test]
async fn lists_page_without_gaps_and_filter() {
    let api = Api::new();
    let mut ids = Vec::new();
    for n in 0..7 {
        ids.push(api.event(if n % 2 == 0 { "even" } else { "odd" }).await);
        api.advance_ms(1_000);
    }
    ids.reverse();
    assert_eq!(api.list("/api/v1/events?limit=2").await, ids);
    let odd: Vec<_> = ids.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(api.list("/api/v1/events?limit=1&type=odd").await, odd);
    let range = "from=2026-01-01T00:00:02Z&to=2026-01-01T00:00:05Z";
    assert_eq!(api.list(&format!("/api/v1/events?{range}")).await, ids[2..5]);

    let page = api.get("/api/v1/events?limit=3").await.expect(StatusCode::OK);
    let cursor = text(&page["next_cursor"]);
    assert!(page["data"][0].get("data").is_none(), "lists leave the data out");
    api.event("new").await;
    let next = api.get(&format!("/api/v1/events?cursor={cursor}")).await.expect(StatusCode::OK);
    let found: Vec<_> =
        next["data"].as_array().expect("a list").iter().map(|e| text(&e["id"])).collect();
    assert_eq!(found, ids[3..], "new rows move nothing");
    assert_eq!(next["next_cursor"], Value::Null);
    for path in [
        format!("/api/v1/events?type=odd&cursor={cursor}"),
        format!("/api/v1/deliveries?cursor={cursor}"),
        format!("/api/v1/events?cursor={cursor}x"),
        "/api/v1/events?cursor=".to_owned(),
    ] {
        let refused = api.get(&path).await;
        assert_eq!((refused.status, refused.slug().as_str()), (400, "invalid-cursor"), "{path}");
    }
}

#[tokio::test]
async fn an_event_is_sent_again() {
    let api = Api::new();
    let event = api.event("a").await;
    let path = format!("/api/v1/events/{event}/replay");
    let nobody = api.send("POST", &path, &[], b"").await.expect(StatusCode::ACCEPTED);
    assert_eq!(nobody["deliveries"], json!([]));
    let endpoint = api.endpoint().await;
    let body = format!(r#"{{"endpoint_id":"{endpoint}"}}"#);
    let named = api.post(&path, &body).await.expect(StatusCode::ACCEPTED);
    assert_eq!(named["deliveries"][0]["event_id"], event.as_str());
    assert_eq!(named["deliveries"][0]["endpoint_id"], endpoint.as_str());
    assert_eq!(named["deliveries"][0]["status"], "due");
    let all = api.post(&path, "{}").await.expect(StatusCode::ACCEPTED);
    assert_eq!(all["deliveries"].as_array().map(Vec::len), Some(1));

    let unknown = "ep_00000000000000000000000000";
    for (path, body, status, slug) in [
        (path.as_str(), format!(r#"{{"endpoint_id":"{unknown}"}}"#), 404, "not-found"),
        (path.as_str(), r#"{"endpoint_id":"x"}"#.to_owned(), 422, "invalid"),
        (path.as_str(), r#"{"endpoint":"x"}"#.to_owned(), 422, "invalid"),
        ("/api/v1/events/evt_00000000000000000000000000/replay", String::new(), 404, "not-found"),
        ("/api/v1/events/x/replay", String::new(), 404, "not-found"),
    ] {
        let reply = api.post(path, &body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (status, slug), "{path} {body}");
    }
    api.post(&format!("/api/v1/endpoints/{endpoint}/disable"), "").await.expect(StatusCode::OK);
    let refused = api.post(&path, &body).await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "endpoint-disabled"));
}
