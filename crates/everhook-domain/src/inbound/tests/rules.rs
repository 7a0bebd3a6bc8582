//! What holds for every kind, and what is one kind's own.

use serde_json::json;

use super::*;
use crate::header::HeaderPrefix;

#[test]
fn own_rules_look_at_each_item() {
    let hubspot = source("hubspot", json!({"dedupe": {"pointers": ["/objectId"]}}));
    let items = Sent::hubspot(br#"[{"eventId":1,"objectId":7},{"eventId":1,"objectId":8}]"#);
    let items = items.items(&hubspot);
    let keys: Vec<_> = items.iter().map(|item| item.key.shown()).collect();
    assert_eq!(keys, ["7", "8"]);
}

#[test]
fn own_rules_by_header() {
    let github = source("github", json!({"dedupe": {"header": "X-Own"}}));
    let sent = Sent::github(b"{}").with("X-GitHub-Delivery", "d1");
    let check = |sent: Sent<'_>, key: &str, from: &str, failed: Option<&str>| {
        let item = sent.item(&github);
        assert_eq!((item.key.shown(), item.key_from.as_str()), (key, from));
        assert_eq!(item.own_rule_failed.as_deref(), failed);
    };
    check(sent.clone().with("x-own", " 5 "), "5", "header x-own", None);
    check(sent.clone().with("x-own", "5").with("X-OWN", "5"), "5", "header x-own", None);
    let missing = "the header x-own is missing or empty";
    for (odd, failed) in [
        (sent.clone(), missing),
        (sent.clone().with("x-own", " "), missing),
        (sent.with("x-own", "5").with("x-own", "6"), "the header x-own has more than one value"),
    ] {
        check(odd, "d1", "kind", Some(failed));
    }
}

#[test]
fn own_rules_by_pointers_need_every_part() {
    let rule = json!({"dedupe": {"pointers": ["/call", "/event"]}});
    let check = |body: &str, key: Option<&str>, failed: Option<&str>| {
        let item = Sent::stripe(body.as_bytes()).item(&source("stripe", rule.clone()));
        let from = match key {
            Some(_) => "pointers /call /event",
            None if body.contains("\"id\"") => "kind",
            None => "fallback",
        };
        assert_eq!(item.key_from, from, "{body}");
        assert_eq!(item.own_rule_failed.is_some(), failed.is_some(), "{body}");
        let said = item.own_rule_failed.unwrap_or_default();
        assert!(said.contains(failed.unwrap_or_default()), "{body}: {said}");
        assert!(key.is_none_or(|key| item.key.shown() == key), "{body}: {}", item.key.shown());
    };
    check(r#"{"call":7,"event":"a"}"#, Some("7:a"), None);
    check(r#"{"call":false,"event":0}"#, Some("false:0"), None);
    // What has parts of its own counts as it is written.
    check(r#"{"call":{"n": 1},"event":[2]}"#, Some("{\"n\": 1}:[2]"), None);
    check(r#"{"call":{},"event":[]}"#, Some("{}:[]"), None);
    for part in ["null", "\"\""] {
        check(&format!(r#"{{"id":"e","call":{part},"event":"a"}}"#), None, Some("'/call'"));
        check(&format!(r#"{{"id":"e","call":1,"event":{part}}}"#), None, Some("'/event'"));
    }
    check(r#"{"id":"e","call":1}"#, None, Some("'/event'"));
    check(r#"{"call":1}"#, None, Some("'/event'"));
    check("{}", None, Some("'/call'"));
    // Other content in a part that was once ignored is another event.
    let key = |body: &'static [u8]| Sent::stripe(body).item(&source("stripe", rule.clone())).key;
    assert_ne!(key(br#"{"call":{"n":1},"event":1}"#), key(br#"{"call":{"n":2},"event":1}"#));
    assert_ne!(key(br#"{"call":1,"event":1,"n":1}"#), key(br#"{"call":1,"n":2}"#));
}

#[test]
fn the_number_of_an_attempt_of_hubspot_is_not_content() {
    let hubspot = source("hubspot", json!({}));
    let content = |body: &'static str| Sent::hubspot(body.as_bytes()).item(&hubspot).content;
    let first = content(r#"[{"eventId":1,"attemptNumber":0,"value":"a"}]"#);
    assert_eq!(content(r#"[{"eventId":1,"attemptNumber":4,"value":"a"}]"#), first);
    assert_ne!(content(r#"[{"eventId":1,"attemptNumber":0,"value":"b"}]"#), first);
    assert_ne!(content(r#"[{"eventId":1,"attemptNumber":0,"values":"a"}]"#), first);
    assert_ne!(content(r#"[{"eventId":1,"attemptNumber":0}]"#), first);
}

#[test]
fn the_fallback_key_is_of_the_signed_timestamp_and_the_bytes() {
    let stripe = source("stripe", json!({}));
    let at = |at, body| Sent::stripe_at(at, body).item(&stripe);
    let first = at("1700000000", b"{}");
    assert_eq!(first.key_from, "fallback");
    assert_eq!(first.key, at("1700000000", b"{}").key);
    assert_ne!(first.key, at("1700000001", b"{}").key);
    assert_ne!(first.key, at("1700000000", b"{ }").key);
    // The lengths tell timestamp and body apart.
    let none = source("none", json!({"options": {"timestamp_header": "x-time"}}));
    let of = |time, body| Sent::plain(body).with("x-time", time).item(&none).key;
    assert_ne!(of("1", b"2{}"), of("12", b"{}"));
    assert_ne!(of("1", b"{}"), Sent::plain(b"{}").item(&none).key);
}

#[test]
fn the_guard_by_body_is_for_every_kind() {
    let options = json!({"options": {"replay_guard": "body"}});
    let github = source("github", options.clone());
    let guard = |id, body| Sent::github(body).with("X-GitHub-Delivery", id).item(&github).guard;
    assert!(guard("d1", b"{}").is_some());
    assert_eq!(guard("d1", b"{}"), guard("d2", b"{}"));
    assert_ne!(guard("d1", b"{}"), guard("d1", b"{ }"));
    // Equal items of one array are told apart by their places.
    let items = Sent::hubspot(b"[{},{}]").items(&source("hubspot", options));
    assert_ne!(items[0].guard, items[1].guard);
}

#[test]
fn the_tolerance_is_the_sources_and_inclusive() {
    for (tolerance, at, expected) in [
        (json!({}), 1_699_999_700, None),
        (json!({}), 1_700_000_300, None),
        (json!({}), 1_699_999_699, Some((301, "old"))),
        (json!({}), 1_700_000_301, Some((301, "ahead"))),
        (json!({"tolerance_s": 0}), 1_700_000_000, None),
        (json!({"tolerance_s": 0}), 1_700_000_001, Some((1, "ahead"))),
        (json!({"tolerance_s": 3_600}), 1_699_996_400, None),
    ] {
        let at = i64::to_string(&at);
        let judged = Sent::stripe_at(&at, b"{}").judged(&source("stripe", tolerance));
        let stale = expected.map(|(seconds, side)| Rejection::Stale { seconds, side });
        assert_eq!(judged.err(), stale, "{at}");
    }
    // A forgery is not told how late it is.
    let mut forged = Sent::stripe_at("1", b"{}");
    forged.body = b"{ }";
    assert!(is_refused(&forged, &source("stripe", json!({}))));
}

#[test]
fn types_of_events() {
    for (kind, sent, expected) in [
        ("stripe", Sent::stripe(br#"{"type":"charge.succeeded"}"#), "shop.charge.succeeded"),
        ("stripe", Sent::stripe(b"{}"), "shop.received"),
        ("stripe", Sent::stripe(br#"{"type":""}"#), "shop.received"),
        ("stripe", Sent::stripe("{\"type\":\"a b/ä\"}".as_bytes()), "shop.a_b__"),
        ("none", Sent::plain(br#"{"type":"a"}"#), "shop.received"),
        ("github", Sent::github(b"").with("X-GitHub-Event", "push"), "shop.push"),
        ("linear", Sent::linear(br#"{"type":"Issue"}"#), "shop.Issue"),
        ("slack", Sent::slack(br#"{"type":"event_callback","event":{"type":"x"}}"#), "shop.x"),
        ("slack", Sent::slack(br#"{"type":"app_rate_limited"}"#), "shop.app_rate_limited"),
        (
            "hubspot",
            Sent::hubspot(br#"{"subscriptionType":"deal.creation"}"#),
            "shop.deal.creation",
        ),
    ] {
        assert_eq!(sent.item(&source(kind, json!({}))).event_type.as_str(), expected);
    }
    let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(1_000));
    let item = Sent::stripe(long.as_bytes()).item(&source("stripe", json!({})));
    assert_eq!(item.event_type.as_str().len(), crate::event::TYPE_BYTES_MAX);
    // A source's word before it keeps our own types ours.
    let item = Sent::stripe(br#"{"type":"everhook.test"}"#).item(&source("stripe", json!({})));
    assert_eq!(item.event_type.as_str(), "shop.everhook.test");
}

#[test]
fn what_other_content_under_a_key_means() {
    for (sent, kind, expected) in [
        (Sent::stripe(b"{}"), "stripe", OnChange::Mark),
        (Sent::github(b"{}"), "github", OnChange::Mark),
        (Sent::plain(b"{}").with("Idempotency-Key", "1"), "none", OnChange::Conflict),
    ] {
        assert_eq!(sent.item(&source(kind, json!({}))).on_change, expected, "{kind}");
    }
    let none = source("none", json!({}));
    let of = |body| Sent::plain(body).with("Idempotency-Key", "1").item(&none);
    assert_eq!(of(b"{}").key, of(b"{ }").key);
    assert_ne!(of(b"{}").content, of(b"{ }").content);
}

#[test]
fn methods() {
    let judged = |kind: &str, method| {
        let sent = Sent { method, ..Sent::plain(b"") };
        sent.judged(&source(kind, json!({})))
    };
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "post"] {
        assert_eq!(judged("github", method), Err(Rejection::Method { allow: &["POST"] }));
    }
    for method in ["GET", "PUT", "DELETE", "POST"] {
        assert!(matches!(judged("zendesk", method), Err(Rejection::Signature(_))), "{method}");
    }
    assert!(matches!(judged("hubspot", "GET"), Err(Rejection::Signature(_))));
    assert!(matches!(judged("hubspot", "PUT"), Err(Rejection::Method { .. })));
}

#[test]
fn without_what_verifies_the_fault_is_ours() {
    let mut github = source("github", json!({}));
    github.secrets.clear();
    assert_eq!(Sent::github(b"{}").judged(&github), Err(Rejection::no_secret()));
    let mut hubspot = source("hubspot", json!({}));
    hubspot.public_url = None;
    assert!(matches!(Sent::hubspot(b"[]").judged(&hubspot), Err(Rejection::Misconfigured(_))));
}

#[test]
fn slacks_challenge_is_given_back_once_it_is_verified() {
    let slack = source("slack", json!({}));
    let body = br#"{"token":"x","challenge":"a\"b<c>","type":"url_verification"}"#;
    let Ok(Judgement::Handshake(Handshake::Answer(answer))) = Sent::slack(body).judged(&slack)
    else {
        panic!("no answer");
    };
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers, [("content-type", "application/json".to_owned())]);
    assert_eq!(answer.body, br#"{"challenge":"a\"b<c>"}"#);
    let forged = Sent { headers: Sent::slack(b"{}").headers, ..Sent::slack(body) };
    assert!(is_refused(&forged, &slack));
    // What only looks like it is an event like any other.
    Sent::slack(br#"{"type":"url_verification"}"#).item(&slack);
    let event = Sent::slack(br#"{"type":"event_callback","challenge":"x","event_id":"Ev1"}"#);
    assert_eq!(event.item(&slack).key.shown(), "Ev1");
    assert_eq!(slack.kind.answer(false), Some(Answer { status: 200, ..Answer::default() }));
}

#[test]
fn slacks_forms() {
    let slack = source("slack", json!({}));
    let form = |body: &'static [u8]| {
        Sent::slack(body).with("content-type", "application/x-www-form-urlencoded").item(&slack)
    };
    let command = form(b"command=%2Fgo&trigger_id=1.2&text=a+b");
    assert_eq!(command.key.shown(), "1.2");
    assert_eq!(command.event_type.as_str(), "shop.slash_commands");
    let action =
        form(b"payload=%7B%22type%22%3A%22view_submission%22%2C%22trigger_id%22%3A%223%22%7D");
    assert_eq!((action.key.shown(), action.event_type.as_str()), ("3", "shop.view_submission"));
    assert!(form(b"payload=%7B").unreadable.is_some());
    let other = form(b"ssl_check=1");
    assert_eq!((other.key_from.as_str(), other.unreadable), ("fallback", None));
}

#[test]
fn a_missing_header_is_named_as_most_know_it() {
    for (kind, header) in [
        ("shopify", "x-shopify-hmac-sha256"),
        ("hubspot", "x-hubspot-signature-v3"),
        ("slack", "x-slack-request-timestamp"),
        ("stripe", "stripe-signature"),
    ] {
        let judged = Sent::plain(b"{}").judged(&source(kind, json!({})));
        assert_eq!(judged, Err(Rejection::missing(header)), "{kind}");
    }
}

#[test]
fn what_we_send_a_source_of_ours_takes() {
    let secret = crate::secret::Secret::from_bytes([7; 32]);
    let body = br#"{"id":"evt_1","type":"invoice.paid","data":{}}"#;
    let signature = crate::signature::sign([&secret].into_iter(), "evt_1", 1_700_000_000, body);
    let sent = Sent::plain(body)
        .with("X-Message-Webhook-Id", "evt_1")
        .with("webhook-id", "evt_1")
        .with("webhook-timestamp", "1700000000")
        .with("webhook-signature", signature);
    for kind in ["message", "standard_webhooks", "svix"] {
        let item = sent.item(&source(kind, json!({"secrets": [secret.expose()]})));
        assert_eq!((item.key.shown(), item.guard), ("evt_1", None), "{kind}");
        assert_eq!(item.event_type.as_str(), "shop.invoice.paid");
    }
}

#[test]
fn parts_of_a_body_go_on_without_what_describes_the_whole() {
    let hubspot = source("hubspot", json!({}));
    for (body, names) in [
        (&b"[{},{}]"[..], &["x-kept"][..]),
        (b"[{}]", &["content-encoding", "content-digest", "x-kept"]),
        (b"{}", &["content-encoding", "content-digest", "x-kept"]),
    ] {
        let items = Sent::hubspot(body).items(&hubspot);
        let sent = Sent::plain(body)
            .with("Content-Encoding", "identity")
            .with("Content-Digest", "sha-256=:AA==:")
            .with("X-Kept", "1");
        let (map, method) = (sent.headers(), Method::POST);
        let request = InboundRequest { method: &method, target: "/", headers: &map, body };
        let headers = ForwardedHeaders::of(&request, "/", &HeaderPrefix::default());
        let headers = headers.for_items(&items);
        let added = ["x-message-received-method", "x-message-received-url"];
        let found: Vec<_> = headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, [names, &added].concat());
    }
}
