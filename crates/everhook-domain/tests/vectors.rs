//! Every kind of source against its vectors: `tests/vectors/<kind>.json`.
//!
//! Each case is a request, the secret, and the time of arrival; `valid` ones name the dedupe keys
//! that are in them, `invalid` ones must be refused. `status` says whether a case agrees with a
//! value that the provider or another party has published; the others were computed apart from this
//! code.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use everhook_domain::inbound::{
    Context, Handshake, InboundRequest, Judgement, Rejection, SourceKind, judge,
};
use everhook_domain::source::{InvalidSource, SourceInput, SourceSecret, SourceSettings};
use everhook_domain::time::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

/// The secrets of a case: one, or several.
fn secrets(case: &Value) -> Vec<String> {
    let several = case["secrets"].as_array().into_iter().flatten();
    several.chain([&case["secret"]]).filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The source that a case is for; an error if the kind refuses its settings.
fn source(kind: &str, case: &Value) -> Result<SourceSettings, Vec<InvalidSource>> {
    let (origin, _) = called(case);
    let secrets: Vec<_> = secrets(case).into_iter().filter(|text| !text.is_empty()).collect();
    // Everybody's secret, which no source may have but vectors are signed with.
    let public = kind == "zendesk";
    let input = SourceInput {
        name: "vectors".to_owned(),
        kind: kind.to_owned(),
        secrets: if public { vec!["another".to_owned()] } else { secrets.clone() },
        tolerance_s: case["tolerance_s"].as_u64(),
        public_url: (!origin.is_empty()).then(|| origin.to_owned()),
        options: options(case),
        ..SourceInput::default()
    };
    let mut settings = SourceSettings::parse(input)?;
    if public {
        settings.secrets = secrets.iter().map(|text| SourceSecret::new(text)).collect();
    }
    Ok(settings)
}

/// Options that a case needs, by the names that the kinds give them.
fn options(case: &Value) -> Map<String, Value> {
    let mut options = case["options"].as_object().cloned().unwrap_or_default();
    for (name, option) in [("allowed_topic_arns", "topic_arns"), ("webhook_id", "webhook_id")] {
        if let Some(value) = case.get(name) {
            options.insert(option.to_owned(), value.clone());
        }
    }
    options
}

/// The URL of a case: scheme and host, and path and query.
fn called(case: &Value) -> (&str, &str) {
    let url = text(case, "url");
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[host_at..].find('/').map_or(url.len(), |at| host_at + at))
}

/// The headers of a case: a name may have several values.
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

/// The body of a case: a text, or base64.
fn body(case: &Value) -> Vec<u8> {
    match case["body_base64"].as_str() {
        Some(text) => STANDARD.decode(text).expect("base64"),
        None => text(case, "body").as_bytes().to_vec(),
    }
}

/// What a case's request comes to. A certificate that is asked for is handed out if the case allows
/// that: it then must be the one at the URL of the case.
fn judged(case: &Value, source: &SourceSettings, fetch: bool) -> Result<Judgement, Rejection> {
    let headers = headers(case);
    let method = Method::from_bytes(text(case, "method").as_bytes()).expect("a method");
    let (_, target) = called(case);
    let body = body(case);
    let request = InboundRequest { method: &method, target, headers: &headers, body: &body };
    let now = case["now"].as_f64().expect("a time") * 1_000.0;
    let now = Timestamp::from_millis(now as i64);
    match judge(&request, &Context { source, now, certificate: None }) {
        Err(Rejection::CertificateNeeded(url)) if fetch => {
            assert_eq!(url.as_str(), text(case, "cert_url"));
            let certificate = Some((&url, text(case, "secret").as_bytes()));
            judge(&request, &Context { source, now, certificate })
        }
        judged => judged,
    }
}

/// The keys of what is stored; none of what is not.
fn keys(judged: Judgement) -> Option<Vec<String>> {
    match judged {
        Judgement::Store(items) => {
            Some(items.iter().map(|item| item.key.shown().to_owned()).collect())
        }
        Judgement::Ignore | Judgement::Handshake(_) => None,
    }
}

fn check(kind: &str, case: &Value) {
    let name = text(case, "case");
    match source(kind, case) {
        Ok(source) => check_judged(kind, case, judged(case, &source, false)),
        // A secret that is none verifies nothing.
        Err(faults) => assert_eq!(text(case, "expect"), "invalid", "{kind} {name}: {faults:?}"),
    }
}

fn check_judged(kind: &str, case: &Value, judged: Result<Judgement, Rejection>) {
    let name = text(case, "case");
    if text(case, "expect") == "invalid" {
        let rejection = judged.expect_err(name);
        let theirs = matches!(
            rejection,
            Rejection::Signature(_)
                | Rejection::Stale { .. }
                | Rejection::Empty
                | Rejection::TooLarge { .. }
                | Rejection::UnknownCoding
                | Rejection::BrokenCoding
        );
        assert!(theirs, "{kind} {name}: {rejection:?}");
        return;
    }
    let judged = judged.unwrap_or_else(|rejection| panic!("{kind} {name}: {rejection:?}"));
    let expected = case["dedupe_keys"].as_array().expect("keys");
    let expected: Vec<_> = expected.iter().map(|key| shown(kind, key)).collect();
    // A case without keys is about its signature, and a handshake is no event.
    if let Some(found) = keys(judged).filter(|_| !expected.is_empty()) {
        assert_eq!(found, expected, "{kind} {name}");
    }
}

/// A key of the vectors as it is shown: without the provider before it.
fn shown(kind: &str, key: &Value) -> String {
    let key = key.as_str().expect("text");
    let provider = if kind == "sendgrid_events" { "sendgrid" } else { kind };
    let parts = key.strip_prefix(provider).and_then(|rest| rest.strip_prefix(':')).unwrap_or(key);
    // The specification joins source and id by a bar; the parts are the same.
    if kind == "cloudevents" { parts.replace('|', ":") } else { parts.to_owned() }
}

fn cases(kind: &str) -> Vec<Value> {
    let path = folder().join(format!("{kind}.json"));
    let file = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{kind} has no vectors: {}: {error}", path.display()));
    let cases: Vec<Value> = serde_json::from_str(&file).expect("JSON");
    assert!(!cases.is_empty(), "{kind}");
    cases
}

#[test]
fn every_kind_agrees_with_its_vectors() {
    for kind in SourceKind::all() {
        cases(kind.as_str()).iter().for_each(|case| check(kind.as_str(), case));
    }
}

/// The vectors pin their certificates, which their author has made. Here they are served instead.
#[test]
fn a_certificate_that_is_not_pinned_is_asked_for() {
    for case in cases("aws_sns") {
        let mut source = source("aws_sns", &case).expect("legal");
        source.secrets.clear();
        check_judged("aws_sns", &case, judged(&case, &source, true));
    }
}

/// That of SNS has no chain, and whoever is its host is trusted; PayPal's must have one.
#[test]
fn a_certificate_that_nobody_vouches_for_is_trusted_only_if_it_is_pinned() {
    for case in cases("paypal") {
        let mut source = source("paypal", &case).expect("legal");
        source.secrets.clear();
        let rejection = judged(&case, &source, true).expect_err("nobody vouches for it");
        assert!(matches!(rejection, Rejection::Signature(_)), "{rejection:?}");
    }
}

#[test]
fn what_happened_to_a_mail_may_be_the_key() {
    let mut checked = 0;
    for mut case in cases("aws_sns") {
        let Some(semantic) = case.get("semantic_keys").cloned() else { continue };
        case["options"]["key"] = "ses_event".into();
        case["dedupe_keys"] = semantic;
        check("aws_sns", &case);
        checked += 1;
    }
    assert!(checked > 0);
}

#[test]
fn a_subscription_is_confirmed_by_a_request_to_a_host_that_was_checked() {
    let mut confirmed = 0;
    for case in cases("aws_sns") {
        let source = source("aws_sns", &case).expect("legal");
        if let Ok(Judgement::Handshake(handshake)) = judged(&case, &source, false) {
            let Handshake::Confirm(url) = handshake else { panic!("{handshake:?}") };
            let body: Value = serde_json::from_str(text(&case, "body")).expect("JSON");
            assert_eq!(url.as_str(), text(&body, "SubscribeURL"));
            confirmed += 1;
        }
    }
    assert_eq!(confirmed, 1);
}
