//! Certificates that a signature needs, and confirmations: what is fetched, and how often.

use std::sync::Arc;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::inbound::CertificateUrl;
use everhook_domain::time::Timestamp;
use everhook_web::fetch::{Fetch, FetchFailed};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{Api, Reply, text};

/// Requests of Amazon SNS with the certificate that they are signed with.
const VECTORS: &str = include_str!("../../../everhook-domain/tests/vectors/aws_sns.json");
const HOUR_MS: i64 = 3_600_000;

/// Answers every GET with the same, but for what is called `bad`, and keeps what was asked for.
struct Fake {
    asked: Mutex<Vec<String>>,
    answer: Mutex<Result<Bytes, FetchFailed>>,
    /// Lets GETs go on.
    gate: Semaphore,
}

#[async_trait]
impl Fetch for Fake {
    async fn get(&self, url: &CertificateUrl, bytes_max: usize) -> Result<Bytes, FetchFailed> {
        assert_eq!(bytes_max, 65_536);
        self.asked.lock().expect("no panic").push(url.to_string());
        self.gate.acquire().await.expect("open").forget();
        self.gate.add_permits(1);
        match url.as_str().contains("-bad") {
            true => Err(FetchFailed("there is none".to_owned())),
            false => self.answer.lock().expect("no panic").clone(),
        }
    }
}

impl Fake {
    fn count(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }

    fn answers(&self, answer: Result<Bytes, FetchFailed>) {
        *self.answer.lock().expect("no panic") = answer;
    }
}

fn vector(case: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(VECTORS).expect("vectors");
    all.into_iter().find(|vector| vector["case"] == case).expect("a vector")
}

fn certificate() -> Bytes {
    Bytes::from(text(&vector("valid_v1_with_subject")["secret"]))
}

/// A source for the topic of the vectors, at the time of the vectors, and who fetches for it.
async fn start() -> (Arc<Api>, Arc<Fake>) {
    let fake = Arc::new(Fake {
        asked: Mutex::default(),
        answer: Mutex::new(Ok(certificate())),
        gate: Semaphore::new(1),
    });
    let now = vector("valid_v1_with_subject")["now"].as_i64().expect("seconds") * 1_000;
    let api = Api::with(|settings| {
        settings.fetch = Arc::clone(&fake) as _;
        settings.wall_clock = Arc::new(move || Timestamp::from_millis(now));
        settings.receive_limits.certificate_lifetime = std::time::Duration::from_secs(3_600);
    });
    let topics = json!(["arn:aws:sns:us-east-1:123456789012:MyTopic"]);
    api.source(&json!({"name": "sns", "kind": "aws_sns", "options": {"topic_arns": topics}})).await;
    (Arc::new(api), fake)
}

async fn send(api: &Api, case: &str) -> Reply {
    send_named(api, case, &"0".repeat(32)).await
}

/// As [`send`], signed with the certificate of this name, which is no part of what is signed.
async fn send_named(api: &Api, case: &str, certificate: &str) -> Reply {
    let vector = vector(case);
    let headers: Vec<_> = vector["headers"].as_object().expect("headers").iter().collect();
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().expect("text")))
        .collect();
    let body = text(&vector["body"]).replace(&"0".repeat(32), certificate);
    api.raw("POST", "/in/sns", &headers, body.as_bytes()).await
}

async fn rejected(api: &Api, cause: &str) -> Value {
    let sources = api.rows("/api/v1/sources").await;
    sources[0]["rejected"][cause].clone()
}

#[tokio::test]
async fn one_fetches_for_all_who_come_at_the_same_time() {
    let (api, fake) = start().await;
    fake.gate.acquire().await.expect("open").forget();
    let mut requests = JoinSet::new();
    for _ in 0..20 {
        let api = Arc::clone(&api);
        requests.spawn(async move { send(&api, "valid_v1_with_subject").await });
    }
    while fake.count() == 0 {
        tokio::task::yield_now().await;
    }
    fake.gate.add_permits(1);
    for reply in requests.join_all().await {
        reply.expect(StatusCode::OK);
    }
    assert_eq!(fake.count(), 1);
    assert_eq!(api.rows("/api/v1/receipts").await.len(), 1);
}

#[tokio::test]
async fn a_certificate_is_used_for_its_lifetime() {
    let (api, fake) = start().await;
    for (advance, fetched) in [(0, 1), (HOUR_MS - 1, 1), (1, 2), (HOUR_MS - 1, 2)] {
        api.advance_ms(advance);
        send(&api, "valid_v1_with_subject").await.expect(StatusCode::OK);
        assert_eq!(fake.count(), fetched);
    }
}

#[tokio::test]
async fn without_its_certificate_a_webhook_is_to_come_again() {
    let (api, fake) = start().await;
    fake.answers(Err(FetchFailed("no route".to_owned())));
    for (advance, fetched) in [(0, 1), (999, 1), (1, 2)] {
        api.advance_ms(advance);
        let reply = send(&api, "valid_v1_with_subject").await;
        assert_eq!((reply.status, reply.slug().as_str()), (503, "source-not-ready"));
        assert_eq!(reply.header("retry-after"), Some("5"));
        assert_eq!(fake.count(), fetched, "a failure is remembered for a second");
    }
    assert_eq!(rejected(&api, "certificate").await, 3);
    let last = rejected(&api, "last").await;
    assert!(text(&last["reason"]).contains("no route"), "{last}");
    fake.answers(Ok(certificate()));
    api.advance_ms(1_000);
    send(&api, "valid_v1_with_subject").await.expect(StatusCode::OK);
}

#[tokio::test]
async fn what_is_forged_is_refused_and_other_hosts_are_never_asked() {
    let (api, fake) = start().await;
    for (case, fetched) in
        [("invalid_cert_host", 0), ("invalid_cert_http", 0), ("invalid_tampered_message", 1)]
    {
        let reply = send(&api, case).await;
        assert_eq!((reply.status, reply.slug().as_str()), (401, "unverified"), "{case}");
        assert_eq!(fake.count(), fetched, "{case}");
    }
    fake.answers(Ok(Bytes::from_static(b"no certificate")));
    api.advance_ms(HOUR_MS);
    let reply = send(&api, "valid_v1_with_subject").await;
    assert!(matches!(reply.status, 401 | 503), "{}", reply.status);
    assert!(api.rows("/api/v1/receipts").await.is_empty());
}

#[tokio::test]
async fn a_subscription_is_confirmed_by_asking_for_its_url() {
    let (api, fake) = start().await;
    send(&api, "valid_v1_with_subject").await.expect(StatusCode::OK);
    fake.answers(Err(FetchFailed("no route".to_owned())));
    let reply = send(&api, "valid_v2_subscription_confirmation").await;
    assert_eq!((reply.status, reply.slug().as_str()), (503, "source-not-ready"));
    fake.answers(Ok(Bytes::new()));
    let confirmed = send(&api, "valid_v2_subscription_confirmation").await;
    assert_eq!(confirmed.expect(StatusCode::OK), json!({"status": "confirmed"}));
    let asked = fake.asked.lock().expect("no panic").clone();
    assert_eq!(asked.len(), 3);
    let confirming = "https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=";
    assert!(asked[1..].iter().all(|url| url.starts_with(confirming)), "{asked:?}");
    assert_eq!(api.rows("/api/v1/receipts").await.len(), 1, "it is no event");
}

#[tokio::test]
async fn what_anybody_asks_for_takes_no_place_of_what_is_known() {
    let (api, fake) = start().await;
    let case = "valid_v1_with_subject";
    send(&api, case).await.expect(StatusCode::OK);
    for number in 0..100 {
        let reply = send_named(&api, case, &format!("bad{number}")).await;
        assert_eq!(reply.slug(), "source-not-ready");
    }
    assert_eq!(fake.count(), 101);
    let last = rejected(&api, "last").await;
    assert!(!text(&last["reason"]).contains("bad"), "it is the sender's word: {last}");
    // As many as may be are being asked for, and the others are to come again.
    api.advance_ms(1_001);
    fake.gate.acquire().await.expect("open").forget();
    let mut requests = JoinSet::new();
    for number in 0..80 {
        let api = Arc::clone(&api);
        requests.spawn(async move { send_named(&api, case, &format!("bad{number}")).await });
    }
    for _ in 32..80 {
        let reply = requests.join_next().await.expect("one").expect("no panic");
        assert_eq!(reply.slug(), "source-not-ready");
    }
    assert_eq!(fake.count(), 101 + 32);
    send(&api, case).await.expect(StatusCode::OK);
    assert_eq!(fake.count(), 101 + 32, "it was known all the time");
    fake.gate.add_permits(1);
    requests.join_all().await;
}

#[tokio::test]
async fn a_url_that_is_too_long_is_neither_asked_for_nor_told() {
    let (api, fake) = start().await;
    let reply = send_named(&api, "valid_v1_with_subject", &"0".repeat(100_000)).await;
    assert_eq!((reply.status, fake.count()), (401, 0));
    let last = rejected(&api, "last").await;
    assert!(text(&last["reason"]).len() <= 300, "{last}");
}
