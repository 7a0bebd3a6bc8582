//! The claim API: who has a key, until when, and what became of the work.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::idempotency::claim::Quota;
use everhook_domain::time::{Clock, SystemClock};
use everhook_web::ServerLimits;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::harness::{Api, Reply, TOKEN, text};
use crate::server::{Running, answer};

const PATH: &str = "/api/v1/claims";
const CLAIM: &str = r#"{"scope":"mail","key":"k","lease_ms":50,"ttl_s":60}"#;

async fn claim(api: &Api) -> Value {
    api.post(PATH, CLAIM).await.expect(StatusCode::OK)
}

/// What an owner says of its claim.
async fn say(api: &Api, claim: &Value, verb: &str, more: Value) -> Reply {
    let mut body = json!({"token": claim["token"]});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("another").clone());
    let path = format!("{PATH}/{}/{verb}", text(&claim["id"]));
    api.post(&path, &body.to_string()).await
}

#[track_caller]
fn check_lost(reply: &Reply) {
    assert_eq!((reply.status, reply.slug().as_str()), (409, "claim-lost"));
}

#[tokio::test]
async fn a_key_is_claimed_once_and_completed_for_everybody() {
    let api = Api::new();
    let first = claim(&api).await;
    let id = text(&first["id"]);
    assert!(id.starts_with("idr_"), "{id}");
    assert_eq!(
        (&first["outcome"], &first["lease_until"]),
        (&json!("new"), &json!("2026-01-01T00:00:00.050Z"))
    );
    assert!(first["token"].is_string() && first.get("result").is_none(), "{first}");
    let second = claim(&api).await;
    let lease = &first["lease_until"];
    assert_eq!(second, json!({"id": id, "outcome": "in_progress", "lease_until": lease}));

    let spelling = r#"{ "b":1.50E+2, "a" : ["\u00e4"] }"#;
    let body = format!(r#"{{"token":{},"result": {spelling} }}"#, first["token"]);
    let completed = api.post(&format!("{PATH}/{id}/complete"), &body).await;
    assert_eq!(completed.expect(StatusCode::OK)["state"], "completed");
    for reply in [completed, api.post(PATH, CLAIM).await, api.get(&format!("{PATH}/{id}")).await] {
        let whole = String::from_utf8(reply.body.clone()).expect("text");
        assert!(whole.contains(&format!("\"result\":{spelling}")), "{whole}");
    }
    api.advance_ms(59_999);
    let again = claim(&api).await;
    assert_eq!((&again["outcome"], again.get("token")), (&json!("completed"), None));
    api.advance_ms(1);
    let new = claim(&api).await;
    assert_eq!(new["outcome"], "new", "its ttl_s counts from its completion");
    assert_ne!(new["id"], first["id"]);
    api.get(&format!("{PATH}/{id}")).await.expect(StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_lease_that_is_over_is_reclaimed_and_its_owner_fenced() {
    let api = Api::new();
    let first = claim(&api).await;
    api.advance_ms(49);
    assert_eq!(claim(&api).await["outcome"], "in_progress");
    let path = format!("{PATH}/{}", text(&first["id"]));
    assert_eq!(api.get(&path).await.json()["state"], "in_progress");
    api.advance_ms(1);
    let lapsed = api.get(&path).await.json();
    assert_eq!(
        (&lapsed["state"], &lapsed["lease_until"]),
        (&json!("unknown"), &first["lease_until"])
    );
    let second = claim(&api).await;
    assert_eq!((&second["outcome"], &second["id"]), (&json!("reclaimed"), &first["id"]));
    assert_ne!(second["token"], first["token"]);
    check_lost(&say(&api, &first, "complete", json!({"result": 1})).await);
    check_lost(&say(&api, &first, "renew", json!({"lease_ms": 1_000})).await);
    check_lost(&say(&api, &first, "release", json!({})).await);
    say(&api, &second, "complete", json!({"result": 2})).await.expect(StatusCode::OK);
    check_lost(&say(&api, &first, "complete", json!({"result": 1})).await);
    assert_eq!(claim(&api).await["result"], 2);
}

#[tokio::test]
async fn a_lease_is_renewed_also_after_its_end_while_nobody_else_has_it() {
    let api = Api::new();
    let first = claim(&api).await;
    for (wait, lease) in [(40, 50), (49, 100), (100, 1_000), (5_000, 50)] {
        api.advance_ms(wait);
        let renewed = say(&api, &first, "renew", json!({"lease_ms": lease})).await;
        let renewed = renewed.expect(StatusCode::OK);
        assert_eq!(renewed["state"], "in_progress", "{wait}");
        let until = api.now() + Duration::from_millis(lease);
        assert_eq!(renewed["lease_until"], json!(until), "{wait}");
        assert_eq!(claim(&api).await["outcome"], "in_progress");
    }
    api.advance_ms(1_000);
    say(&api, &first, "complete", json!({"result": null})).await.expect(StatusCode::OK);
    let completed = claim(&api).await;
    assert_eq!((&completed["outcome"], &completed["result"]), (&json!("completed"), &Value::Null));
}

#[tokio::test]
async fn what_is_released_is_free_and_what_is_completed_stays() {
    let api = Api::new();
    let first = claim(&api).await;
    let released = say(&api, &first, "release", json!({})).await.expect(StatusCode::OK);
    assert_eq!(released, json!({"id": first["id"], "state": "released"}));
    say(&api, &first, "release", json!({})).await.expect(StatusCode::NOT_FOUND);
    let second = claim(&api).await;
    assert_eq!(second["outcome"], "new");
    for result in [json!(1), json!(2)] {
        let said = say(&api, &second, "complete", json!({"result": result})).await;
        assert_eq!(said.expect(StatusCode::OK)["result"], 1, "the first one stays");
    }
    check_lost(&say(&api, &second, "release", json!({})).await);
    let renewed = say(&api, &second, "renew", json!({"lease_ms": 50})).await;
    assert_eq!(renewed.expect(StatusCode::OK)["state"], "completed");
}

#[tokio::test]
async fn other_work_and_other_callers_are_told_apart() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let with = |more: &str| CLAIM.replace('}', &format!(",{more}}}"));
    let first = api.post(PATH, &with(r#""fingerprint":"a""#)).await.expect(StatusCode::OK);
    for other in [with(r#""fingerprint":"b""#), CLAIM.to_owned()] {
        let refused = api.post(PATH, &other).await;
        assert_eq!((refused.status, refused.slug().as_str()), (422, "claim-mismatch"));
    }
    let same = api.post(PATH, &with(r#""fingerprint":"a""#)).await.expect(StatusCode::OK);
    assert_eq!(same["outcome"], "in_progress");
    for other in [CLAIM.replace("mail", "sms"), CLAIM.replace("\"k\"", "\"K\"")] {
        assert_eq!(api.post(PATH, &other).await.expect(StatusCode::OK)["outcome"], "new");
    }
    let theirs = [("everhook-tenant", "acme")];
    let other = api.send("POST", PATH, &theirs, CLAIM.as_bytes()).await.expect(StatusCode::OK);
    assert_eq!(other["outcome"], "new");
    let path = format!("{PATH}/{}", text(&first["id"]));
    api.send("GET", &path, &theirs, b"").await.expect(StatusCode::NOT_FOUND);
    let body = json!({"token": first["token"], "result": 1}).to_string();
    let foreign = api.send("POST", &format!("{path}/complete"), &theirs, body.as_bytes()).await;
    foreign.expect(StatusCode::NOT_FOUND);
    for id in ["x", "idr_00000000000000000000000000"] {
        let missing = api.get(&format!("{PATH}/{id}")).await;
        assert_eq!((missing.status, missing.slug().as_str()), (404, "not-found"));
    }
}

#[tokio::test]
async fn everything_that_is_wrong_is_told_at_once() {
    let api = Api::new();
    let long = "x".repeat(256);
    for (body, pointers) in [
        (json!({}), &["/scope", "/key", "/lease_ms", "/ttl_s"][..]),
        (
            json!({"scope": "", "key": long, "fingerprint": 1, "lease_ms": 49, "ttl_s": 0, "x": 1}),
            &["/x", "/scope", "/key", "/fingerprint", "/lease_ms", "/ttl_s"],
        ),
        (
            json!({"scope": "a\n", "key": "k", "fingerprint": "", "lease_ms": 3_600_001,
                "ttl_s": 31_622_401}),
            &["/scope", "/fingerprint", "/lease_ms", "/ttl_s"],
        ),
        (
            json!({"scope": "s", "key": "k", "lease_ms": 1.5, "ttl_s": "1"}),
            &["/lease_ms", "/ttl_s"],
        ),
    ] {
        let refused = api.post(PATH, &body.to_string()).await;
        assert_eq!((refused.status, refused.slug().as_str()), (422, "invalid"));
        assert_eq!(refused.pointers(), pointers, "{body}");
    }
    for (lease, ttl) in [(50, 1), (3_600_000, 31_622_400)] {
        let body = json!({"scope": "s", "key": lease.to_string(), "lease_ms": lease, "ttl_s": ttl});
        api.post(PATH, &body.to_string()).await.expect(StatusCode::OK);
    }
    let made = claim(&api).await;
    let path = format!("{PATH}/{}", text(&made["id"]));
    for (verb, body, pointers) in [
        ("complete", json!({}), &["/token", "/result"][..]),
        ("complete", json!({"token": 1, "result": 1, "lease_ms": 1}), &["/lease_ms", "/token"]),
        ("renew", json!({"token": "x"}), &["/lease_ms"]),
        ("release", json!({"token": "x", "result": 1}), &["/result"]),
    ] {
        let refused = api.post(&format!("{path}/{verb}"), &body.to_string()).await;
        assert_eq!((refused.status, refused.slug().as_str()), (422, "invalid"));
        assert_eq!(refused.pointers(), pointers, "{verb} {body}");
    }
    for token in ["", "x", "0000000000000000", "ffffffffffffffffff"] {
        let foreign = json!({"id": made["id"], "token": token});
        check_lost(&say(&api, &foreign, "complete", json!({"result": 1})).await);
    }
    assert_eq!(claim(&api).await["outcome"], "in_progress", "nothing has happened to it");
}

/// A claim is a key: what may stand in the header beside it is nobody's concern.
#[tokio::test]
async fn no_idempotency_key_is_taken() {
    let api = Api::new();
    for outcome in ["new", "in_progress"] {
        let reply = api.post_keyed(PATH, "a,b", CLAIM).await;
        assert_eq!(reply.expect(StatusCode::OK)["outcome"], outcome);
        assert_eq!(reply.header("idempotency-replayed"), None);
    }
}

#[tokio::test]
async fn what_an_account_may_have_is_bounded() {
    let api = Api::with(|settings| {
        settings.claim_limits.quota = Quota { keys: 2, bytes: 1_000 };
        settings.claim_limits.result_bytes_max = 900;
    });
    let body = |key: &str| CLAIM.replace("\"k\"", &format!("\"{key}\""));
    let first = api.post(PATH, &body("a")).await.expect(StatusCode::OK);
    api.post(PATH, &body("b")).await.expect(StatusCode::OK);
    let refused = api.post(PATH, &body("c")).await;
    assert_eq!((refused.status, refused.slug().as_str()), (429, "idempotency-quota"));
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(api.post(PATH, &body("a")).await.expect(StatusCode::OK)["outcome"], "in_progress");
    let large = json!({"result": "x".repeat(899)});
    let refused = say(&api, &first, "complete", large).await;
    assert_eq!((refused.status, refused.pointers()), (422, vec!["/result".to_owned()]));
    let fits = json!({"result": "x".repeat(898)});
    say(&api, &first, "complete", fits).await.expect(StatusCode::OK);
    // Both are over by then, and make room at once.
    api.advance_ms(60_050);
    api.post(PATH, &body("c")).await.expect(StatusCode::OK);
    api.post(PATH, &body("d")).await.expect(StatusCode::OK);
}

#[tokio::test]
async fn parallel_claims_of_one_key_have_one_owner() {
    let api = Arc::new(Api::new());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let api = Arc::clone(&api);
        tasks.spawn(async move { claim(&api).await });
    }
    let claims = tasks.join_all().await;
    let new: Vec<_> = claims.iter().filter(|claim| claim["outcome"] == "new").collect();
    assert_eq!(new.len(), 1);
    assert!(claims.iter().all(|claim| claim["id"] == new[0]["id"]));
    assert_eq!(claims.iter().filter(|claim| claim["outcome"] == "in_progress").count(), 199);
}

/// An API on the machine's own clock: who waits sleeps on it.
fn on_the_clock() -> Api {
    Api::with(|settings| {
        let clock = SystemClock::start();
        settings.now = Arc::new(move || clock.wall());
    })
}

const LONG: &str = r#"{"scope":"mail","key":"k","lease_ms":3600000,"ttl_s":60}"#;

#[tokio::test]
async fn who_waits_is_answered_as_soon_as_the_claim_ends() {
    let api = Arc::new(on_the_clock());
    for (verb, more, expected) in [
        ("complete", json!({"result": 7}), (200, json!("completed"))),
        ("release", json!({}), (404, Value::Null)),
    ] {
        let body = LONG.replace("\"k\"", &format!("{verb:?}"));
        let claim = api.post(PATH, &body).await.expect(StatusCode::OK);
        let path = format!("{PATH}/{}?wait_ms=30000", text(&claim["id"]));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (api, path) = (Arc::clone(&api), path.clone());
            tasks.spawn(async move { api.get(&path).await });
        }
        // All of them have looked by then, and wait.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        // A renewal ends nothing.
        say(&api, &claim, "renew", json!({"lease_ms": 3_600_000})).await.expect(StatusCode::OK);
        say(&api, &claim, verb, more).await.expect(StatusCode::OK);
        for reply in tasks.join_all().await {
            // Whoever had waited to the end would have been told that it is in progress.
            assert_eq!((reply.status, reply.json()["state"].clone()), expected);
        }
    }
}

#[tokio::test]
async fn who_waits_is_answered_when_the_lease_or_the_time_is_over() {
    let api = on_the_clock();
    let short = claim(&api).await;
    let waited = api.get(&format!("{PATH}/{}?wait_ms=30000", text(&short["id"]))).await;
    assert_eq!(waited.expect(StatusCode::OK)["state"], "unknown");
    let long = api.post(PATH, &LONG.replace("\"k\"", "\"l\"")).await.expect(StatusCode::OK);
    let path = format!("{PATH}/{}", text(&long["id"]));
    for query in ["", "?wait_ms=0", "?wait_ms=30"] {
        let waited = api.get(&format!("{path}{query}")).await;
        assert_eq!(waited.expect(StatusCode::OK)["state"], "in_progress", "{query}");
    }
    for query in ["wait_ms=30001", "wait_ms=-1", "wait_ms=", "wait=1"] {
        let refused = api.get(&format!("{path}?{query}")).await;
        assert_eq!((refused.status, refused.slug().as_str()), (400, "invalid-parameter"));
    }
}

#[tokio::test]
async fn a_server_that_stops_sends_who_waits_away() {
    let server = Running::start(on_the_clock(), ServerLimits::default()).await;
    let claim = server.api.post(PATH, LONG).await.expect(StatusCode::OK);
    let mut waiting = server.connect().await;
    let request = format!(
        "GET {PATH}/{}?wait_ms=30000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n",
        text(&claim["id"])
    );
    waiting.write_all(request.as_bytes()).await.expect("sent");
    // On one connection after the other, so that it was read before the server stops.
    let mut other = server.connect().await;
    let health = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    other.write_all(health.as_bytes()).await.expect("sent");
    answer(&mut other).await;
    let mut stop = tokio::task::JoinSet::new();
    stop.spawn(server.stop());
    let (head, body) = answer(&mut waiting).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(body.contains(r#""state":"in_progress""#), "{body}");
    stop.join_all().await;
}
