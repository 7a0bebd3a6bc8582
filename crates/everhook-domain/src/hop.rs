//! What of a message's head goes on when a proxy hands the message on (RFC 9110 §7.6).
//!
//! What belongs to one connection is taken out, what tells of the way is written anew. Everything
//! else stays as it is, in its order.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, Entry, FORWARDED, HOST, TE, TRANSFER_ENCODING, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, Version};

/// Names that belong to one connection (RFC 9110 §7.6.1, RFC 7540 §3.2.1). `Trailer` does not: it
/// announces what comes at the end of the body, which is handed on.
const OF_ONE_CONNECTION: [&str; 6] =
    ["connection", "keep-alive", "te", "transfer-encoding", "upgrade", "http2-settings"];
/// As well as everything that begins with this: it is between a client and its own proxy.
const PROXY: &str = "proxy-";

/// What a request is judged by, besides its `Content-` headers: never in its trailers.
const TOO_LATE: [&str; 9] = [
    "authorization",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "max-forwards",
    "range",
    "trailer",
    "via",
];

/// What tells a service who has called, and everything that begins with [`X_FORWARDED`].
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
const X_FORWARDED: &str = "x-forwarded-";
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Between a client and the service: what the proxy knows, and what was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The address that the request came from.
    pub peer: IpAddr,
    /// The version of HTTP that it came in.
    pub version: Version,
    /// Whether the peer's word of who has called is taken: it is a proxy of the operator's. If not,
    /// it is anybody's word, and is replaced.
    pub trusts_peer: bool,
    /// The service's own host.
    pub host: HeaderValue,
    /// Whether the service is called by the host that the client has called.
    pub keeps_host: bool,
}

impl Hop {
    /// Makes the headers of a request those that the service is sent.
    pub fn onward(&self, headers: &mut HeaderMap) {
        let wants_trailers = has_token(headers, &TE, "trailers");
        drop_connection(headers);
        if wants_trailers {
            // It holds for the next connection too, and says so there (RFC 9110 §10.1.4).
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONNECTION, HeaderValue::from_static("te"));
        }
        // The body is asked for here, when there is somebody to take it.
        if headers.get(EXPECT).is_some_and(|value| is(value, "100-continue")) {
            headers.remove(EXPECT);
        }
        self.tell_who_called(headers);
        if !self.keeps_host || !headers.contains_key(HOST) {
            headers.insert(HOST, self.host.clone());
        }
        let via = if self.version == Version::HTTP_10 { "1.0 everhook" } else { "1.1 everhook" };
        append_to_list(headers, VIA, via);
    }

    fn tell_who_called(&self, headers: &mut HeaderMap) {
        if !self.trusts_peer {
            let claimed: Vec<HeaderName> =
                headers.keys().filter(|name| tells_who_called(name)).cloned().collect();
            for name in claimed {
                headers.remove(name);
            }
        }
        append_to_list(headers, X_FORWARDED_FOR, &self.peer.to_string());
        if let Entry::Vacant(empty) = headers.entry(X_FORWARDED_PROTO) {
            empty.insert(HeaderValue::from_static("http"));
        }
        if !headers.contains_key(X_FORWARDED_HOST)
            && let Some(host) = headers.get(HOST).cloned()
        {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }
}

/// Makes the trailers of a request those that the service is sent: some services read them as
/// headers, so none says what a header could not, and none that the request is judged by comes so
/// late (RFC 9110 §6.5.1).
pub fn trailers_onward(trailers: &mut HeaderMap) {
    drop_connection(trailers);
    let early: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            tells_who_called(name) || TOO_LATE.contains(&text) || text.starts_with("content-")
        })
        .cloned()
        .collect();
    for name in early {
        trailers.remove(name);
    }
}

fn tells_who_called(name: &HeaderName) -> bool {
    *name == FORWARDED || *name == X_REAL_IP || name.as_str().starts_with(X_FORWARDED)
}

/// Makes the headers of a service's answer those that the client is sent.
pub fn back(headers: &mut HeaderMap) {
    drop_connection(headers);
}

/// The first protocol that a request asks to change to, if it is one that cannot be ignored: a
/// server need not take up an offer (RFC 9110 §7.8), but whoever wants a WebSocket wants nothing
/// else. Clients that would speak HTTP/2 in clear text are content without.
pub fn wants_other_protocol(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(http::header::UPGRADE).iter();
    offered
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .any(|protocol| !protocol.is_empty() && !protocol.eq_ignore_ascii_case(b"h2c"))
}

fn drop_connection(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // Of the two the coding is right, and a length beside it is an attack (RFC 9112 §6.3).
        headers.remove(CONTENT_LENGTH);
    }
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            OF_ONE_CONNECTION.contains(&text)
                || text.starts_with(PROXY)
                || (**name != HOST && has_token(headers, &CONNECTION, text))
        })
        .cloned()
        .collect();
    for name in own {
        headers.remove(name);
    }
}

/// Whether a header that is a list holds this word; parameters do not matter.
fn has_token(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|item| item.split(|byte| *byte == b';').next())
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

fn is(value: &HeaderValue, word: &str) -> bool {
    value.as_bytes().eq_ignore_ascii_case(word.as_bytes())
}

/// Adds an item at the end, in one line.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(&name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(item.as_bytes());
    if let Ok(list) = HeaderValue::from_bytes(&list) {
        headers.insert(name, list);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop() -> Hop {
        Hop {
            peer: IpAddr::from([192, 0, 2, 7]),
            version: Version::HTTP_11,
            trusts_peer: false,
            host: HeaderValue::from_static("up.test:3000"),
            keeps_host: true,
        }
    }

    fn map(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header line");
            let name = HeaderName::from_bytes(name.as_bytes()).expect("legal");
            headers.append(name, HeaderValue::from_str(value).expect("legal"));
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        let mut lines: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
        lines.sort_unstable();
        lines
    }

    /// Of a request with these lines besides `Host`, what goes on besides what every request has.
    fn onward(hop: &Hop, before: &[&str], after: &[&str]) {
        let mut headers = map(before);
        headers.insert(HOST, HeaderValue::from_static("a.test"));
        hop.onward(&mut headers);
        let always = ["host: a.test", "via: 1.1 everhook", "x-forwarded-for: 192.0.2.7"];
        let more = ["x-forwarded-host: a.test", "x-forwarded-proto: http"];
        let mut expected = map(&[always.as_slice(), &more].concat());
        for line in after {
            let changed = map(&[line]);
            let name = changed.keys().next().expect("one").clone();
            if always.iter().chain(&more).any(|line| line.starts_with(name.as_str())) {
                expected.remove(&name);
            }
            expected.append(name.clone(), changed[&name].clone());
        }
        assert_eq!(shown(&headers), shown(&expected), "{before:?}");
    }

    #[test]
    fn what_is_the_requests_own_stays() {
        let own = [
            "accept: */*",
            "authorization: Bearer t",
            "cookie: a=b",
            "cookie: c=d",
            "idempotency-key: k",
            "content-length: 2",
            "trailer: x-sum",
            "expect: something-else",
        ];
        onward(&hop(), &own, &own);
    }

    #[test]
    fn what_belongs_to_the_connection_goes() {
        let hop = hop();
        onward(&hop, &["connection: keep-alive", "keep-alive: timeout=5"], &[]);
        onward(&hop, &["connection: close, X-Mine", "x-mine: a", "x-other: b"], &["x-other: b"]);
        onward(&hop, &["connection: x-a", "connection: x-b", "x-a: 1", "x-b: 1"], &[]);
        onward(&hop, &["proxy-connection: close", "proxy-authorization: Basic x"], &[]);
        onward(&hop, &["connection: Upgrade, HTTP2-Settings", "upgrade: h2c"], &[]);
        onward(&hop, &["http2-settings: AA", "te: deflate"], &[]);
        onward(&hop, &["transfer-encoding: chunked", "content-length: 2"], &[]);
        onward(&hop, &["expect: 100-Continue"], &[]);
        onward(&hop, &["te: trailers, deflate;q=0.5"], &["te: trailers", "connection: te"]);
        // A client cannot have the host taken out, nor what the service is told of it.
        onward(&hop, &["connection: host, x-forwarded-for, via"], &[]);
    }

    #[test]
    fn who_called_is_told_anew_or_added() {
        let claimed = [
            "x-forwarded-for: 198.51.100.1",
            "x-forwarded-proto: https",
            "x-forwarded-host: b.test",
            "x-forwarded-port: 443",
            "x-real-ip: 198.51.100.1",
            "forwarded: for=198.51.100.1",
        ];
        onward(&hop(), &claimed, &[]);
        let trusting = Hop { trusts_peer: true, ..hop() };
        onward(&trusting, &[], &[]);
        let [_, kept @ ..] = claimed;
        let after = [&["x-forwarded-for: 198.51.100.1, 192.0.2.7"], kept.as_slice()].concat();
        onward(&trusting, &claimed, &after);
        onward(&hop(), &["via: 1.1 a", "via: 1.0 b"], &["via: 1.1 a, 1.0 b, 1.1 everhook"]);
    }

    #[test]
    fn trailers_say_nothing_that_a_header_could_not() {
        let mut trailers = map(&[
            "x-sum: 1",
            "x-forwarded-for: 6.6.6.6",
            "x-real-ip: 6.6.6.6",
            "forwarded: for=6.6.6.6",
            "connection: close",
            "keep-alive: timeout=5",
            "upgrade: h2c",
            "proxy-authorization: x",
            "via: 1.1 a",
            "idempotency-key: k",
            "content-length: 1",
            "authorization: x",
        ]);
        trailers_onward(&mut trailers);
        assert_eq!(shown(&trailers), ["x-sum: 1"]);
    }

    #[test]
    fn the_host_is_the_clients_or_the_services() {
        let own = Hop { keeps_host: false, version: Version::HTTP_10, ..hop() };
        let after = ["host: up.test:3000", "x-forwarded-host: a.test", "via: 1.0 everhook"];
        onward(&own, &[], &after);
        let mut headers = HeaderMap::new();
        hop().onward(&mut headers);
        assert_eq!(headers[HOST], "up.test:3000", "where the client has called none");
        assert!(!headers.contains_key(X_FORWARDED_HOST));
    }

    #[test]
    fn answers() {
        let check = |before: &[&str], after: &[&str]| {
            let mut headers = map(before);
            back(&mut headers);
            assert_eq!(shown(&headers), shown(&map(after)), "{before:?}");
        };
        let own = ["set-cookie: a", "set-cookie: b", "date: now", "content-length: 3", "via: 1 x"];
        check(&own, &own);
        check(&["connection: close, x-a", "x-a: 1", "keep-alive: timeout=5"], &[]);
        check(&["transfer-encoding: chunked", "content-length: 3", "trailer: x"], &["trailer: x"]);
        check(&["proxy-authenticate: Basic", "upgrade: h2c"], &[]);
    }

    #[test]
    fn offers_that_are_more_than_offers() {
        for (lines, expected) in [
            (&[][..], false),
            (&["upgrade: h2c"], false),
            (&["upgrade: "], false),
            (&["upgrade: websocket"], true),
            (&["upgrade: H2C, WebSocket"], true),
            (&["upgrade: h2c", "upgrade: TLS/1.0"], true),
        ] {
            assert_eq!(wants_other_protocol(&map(lines)), expected, "{lines:?}");
        }
    }
}
