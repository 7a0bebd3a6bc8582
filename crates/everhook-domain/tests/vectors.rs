//! Every kind of source against its vectors: `tests/vectors/<kind>.json`.
//!
//! Each case is a request, the secret, and the time of arrival; `valid` ones name the dedupe keys
//! that are in them, `invalid` ones must be refused. `status` says whether a case agrees with a
//! value that the provider or another party has published.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use everhook_domain::inbound::{Context, InboundRequest, Judgement, Rejection, SourceKind, judge};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Map, Value};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_default()
}

/// The source that a case is for.
fn source(kind: &str, case: &Value) -> SourceSettings {
    let (origin, _) = called(case);
    let needs_secret = !text(case, "secret").is_empty();
    let input = SourceInput {
        name: "vectors".to_owned(),
        kind: kind.to_owned(),
        secrets: if needs_secret { vec![text(case, "secret").to_owned()] } else { Vec::new() },
        tolerance_s: case["tolerance_s"].as_u64(),
        public_url: (!origin.is_empty()).then(|| origin.to_owned()),
        options: options(case),
        ..SourceInput::default()
    };
    SourceSettings::parse(input).unwrap_or_else(|faults| panic!("{}: {faults:?}", case["case"]))
}

/// Options that a case needs, by the names that the kinds give them.
fn options(_case: &Value) -> Map<String, Value> {
    Map::new()
}

/// The URL of a case: scheme and host, and path and query.
fn called(case: &Value) -> (&str, &str) {
    let url = text(case, "url");
    let host_at = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[host_at..].find('/').map_or(url.len(), |at| host_at + at))
}

/// The keys in a case's request.
fn keys(kind: &str, case: &Value) -> Result<Vec<String>, Rejection> {
    let settings = source(kind, case);
    let mut headers = HeaderMap::new();
    for (name, value) in case["headers"].as_object().expect("headers") {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let value = value.as_str().expect("text").as_bytes();
        headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    }
    let method = Method::from_bytes(text(case, "method").as_bytes()).expect("a method");
    let (_, target) = called(case);
    let body = text(case, "body").as_bytes();
    let request = InboundRequest { method: &method, target, headers: &headers, body };
    let now = case["now"].as_f64().expect("a time") * 1_000.0;
    let now = Timestamp::from_millis(now as i64);
    let judged = judge(&request, &Context { source: &settings, now, certificate: None })?;
    Ok(match judged {
        Judgement::Store(items) => items.iter().map(|item| item.key.shown().to_owned()).collect(),
        Judgement::Ignore | Judgement::Handshake(_) => Vec::new(),
    })
}

fn check(kind: &str, case: &Value) {
    let name = text(case, "case");
    let found = keys(kind, case);
    if text(case, "expect") == "invalid" {
        let rejection = found.expect_err(name);
        let ours = matches!(rejection, Rejection::Misconfigured(_) | Rejection::Method { .. });
        assert!(!ours, "{kind} {name}: {rejection:?}");
        return;
    }
    let found = found.unwrap_or_else(|rejection| panic!("{kind} {name}: {rejection:?}"));
    let expected = case["dedupe_keys"].as_array().expect("keys");
    let prefix = format!("{kind}:");
    let expected: Vec<_> = expected
        .iter()
        .map(|key| key.as_str().expect("text").trim_start_matches(&prefix).to_owned())
        .collect();
    // A case without keys is about its signature.
    if !expected.is_empty() {
        assert_eq!(found, expected, "{kind} {name}");
    }
}

#[test]
fn every_kind_agrees_with_its_vectors() {
    let mut checked = 0;
    for kind in SourceKind::all() {
        let path = folder().join(format!("{kind}.json"));
        let Ok(file) = std::fs::read_to_string(&path) else { continue };
        let cases: Vec<Value> = serde_json::from_str(&file).expect("JSON");
        assert!(!cases.is_empty(), "{kind}");
        cases.iter().for_each(|case| check(kind.as_str(), case));
        checked += cases.len();
    }
    assert!(checked > 0);
}
