use everhook_domain::address::AddressGuard;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::Token;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::header::CustomHeaders;
use everhook_domain::id::DeliveryId;
use everhook_domain::inbound::InboundRequest;
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::Subscription;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::SystemClock;
use everhook_lab::{Door, Lab, Reply};
use everhook_store::Share;
use http::Method;

use super::*;
use crate::http::{HttpSender, Resolver};
use crate::sender::Sender;

const AT: Timestamp = Timestamp::from_millis(1_800_000_000_000);
/// Bytes that are no text, and legal in a value (RFC 9110 §5.5).
const ODD: &[u8] = b"\xff\xc3\x28 \t \x80";
/// The largest body that is received by default.
const MOST: usize = 25 << 20;

fn secret() -> Secret {
    Secret::from_bytes([7; 32])
}

fn endpoint(url: &str, headers: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint {
        id: EndpointId::from_bits(1),
        tenant: TenantId::default_tenant(),
        state: EndpointState::Enabled,
        disabled: None,
        version: 1,
        created_at: AT,
        updated_at: AT,
        settings: EndpointSettings {
            url: EndpointUrl::parse(url, false).expect("a URL"),
            description: String::new(),
            headers: CustomHeaders::from_stored(headers).expect("headers"),
            subscription: Subscription::default(),
            requests_per_second: None,
            max_in_flight: None,
            ca_certificates: None,
            unusable: Default::default(),
        },
        secrets: SecretSet::new(secret()),
    })
}

fn forwarded(pairs: &[(&str, &[u8])]) -> Arc<ForwardedHeaders> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        headers.append(name, HeaderValue::from_bytes(value).expect("a value"));
    }
    let request =
        InboundRequest { method: &Method::GET, target: "/", headers: &headers, body: b"" };
    let called = "https://a.test/in/x?a=1";
    Arc::new(ForwardedHeaders::of(&request, called, &HeaderPrefix::default()))
}

fn delivery(body: Bytes, headers: Option<Arc<ForwardedHeaders>>) -> LeasedDelivery {
    LeasedDelivery {
        id: DeliveryId::from_bits(1 << 16 | 1),
        endpoint: EndpointId::from_bits(1),
        token: Token(1),
        until: None,
        number: 3,
        due_at: AT,
        cause: Trigger::Schedule,
        share: Share::Fresh,
        body,
        headers,
    }
}

fn request(endpoint: &Arc<Endpoint>, delivery: &LeasedDelivery) -> OutgoingRequest {
    Preparations::new(EngineSettings::default()).of(endpoint).request(delivery, AT)
}

/// The values that `name` goes out with, for a delivery that came with these headers to an endpoint
/// with those set.
#[track_caller]
fn check(came: Option<&[(&str, &[u8])]>, set: &str, name: &str, expected: &[&[u8]]) {
    let endpoint = endpoint("http://user:pass@a/", set);
    let out = request(&endpoint, &delivery(Bytes::from_static(b"{}"), came.map(forwarded)));
    let values: Vec<_> = out.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(values, expected, "{name} of {came:?} with {set}");
}

#[test]
fn layers_of_headers() {
    let set = r#"{"x-key":"of the owner"}"#;
    let came: &[(&str, &[u8])] = &[
        ("content-type", b"application/x-www-form-urlencoded"),
        ("user-agent", b"Provider/1.0"),
        ("x-two", b"1"),
        ("x-two", ODD),
        ("x-key", b"1"),
        ("x-key", b"2"),
        ("content-encoding", b"gzip"),
        ("stripe-signature", b"t=1,v1=00"),
    ];
    // What we publish says what it is.
    check(None, "{}", "content-type", &[b"application/json"]);
    check(None, set, "x-key", &[b"of the owner"]);
    check(None, "{}", "user-agent", &[EngineSettings::default().user_agent.as_bytes()]);
    // What was received goes on as it came: every value, whatever its bytes are.
    check(Some(came), "{}", "content-type", &[b"application/x-www-form-urlencoded"]);
    check(Some(came), "{}", "user-agent", &[b"Provider/1.0"]);
    check(Some(came), "{}", "x-two", &[b"1", ODD]);
    check(Some(came), "{}", "content-encoding", &[b"gzip"]);
    check(Some(came), "{}", "stripe-signature", &[b"t=1,v1=00"]);
    check(Some(&[]), "{}", "content-type", &[]);
    check(Some(&[]), "{}", "user-agent", &[]);
    // The owner's win, over every value of the name.
    check(Some(came), set, "x-key", &[b"of the owner"]);
    check(Some(came), set, "x-two", &[b"1", ODD]);
    check(Some(came), set, "authorization", &[b"Basic dXNlcjpwYXNz"]);
    // Ours are always there.
    for came in [None, Some(came)] {
        check(came, set, "x-message-webhook-attempt", &[b"3"]);
        check(came, set, "webhook-timestamp", &[b"1800000000"]);
    }
    // What was received says by what method and URL.
    check(Some(came), "{}", "x-message-received-method", &[b"GET"]);
    check(Some(came), "{}", "x-message-received-url", &[b"https://a.test/in/x?a=1"]);
    check(None, "{}", "x-message-received-url", &[]);
}

/// The request, as it arrives at a receiver that keeps it byte for byte.
async fn arrived(body: Bytes, came: Arc<ForwardedHeaders>) -> everhook_lab::Request {
    let clock = Arc::new(SystemClock::start());
    let lab = Lab::start(Door::Open, Reply::status(200), Arc::clone(&clock) as _).await;
    let lab = lab.expect("a free port");
    let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().expect("a block")]);
    let sender = HttpSender::new(&EngineSettings::default(), guard, Resolver::system(), clock);
    let endpoint = endpoint(&format!("http://{}/hook", lab.address()), "{}");
    let outgoing = request(&endpoint, &delivery(body, Some(came)));
    let outcome = sender.expect("TLS").send(outgoing).await;
    assert!(outcome.is_success(), "{outcome:?}");
    lab.wait_for(|record| record.request_count == 1).await.requests.remove(0)
}

#[tokio::test]
async fn a_received_event_arrives_byte_for_byte_with_its_headers() {
    let every: Vec<u8> = (0..=255).collect();
    let came = forwarded(&[
        ("content-type", b"application/octet-stream"),
        ("content-encoding", b"br"),
        ("x-odd", ODD),
        ("x-two", b"first"),
        ("x-two", b"second"),
    ]);
    for body in [
        Bytes::new(),
        Bytes::from_static(b"\x00"),
        Bytes::from(every.clone()),
        Bytes::from(every.repeat(MOST / every.len())),
    ] {
        let request = arrived(body.clone(), Arc::clone(&came)).await;
        assert!(request.body == body, "{} of {} bytes", request.body.len(), body.len());
        let lines: Vec<&[u8]> = request.head.split(|byte| *byte == b'\n').collect();
        let has = |line: &[u8]| lines.iter().any(|own| own.strip_suffix(b"\r") == Some(line));
        for line in [
            &b"content-type: application/octet-stream"[..],
            b"content-encoding: br",
            &[b"x-odd: ", ODD].concat(),
            b"x-two: first",
            b"x-two: second",
        ] {
            assert!(has(line), "{} in {}", line.escape_ascii(), request.head.escape_ascii());
        }
        let header = |name| request.header(name).expect("ours");
        let id = header("webhook-id");
        assert_eq!(header("x-message-webhook-id"), id);
        let right = signature::sign([secret()].iter(), id, AT.as_secs(), &body);
        assert_eq!(header("webhook-signature"), right);
    }
}
