//! What every API with idempotency keys must show, by the number of its row in our list. The tests
//! here are those of the API's own POSTs; the others are where the last column says.
//!
//! | row | | own API | the layer (`everhook-idempotency/tests/suite`) |
//! | --- | --- | --- | --- |
//! | 1 | 200 at once | `everhook/tests/crash/keys.rs`, `case_048_…` | `acceptance` |
//! | 2 | killed at any instant | `everhook/tests/crash/keys.rs` | `transaction`, `crash` |
//! | 3, 4 | killed or stopped, effect elsewhere | none is | `crash`, `lapses` |
//! | 5 | the client hangs up | here | `acceptance` |
//! | 6 | spellings of keys | here | `acceptance` |
//! | 7 | tenants | here | `acceptance` |
//! | 8 | another body, another path | here | `acceptance` |
//! | 9 | headers of a replay | here | `acceptance`, `answers` |
//! | 10 | a flood of keys | none: keys live as long as the effects | `acceptance` |
//! | 11 | the end of a key's time | here | `acceptance` |
//! | 12 | an answer too large | none is | `acceptance` |
//! | 13 | multipart | not taken (415) | `acceptance` |
//! | 14 | the store is away | here, `faults` | `acceptance` |

use everhook_store::Jobs;
use http::StatusCode;
use tokio::io::AsyncWriteExt;

use everhook_web::ServerLimits;

use crate::harness::{Api, TOKEN, text};
use crate::idempotency::{DAY_MS, EVENT, check_replay};
use crate::server::{Running, answer};

/// The bytes of a keyed `POST /api/v1/events`.
fn request(key: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /api/v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nidempotency-key: ",
        EVENT.len()
    );
    [head.as_bytes(), key, b"\r\n\r\n", EVENT.as_bytes()].concat()
}

/// Whether or not the first try was done: with the second one it is, once.
#[tokio::test]
async fn acceptance_05_a_client_that_hangs_up_tries_again_and_has_one_effect() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    for number in 0..20 {
        let key = format!("k{number}");
        let mut gone = server.connect().await;
        gone.write_all(&request(key.as_bytes())).await.expect("sent");
        drop(gone);
        let again = server.api.post_keyed("/api/v1/events", &key, EVENT).await;
        again.expect(StatusCode::ACCEPTED);
        let third = server.api.post_keyed("/api/v1/events", &key, EVENT).await;
        assert_eq!(
            (&third.body, third.header("idempotency-replayed")),
            (&again.body, Some("true"))
        );
    }
    let api = std::sync::Arc::clone(&server.api);
    server.stop().await;
    assert_eq!(api.list("/api/v1/events").await.len(), 20);
}

#[tokio::test]
async fn acceptance_06_quoted_and_bare_are_one_key() {
    let api = Api::new();
    let longest = "x".repeat(255);
    for key in ["k", longest.as_str()] {
        let first = api.post_keyed("/api/v1/events", key, EVENT).await;
        first.expect(StatusCode::ACCEPTED);
        for spelling in [format!("\"{key}\""), format!(" {key}\t"), key.to_owned()] {
            check_replay(&first, &api.post_keyed("/api/v1/events", &spelling, EVENT).await);
        }
    }
}

#[tokio::test]
async fn acceptance_06_a_bad_key_is_refused_by_its_rule_before_anything_is_done() {
    let api = Api::new();
    let longer = "x".repeat(256);
    for (keys, part) in [
        (&["a", "b"][..], "more than one"),
        (&["a", "a"], "more than one"),
        (&[""], "empty"),
        (&[" "], "empty"),
        (&["\"\""], "empty"),
        (&[longer.as_str()], "255"),
        (&["a,b"], "visible ASCII"),
        (&["a, b"], "visible ASCII"),
        (&["a b"], "visible ASCII"),
        (&["a\tb"], "visible ASCII"),
        (&["\"a"], "visible ASCII"),
        (&["\"a\", \"b\""], "visible ASCII"),
        (&["a\\b"], "visible ASCII"),
    ] {
        let headers: Vec<_> = keys.iter().map(|key| ("idempotency-key", *key)).collect();
        for (path, body) in [("/api/v1/events", EVENT), ("/api/v1/endpoints", "not even JSON")] {
            let reply = api.send("POST", path, &headers, body.as_bytes()).await;
            assert_eq!((reply.status, reply.slug().as_str()), (400, "invalid-idempotency-key"));
            assert!(text(&reply.json()["detail"]).contains(part), "{keys:?}");
        }
    }
    assert_eq!(api.list("/api/v1/events").await.len(), 0);
}

#[tokio::test]
async fn acceptance_06_bytes_that_are_no_text_are_no_key() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    for (key, ours) in [(&b"a\xffb"[..], true), ("ä".as_bytes(), true), (b"a\x01b", false)] {
        let mut stream = server.connect().await;
        stream.write_all(&request(key)).await.expect("sent");
        let (head, body) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 400"), "{key:?}: {head}");
        // A control character is no header of HTTP at all, and nobody reads on.
        assert_eq!(body.contains("visible ASCII"), ours, "{key:?}: {body}");
    }
    assert_eq!(server.api.list("/api/v1/events").await.len(), 0);
    server.stop().await;
}

#[tokio::test]
async fn acceptance_07_another_tenants_key_is_another_key() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let first = api.post_keyed("/api/v1/events", "k", EVENT).await;
    first.expect(StatusCode::ACCEPTED);
    let key = [("content-type", "application/json"), ("idempotency-key", "k")];
    let theirs = [&key[..], &[("everhook-tenant", "acme")]].concat();
    let other = api.send("POST", "/api/v1/events", &theirs, EVENT.as_bytes()).await;
    other.expect(StatusCode::ACCEPTED);
    assert_eq!(other.header("idempotency-replayed"), None);
    assert_ne!(other.body, first.body);
    check_replay(&other, &api.send("POST", "/api/v1/events", &theirs, EVENT.as_bytes()).await);
}

#[tokio::test]
async fn acceptance_08_case_051_another_request_is_never_answered_with_the_first() {
    let api = Api::new();
    api.post_keyed("/api/v1/events", "k", EVENT).await.expect(StatusCode::ACCEPTED);
    let content_type = ("content-type", "application/json");
    let key = ("idempotency-key", "k");
    let other_type = ("content-type", "application/json; charset=utf-8");
    for (headers, body) in [
        (&[content_type, key][..], r#"{"type":"a","data":2}"#),
        (&[content_type, key], r#"{"type":"a","data":1} "#),
        (&[other_type, key], EVENT),
        (&[key], EVENT),
    ] {
        let reply = api.send("POST", "/api/v1/events", headers, body.as_bytes()).await;
        assert_eq!((reply.status, reply.slug().as_str()), (422, "idempotency-key-reused"));
    }
    assert_eq!(api.list("/api/v1/events").await.len(), 1);
    let batch = r#"{"events":[{"type":"a","data":1}]}"#;
    for (path, headers, body) in [
        ("/api/v1/events?x=1", &[content_type, key][..], EVENT),
        ("/api/v1/events/batch", &[content_type, key], batch),
        ("/api/v1/events", &[content_type, ("idempotency-key", "K")], EVENT),
    ] {
        let reply = api.send("POST", path, headers, body.as_bytes()).await;
        reply.expect(StatusCode::ACCEPTED);
        assert_eq!(reply.header("idempotency-replayed"), None, "{path}");
    }
    let get = api.send("GET", "/api/v1/events", &[key], b"").await;
    assert_eq!(get.header("idempotency-replayed"), None);
    get.expect(StatusCode::OK);
}

#[tokio::test]
async fn acceptance_09_a_replay_has_the_content_headers_and_a_date_of_its_own() {
    let server = Running::start(Api::new(), ServerLimits::default()).await;
    for replayed in [false, true] {
        let mut stream = server.connect().await;
        stream.write_all(&request(b"k")).await.expect("sent");
        let (head, _) = answer(&mut stream).await;
        assert!(head.starts_with("http/1.1 202"), "{head}");
        for (line, times) in [
            ("\r\ncontent-type: application/json", 1),
            ("\r\ncache-control: no-store", 1),
            ("\r\ndate: ", 1),
            ("\r\nset-cookie: ", 0),
            ("\r\nidempotency-replayed: true", usize::from(replayed)),
        ] {
            assert_eq!(head.matches(line).count(), times, "{line}: {head}");
        }
    }
    server.stop().await;
}

/// However often what is over is cleared away.
#[tokio::test]
async fn acceptance_11_a_key_lives_to_the_millisecond() {
    let api = Api::new();
    let clear = async || {
        for _ in 0..10 {
            api.store.step(api.now()).await.expect("a step");
        }
    };
    let first = api.post_keyed("/api/v1/events", "k", EVENT).await;
    api.advance_ms(DAY_MS - 1);
    clear().await;
    check_replay(&first, &api.post_keyed("/api/v1/events", "k", EVENT).await);
    clear().await;
    api.advance_ms(1);
    let new = api.post_keyed("/api/v1/events", "k", EVENT).await;
    assert_eq!(new.header("idempotency-replayed"), None, "from its end on it is a new key");
    clear().await;
    check_replay(&new, &api.post_keyed("/api/v1/events", "k", EVENT).await);
    assert_eq!(api.list("/api/v1/events").await.len(), 2);
}
