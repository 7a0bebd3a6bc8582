//! Mails as they come in, whole and read out into fields: a further hop changes neither the key nor
//! the content.

#![no_main]

use everhook_domain::inbound::{Context, InboundRequest, Judgement, ReceivedItem, judge};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::Timestamp;
use http::{HeaderMap, HeaderValue, Method};

const BOUNDARY: &str = "a-boundary-that-nobody-writes-4711";

fn item(source: &SourceSettings, body: &[u8]) -> ReceivedItem {
    let mut headers = HeaderMap::new();
    let value = format!("multipart/form-data; boundary={BOUNDARY}");
    headers.insert("content-type", HeaderValue::from_str(&value).expect("a value"));
    let request = InboundRequest { method: &Method::POST, target: "/", headers: &headers, body };
    let now = Timestamp::from_millis(1_700_000_000_000);
    match judge(&request, &Context { source, now, certificate: None }) {
        Ok(Judgement::Store(mut items)) => items.pop().expect("one mail"),
        other => panic!("{other:?}"),
    }
}

fn form(field: &str, value: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name={field}\r\n\r\n");
    [head.as_bytes(), value, b"\r\n--", BOUNDARY.as_bytes(), b"--\r\n"].concat()
}

libfuzzer_sys::fuzz_target!(|mail: &[u8]| {
    let input = serde_json::json!({
        "name": "mail", "kind": "sendgrid_parse", "options": { "unsigned": true },
    });
    let input: SourceInput = serde_json::from_value(input).expect("the shape");
    let source = SourceSettings::parse(input).expect("legal");
    // Any bytes at all as the form.
    item(&source, mail);
    if mail.windows(BOUNDARY.len()).any(|bytes| bytes == BOUNDARY.as_bytes()) {
        return;
    }
    for field in ["email", "headers"] {
        let one = item(&source, &form(field, mail));
        let hop = [b"Received: from a by b\r\n", mail].concat();
        let other = item(&source, &form(field, &hop));
        // A folded line without a header before it belongs to what is put before it.
        let folded = mail.first().is_some_and(|byte| byte.is_ascii_whitespace());
        if one.key_from == "kind" && !folded && mail.len() < 2_000 {
            assert_eq!((one.key, one.content), (other.key, other.content));
        }
    }
});
