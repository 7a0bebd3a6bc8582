//! A scripted server, and a client that may reach it.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::address::AddressGuard;
use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::time::SystemClock;
use everhook_engine::http::{HttpSender, Resolver};
use everhook_engine::{EngineSettings, OutgoingRequest, Sender};
use http::{HeaderMap, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Long enough for anything that is expected to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// The client's timeout where it is expected to strike.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

/// A server on the loopback interface; its tasks end with it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Runs `script` for each connection, with its number from 0.
    pub(crate) async fn run<S, F>(script: S) -> Self
    where
        S: Fn(usize, TcpStream) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut scripts = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                scripts.spawn(script(count.fetch_add(1, SeqCst), stream));
            }
        });
        Self { address, connections, _tasks: tasks }
    }

    /// Answers every request on every connection with these bytes.
    pub(crate) async fn replying(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::run(move |_, mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while read_request(&mut stream).await.is_some() {
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Answers one request with these bytes and closes the connection.
    pub(crate) async fn replying_once(answer: impl Into<Vec<u8>>) -> Self {
        let answer: Arc<[u8]> = answer.into().into();
        Self::run(move |_, mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                read_request(&mut stream).await;
                stream.write_all(&answer).await.ok();
            }
        })
        .await
    }

    /// How many connections came.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// A URL that leads here.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Reads one request, head and body; `None` when the connection has ended.
pub(crate) async fn read_request<S: AsyncReadExt + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.trim().parse::<usize>().expect("a number"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    request.extend_from_slice(&body);
    Some(request)
}

/// A client that may reach the loopback addresses, and sends to one URL.
pub(crate) struct Client {
    pub(crate) sender: HttpSender,
    pub(crate) timeout: Duration,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self::with(EngineSettings::default(), Resolver::system())
    }

    pub(crate) fn with(settings: EngineSettings, resolver: Resolver) -> Self {
        Self::guarded("127.0.0.0/8", settings, resolver)
    }

    pub(crate) fn guarded(allowed: &str, settings: EngineSettings, resolver: Resolver) -> Self {
        let guard = AddressGuard::new(vec![allowed.parse().expect("a block")]);
        let clock = Arc::new(SystemClock::start());
        let sender = HttpSender::new(&settings, guard, resolver, clock).expect("TLS");
        Self { sender, timeout: PATIENCE }
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
