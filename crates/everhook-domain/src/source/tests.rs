use serde_json::{Value, json};

use super::*;

/// Settings as they are asked for: those of a source of the kind `none`, changed.
fn parse(changes: Value) -> Result<SourceSettings, Vec<InvalidSource>> {
    let mut input = json!({"name": "shop-1", "kind": "none"});
    for (name, value) in changes.as_object().expect("an object") {
        input[name] = value.clone();
    }
    SourceSettings::parse(serde_json::from_value(input).expect("the shape"))
}

fn legal(changes: Value) -> SourceSettings {
    parse(changes.clone()).unwrap_or_else(|faults| panic!("{changes}: {faults:?}"))
}

/// The places where these settings are wrong, in order.
fn check_refused(changes: Value, pointers: &[&str]) {
    let faults = parse(changes.clone()).expect_err("refused");
    let found: Vec<_> = faults.iter().map(|fault| fault.pointer.as_str()).collect();
    assert_eq!(found, pointers, "{changes}: {faults:?}");
    assert!(faults.iter().all(|fault| !fault.detail.is_empty()), "{changes}");
}

fn check_options(kind: &str, options: Value, pointers: &[&str]) {
    let secrets = if kind == "none" { json!([]) } else { json!(["00ff"]) };
    let changes = json!({"kind": kind, "secrets": secrets, "options": options});
    match pointers {
        [] => drop(legal(changes)),
        _ => check_refused(changes, pointers),
    }
}

#[test]
fn names() {
    for name in ["a", "0", "-", "shop-1", &"x".repeat(NAME_CHARS_MAX)] {
        assert_eq!(legal(json!({"name": name})).name.as_str(), name);
    }
    for name in ["", "A", "a_b", "a.b", "ä", "a b", "a\n", &"x".repeat(NAME_CHARS_MAX + 1)] {
        check_refused(json!({"name": name}), &["/name"]);
    }
}

#[test]
fn no_source_is_called_everhook() {
    check_refused(json!({"name": "everhook"}), &["/name"]);
    legal(json!({"name": "everhook-2"}));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    check_refused(
        json!({
            "name": "A",
            "kind": "github",
            "window_s": 0,
            "tolerance_s": 604_801,
            "public_url": "ftp://a",
            "dedupe": {},
            "secrets": [""],
            "options": {"body_max": 0, "none_such": 1},
        }),
        &[
            "/name",
            "/secrets/0",
            "/window_s",
            "/tolerance_s",
            "/public_url",
            "/dedupe",
            "/options/body_max",
            "/options/none_such",
        ],
    );
    // Where the kind is unknown, what every kind has is judged all the same.
    let options = json!({"body_max": 0, "empty": "x", "of_some_kind": 1});
    let changes = json!({"kind": "fax", "window_s": 0, "options": options});
    check_refused(changes, &["/kind", "/window_s", "/options/body_max", "/options/empty"]);
    check_refused(json!({"kind": "fax"}), &["/kind"]);
    let faults = parse(json!({"kind": "fax"})).expect_err("refused");
    for kind in SourceKind::all() {
        assert!(faults[0].detail.contains(kind.as_str()), "{kind}: {}", faults[0].detail);
    }
}

#[test]
fn a_secret_that_would_protect_nothing_is_refused() {
    check_refused(json!({"kind": "none", "secrets": ["s"]}), &["/secrets"]);
    legal(json!({"kind": "cloudevents", "secrets": ["s"]}));
    legal(json!({"kind": "cloudevents"}));
}

#[test]
fn the_url_that_was_called() {
    let hubspot = json!({"kind": "hubspot", "secrets": ["s"], "public_url": "https://u:p@a.test"});
    let none = |url: Value| json!({"kind": "none", "public_url": url});
    for (changes, target, expected) in [
        (none(json!(null)), "/in/x?b=%7E", "/in/x?b=%7E"),
        (none(json!("https://a.test/hook")), "/in/x?b=1", "https://a.test/hook?b=1"),
        // What is for us alone, as `Authorization` is.
        (none(json!(null)), "/in/x?access_token=t", "/in/x"),
        (
            none(json!(null)),
            "/in/x?a=1&access_token=t&&access_tokens=2",
            "/in/x?a=1&&access_tokens=2",
        ),
        (hubspot.clone(), "/in/x", "https://a.test/in/x"),
        // It is signed, so it stays as it is.
        (hubspot, "/in/x?access_token=t", "https://a.test/in/x?access_token=t"),
    ] {
        assert_eq!(legal(changes).called(target), expected, "{target}");
    }
}

#[test]
fn what_a_kind_needs() {
    check_refused(json!({"kind": "stripe"}), &["/secrets"]);
    check_refused(json!({"kind": "hubspot"}), &["/secrets", "/public_url"]);
    check_refused(json!({"kind": "square", "secrets": ["s"]}), &["/public_url"]);
    legal(json!({"kind": "square", "secrets": ["s"], "public_url": "https://a.test"}));
}

#[test]
fn windows_and_tolerances() {
    const DAY: u64 = 86_400;
    for (kind, hours) in [
        ("message", 48),
        ("standard_webhooks", 48),
        ("svix", 48),
        ("stripe", 96),
        ("shopify", 48),
        ("github", 48),
        ("slack", 48),
        ("paddle", 96),
        ("linear", 48),
        ("zendesk", 48),
        ("intercom", 48),
        ("hmac", 48),
        ("none", 48),
    ] {
        let of = |changes: Value| {
            let secrets = if kind == "none" { json!([]) } else { json!(["AAAA"]) };
            let mut whole = json!({"kind": kind, "secrets": secrets});
            whole.as_object_mut().expect("an object").extend(changes.as_object().cloned().unwrap());
            legal(whole)
        };
        let default = of(json!({}));
        assert_eq!(default.window(), Duration::from_secs(hours * 3_600), "{kind}");
        assert_eq!(default.tolerance(), Duration::from_secs(300), "{kind}");
        let set = of(json!({"window_s": DAY, "tolerance_s": 0}));
        assert_eq!((set.window(), set.tolerance()), (Duration::from_secs(DAY), Duration::ZERO));
    }
    legal(json!({"window_s": 1, "tolerance_s": 7 * DAY}));
    legal(json!({"window_s": 366 * DAY}));
    check_refused(json!({"window_s": 366 * DAY + 1}), &["/window_s"]);
}

#[test]
fn rules_of_the_owner() {
    assert_eq!(
        legal(json!({"dedupe": {"header": "X-Call-Id"}})).dedupe,
        Some(DedupeRule::Header(http::HeaderName::from_static("x-call-id")))
    );
    let pointers = json!({"dedupe": {"pointers": ["/callId", "/event"]}});
    assert!(
        matches!(legal(pointers).dedupe, Some(DedupeRule::Pointers(found)) if found.len() == 2)
    );
    let many = vec!["/a"; POINTERS_MAX + 1];
    for (rule, pointer) in [
        (json!("x-call-id"), "/dedupe"),
        (json!({"header": "a", "pointers": ["/a"]}), "/dedupe"),
        (json!({"header": 1}), "/dedupe"),
        (json!({"header": "a b"}), "/dedupe/header"),
        (json!({"pointers": []}), "/dedupe/pointers"),
        (json!({"pointers": many}), "/dedupe/pointers"),
        (json!({"pointers": ["/a", "b"]}), "/dedupe/pointers/1"),
        (json!({"pointers": ["/a", 1]}), "/dedupe/pointers/1"),
    ] {
        check_refused(json!({"dedupe": rule}), &[pointer]);
    }
}

#[test]
fn options_that_every_kind_has() {
    for (options, pointers) in [
        (json!({}), vec![]),
        (json!({"body_max": 1}), vec![]),
        (json!({"body_max": BODY_MAX}), vec![]),
        (json!({"body_max": BODY_MAX + 1}), vec!["/options/body_max"]),
        (json!({"body_max": "1"}), vec!["/options/body_max"]),
        (json!({"reject_status": 400}), vec![]),
        (json!({"reject_status": 403}), vec![]),
        (json!({"reject_status": 404}), vec!["/options/reject_status"]),
        (json!({"empty": "ignore"}), vec![]),
        (json!({"empty": "drop"}), vec!["/options/empty"]),
        (json!({"content_encoding": "decoded"}), vec![]),
        (json!({"content_encoding": "gzip"}), vec!["/options/content_encoding"]),
        (json!({"forward": "item"}), vec![]),
        (json!({"forward": null}), vec!["/options/forward"]),
        (json!({"replay_guard": "body"}), vec![]),
        (json!({"replay_guard": true}), vec!["/options/replay_guard"]),
        (json!({"answer": {"body": "ok"}}), vec![]),
        (json!({"answer": {"status": 204, "content_type": null}}), vec![]),
        (json!({"answer": {"status": 302}}), vec!["/options/answer"]),
        (json!({"answer": {"content_type": "a\nb"}}), vec!["/options/answer"]),
        (json!({"answer": {"text": "ok"}}), vec!["/options/answer"]),
        (json!({"answer": "ok"}), vec!["/options/answer"]),
        (json!({"a/b~": 1}), vec!["/options/a~1b~0"]),
    ] {
        check_options("none", options, &pointers);
    }
}

#[test]
fn options_of_one_kind() {
    for (kind, options, pointers) in [
        ("github", json!({"dedupe_by": "event"}), vec!["/options/dedupe_by"]),
        ("shopify", json!({"dedupe_by": "event"}), vec![]),
        ("shopify", json!({"dedupe_by": "topic"}), vec!["/options/dedupe_by"]),
        ("none", json!({"timestamp_header": "X-Time"}), vec![]),
        ("none", json!({"timestamp_header": "X Time"}), vec!["/options/timestamp_header"]),
        ("hmac", json!({"signed": "timestamp_body"}), vec!["/options/timestamp_header"]),
        ("hmac", json!({"prefix": "ä"}), vec!["/options/prefix"]),
        ("hmac", json!({"prefix": "v1, "}), vec!["/options/prefix"]),
        ("hmac", json!({"prefix": "v1=", "separator": ", "}), vec![]),
        ("hmac", json!({"prefix": "x".repeat(65)}), vec!["/options/prefix"]),
        ("hmac", json!({"secret_encoding": "hex"}), vec![]),
        (
            "hmac",
            json!({"algorithm": "md5", "encoding": 1, "header": "", "timestamp_unit": "m"}),
            vec![
                "/options/header",
                "/options/algorithm",
                "/options/encoding",
                "/options/timestamp_unit",
            ],
        ),
    ] {
        check_options(kind, options, &pointers);
    }
}

/// Whether a secret is one for the kind, and that a refusal does not repeat it.
fn check_secret(kind: &str, secret: &str, is_legal: bool) {
    let url = "https://a.test";
    let parsed = parse(json!({"kind": kind, "secrets": [secret], "public_url": url}));
    assert_eq!(parsed.is_ok(), is_legal, "{kind} {secret:?}: {parsed:?}");
    for fault in parsed.err().into_iter().flatten() {
        assert_eq!(fault.pointer, "/secrets/0", "{kind} {secret:?}");
        // Shorter ones are the prefixes that the text speaks of.
        assert!(secret.len() < 8 || !fault.detail.contains(secret), "{fault}");
    }
}

#[test]
fn case_030_secrets_with_and_without_their_prefix() {
    for kind in ["message", "standard_webhooks", "svix"] {
        for secret in [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_AA==",
            "whsec_AA",
            "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=",
        ] {
            check_secret(kind, secret, true);
        }
        for secret in [
            "",
            "whsec_",
            "whpk_",
            "whpk_AAAA",
            "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbf=",
            "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n",
            "not base64!",
        ] {
            check_secret(kind, secret, false);
        }
    }
    for kind in ["stripe", "shopify", "hubspot", "github", "slack", "paddle", "square", "linear"] {
        for secret in ["x", "whsec_not base64!", "ä", " "] {
            check_secret(kind, secret, true);
        }
        check_secret(kind, "", false);
        check_secret(kind, &"x".repeat(SECRET_BYTES_MAX), true);
        check_secret(kind, &"x".repeat(SECRET_BYTES_MAX + 1), false);
    }
}

#[test]
fn the_secret_of_everybodys_tests_is_refused() {
    check_secret("zendesk", "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==", false);
    check_secret("zendesk", "dGhpc19zZWNyZXRfaXNfZm9yX3Rlc3Rpbmdfb25seQ==\n", false);
    check_secret("zendesk", "dGhpc19pc19hbm90aGVyX3NlY3JldF9lbnRpcmVseQ==", true);
}

#[test]
fn secrets_of_another_spelling() {
    for (encoding, secret, is_legal) in [
        ("hex", "00fF", true),
        ("hex", "0", false),
        ("hex", "whsec", false),
        ("base64", "AP8=", true),
        ("base64", "AP8", true),
        ("base64", "AP-_", false),
        ("text", "AP-_", true),
    ] {
        let options = json!({"secret_encoding": encoding});
        let parsed = parse(json!({"kind": "hmac", "secrets": [secret], "options": options}));
        assert_eq!(parsed.is_ok(), is_legal, "{encoding} {secret}");
    }
}

#[test]
fn several_secrets() {
    let many = |count: usize| json!({"kind": "github", "secrets": vec!["s"; count]});
    assert_eq!(legal(many(SECRETS_MAX)).secrets.len(), SECRETS_MAX);
    check_refused(many(SECRETS_MAX + 1), &["/secrets"]);
    check_refused(json!({"kind": "svix", "secrets": ["AAAA", "ä"]}), &["/secrets/1"]);
}

#[test]
fn case_089_white_space_at_the_ends_is_a_warning() {
    for (secret, warned) in
        [("s", false), ("s\n", true), ("s\r\n", true), (" s", true), ("s\t", true), ("a b", false)]
    {
        let settings = legal(json!({"kind": "stripe", "secrets": ["other", secret]}));
        assert_eq!(settings.secrets[1].expose(), secret, "used as it is");
        let warnings = settings.warnings();
        let pointers: Vec<_> = warnings.iter().map(|found| found.pointer.as_str()).collect();
        assert_eq!(pointers, if warned { vec!["/secrets/1"] } else { vec![] }, "{secret:?}");
    }
}

#[test]
fn stored_forms_give_back_the_same() {
    for changes in [
        json!({}),
        json!({"kind": "stripe", "secrets": ["whsec_\"ä\n", "b"]}),
        json!({
            "kind": "hmac",
            "secrets": ["00ff"],
            "window_s": 60,
            "tolerance_s": 5,
            "public_url": "https://a.test/x?y=%7e",
            "dedupe": {"pointers": ["/a~1b", "/c/0"]},
            "options": {
                "body_max": 1_000,
                "answer": {"status": 202, "content_type": "text/plain", "body": "ok"},
                "reject_status": 403,
                "empty": "reject",
                "content_encoding": "decoded",
                "forward": "item",
                "replay_guard": "body",
                "header": "X-Sig",
                "secret_encoding": "hex",
            },
        }),
        json!({"dedupe": {"header": "x-id"}, "options": {"empty": "ignore", "reject_status": 400}}),
    ] {
        let settings = legal(changes);
        let (text, secrets) = (settings.to_stored(), settings.secrets_to_stored());
        let again = SourceSettings::from_stored(&text, &secrets).expect("readable");
        assert_eq!(again, settings, "{text}");
        for secret in &settings.secrets {
            assert!(!text.contains(secret.expose()), "{text}");
        }
    }
    assert_eq!(legal(json!({})).to_stored(), r#"{"name":"shop-1","kind":"none"}"#);
}

#[test]
fn damaged_stored_forms_say_why_and_no_secret() {
    let good = r#"{"name":"a","kind":"svix"}"#;
    for (settings, secrets, expected) in [
        ("{", "[]", "not in a form"),
        (good, "{}", "not a list"),
        (good, "[1]", "not a list"),
        (good, r#"["hunter2!"]"#, "/secrets/0"),
        (r#"{"name":"a","kind":"fax"}"#, "[]", "/kind"),
        (r#"{"name":"a","kind":"none","more":1}"#, "[]", "not in a form"),
    ] {
        let error = SourceSettings::from_stored(settings, secrets).expect_err("unreadable");
        assert!(error.0.contains(expected), "{settings}: {error}");
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}

#[test]
fn nothing_prints_a_secret() {
    let settings = legal(json!({"kind": "github", "secrets": ["hunter2\n"]}));
    let printed = format!("{settings:?} {:?} {:?}", settings.warnings(), settings.to_input());
    assert!(!printed.contains("hunter2"), "{printed}");
}
