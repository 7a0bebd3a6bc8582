//! Faults that users of such systems have met, by their number in our list of cases.

use serde_json::{Value, json};

use super::*;

#[test]
fn case_027_the_bytes_as_received_are_signed() {
    let (github, stripe) = (source("github", json!({})), source("stripe", json!({})));
    for body in [
        r#"{"id":"1","a":"\u001B"}"#,
        r#"{"id":"1","a":"\\u001b"}"#,
        r#"{ "id" : "1" , "a" : 1.50 }"#,
        "{\"id\":\"1\",\r\n\"a\":\"😀\"}\n",
        r#"{"id":"1","id":"2"}"#,
    ] {
        Sent::github(body.as_bytes()).item(&github);
        Sent::stripe(body.as_bytes()).item(&stripe);
        let again: Value = serde_json::from_str(body).expect("JSON");
        let again = serde_json::to_vec(&again).expect("JSON");
        for (sent, source) in
            [(Sent::github(body.as_bytes()), &github), (Sent::stripe(body.as_bytes()), &stripe)]
        {
            let other = Sent { body: &again, ..sent };
            assert_eq!(is_refused(&other, source), again != body.as_bytes(), "{body}");
        }
    }
}

#[test]
fn case_028_bodies_that_are_no_text() {
    let random: Vec<u8> =
        (0..2_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let parts = b"--b\r\nContent-Type: image/jpeg\r\n\r\n\xff\xd8\xff\x00\r\n--b--\r\n";
    let github = source("github", json!({}));
    for body in [&random[..], parts, b"\0", b"\xff"] {
        let sent = Sent::github(body).with("X-GitHub-Delivery", "d1");
        let item = sent.item(&github);
        assert_eq!((item.key.shown(), &item.body, &item.unreadable), ("d1", &None, &None));
        let mut other = body.to_vec();
        other[0] ^= 1;
        assert!(is_refused(&Sent { body: &other, ..sent }, &github));
    }
    // A kind that reads JSON keeps it, and says why it is not run.
    let item = Sent::stripe(&random).item(&source("stripe", json!({})));
    assert_eq!(item.unreadable.as_deref(), Some("the body is not a JSON object"));
    assert_eq!((item.body, item.key_from.as_str()), (None, "fallback"));
}

#[test]
fn case_030_lists_of_signatures() {
    let stripe = source("stripe", json!({}));
    let good = Sent::stripe(b"{}").headers[0].1.clone();
    let (time, signature) = good.split_once(',').expect("two entries");
    let check = |entries: &[&str], fits: bool| {
        let header = entries.join(",");
        let sent = Sent::plain(b"{}").with("stripe-signature", &header);
        assert_eq!(sent.judged(&stripe).is_ok(), fits, "{header}");
    };
    check(&[time, "v1=00", signature, "v2=X"], true);
    check(&[signature, " ", time], true);
    check(&[time, "", ",,", signature], true);
    check(&[time, "v0=00", "v2=X"], false);
    check(&[time, &signature.replace("v1", "v0")], false);
    check(&[time, &signature.replace("v1", "V1")], false);
    check(&[time], false);
    check(&[signature], false);
    check(&[time, time, signature], false);
    check(&[], false);
    let many = vec!["v1=00"; 200];
    check(&[&[time][..], &many[..mac::SIGNATURES_MAX - 2], &[signature]].concat(), true);
    check(&[&[time][..], &many, &[signature]].concat(), false);
    check(&[&[time, signature][..], &many].concat(), true);
}

#[test]
fn case_031_names_of_headers_in_any_case_and_more_than_once() {
    let github = source("github", json!({}));
    let good = Sent::github(b"{}").headers[0].1.clone();
    for name in ["x-hub-signature-256", "X-HUB-SIGNATURE-256", "X-Hub-signature-256"] {
        Sent::plain(b"{}").with(name, &good).item(&github);
        Sent::plain(b"{}").with(name, &good).with(name, &good).item(&github);
        for other in ["sha256=00", "", "ä"] {
            let twice = Sent::plain(b"{}").with(name, &good).with(name, other);
            assert!(is_refused(&twice, &github), "{other}");
        }
    }
    // White space around a value, as folding leaves it, is no part of it.
    Sent::plain(b"{}").with("x-hub-signature-256", format!(" \t{good}  ")).item(&github);
    assert!(is_refused(&Sent::plain(b"{}").with("x-hub-signature-256", "ä"), &github));
    assert!(is_refused(&Sent::plain(b"{}"), &github));
}

#[test]
fn case_045_own_rules_choose_the_fields() {
    let rule = json!({"dedupe": {"pointers": ["/mail", "/event", "/at"]}});
    let none = source("none", rule.clone());
    let key = |body: &str| Sent::plain(body.as_bytes()).item(&none);
    let first = key(r#"{"id":"1","mail":"a@b","event":"open","at":5}"#);
    for (body, is_same) in [
        (r#"{"id":"2","mail":"a@b","event":"open","at":5}"#, true),
        (r#"{"at":5,"event":"open","mail":"\u0061@b"}"#, true),
        (r#"{"id":"1","mail":"a@b","event":"open","at":6}"#, false),
        (r#"{"id":"1","mail":"a@b","event":"open","at":5.0}"#, false),
        (r#"{"mail":"a@b","event":"open5"}"#, false),
    ] {
        assert_eq!(key(body).key == first.key, is_same, "{body}");
    }
    assert_eq!(first.key_from, "pointers /mail /event /at");
    assert_eq!(first.key.shown(), "a@b:open:5");
    // Nothing of it is there: the kind's rule.
    let stripe = source("stripe", rule);
    let item = Sent::stripe(br#"{"id":"evt_1","mail":{},"event":null,"at":[]}"#).item(&stripe);
    assert_eq!((item.key.shown(), item.key_from.as_str()), ("evt_1", "kind"));
}

#[test]
fn case_071_the_same_signed_bytes_under_another_id_or_none_have_one_guard() {
    let linear = source("linear", json!({}));
    let body = br#"{"type":"Issue","webhookTimestamp":1700000000123}"#;
    let items: Vec<_> = [Some("u1"), Some("u2"), None]
        .into_iter()
        .map(|id| match id {
            Some(id) => Sent::linear(body).with("Linear-Delivery", id).item(&linear),
            None => Sent::linear(body).item(&linear),
        })
        .collect();
    assert!(items[0].guard.is_some());
    assert!(items.iter().all(|item| item.guard == items[0].guard));
    assert!(items[1..].iter().all(|item| item.key != items[0].key));
    let later = br#"{"type":"Issue","webhookTimestamp":1700000000124}"#;
    let later = Sent::linear(later).with("Linear-Delivery", "u1").item(&linear);
    assert_ne!(later.guard, items[0].guard);
    // Where the ID is signed nothing else has to be.
    assert_eq!(Sent::stripe(br#"{"id":"evt_1"}"#).item(&source("stripe", json!({}))).guard, None);
    // Where no timestamp is signed the ID wins.
    let sent = Sent::github(b"{}").with("X-GitHub-Delivery", "d1");
    assert_eq!(sent.item(&source("github", json!({}))).guard, None);
}

#[test]
fn case_087_the_charset_changes_nothing() {
    let stripe = source("stripe", json!({}));
    for (body, unreadable) in [
        ("{\"id\":\"e\",\"a\":\"😀\"}".as_bytes(), false),
        (b"\xef\xbb\xbf{\"id\":\"e\"}", false),
        (b"{\"id\":\"e\",\"a\":\"\xe4\"}", true),
        (b"{\"id\":\"e\"", true),
        (b"\xff\xfe{\0", true),
        (b"[]", true),
        (b"null", true),
    ] {
        let sent = Sent::stripe(body).with("content-type", "application/json; charset=iso-8859-1");
        let item = sent.item(&stripe);
        assert_eq!(item.unreadable.is_some(), unreadable, "{body:?}");
        assert_eq!(item.key.shown() == "e", !unreadable, "{body:?}");
    }
}

#[test]
fn case_088_bodies_without_bytes() {
    for kind in ["github", "stripe", "linear", "hubspot", "slack", "none"] {
        let sent = match kind {
            "github" => Sent::github(b""),
            "stripe" => Sent::stripe(b""),
            "linear" => Sent::linear(b""),
            "hubspot" => Sent::hubspot(b""),
            "slack" => Sent::slack(b""),
            _ => Sent::plain(b""),
        };
        let with = |empty: &str| source(kind, json!({"options": {"empty": empty}}));
        assert_eq!(sent.item(&with("accept")).unreadable, None, "{kind}");
        assert_eq!(sent.judged(&with("ignore")), Ok(Judgement::Ignore), "{kind}");
        assert_eq!(sent.judged(&with("reject")), Err(Rejection::Empty), "{kind}");
        // Not before it is shown to be genuine.
        if kind != "none" {
            let forged = Sent { headers: Vec::new(), ..sent };
            assert!(is_refused(&forged, &with("ignore")), "{kind}");
            assert!(is_refused(&forged, &with("reject")), "{kind}");
        }
    }
}

#[test]
fn case_089_a_secret_is_used_as_it_is() {
    let spaced = source("github", json!({"secrets": [format!("{SECRET}\n")]}));
    assert!(is_refused(&Sent::github(b"{}"), &spaced));
    let both = source("github", json!({"secrets": [format!("{SECRET}\n"), SECRET]}));
    Sent::github(b"{}").item(&both);
}

#[test]
fn case_092_the_text_of_the_timestamp_is_signed() {
    let hubspot = source("hubspot", json!({}));
    let sent = Sent::hubspot(b"[]");
    assert_eq!(sent.judged(&hubspot), Ok(Judgement::Store(Vec::new())));
    for text in ["1700000000123.0", "1700000000", "01700000000123", "1.700000000123e12", "", "-1"] {
        let mut other = sent.clone();
        other.headers[1].1 = text.to_owned();
        assert!(is_refused(&other, &hubspot), "{text}");
    }
}

#[test]
fn case_046_items_of_an_array() {
    let hubspot = source("hubspot", json!({}));
    let sent = br#"[ {"eventId":1}, 5, {"eventId" : 2},{"eventId":1},{}]"#;
    let items = Sent::hubspot(sent).items(&hubspot);
    let shown: Vec<_> = items.iter().map(|item| item.body.as_deref().expect("a part")).collect();
    let expected: [&[u8]; 5] =
        [br#"[{"eventId":1}]"#, b"[5]", br#"[{"eventId" : 2}]"#, br#"[{"eventId":1}]"#, b"[{}]"];
    assert_eq!(shown, expected);
    let unreadable: Vec<_> = items.iter().map(|item| item.unreadable.is_some()).collect();
    assert_eq!(unreadable, [false, true, false, false, false]);
    assert_eq!((&items[0].key, &items[0].content), (&items[3].key, &items[3].content));
    assert_ne!(items[0].key, items[2].key);
    assert_eq!((items[1].key_from.as_str(), items[4].key_from.as_str()), ("fallback", "fallback"));
    // One alone goes on as it came: the provider's signature fits it still.
    assert_eq!(Sent::hubspot(b"[ {\"eventId\":1} ]").item(&hubspot).body, None);
    let bare = source("hubspot", json!({"options": {"forward": "item"}}));
    let alone = Sent::hubspot(b"[ {\"eventId\":1} ]").item(&bare);
    assert_eq!(alone.body.as_deref(), Some(&b"{\"eventId\":1}"[..]));
    assert_eq!(alone.key, items[0].key);
    let many = format!("[{}{{}}]", "{},".repeat(9_999));
    assert_eq!(Sent::hubspot(many.as_bytes()).items(&hubspot).len(), 10_000);
    assert_eq!(Sent::hubspot(b"[]").judged(&hubspot), Ok(Judgement::Store(Vec::new())));
}

#[test]
fn case_090_what_failed_is_said_without_what_was_sent() {
    let github = source("github", json!({}));
    let base64 = BASE64.encode(mac::sha256(SECRET.as_bytes(), &[b"{}"]));
    for value in [
        base64.clone(),
        format!("sha256={base64}"),
        format!("sha256={}", base64.trim_end_matches('=')),
        "sha256=00ff".to_owned(),
        "sha256=".to_owned(),
        "sha256=zz".to_owned(),
        format!("sha1={}", hex(&mac::sha1(SECRET.as_bytes(), &[b"{}"]))),
        hex(&mac::sha256(SECRET.as_bytes(), &[b"{}"])),
    ] {
        let sent = Sent::plain(b"{}").with("X-Hub-Signature-256", &value);
        let error = sent.judged(&github).expect_err("refused").to_string();
        assert!(error.contains("x-hub-signature-256") || error.contains("no signature fits"));
        assert!(!error.contains(SECRET), "{error}");
        assert!(value.len() < 12 || !error.contains(&value[7..]), "{error}");
    }
    let upper = Sent::github(b"{}").headers[0].1.to_uppercase().replace("SHA", "sha");
    Sent::plain(b"{}").with("X-Hub-Signature-256", upper).item(&github);
}
