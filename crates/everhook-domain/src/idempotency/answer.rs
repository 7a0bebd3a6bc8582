//! What of an answer is remembered, and in which form.
//!
//! A remembered answer is given to another request, later, perhaps over another connection: what
//! speaks of the first request, its connection or its instant is not part of it.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// An answer that can be given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Content headers, in order. A value's characters are its bytes (ISO 8859-1), so that any
    /// value that HTTP allows comes back as it was.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

/// Says that an answer was given before; never part of a remembered one.
pub const REPLAYED: &str = "idempotency-replayed";

/// Headers that are not remembered, in lower case.
const DROPPED: &[&str] = &[
    // Hop by hop (RFC 9110, 7.6.1), and what frames the message.
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // The instant and the way of the first answer.
    "age",
    "alt-svc",
    "date",
    "retry-after",
    "server",
    "server-timing",
    "via",
    "x-response-time",
    "x-runtime",
    // Credentials, sessions, and what belongs to them.
    "authentication-info",
    "proxy-authenticate",
    "proxy-authentication-info",
    "set-cookie",
    "set-cookie2",
    "www-authenticate",
    "x-csrf-token",
    "x-xsrf-token",
    // What the first request was called.
    "cf-ray",
    "correlation-id",
    "request-id",
    "traceparent",
    "traceresponse",
    "tracestate",
    "x-amz-cf-id",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-b3-spanid",
    "x-b3-traceid",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
    // Ours.
    REPLAYED,
];

/// Beginnings of such names: what is left of an allowance is true once.
const DROPPED_BEGINNINGS: &[&str] = &["ratelimit", "x-ratelimit-", "x-rate-limit-"];

impl Answer {
    /// What is remembered of an answer: its status, its bytes, and the headers that speak of them.
    pub fn remember(status: u16, headers: &HeaderMap, body: Vec<u8>) -> Self {
        let hops = named_by_connection(headers);
        let kept = headers
            .iter()
            .filter(|(name, _)| is_kept(name.as_str()) && !hops.contains(&name.as_str().to_owned()))
            .map(|(name, value)| (name.as_str().to_owned(), latin1(value.as_bytes())))
            .collect();
        Self { status, headers: kept, body }
    }

    /// The headers as they are sent again, without [`REPLAYED`].
    pub fn header_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let value = bytes(value).and_then(|value| HeaderValue::from_bytes(&value).ok());
            if let (Ok(name), Some(value)) = (name, value) {
                map.append(name, value);
            }
        }
        map
    }
}

fn is_kept(name: &str) -> bool {
    !DROPPED.contains(&name) && !DROPPED_BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// The headers that `Connection` makes hop-by-hop, in lower case.
fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(http::header::CONNECTION).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|name| latin1(name.trim_ascii()).to_ascii_lowercase())
        .collect()
}

fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}

/// How a handler's work ended, as a key remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// With an answer that can be given again.
    Answer(Answer),
    /// With an answer of this status that cannot: it was too large, or a stream.
    Tombstone {
        /// Its status code.
        status: u16,
    },
}

/// The stored form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a remembered answer cannot be read: it was changed, or a newer version wrote it")]
pub struct Unreadable;

/// The first line of the stored form; the body's bytes follow it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    status: u16,
    /// Missing in a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<(String, String)>>,
}

impl Remembered {
    /// The stored form: one line of JSON, then the body as it is.
    pub fn encode(&self) -> Vec<u8> {
        let (head, body) = match self {
            Self::Answer(Answer { status, headers, body }) => {
                (Head { status: *status, headers: Some(headers.clone()) }, body.as_slice())
            }
            Self::Tombstone { status } => (Head { status: *status, headers: None }, &b""[..]),
        };
        // A head of numbers and strings always serialises.
        let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
        bytes.push(b'\n');
        bytes.extend_from_slice(body);
        bytes
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(Unreadable)?;
        let (head, body) = (&bytes[..end], &bytes[end + 1..]);
        let head: Head = serde_json::from_slice(head).map_err(|_| Unreadable)?;
        match head.headers {
            Some(headers) => {
                let body = body.to_vec();
                Ok(Self::Answer(Answer { status: head.status, headers, body }))
            }
            None if body.is_empty() => Ok(Self::Tombstone { status: head.status }),
            None => Err(Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers as `name: value` lines, before and after.
    fn check(before: &[&str], after: &[&str]) {
        let mut headers = HeaderMap::new();
        for line in before {
            let (name, value) = line.split_once(": ").expect("a header line");
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("legal");
            headers.append(HeaderName::from_bytes(name.as_bytes()).expect("legal"), value);
        }
        let answer = Answer::remember(201, &headers, b"{}".to_vec());
        let again = answer.header_map();
        let shown: Vec<String> = again
            .iter()
            .map(|(name, value)| {
                format!("{name}: {}", std::str::from_utf8(value.as_bytes()).expect("UTF-8"))
            })
            .collect();
        assert_eq!(shown, after);
        assert_eq!((answer.status, answer.body), (201, b"{}".to_vec()));
    }

    #[test]
    fn content_headers_stay() {
        let kept = [
            "content-type: text/plain; charset=utf-8",
            "location: /things/1",
            "etag: \"a\"",
            "link: </a>; rel=next",
            "link: </b>; rel=prev",
            "x-custom: ä",
            "cache-control: no-store",
            "content-encoding: gzip",
        ];
        check(&kept, &kept);
    }

    #[test]
    fn what_speaks_of_the_first_request_goes() {
        check(&["set-cookie: s=1", "set-cookie: t=2", "www-authenticate: Basic"], &[]);
        check(&["date: now", "age: 3", "server-timing: db;dur=5", "retry-after: 1"], &[]);
        check(&["content-length: 2", "transfer-encoding: chunked", "keep-alive: timeout=5"], &[]);
        check(&["x-request-id: r1", "traceparent: 00-a-b-01", "cf-ray: x"], &[]);
        check(&["ratelimit: 5", "x-ratelimit-remaining: 4"], &[]);
        check(&["idempotency-replayed: true"], &[]);
        check(&["connection: close, X-Mine", "x-mine: a", "x-other: b"], &["x-other: b"]);
    }

    #[test]
    fn any_byte_of_a_value_comes_back() {
        let mut headers = HeaderMap::new();
        headers.insert("x-raw", HeaderValue::from_bytes(b"a\xff\xe4").expect("legal"));
        let remembered = Remembered::Answer(Answer::remember(200, &headers, vec![]));
        let Ok(Remembered::Answer(answer)) = Remembered::decode(&remembered.encode()) else {
            panic!("it is an answer");
        };
        assert_eq!(answer.header_map(), headers);
    }

    #[test]
    fn the_stored_form_comes_back_or_is_refused() {
        let answer = |body: &[u8]| Answer {
            status: 201,
            headers: vec![("content-type".to_owned(), "a/b".to_owned())],
            body: body.to_vec(),
        };
        for remembered in [
            Remembered::Answer(answer(b"")),
            Remembered::Answer(answer(b"\n\n\x00\xff")),
            Remembered::Tombstone { status: 200 },
        ] {
            assert_eq!(Remembered::decode(&remembered.encode()), Ok(remembered));
        }
        for bytes in [
            &b""[..],
            b"{}",
            b"{}\n",
            b"{\"status\":200}",
            b"{\"status\":200}\nx",
            b"{\"status\":200,\"new\":1}\n",
            b"{\"status\":70000}\n",
        ] {
            assert_eq!(Remembered::decode(bytes), Err(Unreadable));
        }
    }
}
