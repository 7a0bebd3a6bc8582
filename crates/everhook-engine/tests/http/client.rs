//! The client under test, and the labs that it is sent to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::address::AddressGuard;
use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::time::{Clock, SystemClock, Timestamp};
use everhook_engine::http::{HttpSender, Resolver};
use everhook_engine::{EngineSettings, OutgoingRequest, Sender};
use everhook_lab::{Behaviour, Door, Lab};
use http::{HeaderMap, HeaderValue};
use tokio::time::Instant;

/// Long enough for anything that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The client's timeout where it is expected to strike.
pub(crate) const SHORT: Duration = Duration::from_millis(300);
/// Between two beats of [`in_paused_time`].
const BEAT: Duration = Duration::from_millis(20);

/// A lab that speaks clear text.
pub(crate) async fn lab(behaviour: impl Into<Behaviour>) -> Lab {
    behind(Door::Open, behaviour).await
}

/// A lab with another door.
pub(crate) async fn behind(door: Door, behaviour: impl Into<Behaviour>) -> Lab {
    Lab::start(door, behaviour, Arc::new(TestClock::start())).await.expect("a free port")
}

/// Runs `work` in tokio's paused time, and tells how long it took by that. Time goes on in small
/// steps, so that what is on its way through the loopback interface arrives before a deadline that
/// is far off strikes.
pub(crate) async fn in_paused_time<W: Future>(work: W) -> (W::Output, Duration) {
    let clock = TestClock::start();
    let beats = async {
        loop {
            tokio::time::sleep(BEAT).await;
        }
    };
    let output = tokio::select! {
        biased;
        output = work => output,
        () = beats => unreachable!("it beats for ever"),
    };
    (output, clock.monotonic())
}

/// A clock whose monotonic part follows tokio's time.
pub(crate) struct TestClock(Instant);

impl TestClock {
    #[expect(clippy::disallowed_methods, reason = "tokio's time, paused or not, is the time here")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TestClock {
    fn wall(&self) -> Timestamp {
        SystemClock::start().wall()
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A client that may reach the loopback addresses, and sends to one URL.
pub(crate) struct Client {
    pub(crate) sender: HttpSender,
    pub(crate) timeout: Duration,
    pub(crate) ca_certificates: Option<CaCertificates>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(EngineSettings::default(), Resolver::system())
    }

    pub(crate) fn with(settings: EngineSettings, resolver: Resolver) -> Self {
        Self::build(&["127.0.0.0/8"], &settings, resolver)
    }

    pub(crate) fn guarded(allowed: &[&str], resolver: Resolver) -> Self {
        Self::build(allowed, &EngineSettings::default(), resolver)
    }

    fn build(allowed: &[&str], settings: &EngineSettings, resolver: Resolver) -> Self {
        let blocks = allowed.iter().map(|block| block.parse().expect("a block"));
        let guard = AddressGuard::new(blocks.collect());
        let clock = Arc::new(TestClock::start());
        let sender = HttpSender::new(settings, guard, resolver, clock).expect("TLS");
        Self { sender, timeout: PATIENCE, ca_certificates: None }
    }

    pub(crate) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(crate) async fn post(&self, url: &str, body: &[u8]) -> AttemptOutcome {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        headers.insert("webhook-id", HeaderValue::from_static("evt_1"));
        let request = OutgoingRequest {
            url: Arc::new(EndpointUrl::parse(url, false).expect("a URL")),
            headers,
            body: Bytes::copy_from_slice(body),
            ca_certificates: self.ca_certificates.clone(),
            timeout: self.timeout,
        };
        // A client that never ends is a fault too.
        tokio::time::timeout(2 * PATIENCE, self.sender.send(request)).await.expect("an outcome")
    }

    pub(crate) async fn get_answer(&self, url: &str) -> AttemptOutcome {
        self.post(url, b"{}").await
    }
}

/// The outcome must be a failure of this class; gives its detail.
#[track_caller]
pub(crate) fn failed(outcome: &AttemptOutcome, class: ErrorClass) -> String {
    let error = outcome.error.as_ref().expect("a failure");
    assert_eq!(error.class, class, "{}", error.detail);
    error.detail.clone()
}

/// The outcome must be a success; gives status and body.
#[track_caller]
pub(crate) fn delivered(outcome: &AttemptOutcome) -> (u16, String) {
    assert!(outcome.is_success(), "{:?}", outcome.error);
    let response = outcome.response.as_ref().expect("an answer");
    (response.status, response.body.clone())
}
