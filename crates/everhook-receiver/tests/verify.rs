//! `verify`, by the vectors by which Everhook's own intake is tested.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everhook_receiver::{
    InboundRequest, InvalidVerifier, Rejection, SourceInput, SourceKind, Timestamp, Verified,
    Verifier,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

fn cases(kind: SourceKind) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../everhook-domain/tests/vectors");
    let file = std::fs::read_to_string(folder.join(format!("{kind}.json"))).expect("vectors");
    serde_json::from_str(&file).expect("JSON")
}

/// The URL of a case: scheme and host, and path and query.
fn called(case: &Value) -> (&str, &str) {
    let url = text(case, "url");
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[host_at..].find('/').map_or(url.len(), |at| host_at + at))
}

fn options(case: &Value) -> Map<String, Value> {
    let mut options = case["options"].as_object().cloned().unwrap_or_default();
    for (name, option) in [("allowed_topic_arns", "topic_arns"), ("webhook_id", "webhook_id")] {
        if let Some(value) = case.get(name) {
            options.insert(option.to_owned(), value.clone());
        }
    }
    options
}

fn verifier(kind: SourceKind, case: &Value) -> Result<Verifier, InvalidVerifier> {
    let several = case["secrets"].as_array().into_iter().flatten();
    let secrets = several.chain([&case["secret"]]).filter_map(Value::as_str);
    let (origin, _) = called(case);
    Verifier::with(SourceInput {
        kind: kind.as_str().to_owned(),
        secrets: secrets.filter(|text| !text.is_empty()).map(str::to_owned).collect(),
        tolerance_s: case["tolerance_s"].as_u64(),
        public_url: (!origin.is_empty()).then(|| origin.to_owned()),
        options: options(case),
        ..SourceInput::default()
    })
}

fn headers(case: &Value) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, values) in case["headers"].as_object().expect("headers") {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let several = values.as_array().into_iter().flatten();
        for value in several.chain([values]).filter_map(Value::as_str) {
            headers.append(&name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
    }
    headers
}

fn verified(verifier: &Verifier, case: &Value, certificate: bool) -> Result<Verified, Rejection> {
    let body = match case["body_base64"].as_str() {
        Some(text) => STANDARD.decode(text).expect("base64"),
        None => text(case, "body").as_bytes().to_vec(),
    };
    let method = Method::from_bytes(text(case, "method").as_bytes()).expect("a method");
    let request = InboundRequest {
        method: &method,
        target: called(case).1,
        headers: &headers(case),
        body: &body,
    };
    let now = Timestamp::from_millis((case["now"].as_f64().expect("a time") * 1_000.0) as i64);
    match verifier.verify(&request, now) {
        Err(Rejection::CertificateNeeded(url)) if certificate => {
            verifier.verify_with(&request, now, (&url, text(case, "secret").as_bytes()))
        }
        verified => verified,
    }
}

/// The provider's part of the keys that are expected. A hash after it is not looked at: which keys
/// have one, the domain's own tests say.
fn expected_keys(kind: SourceKind, case: &Value) -> Vec<String> {
    let keys = case["dedupe_keys"].as_array().expect("keys").iter().filter_map(Value::as_str);
    let provider = if kind.as_str() == "sendgrid_events" { "sendgrid" } else { kind.as_str() };
    let bare = keys.map(|key| {
        let bare = key.strip_prefix(provider).and_then(|rest| rest.strip_prefix(':'));
        let bare = bare.unwrap_or(key);
        let joint = if kind.as_str() == "cloudevents" { ":" } else { "|" };
        format!("{}:{}", kind.as_str().replace('_', "-"), bare.replace('|', joint))
    });
    bare.collect()
}

fn check(kind: SourceKind, case: &Value) {
    let name = text(case, "case");
    let is_valid = text(case, "expect") != "invalid";
    let Ok(verifier) = verifier(kind, case) else {
        assert!(!is_valid, "{kind} {name}");
        return;
    };
    match verified(&verifier, case, false) {
        Err(rejection) => assert!(!is_valid, "{kind} {name}: {rejection}"),
        Ok(Verified::Events(events)) => {
            assert!(is_valid, "{kind} {name}");
            let expected = expected_keys(kind, case);
            if expected.is_empty() {
                return;
            }
            assert_eq!(events.len(), expected.len(), "{kind} {name}");
            for (event, expected) in events.iter().zip(&expected) {
                let key = event.key.as_str();
                let bare = key.rsplit_once('#').map_or(key, |(bare, _)| bare);
                assert!(key == expected || bare == expected, "{kind} {name}: {key} {expected}");
                assert_eq!(event.key.source(), verifier.source());
                assert!(event.event_type.starts_with(verifier.source()), "{kind} {name}");
            }
        }
        Ok(Verified::Ignored | Verified::Handshake(_)) => assert!(is_valid, "{kind} {name}"),
    }
}

#[test]
fn every_kind_agrees_with_its_vectors() {
    // Zendesk's have a secret that everybody knows, which no verifier takes.
    for kind in SourceKind::all().filter(|kind| kind.as_str() != "zendesk") {
        cases(kind).iter().for_each(|case| check(kind, case));
    }
}

#[test]
fn a_certificate_is_asked_for_and_handed_in() {
    let kind: SourceKind = "aws_sns".parse().expect("a kind");
    let mut asked = 0;
    for mut case in cases(kind) {
        let Ok(mut verifier) = verifier(kind, &case) else { continue };
        let pinned = verified(&verifier, &case, false);
        let secret = case["secret"].take();
        verifier = self::verifier(kind, &case).expect("no secret is needed");
        case["secret"] = secret;
        let refused = verified(&verifier, &case, false);
        asked += u32::from(matches!(refused, Err(Rejection::CertificateNeeded(_))));
        let fetched = verified(&verifier, &case, true);
        assert_eq!(fetched.is_ok(), pinned.is_ok(), "{}", text(&case, "case"));
    }
    assert!(asked > 0);
}

#[test]
fn what_is_wrong_with_settings_is_told_at_once_and_without_secrets() {
    let hidden = "hunter2 ";
    let input = SourceInput {
        kind: "message".to_owned(),
        secrets: vec![hidden.to_owned()],
        tolerance_s: Some(u64::MAX),
        ..SourceInput::default()
    };
    let Err(invalid) = Verifier::with(input) else { panic!("it is wrong") };
    let told = invalid.to_string();
    assert!(told.contains("/secrets/0: ") && told.contains("/tolerance_s: "), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    assert!(Verifier::new("nothing", ["x"]).is_err());
    let verifier = Verifier::new("stripe", ["hunter2"]).expect("legal");
    assert!(!format!("{verifier:?}").contains("hunter2"));
}

#[test]
fn keys_are_kept_for_as_long_as_the_provider_tries() {
    let day = 86_400;
    for (kind, window_s, expected_s) in [
        ("message", None, 2 * day),
        ("twilio", None, 2 * day),
        ("stripe", None, 4 * day),
        ("stripe", Some(60), 60),
    ] {
        let verifier = Verifier::with(SourceInput {
            kind: kind.to_owned(),
            secrets: vec!["c2VjcmV0".to_owned()],
            window_s,
            public_url: Some("https://a.test".to_owned()),
            ..SourceInput::default()
        });
        assert_eq!(verifier.expect("legal").keep().as_secs(), expected_s, "{kind}");
    }
}
