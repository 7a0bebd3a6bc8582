//! Mail that comes in: what identifies one, and what tells it from another.

use serde_json::json;

use super::{SECRET, Sent, hex, mac, source};
use crate::inbound::{MessageId, OnChange, ReceivedItem};

const MAIL: &str = "Received: from a by b\r\nFrom: Alice <alice@a.test>\r\n\
    Date: Mon, 1 Jan 2024 00:00:00 +0000\r\nSubject: Hi\r\nMessage-ID: <K@a.test>\r\n\
    Content-Type: multipart/mixed; boundary=one\r\n\r\n--one\r\n\r\nhello\r\n--one--\r\n";
/// Where the header stands in it.
const ID: &str = "Message-ID: <K@a.test>\r\n";

/// A form as Mailgun posts it.
fn form(fields: &[(&str, &str)]) -> String {
    let (at, token) = ("1700000000", "a token");
    let signature = hex(&mac::sha256(SECRET.as_bytes(), &[at.as_bytes(), token.as_bytes()]));
    let signed = [("timestamp", at), ("token", token), ("signature", &*signature)];
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .extend_pairs(signed)
        .finish()
}

fn item(fields: &[(&str, &str)]) -> ReceivedItem {
    let form = form(fields);
    let sent = Sent::plain(form.as_bytes());
    let sent = sent.with("Content-Type", "application/x-www-form-urlencoded");
    sent.item(&source("mailgun_route", json!({})))
}

/// The mail as a route of raw mails has it.
fn raw(mail: &str, recipient: &str) -> ReceivedItem {
    item(&[("recipient", recipient), ("body-mime", mail)])
}

/// Two mails to one mailbox.
fn check(one: &str, other: &str, same_key: bool, same_content: bool) {
    let (one, other) = (raw(one, "a@b.test"), raw(other, "a@b.test"));
    assert_eq!(one.key == other.key, same_key, "{one:?} {other:?}");
    assert_eq!(one.content == other.content, same_content, "{one:?} {other:?}");
}

#[test]
fn case_040_one_mail_to_two_mailboxes_is_two_events() {
    let first = raw(MAIL, "support@b.test");
    let other = raw(MAIL, "sales@b.test");
    let again = raw(MAIL, "Support@b.test");
    assert_ne!(first.key, other.key);
    assert_eq!((first.key, first.content), (again.key, again.content));
}

#[test]
fn case_042_and_112_another_mail_under_a_known_id_is_a_conflict() {
    let forged = MAIL.replace("Alice <alice@a.test>", "Mallory <m@evil.test>");
    check(MAIL, &forged, true, false);
    check(MAIL, &MAIL.replace("hello", "pay me"), true, false);
    check(MAIL, &MAIL.replace("Subject: Hi", "Subject: Hi again"), true, false);
    assert_eq!(raw(MAIL, "a@b.test").on_change, OnChange::Conflict);
    let source = source("sendgrid_parse", json!({ "secrets": ["u:p"] }));
    assert!(source.kind.0.facts().sender_chooses_key);
}

#[test]
fn case_043_mails_without_an_id() {
    for without in ["", "Message-ID:\r\n", "Message-ID: <>\r\n", "Message-ID:    \r\n"] {
        let mail = MAIL.replace(ID, without);
        check(&mail, &mail, true, true);
        check(&mail, &format!("Received: by c\r\n{mail}"), true, true);
        check(&mail, &mail.replace("hello", "other"), false, false);
        check(&mail, MAIL, false, true);
        assert_ne!(raw(&mail, "a@b.test").key, raw(&mail, "c@b.test").key);
    }
    // Nothing that could tell mails apart, but the bytes.
    let (empty, other) = (raw("", "a@b.test"), item(&[("recipient", "a@b.test"), ("x", "y")]));
    assert_eq!((&*empty.key_from, &*other.key_from), ("fallback", "fallback"));
    assert_ne!(empty.key, other.key);
}

#[test]
fn case_096_one_normaliser_on_every_path() {
    let folded = MAIL.replace(ID, "Message-ID:\r\n <K@a.test>\r\n");
    let by_list = json!([["Message-Id", "\r\n <K@a.test>"]]).to_string();
    let pulled = MessageId::parse(b" <K@a.test>\r\n").expect("an id");
    let expected = format!("{pulled}:a@b.test");
    for pushed in [
        raw(&folded, "a@b.test"),
        raw(MAIL, "a@b.test"),
        item(&[("recipient", "a@b.test"), ("Message-Id", "\r\n\t<K@a.test>"), ("subject", "Hi")]),
        item(&[("recipient", "a@b.test"), ("message-headers", &by_list)]),
    ] {
        assert_eq!(pushed.key.shown(), expected);
    }
}

#[test]
fn case_097_a_second_hop_changes_nothing_that_counts() {
    let hop = format!("Received: from b by c\r\nX-Scanned: yes\r\n{MAIL}");
    check(MAIL, &hop.replace("=one", "=two").replace("--one", "--two"), true, true);
}

#[test]
fn case_099_an_id_that_is_unique_for_a_day() {
    let event = |id: &str, at: u64| {
        let (ts, token) = ("1700000000", "a token");
        let signature = hex(&mac::sha256(SECRET.as_bytes(), &[ts.as_bytes(), token.as_bytes()]));
        let body = json!({
            "signature": { "timestamp": ts, "token": token, "signature": signature },
            "event-data": { "id": id, "event": "opened", "timestamp": at },
        });
        Sent::plain(body.to_string().as_bytes()).item(&source("mailgun", json!({})))
    };
    let (day, seconds) = (86_400, 1_700_006_400);
    assert_eq!(event("x", seconds).key, event("x", seconds + 60).key);
    assert_ne!(event("x", seconds).key, event("x", seconds + day).key);
    assert_eq!(source("mailgun", json!({})).window().as_secs(), day);
}
