//! What was received, as it is shown: headers without credentials, and bytes that may be anything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use everhook_domain::inbound::ForwardedHeaders;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::endpoint::{MASK, may_be_secret};

/// Headers by name; values of a repeated name are joined by `, ` (RFC 9110 §5.3). What may be a
/// credential is masked, and bytes that are not text are escaped.
pub(crate) fn shown_headers(headers: &ForwardedHeaders) -> BTreeMap<&str, String> {
    let mut shown = BTreeMap::<&str, String>::new();
    for (name, value) in headers.iter() {
        let joined = shown.entry(name.as_str()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        let value = match std::str::from_utf8(value.as_bytes()) {
            _ if may_be_secret(name.as_str()) => Cow::from(MASK),
            Ok(text) => Cow::from(text),
            Err(_) => Cow::from(value.as_bytes().escape_ascii().to_string()),
        };
        joined.push_str(&value);
    }
    shown
}

/// A body that was received.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ShownBody<'a> {
    /// JSON, as it came.
    Data(&'a RawValue),
    /// Anything else.
    BodyBase64(String),
}

impl<'a> ShownBody<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        match serde_json::from_slice(bytes) {
            Ok(json) => Self::Data(json),
            Err(_) => Self::BodyBase64(STANDARD.encode(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everhook_domain::header::HeaderPrefix;
    use everhook_domain::inbound::InboundRequest;
    use http::{HeaderMap, HeaderName, HeaderValue, Method};

    #[test]
    fn headers_are_shown_without_credentials() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-a", &b"1"[..]),
            ("x-a", b"2"),
            ("x-api-token", b"hunter2"),
            ("x-b", b"\xff"),
            ("x-c", "ä".as_bytes()),
        ] {
            let value = HeaderValue::from_bytes(value).expect("legal");
            headers.append(HeaderName::from_static(name), value);
        }
        let request =
            InboundRequest { method: &Method::GET, target: "/", headers: &headers, body: b"" };
        let forwarded = ForwardedHeaders::of(&request, "/in/x?b=1", &HeaderPrefix::default());
        let shown: Vec<_> = shown_headers(&forwarded).into_iter().collect();
        let expected = [
            ("x-a", "1, 2"),
            ("x-api-token", "***"),
            ("x-b", "\\xff"),
            ("x-c", "ä"),
            ("x-message-received-method", "GET"),
            ("x-message-received-url", "/in/x?b=1"),
        ];
        assert_eq!(shown, expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn bodies() {
        for (bytes, expected) in [
            (&b" {\"a\":1.0} "[..], r#"{"data":{"a":1.0}}"#),
            (b"", r#"{"body_base64":""}"#),
            (b"a=b", r#"{"body_base64":"YT1i"}"#),
            (b"\"\xff\"", r#"{"body_base64":"Iv8i"}"#),
        ] {
            let shown = serde_json::to_string(&ShownBody::new(bytes)).expect("JSON");
            assert_eq!(shown, expected);
        }
    }
}
