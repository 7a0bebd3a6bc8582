//! Kinds with many events in a request, and what is particular to single kinds.

use base64::Engine;
use serde_json::{Value, json};

use super::{Sent, mac, source};
use crate::inbound::{Answer, Handshake, Judgement, Rejection, SourceKind};
use crate::secret::BASE64;
use crate::source::SourceSettings;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn adyen(more: Value) -> SourceSettings {
    let mut settings = json!({ "secrets": [KEY] });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    source("adyen", settings)
}

/// An item as Adyen signs it.
fn item(reference: &str) -> String {
    let key = mac::from_hex(KEY).unwrap();
    let signed = format!("{reference}::shop::10:EUR:CAPTURE:true");
    let signature = BASE64.encode(mac::sha256(&key, &[signed.as_bytes()]));
    forged(reference).replace("\"signature\"", &format!("{signature:?}"))
}

fn forged(reference: &str) -> String {
    format!(
        r#"{{ "NotificationRequestItem":{{"pspReference":"{reference}",
        "merchantAccountCode":"shop","amount":{{"value":10,"currency":"EUR"}},"eventCode":"CAPTURE",
        "success":"true","additionalData":{{"hmacSignature":"signature"}}}}}}"#
    )
}

fn notification(items: &[String]) -> String {
    format!(r#"{{"live":"true", "notificationItems": [{}]}}"#, items.join(" , "))
}

#[test]
fn an_item_of_adyen_goes_on_in_its_envelope_or_bare() {
    let body = notification(&[item("1"), item("2")]);
    let bodies = |source: &SourceSettings, body: &str| -> Vec<_> {
        let items = Sent::plain(body.as_bytes()).items(source);
        items
            .into_iter()
            .map(|item| item.body.map(|body| String::from_utf8(body).unwrap()))
            .collect()
    };
    let alone = |item: &str| Some(format!(r#"{{"live":"true","notificationItems":[{item}]}}"#));
    let expected = [alone(&item("1")), alone(&item("2"))];
    assert_eq!(bodies(&adyen(json!({})), &body), expected);
    let bare = adyen(json!({ "options": { "forward": "item" } }));
    assert_eq!(bodies(&bare, &body), [Some(item("1")), Some(item("2"))]);
    assert_eq!(bodies(&adyen(json!({})), &notification(&[item("1")])), [None]);
    // What goes on verifies again.
    let alone = alone(&item("2")).unwrap();
    assert_eq!(Sent::plain(alone.as_bytes()).items(&adyen(json!({}))).len(), 1);
}

#[test]
fn one_item_that_does_not_verify_refuses_all() {
    let source = adyen(json!({ "secrets": ["00ff", KEY] }));
    for (items, which) in [
        (vec![forged("1")], "item 1 of 1"),
        (vec![forged("1"), item("1")], "item 1 of 2"),
        (vec![item("1"), item("2"), forged("3")], "item 3 of 3"),
        (vec![item("1"), "7".to_owned()], "item 2 of 2"),
        (vec![item("1"), "{}".to_owned()], "item 2 of 2"),
        (vec![], "is empty"),
    ] {
        let body = notification(&items);
        let judged = Sent::plain(body.as_bytes()).judged(&source);
        let Err(Rejection::Signature(why)) = judged else { panic!("{body}: {judged:?}") };
        assert!(why.contains(which), "{body}: {why}");
    }
    let body = notification(&[item("1"), item("2")]);
    assert_eq!(Sent::plain(body.as_bytes()).items(&source).len(), 2);
}

#[test]
fn case_046_ten_thousand_items() {
    let items: Vec<_> = (0..10_000).map(|n| format!(r#"{{"source":"/a","id":"{n}"}}"#)).collect();
    let body = format!("[{}]", items.join(","));
    let sent =
        Sent::plain(body.as_bytes()).with("Content-Type", "application/cloudevents-batch+json");
    let source =
        source("cloudevents", json!({ "secrets": [], "options": { "replay_guard": "body" } }));
    let found = sent.items(&source);
    assert_eq!((found.len(), found[9_999].key.shown()), (10_000, "/a:9999"));
}

#[test]
fn senders_of_cloudevents_may_ask_first() {
    let source = source("cloudevents", json!({}));
    let ask = |headers: &[(&'static str, &str)]| -> Answer {
        let mut sent = Sent { method: "OPTIONS", ..Sent::plain(b"") };
        for (name, value) in headers {
            sent = sent.with(name, *value);
        }
        match sent.judged(&source) {
            Ok(Judgement::Handshake(Handshake::Answer(answer))) => answer,
            other => panic!("{other:?}"),
        }
    };
    let allow = ("allow", "POST, OPTIONS".to_owned());
    let answer = |more: &[(&'static str, &str)]| Answer {
        status: 200,
        headers: std::iter::once(allow.clone())
            .chain(more.iter().map(|(name, value)| (*name, (*value).to_owned())))
            .collect(),
        body: Vec::new(),
    };
    assert_eq!(ask(&[]), answer(&[]));
    let origin = ("WebHook-Request-Origin", "a.test");
    let allowed = ("webhook-allowed-origin", "a.test");
    assert_eq!(ask(&[origin]), answer(&[allowed, ("webhook-allowed-rate", "*")]));
    let asked = [origin, ("WebHook-Request-Rate", "120")];
    assert_eq!(ask(&asked), answer(&[allowed, ("webhook-allowed-rate", "120")]));
}

#[test]
fn answers_that_senders_wait_for() {
    for (kind, content_type, body) in
        [("twilio", "text/xml", "<Response/>"), ("adyen", "text/plain", "[accepted]")]
    {
        let kind: SourceKind = kind.parse().unwrap();
        for duplicate in [false, true] {
            let answer = kind.answer(duplicate).unwrap();
            assert_eq!(answer.headers, [("content-type", content_type.to_owned())]);
            assert_eq!((answer.status, &*answer.body), (200, body.as_bytes()));
        }
    }
}

#[test]
fn windows_and_who_chooses_the_key() {
    let settings = |kind: &str, options: Value| {
        let mut settings = json!({ "options": options, "secrets": [] });
        if let Some(secret) = match kind {
            "adyen" => Some(KEY),
            "telnyx" => Some("A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="),
            "sendgrid_events" => Some(
                "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpV\
                 KS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==",
            ),
            "aws_sns" | "paypal" | "cloudevents" => None,
            _ => Some("u:p"),
        } {
            settings["secrets"] = json!([secret]);
        }
        source(kind, settings)
    };
    let topics = json!({ "topic_arns": ["arn:aws:sns:a:1:t"] });
    for (kind, options, hours, conflict) in [
        ("mailgun_route", json!({}), 24, true),
        ("postmark", json!({}), 24, false),
        ("sendgrid_parse", json!({}), 96, true),
        ("aws_sns", topics, 24, false),
        ("mailgun", json!({}), 24, false),
        ("sendgrid_events", json!({}), 24, false),
        ("twilio", json!({}), 24, false),
        ("telnyx", json!({}), 24, false),
        ("vonage", json!({}), 24, false),
        ("vonage", json!({ "api": "messages" }), 24, false),
        ("vonage", json!({ "api": "sms" }), 48, false),
        ("adyen", json!({}), 168, false),
        ("paypal", json!({ "webhook_id": "x" }), 96, false),
        ("cloudevents", json!({}), 48, true),
    ] {
        let settings = settings(kind, options);
        assert_eq!(settings.window().as_secs(), hours * 3_600, "{kind}");
        assert_eq!(settings.kind.0.facts().sender_chooses_key, conflict, "{kind}");
    }
}
