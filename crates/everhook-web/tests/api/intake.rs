//! What comes to sources, through the router.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Api, Reply, SECRET, stripe_signature, text};

const EVENT: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;

/// [`EVENT`], compressed.
const GZIP_1: &[u8] = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xabV\xcaLQ\xb2RJ-+\x897";
const GZIP_2: &[u8] = b"T\xd2Q*\xa9,H\x05r3\xf3\xca\xf23\x93S\xf5\x0a\x12\x81\xb2\xb5";
const GZIP_3: &[u8] = b"\x00c\x9bB\xd8$\x00\x00\x00";

#[track_caller]
fn says(reply: &Reply, status: &str) {
    assert_eq!(reply.expect(StatusCode::OK), json!({ "status": status }));
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

/// An endpoint for what this source receives; its id.
async fn forwarding(api: &Api, source: &str) -> String {
    let body = json!({"url": "https://example.com/hook", "event_types": [], "sources": [source]});
    let reply = api.post("/api/v1/endpoints", &body.to_string()).await;
    text(&reply.expect(StatusCode::CREATED)["id"])
}

#[tokio::test]
async fn what_is_signed_is_stored_once_and_forwarded() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    let endpoint = forwarding(&api, "shop").await;
    says(&api.signed(&source, EVENT).await, "accepted");
    // By its name too, and in one window.
    says(&api.signed("shop", EVENT).await, "duplicate");
    let receipts = api.rows("/api/v1/receipts").await;
    let [receipt] = &receipts[..] else { panic!("{receipts:?}") };
    let shown = ["source", "source_id", "key", "type", "status"].map(|name| text(&receipt[name]));
    assert_eq!(shown, ["shop", &source, "evt_1", "shop.invoice.paid", "accepted"]);
    let deliveries = api.rows("/api/v1/deliveries").await;
    let [delivery] = &deliveries[..] else { panic!("{deliveries:?}") };
    assert_eq!(delivery["event_id"], receipt["event_id"]);
    assert_eq!(delivery["endpoint_id"], endpoint.as_str());
    let event = api.get(&format!("/api/v1/events/{}", text(&receipt["event_id"]))).await;
    let event = event.expect(StatusCode::OK);
    assert_eq!((&event["origin"], &event["source"]), (&json!("received"), &json!("shop")));
    assert_eq!(event["receipt_id"], receipt["id"]);
    assert_eq!(event["data"], json!({"id": "evt_1", "type": "invoice.paid"}));
    assert!(text(&event["headers"]["stripe-signature"]).starts_with("t="));
}

#[tokio::test]
async fn case_034_what_is_not_genuine_is_refused_counted_and_not_echoed() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    let path = format!("/in/{source}");
    let body = br#"{"id":"evt_hunter2"}"#;
    let wrong = stripe_signature("whsec_other", api.now(), body);
    let old = stripe_signature(SECRET, api.now().minus(std::time::Duration::from_secs(301)), body);
    for (signature, cause) in
        [(Some(&wrong), "signature"), (None, "signature"), (Some(&old), "stale")]
    {
        let headers: Vec<_> =
            signature.iter().map(|value| ("stripe-signature", value.as_str())).collect();
        let reply = api.raw("POST", &path, &headers, body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (401, "unverified"));
        assert!(reply.header("www-authenticate").is_some());
        assert!(!String::from_utf8_lossy(&reply.body).contains("hunter2"));
        let shown = api.get(&format!("/api/v1/sources/{source}")).await.expect(StatusCode::OK);
        assert_eq!(shown["rejected"]["last"]["cause"], cause);
        assert!(!shown.to_string().contains("hunter2"));
    }
    let shown = api.get(&format!("/api/v1/sources/{source}")).await.expect(StatusCode::OK);
    assert_eq!(
        (&shown["rejected"]["signature"], &shown["rejected"]["stale"]),
        (&json!(2), &json!(1))
    );
    for path in ["/in/other", "/in/src_00000000000000000000000000", "/in/%20", "/in/Shop"] {
        let reply = api.raw("POST", path, &[("stripe-signature", &wrong)], body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "unknown-source"), "{path}");
    }
    assert!(api.list("/api/v1/events").await.is_empty());
    assert!(api.list("/api/v1/receipts").await.is_empty());
}

#[tokio::test]
async fn the_status_of_a_refusal_is_the_owners() {
    let api = Api::new();
    for status in [400, 401, 403] {
        let name = format!("s{status}");
        api.stripe(&name, json!({ "reject_status": status })).await;
        let reply = api.raw("POST", &format!("/in/{name}"), &[], EVENT).await;
        assert_eq!((reply.status, reply.slug().as_str()), (status, "unverified"));
        assert_eq!(reply.header("www-authenticate").is_some(), status == 401);
    }
}

#[tokio::test]
async fn the_answer_is_the_owners() {
    let api = Api::new();
    let answer = json!({"status": 202, "content_type": "text/plain", "body": "taken\n"});
    api.stripe("a", json!({ "answer": answer })).await;
    api.stripe("b", json!({ "answer": {"status": 204} })).await;
    for _ in 0..2 {
        let reply = api.signed("a", EVENT).await;
        assert_eq!((reply.status, &reply.body[..]), (202, &b"taken\n"[..]));
        assert_eq!(reply.header("content-type"), Some("text/plain"));
        let reply = api.signed("b", EVENT).await;
        assert_eq!((reply.status, reply.header("content-type")), (204, None));
    }
}

#[tokio::test]
async fn other_methods_are_refused_with_those_there_are() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        let reply = api.raw(method, &format!("/in/{source}"), &[], b"").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{method}");
    }
    let shown = api.get(&format!("/api/v1/sources/{source}")).await.expect(StatusCode::OK);
    assert_eq!(shown["rejected"]["method"], 6);
}

#[tokio::test]
async fn case_037_retries_of_an_impatient_provider_are_duplicates() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    forwarding(&api, "shop").await;
    // The handler has not even begun when the others come.
    says(&api.signed(&source, EVENT).await, "accepted");
    let (one, two) = tokio::join!(api.signed(&source, EVENT), api.signed(&source, EVENT));
    says(&one, "duplicate");
    says(&two, "duplicate");
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 1);
    assert_eq!(api.list("/api/v1/events").await.len(), 1);
}

/// How many of so many simultaneous requests were accepted, and how many were duplicates.
async fn at_once(api: &Arc<Api>, count: usize, source: &str) -> (usize, usize) {
    let mut requests = JoinSet::new();
    for _ in 0..count {
        let (api, source) = (Arc::clone(api), source.to_owned());
        requests.spawn(async move { api.signed(&source, EVENT).await });
    }
    let answers: Vec<Value> = requests
        .join_all()
        .await
        .iter()
        .map(|reply| reply.expect(StatusCode::OK)["status"].clone())
        .collect();
    let said = |word: &str| answers.iter().filter(|status| *status == word).count();
    (said("accepted"), said("duplicate"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_039_simultaneous_copies_run_once_in_each_source() {
    for count in [50, 1_000] {
        let api = Arc::new(Api::new());
        let [one, two] = [api.stripe("one", json!({})).await, api.stripe("two", json!({})).await];
        forwarding(&api, "one").await;
        forwarding(&api, "two").await;
        let (first, second) = tokio::join!(at_once(&api, count, &one), at_once(&api, count, &two));
        assert_eq!((first, second), ((1, count - 1), (1, count - 1)));
        assert_eq!(api.list("/api/v1/deliveries").await.len(), 2);
        assert_eq!(api.list("/api/v1/receipts").await.len(), 2);
    }
}

#[tokio::test]
async fn case_087_bytes_are_verified_whatever_they_mean() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    for (body, status, reason) in [
        (&"{\"id\":\"evt_😀\",\"text\":\"👩‍🚀\"}".as_bytes().to_vec(), "accepted", None),
        (&b"\xef\xbb\xbf{\"id\":\"evt_bom\"}".to_vec(), "accepted", None),
        (&b"{\"id\":\"evt_latin\",\"text\":\"\xe4\"}".to_vec(), "dead", Some("unreadable")),
        (&b"{\"id\":".to_vec(), "dead", Some("unreadable")),
        (&b"\0\r\n\0".to_vec(), "dead", Some("unreadable")),
    ] {
        let signature = stripe_signature(SECRET, api.now(), body);
        let headers = [
            ("stripe-signature", signature.as_str()),
            ("content-type", "application/json; charset=iso-8859-1"),
        ];
        let reply = api.raw("POST", &format!("/in/{source}"), &headers, body).await;
        says(&reply, "accepted");
        let receipts = api.rows("/api/v1/receipts?limit=1").await;
        assert_eq!(
            (&receipts[0]["status"], receipts[0]["reason"].as_str()),
            (&json!(status), reason)
        );
    }
}

#[tokio::test]
async fn case_088_an_empty_body_has_an_outcome_that_its_owner_chooses() {
    let api = Api::new();
    for (option, status, receipts) in [("accept", 200, 1), ("ignore", 200, 0), ("reject", 400, 0)] {
        let source = api.stripe(option, json!({ "empty": option })).await;
        let reply = api.signed(&source, b"").await;
        assert_eq!(reply.status, status, "{option}");
        let list = format!("/api/v1/receipts?source={option}");
        assert_eq!(api.list(&list).await.len(), receipts, "{option}");
        let signature = stripe_signature(SECRET, api.now(), b"");
        let probe = api
            .raw("GET", &format!("/in/{source}"), &[("stripe-signature", &signature)], b"")
            .await;
        assert_eq!(probe.status, 405, "{option}");
    }
}

#[tokio::test]
async fn case_035_bodies_up_to_the_sources_limit_are_taken() {
    let api = Api::new();
    let source = api.stripe("large", json!({})).await;
    let small = api.stripe("small", json!({ "body_max": 1_000 })).await;
    for mib in [5, 24] {
        let text = "x".repeat(mib * 1_000_000);
        let body = format!("{{\"id\":\"evt_{mib}\",\"text\":\"{text}\"}}");
        says(&api.signed(&source, body.as_bytes()).await, "accepted");
        says(&api.signed(&source, body.as_bytes()).await, "duplicate");
        let reply = api.signed(&small, body.as_bytes()).await;
        assert_eq!((reply.status, reply.slug().as_str()), (413, "body-too-large"));
    }
    let shown = api.get(&format!("/api/v1/sources/{small}")).await.expect(StatusCode::OK);
    assert_eq!(shown["rejected"]["too_large"], 2);
    let exact = format!("{{\"id\":\"{}\"}}", "x".repeat(1_000 - 9));
    assert_eq!(exact.len(), 1_000);
    says(&api.signed(&small, exact.as_bytes()).await, "accepted");
    let reply = api.signed(&small, format!("{exact} ").as_bytes()).await;
    assert_eq!(reply.status, 413);
}

#[tokio::test]
async fn the_installations_limit_holds_for_every_source() {
    let api = Api::with(|settings| settings.receive_limits.body_bytes_max = 100);
    let source = api.stripe("shop", json!({})).await;
    says(&api.signed(&source, EVENT).await, "accepted");
    let reply = api.signed(&source, &[b' '; 101]).await;
    assert_eq!((reply.status, reply.slug().as_str()), (413, "body-too-large"));
}

#[tokio::test]
async fn what_is_compressed_is_verified_decoded_where_its_owner_says_so() {
    let api = Api::new();
    let source = api.stripe("shop", json!({"content_encoding": "decoded"})).await;
    let path = format!("/in/{source}");
    let signature = stripe_signature(SECRET, api.now(), EVENT);
    for (coding, status, slug) in
        [("br", 415, "unsupported-media-type"), ("gzip", 400, "broken-coding")]
    {
        let headers = [("stripe-signature", signature.as_str()), ("content-encoding", coding)];
        let reply = api.raw("POST", &path, &headers, EVENT).await;
        assert_eq!((reply.status, reply.slug().as_str()), (status, slug));
    }
    let headers = [("stripe-signature", signature.as_str()), ("content-encoding", "identity")];
    says(&api.raw("POST", &path, &headers, EVENT).await, "accepted");
    let compressed = [GZIP_1, GZIP_2, GZIP_3].concat();
    let headers = [("stripe-signature", signature.as_str()), ("content-encoding", "gzip")];
    says(&api.raw("POST", &path, &headers, &compressed).await, "duplicate");

    let wire = api.stripe("wire", json!({})).await;
    let signature = stripe_signature(SECRET, api.now(), &compressed);
    let headers = [("stripe-signature", signature.as_str()), ("content-encoding", "gzip")];
    says(&api.raw("POST", &format!("/in/{wire}"), &headers, &compressed).await, "accepted");
}

#[tokio::test]
async fn other_content_under_a_key_that_the_sender_chose_waits_to_be_looked_at() {
    let api = Api::new();
    api.source(&json!({"name": "open", "kind": "none"})).await;
    forwarding(&api, "open").await;
    let key = [("idempotency-key", "k")];
    says(&api.raw("POST", "/in/open", &key, b"one").await, "accepted");
    says(&api.raw("POST", "/in/open", &key, b"two").await, "accepted");
    says(&api.raw("POST", "/in/open", &key, b"two").await, "duplicate");
    let receipts = api.rows("/api/v1/receipts?status=conflict").await;
    let [conflict] = &receipts[..] else { panic!("{receipts:?}") };
    assert_eq!(conflict["reason"], "other_content");
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 1);
}

#[tokio::test]
async fn a_deleted_tenant_or_source_takes_nothing() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    says(&api.signed(&source, EVENT).await, "accepted");
    let deleted = api.send("DELETE", &format!("/api/v1/sources/{source}"), &[], b"").await;
    assert_eq!(deleted.status, 204);
    assert_eq!(api.signed(&source, EVENT).await.status, 404);
    assert_eq!(api.signed("shop", EVENT).await.status, 404);
    let receipts = api.rows(&format!("/api/v1/receipts?source={source}")).await;
    assert_eq!(receipts[0]["source"], "shop", "what it has received stays");

    api.create_tenant("acme").await;
    let body = json!({"name": "theirs", "kind": "none"}).to_string();
    let tenant = [("everhook-tenant", "acme")];
    let theirs = api.send("POST", "/api/v1/sources", &tenant, body.as_bytes()).await;
    let path = format!("/in/{}", text(&theirs.expect(StatusCode::CREATED)["id"]));
    says(&api.raw("POST", &path, &[], b"x").await, "accepted");
    assert_eq!(api.raw("POST", "/in/theirs", &[], b"x").await.status, 404, "by id only");
    assert_eq!(api.list("/api/v1/receipts").await.len(), 1, "not of another tenant");
    assert_eq!(api.send("DELETE", "/api/v1/tenants/acme", &[], b"").await.status, 204);
    assert_eq!(api.raw("POST", &path, &[], b"x").await.status, 404);
}

/// What HubSpot signs in its first scheme: the secret and the body.
fn hubspot_signature(secret: &str, body: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::new_with_prefix(secret).chain_update(body).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn hubspot(api: &Api, items: &str) -> Reply {
    let signature = hubspot_signature(SECRET, items.as_bytes());
    let headers = [
        ("x-hubspot-signature", signature.as_str()),
        ("x-hubspot-signature-version", "v1"),
        ("content-type", "application/json"),
    ];
    api.raw("POST", "/in/crm", &headers, items.as_bytes()).await
}

#[tokio::test]
async fn case_046_every_item_of_an_array_has_its_own_fate() {
    let api = Api::new();
    let source = json!({"name": "crm", "kind": "hubspot", "secrets": [SECRET],
        "public_url": "https://hooks.example.com"});
    api.source(&source).await;
    forwarding(&api, "crm").await;
    let item = |id: u32| format!(r#"{{"eventId":{id},"subscriptionType":"contact.creation"}}"#);
    says(&hubspot(&api, "[]").await, "accepted");
    assert!(api.list("/api/v1/receipts").await.is_empty());
    says(&hubspot(&api, &format!("[{}]", item(1))).await, "accepted");
    // New, seen before, not readable, and new twice in the same array.
    let mixed = format!("[{},{},7,{},{}]", item(2), item(1), item(3), item(3));
    says(&hubspot(&api, &mixed).await, "accepted");
    let receipts = api.rows("/api/v1/receipts").await;
    let fates: Vec<_> = receipts
        .iter()
        .map(|receipt| (text(&receipt["status"]), receipt["reason"].as_str().map(str::to_owned)))
        .collect();
    let (accepted, dead) =
        (("accepted".to_owned(), None), ("dead".to_owned(), Some("unreadable".into())));
    assert_eq!(fates, [accepted.clone(), dead, accepted.clone(), accepted], "newest first");
    assert_eq!(api.list("/api/v1/deliveries").await.len(), 3);
    says(&hubspot(&api, &mixed).await, "duplicate");
    assert_eq!(api.list("/api/v1/receipts").await.len(), 4);

    let many: Vec<_> = (100..10_100).map(item).collect();
    let many = format!("[{}]", many.join(","));
    says(&hubspot(&api, &many).await, "accepted");
    says(&hubspot(&api, &many).await, "duplicate");
    assert_eq!(api.list("/api/v1/receipts?limit=250").await.len(), 10_004);
}

#[tokio::test]
async fn slack_is_given_its_challenge_back_and_nothing_else() {
    let api = Api::new();
    let source = json!({"name": "slack", "kind": "slack", "secrets": [SECRET]});
    api.source(&source).await;
    let send = async |body: &str| {
        let at = api.now().as_secs().to_string();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
        let mac = ring::hmac::sign(&key, format!("v0:{at}:{body}").as_bytes());
        let hex: String = mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let signature = format!("v0={hex}");
        let headers = [
            ("x-slack-signature", signature.as_str()),
            ("x-slack-request-timestamp", at.as_str()),
            ("content-type", "application/json"),
        ];
        api.raw("POST", "/in/slack", &headers, body.as_bytes()).await
    };
    let reply = send(r#"{"type":"url_verification","challenge":"abc"}"#).await;
    assert_eq!(reply.expect(StatusCode::OK), json!({"challenge": "abc"}));
    assert!(api.list("/api/v1/receipts").await.is_empty());
    for _ in 0..2 {
        let reply = send(r#"{"type":"event_callback","event_id":"Ev1"}"#).await;
        assert_eq!((reply.status, reply.body.len(), reply.header("content-type")), (200, 0, None));
    }
    assert_eq!(api.list("/api/v1/receipts").await.len(), 1);
}

#[tokio::test]
async fn a_store_that_takes_nothing_is_a_503_with_a_time_to_come_again() {
    let api = Api::new();
    let source = api.stripe("shop", json!({})).await;
    api.store.close();
    let reply = api.signed(&source, EVENT).await;
    assert_eq!((reply.status, reply.slug().as_str()), (503, "store-unavailable"));
    assert_eq!(reply.header("retry-after"), Some("5"));
}

#[tokio::test]
async fn twilio_is_answered_in_its_own_words() {
    let api = Api::new();
    let source = json!({"name": "calls", "kind": "twilio", "secrets": [SECRET],
        "public_url": "https://hooks.example.com"});
    api.source(&source).await;
    let key = ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    let key = ring::hmac::Key::new(key, SECRET.as_bytes());
    let signed = b"https://hooks.example.com/in/callsCallSidCA1CallStatuscompleted";
    let signature = STANDARD.encode(ring::hmac::sign(&key, signed));
    let headers = [
        ("x-twilio-signature", signature.as_str()),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    for duplicates in [0, 1] {
        let body = b"CallSid=CA1&CallStatus=completed";
        let reply = api.raw("POST", "/in/calls", &headers, body).await;
        assert_eq!((reply.status, &reply.body[..]), (200, &b"<Response/>"[..]));
        assert_eq!(reply.header("content-type"), Some("text/xml"));
        api.advance_ms(2_000);
        assert_eq!(api.rows("/api/v1/receipts").await[0]["duplicates"], duplicates);
    }
}

#[tokio::test]
async fn the_url_of_a_get_goes_on_and_is_shown() {
    let api = Api::new();
    let source = json!({"name": "calls", "kind": "twilio", "secrets": [SECRET],
        "public_url": "https://user:hunter2@hooks.example.com"});
    api.source(&source).await;
    let key = ring::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    let key = ring::hmac::Key::new(key, SECRET.as_bytes());
    let target = "/in/calls?CallSid=CA1&CallStatus=completed&Name=J%C3%B6rg+%7E";
    let url = format!("https://user:hunter2@hooks.example.com{target}");
    let signature = STANDARD.encode(ring::hmac::sign(&key, url.as_bytes()));
    let headers = [
        ("x-twilio-signature", signature.as_str()),
        ("x-message-received-url", "https://evil.example/"),
    ];
    assert_eq!(api.raw("GET", target, &headers, b"").await.status, 200);
    let receipt = api.rows("/api/v1/receipts").await.remove(0);
    let event = api.get(&format!("/api/v1/events/{}", text(&receipt["event_id"]))).await;
    let event = event.expect(StatusCode::OK);
    let shown = &event["headers"];
    assert_eq!(shown["x-message-received-method"], "GET");
    let called = format!("https://hooks.example.com{target}");
    assert_eq!(shown["x-message-received-url"], called.as_str());
    assert!(!event.to_string().contains("hunter2"));
}

#[tokio::test]
async fn the_bytes_of_an_event_are_given_as_they_are() {
    let api = Api::new();
    api.source(&json!({"name": "any", "kind": "none"})).await;
    for body in [&b" {\"a\": 1.0}\n"[..], b"<script>", b"\x00\xff\xfe", b""] {
        let came = api.raw("POST", "/in/any", &[], body).await;
        assert_eq!(came.status, 200);
        let event = api.rows("/api/v1/receipts").await[0]["event_id"].clone();
        let path = format!("/api/v1/events/{}/body", event.as_str().expect("an id"));
        let reply = api.get(&path).await;
        assert_eq!((reply.status, &reply.body[..]), (200, body));
        assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(api.raw("GET", &path, &[], b"").await.status, 401);
    }
    let unknown = api.get("/api/v1/events/evt_00000000000000000000000000/body").await;
    assert_eq!((unknown.status, unknown.slug().as_str()), (404, "not-found"));
}
