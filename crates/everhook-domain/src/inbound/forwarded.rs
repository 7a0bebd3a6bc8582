//! The headers of a received request that go on with it to the endpoints.
//!
//! They are the end-to-end headers as they came, the provider's signature among them. Left out are
//! those that belong to one connection, that a proxy or we describe the message with, that carry
//! credentials meant for us, and those whose names are ours. Added is what of the request is in
//! no header: its method and the URL that was called, which hold the data of a GET and may be what
//! the signature is over.

use std::fmt;

use base64::Engine;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::{InboundRequest, ReceivedItem};
use crate::header::{self, HeaderPrefix};
use crate::secret::BASE64;

/// Names that are never forwarded, besides those that are ours or belong to one connection.
const LEFT_OUT: [&str; 6] =
    ["host", "content-length", "cookie", "forwarded", "authorization", "expect"];

/// What describes the bytes of a whole body (RFC 9110 §8.4, RFC 9530).
const OF_THE_WHOLE: [&str; 5] =
    ["content-encoding", "content-digest", "repr-digest", "digest", "content-md5"];

/// Headers that go on, in the order in which they came. Values are bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ForwardedHeaders(Vec<(HeaderName, HeaderValue)>);

/// The stored form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored headers of a received event cannot be read")]
pub struct UnreadableHeaders;

/// A value that is text is stored as it is, any other in base64.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored {
    Text(String),
    Bytes { base64: String },
}

impl ForwardedHeaders {
    /// What of this request goes on. `called` is the URL that was called for it, without
    /// credentials; `prefix` is what the names of our own begin with.
    pub fn of(request: &InboundRequest<'_>, called: &str, prefix: &HeaderPrefix) -> Self {
        let mut headers = end_to_end(request.headers, prefix);
        // The one character that a URL on the wire may have and no header.
        let url = HeaderValue::from_bytes(called.replace('\u{7f}', "%7F").as_bytes());
        let method = HeaderValue::from_str(request.method.as_str());
        headers.extend(method.ok().map(|method| (prefix.received_method().clone(), method)));
        headers.extend(url.ok().map(|url| (prefix.received_url().clone(), url)));
        Self(headers)
    }

    /// Those that go on with these items of the request: where they are parts of the body, which
    /// were taken out of it as it was before compression, without what is true of the whole only.
    #[must_use]
    pub fn for_items(mut self, items: &[ReceivedItem]) -> Self {
        if items.iter().any(|item| item.body.is_some()) {
            self.0.retain(|(name, _)| !OF_THE_WHOLE.contains(&name.as_str()));
        }
        self
    }

    /// The headers, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The stored form: a JSON array of pairs.
    pub fn to_stored(&self) -> String {
        let pairs: Vec<_> = self
            .iter()
            .map(|(name, value)| {
                let value = match value.to_str() {
                    Ok(text) => Stored::Text(text.to_owned()),
                    Err(_) => Stored::Bytes { base64: BASE64.encode(value.as_bytes()) },
                };
                (name.as_str(), value)
            })
            .collect();
        serde_json::to_string(&pairs).unwrap_or_default()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`UnreadableHeaders`].
    pub fn from_stored(text: &str) -> Result<Self, UnreadableHeaders> {
        let pairs: Vec<(String, Stored)> =
            serde_json::from_str(text).map_err(|_| UnreadableHeaders)?;
        let read = |(name, value): (String, Stored)| {
            let bytes = match value {
                Stored::Text(text) => text.into_bytes(),
                Stored::Bytes { base64 } => BASE64.decode(base64).ok()?,
            };
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, HeaderValue::from_bytes(&bytes).ok()?))
        };
        let headers: Option<Vec<_>> = pairs.into_iter().map(read).collect();
        headers.map(Self).ok_or(UnreadableHeaders)
    }
}

/// Those of the headers that go on, in their order.
fn end_to_end(headers: &HeaderMap, prefix: &HeaderPrefix) -> Vec<(HeaderName, HeaderValue)> {
    let nominated: Vec<String> = headers
        .get_all("connection")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let goes_on = |name: &HeaderName| {
        let text = name.as_str();
        !LEFT_OUT.contains(&text)
            && !text.starts_with("x-forwarded-")
            && !header::belongs_to_a_connection(name)
            && !header::is_ours(name, prefix)
            && !nominated.iter().any(|other| other == text)
    };
    headers
        .iter()
        .filter(|(name, _)| goes_on(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

impl fmt::Debug for ForwardedHeaders {
    /// Names only: values may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
        }
        headers
    }

    /// Without what is added.
    fn forwarded(pairs: &[(&str, &[u8])]) -> ForwardedHeaders {
        ForwardedHeaders(end_to_end(&headers(pairs), &HeaderPrefix::default()))
    }

    fn check(pairs: &[(&str, &[u8])], names: &[&str]) {
        let found = forwarded(pairs);
        let found: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names, "{pairs:?}");
    }

    #[test]
    fn end_to_end_headers_go_on_as_they_came() {
        let pairs: &[(&str, &[u8])] = &[
            ("Content-Type", b"application/json; charset=x"),
            ("X-Hub-Signature-256", b"sha256=00"),
            ("X-Odd", b"\xff\xd8 text"),
            ("X-Two", b"1"),
            ("X-Two", b"2"),
            ("User-Agent", b"Hookshot"),
            ("Content-Encoding", b"gzip"),
        ];
        let names = [
            "content-type",
            "x-hub-signature-256",
            "x-odd",
            "x-two",
            "x-two",
            "user-agent",
            "content-encoding",
        ];
        check(pairs, &names);
        let forwarded = forwarded(pairs);
        let values: Vec<_> = forwarded.iter().map(|(_, value)| value.as_bytes()).collect();
        assert_eq!(values, pairs.iter().map(|(_, value)| *value).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_the_handlers_stays_behind() {
        for name in [
            "Host",
            "Content-Length",
            "Cookie",
            "Forwarded",
            "X-Forwarded-For",
            "x-forwarded-anything",
            "Authorization",
            "Expect",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Transfer-Encoding",
            "Upgrade",
            "Proxy-Authorization",
            "Proxy-Connection",
            "webhook-id",
            "Webhook-Signature",
            "webhook-anything",
            "X-Message-Webhook-Id",
            "x-message-anything",
        ] {
            check(&[(name, b"1"), ("x-kept", b"1")], &["x-kept"]);
        }
        // What the sender names in Connection belongs to the connection.
        let pairs: &[(&str, &[u8])] =
            &[("connection", b"close, X-One"), ("connection", b"x-two"), ("x-one", b"1")];
        check(&[pairs, &[("x-two", b"2"), ("x-three", b"3")]].concat(), &["x-three"]);
    }

    #[test]
    fn names_of_ours_go_by_the_prefix_that_is_set() {
        let headers = headers(&[("x-message-a", b"1"), ("x-acme-a", b"1"), ("webhook-id", b"1")]);
        let prefix = "X-Acme-".parse().expect("a prefix");
        let request =
            InboundRequest { method: &Method::PUT, target: "/", headers: &headers, body: b"" };
        let found = ForwardedHeaders::of(&request, "/in/x", &prefix);
        assert_eq!(
            found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["x-message-a", "x-acme-received-method", "x-acme-received-url"]
        );
    }

    #[test]
    fn method_and_url_go_on_and_nobody_else_says_them() {
        let spoofed = headers(&[
            ("x-message-received-url", b"https://evil.test"),
            ("X-Message-Received-Method", b"DELETE"),
        ]);
        for (url, expected) in [
            ("/in/x?a=%7E&b=+&a=2", &b"/in/x?a=%7E&b=+&a=2"[..]),
            ("https://a.test/in/x", b"https://a.test/in/x"),
            ("/in/x?n=\u{e4}", "/in/x?n=\u{e4}".as_bytes()),
            ("/in/x?\u{7f}=1", b"/in/x?%7F=1"),
        ] {
            let request =
                InboundRequest { method: &Method::GET, target: "/", headers: &spoofed, body: b"" };
            let found = ForwardedHeaders::of(&request, url, &HeaderPrefix::default());
            let stored = ForwardedHeaders::from_stored(&found.to_stored()).expect("what is stored");
            let pairs: Vec<_> =
                stored.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
            let method = ("x-message-received-method", &b"GET"[..]);
            assert_eq!(pairs, [method, ("x-message-received-url", expected)], "{url}");
        }
    }

    #[test]
    fn the_stored_form_gives_back_the_same() {
        let every: Vec<u8> = (32..=255).filter(|byte| *byte != 127).collect();
        let found = forwarded(&[("a", b""), ("b", b"text \"x\""), ("c", b"\xff"), ("d", &every)]);
        let stored = found.to_stored();
        assert_eq!(ForwardedHeaders::from_stored(&stored), Ok(found.clone()));
        assert!(stored.starts_with(r#"[["a",""],["b","text \"x\""],["c",{"base64":"/w=="}]"#));
        assert_eq!(format!("{found:?}"), r#"["a", "b", "c", "d"]"#);
        for damaged in ["", "{}", "[[\"a\"]]", r#"[["a b","1"]]"#, r#"[["a","1\n2"]]"#] {
            assert_eq!(ForwardedHeaders::from_stored(damaged), Err(UnreadableHeaders), "{damaged}");
        }
    }
}
