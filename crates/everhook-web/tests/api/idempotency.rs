//! One key, one effect, one answer. What every such API must show is in
//! [`acceptance`](crate::acceptance).

use std::sync::Arc;

use everhook_domain::idempotency::claim::Quota;
use everhook_domain::tenant::TenantId;
use everhook_store::{
    DirectoryStore, Keys, PageRequest, RecordName, RecordOrigin, RecordQuery, StorePolicy,
};
use http::StatusCode;
use serde_json::json;

use crate::harness::{Api, Reply, answered, text};

pub(crate) const EVENT: &str = r#"{"type":"a","data":1}"#;
pub(crate) const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// The same answer, told to be one that was given before.
#[track_caller]
pub(crate) fn check_replay(first: &Reply, again: &Reply) {
    assert_eq!(again.status, first.status, "{again:?}");
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(first.header("idempotency-replayed"), None);
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn case_083_the_same_request_runs_once() {
    let api = Api::new();
    api.endpoint().await;
    let first = api.post_keyed("/api/v1/events", "k", EVENT).await;
    first.expect(StatusCode::ACCEPTED);
    api.advance_ms(DAY_MS - 1);
    for key in ["k", "\"k\"", " k\t"] {
        check_replay(&first, &api.post_keyed("/api/v1/events", key, EVENT).await);
    }
    assert_eq!(api.list("/api/v1/events").await.len(), 1);
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 1);
    api.advance_ms(1);
    let new = api.post_keyed("/api/v1/events", "k", EVENT).await;
    assert_eq!(new.header("idempotency-replayed"), None, "after 24 h it is a new request");
    assert_eq!(api.list("/api/v1/events").await.len(), 2);
}

#[tokio::test]
async fn an_account_with_too_many_keys_is_told_to_wait() {
    let idempotency_quota = Quota { keys: 2, bytes: 1_000_000 };
    let policy = StorePolicy { idempotency_quota, ..StorePolicy::default() };
    let api = Api::with_policy(policy);
    let first = api.post_keyed("/api/v1/events", "1", EVENT).await;
    api.advance_ms(1);
    api.post_keyed("/api/v1/events", "2", EVENT).await.expect(StatusCode::ACCEPTED);
    let refused = api.post_keyed("/api/v1/events", "3", EVENT).await;
    assert_eq!((refused.status, refused.slug().as_str()), (429, "idempotency-quota"));
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(api.list("/api/v1/events").await.len(), 2, "nothing was done");
    check_replay(&first, &api.post_keyed("/api/v1/events", "1", EVENT).await);
    api.create_tenant("acme").await;
    let tenant = ("everhook-tenant", "acme");
    let headers = [tenant, ("content-type", "application/json"), ("idempotency-key", "3")];
    let other = api.send("POST", "/api/v1/events", &headers, EVENT.as_bytes()).await;
    other.expect(StatusCode::ACCEPTED);
    api.advance_ms(DAY_MS - 1);
    api.post_keyed("/api/v1/events", "3", EVENT).await.expect(StatusCode::ACCEPTED);
    assert_eq!(api.post_keyed("/api/v1/events", "4", EVENT).await.status, 429);
}

/// What is kept of a request for people to look at: who, and what for, without its query.
#[tokio::test]
async fn a_record_names_its_account_and_path() {
    let api = Api::new();
    api.post_keyed("/api/v1/events", "k", EVENT).await.expect(StatusCode::ACCEPTED);
    let page = PageRequest { limit: 10, after: None, scan_limit: 10 };
    let tenant = TenantId::default_tenant();
    let records = api.store.records(tenant, RecordQuery::default(), page, api.now()).await;
    let records = records.expect("a list").items;
    let name = RecordName {
        origin: RecordOrigin::Api,
        account: "admin".into(),
        subject: "POST /api/v1/events".into(),
    };
    assert_eq!(records.iter().map(|record| &record.name).collect::<Vec<_>>(), [&name]);
}

#[tokio::test]
async fn case_050_a_refusal_frees_the_key() {
    let api = Api::new();
    let refused = api.post_keyed("/api/v1/events", "k", "{}").await;
    assert_eq!(refused.status, 422);
    api.post_keyed("/api/v1/events", "k", EVENT).await.expect(StatusCode::ACCEPTED);
    api.endpoint().await;
    api.event("a").await;
    let id = api.list("/api/v1/deliveries").await.remove(0);
    let path = format!("/api/v1/deliveries/{id}/acknowledge");
    let refused = api.post_keyed(&path, "k", "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "delivery-not-dead"));
    let again = api.post_keyed(&path, "k", "{}").await;
    assert_eq!(again.slug(), "delivery-not-dead", "no mismatch: nothing was remembered");
}

#[tokio::test]
async fn case_048_parallel_requests_with_one_key_have_one_effect() {
    let api = Arc::new(Api::new());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let api = Arc::clone(&api);
        tasks.spawn(async move { api.post_keyed("/api/v1/events", "k", EVENT).await });
    }
    let replies = tasks.join_all().await;
    assert!(replies.iter().all(|reply| reply.status == 202 && reply.body == replies[0].body));
    let first = replies.iter().filter(|reply| reply.header("idempotency-replayed").is_none());
    assert_eq!(first.count(), 1);
    assert_eq!(api.list("/api/v1/events").await.len(), 1);
}

#[tokio::test]
async fn what_would_be_refused_today_is_answered_as_it_was_then() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    for verb in ["pause", "resume", "rotate-secret"] {
        let first = api.post_keyed(&format!("{path}/{verb}"), "key", "").await;
        first.expect(StatusCode::OK);
    }
    api.send("DELETE", &path, &[], b"").await;
    for verb in ["pause", "resume", "rotate-secret"] {
        let path = format!("{path}/{verb}");
        let reply = api.post_keyed(&path, "key", "").await;
        assert_eq!(reply.header("idempotency-replayed"), Some("true"), "{verb}: {reply:?}");
        let other = api.post_keyed(&path, "key", "{}").await;
        assert_eq!(other.slug(), "idempotency-key-reused", "{verb}");
    }
}

#[tokio::test]
async fn a_rotation_is_replayed_when_no_further_one_is_possible() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}/rotate-secret", api.endpoint().await);
    let first = api.post_keyed(&path, "first", "").await;
    for key in ["second", "third"] {
        api.post_keyed(&path, key, "").await.expect(StatusCode::OK);
    }
    let refused = api.post_keyed(&path, "fourth", "").await;
    assert_eq!((refused.status, refused.slug().as_str()), (409, "too-many-secrets"));
    check_replay(&first, &api.post_keyed(&path, "first", "").await);
}

#[tokio::test]
async fn remembered_secrets_are_sealed() {
    let api = Api::new();
    let body = r#"{"url":"https://example.com"}"#;
    let made = api.post_keyed("/api/v1/endpoints", "k-made", body).await;
    let id = text(&made.expect(StatusCode::CREATED)["id"]);
    let path = format!("/api/v1/endpoints/{id}/rotate-secret");
    let rotated = api.post_keyed(&path, "k-rotated", "").await;
    assert_eq!(api.list("/api/v1/endpoints").await.len(), 1);
    let connection = api.store.into_connection().expect("the store's connection");
    let mut statement =
        connection.prepare("SELECT status, headers, body FROM idempotency_records").expect("SQL");
    let rows: Vec<(u16, String, Vec<u8>)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("rows")
        .collect::<Result<_, _>>()
        .expect("rows");
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [201, 200]);
    for (reply, (_, headers, stored)) in [&made, &rotated].into_iter().zip(&rows) {
        assert!(headers.contains("application/json"), "{headers}");
        let secret = text(&reply.json()["secret"]);
        for part in [secret.as_bytes(), b"whsec_", id.as_bytes(), b"k-made", b"k-rotated"] {
            assert!(!stored.windows(part.len()).any(|window| window == part));
        }
    }
}

#[tokio::test]
async fn a_remembered_secret_is_the_one_that_signs() {
    let api = Api::new();
    let body = r#"{"url":"https://example.com"}"#;
    let first = api.post_keyed("/api/v1/endpoints", "k", body).await;
    let again = api.post_keyed("/api/v1/endpoints", "k", body).await;
    check_replay(&first, &again);
    assert_eq!(again.header("cache-control"), Some("no-store"));
    let made = again.json();
    let directory = api.store.directory().expect("a directory");
    let endpoint = directory.endpoint(text(&made["id"]).parse().expect("an id")).expect("stored");
    let secret = endpoint.secrets.live(api.now()).next().map(|secret| secret.expose());
    assert_eq!(secret, Some(text(&made["secret"])));
}

#[tokio::test]
async fn a_keyed_duplicate_stays_a_duplicate() {
    let api = Api::new();
    let endpoint = api.endpoint().await;
    let body = r#"{"type":"a","data":1,"source_event_id":"s"}"#;
    api.post_keyed("/api/v1/events", "one", body).await.expect(StatusCode::ACCEPTED);
    let two = api.post_keyed("/api/v1/events", "two", body).await;
    assert_eq!(two.expect(StatusCode::OK)["duplicate"], json!(true));
    check_replay(&two, &api.post_keyed("/api/v1/events", "two", body).await);
    assert_eq!(api.deliver(&endpoint, &answered(200)).await, 1);
}

#[tokio::test]
async fn custom_headers_are_not_remembered_open() {
    let api = Api::new();
    let body = r#"{"url":"https://example.com/","headers":{"x-team":"kennwort"}}"#;
    let made = api.post_keyed("/api/v1/endpoints", "make", body).await;
    let path = format!("/api/v1/endpoints/{}", text(&made.expect(StatusCode::CREATED)["id"]));
    let pause = format!("{path}/pause");
    let paused = api.post_keyed(&pause, "pause", "").await.expect(StatusCode::OK);
    assert_eq!(paused["headers"]["x-team"], "kennwort");
    let again = api.post_keyed(&pause, "pause", "").await;
    assert_eq!((again.json(), again.header("idempotency-replayed")), (paused, Some("true")));
    api.restart_after(|database| {
        let open = "SELECT count(*), sum(instr(body, CAST('kennwort' AS BLOB)) > 0)
                    FROM idempotency_records";
        let counts = database.query_row(open, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(counts, Ok((2, 0)));
    });
}
