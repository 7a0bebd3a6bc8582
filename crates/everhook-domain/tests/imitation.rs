//! What is made to try a receiver is what the kind's own `verify` takes, and nothing else is.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use everhook_domain::inbound::{
    Context, Draft, Imitation, InboundRequest, Judgement, Rejection, SourceKind, imitate, judge,
};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::Timestamp;
use http::Method;

/// A text that is a secret of every kind: hexadecimal, base64, and a text.
const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const OTHER: &str = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_123);
const TARGET: &str = "/hook?a=%3A";

/// Kinds whose webhooks nobody else can make, or that sign nothing.
const NOT_IMITATED: [&str; 8] = [
    "paypal",
    "postmark",
    "sendgrid_parse",
    "aws_sns",
    "sendgrid_events",
    "telnyx",
    "cloudevents",
    "none",
];
/// Kinds whose signature covers no timestamp.
const WITHOUT_TIMESTAMP: [&str; 7] =
    ["github", "intercom", "shopify", "adyen", "square", "twilio", "hmac"];
/// Kinds whose signature does not cover the body.
const WITHOUT_BODY: [&str; 2] = ["mailgun", "mailgun_route"];

fn settings(kind: SourceKind, secret: &str) -> SourceSettings {
    let input = serde_json::json!({
        "name": "tried", "kind": kind.as_str(), "secrets": [secret],
        "public_url": "https://hooks.test/hook",
    });
    let input: SourceInput = serde_json::from_value(input).expect("an input");
    SourceSettings::parse(input).unwrap_or_else(|faults| panic!("{kind}: {faults:?}"))
}

fn draft<'a>(id: &'a str, data: &'a str) -> Draft<'a> {
    Draft { id, event_type: "order.paid", data, target: TARGET, signed: true }
}

fn judged(
    kind: SourceKind,
    made: &Imitation,
    secret: &str,
    now: Timestamp,
) -> Result<Judgement, Rejection> {
    let (source, method) = (settings(kind, secret), Method::POST);
    let request = InboundRequest {
        method: &method,
        target: TARGET,
        headers: &made.headers,
        body: &made.body,
    };
    judge(&request, &Context { source: &source, now, certificate: None })
}

fn key(kind: SourceKind, made: &Imitation) -> String {
    match judged(kind, made, SECRET, NOW) {
        Ok(Judgement::Store(items)) if items.len() == 1 && items[0].unreadable.is_none() => {
            format!("{:?} {}", items[0].key, items[0].event_type)
        }
        other => panic!("{kind}: {other:?}"),
    }
}

#[test]
fn every_kind_takes_what_is_made_for_it_and_nothing_that_is_changed() {
    let data = r#"{"n": 1.0, "text": "\u00e9 ✓"}"#;
    for kind in SourceKind::all().filter(|kind| !NOT_IMITATED.contains(&kind.as_str())) {
        let source = settings(kind, SECRET);
        let context = Context { source: &source, now: NOW, certificate: None };
        let made = |draft: &Draft<'_>| imitate(draft, &context).expect("a webhook");
        let one = made(&draft("id-1", data));
        let is_refused = |made: &Imitation, secret: &str, now: Timestamp| {
            judged(kind, made, secret, now).is_err()
        };
        // Another id is another event; another try is the same one.
        assert_eq!(key(kind, &one), key(kind, &made(&draft("id-1", data))));
        assert_ne!(key(kind, &one), key(kind, &made(&draft("id-2", data))), "{kind}");
        assert!(is_refused(&one, OTHER, NOW), "{kind}: another secret");
        let unsigned = made(&Draft { signed: false, ..draft("id-1", data) });
        assert!(is_refused(&unsigned, SECRET, NOW), "{kind}: no signature");
        let late = Timestamp::from_millis(NOW.as_millis() + 3_600_000);
        let timed = !WITHOUT_TIMESTAMP.contains(&kind.as_str());
        assert_eq!(is_refused(&one, SECRET, late), timed, "{kind}: stale");
        let text = String::from_utf8(one.body.clone()).expect("text");
        let changed = Imitation { body: text.replace("order.paid", "order.lost").into(), ..one };
        let covered = !WITHOUT_BODY.contains(&kind.as_str());
        assert_eq!(is_refused(&changed, SECRET, NOW), covered, "{kind}: another body");
    }
}

#[test]
fn what_only_the_provider_can_make_is_not_made() {
    for kind in NOT_IMITATED {
        let kind: SourceKind = kind.parse().expect("a kind");
        let source = SourceSettings { kind, ..settings(SourceKind::default(), SECRET) };
        let context = Context { source: &source, now: NOW, certificate: None };
        assert_eq!(imitate(&draft("id-1", "1"), &context), None, "{kind}");
    }
    let public = "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwAAAAAAAAAAA=";
    let source = settings(SourceKind::default(), public);
    let context = Context { source: &source, now: NOW, certificate: None };
    assert_eq!(imitate(&draft("id-1", "1"), &context), None);
}
