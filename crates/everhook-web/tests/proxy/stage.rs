//! A proxy, the service behind it, and clients in front of it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_idempotency::store::memory::MemoryStore;
use everhook_web::ServerLimits;
use everhook_web::proxy::{KeySettings, NotAnswered, Proxy, ProxySettings, Upstream};
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

/// What the service does with a request; the number counts them from 1.
type Play = dyn Fn(Request<Body>, usize) -> Played + Send + Sync;
type Played = Pin<Box<dyn Future<Output = Result<Response<Body>, NotAnswered>> + Send>>;

/// The service. It remembers the heads of the requests that came.
pub(crate) struct Service {
    play: Box<Play>,
    heads: Mutex<Vec<Parts>>,
}

#[async_trait]
impl Upstream for Service {
    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, NotAnswered> {
        let (parts, body) = request.into_parts();
        let count = {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            heads.push(parts.clone());
            heads.len()
        };
        (self.play)(Request::from_parts(parts, body), count).await
    }
}

/// The settings of a new installation, with nothing to wait for.
pub(crate) fn settings() -> ProxySettings {
    ProxySettings {
        account_header: None,
        anonymous: true,
        tenant: TenantId::default_tenant(),
        behind_proxy: false,
        upstream_host: HeaderValue::from_static("up.test"),
        keeps_host: true,
        silence_max: Duration::from_secs(30),
        in_flight_max: 64,
        keys: KeySettings::default(),
    }
}

/// A running proxy.
pub(crate) struct Stage {
    pub(crate) service: Arc<Service>,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Stage {
    pub(crate) async fn new<F>(
        settings: ProxySettings,
        play: impl Fn(Request<Body>, usize) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, NotAnswered>> + Send + 'static,
    {
        let play: Box<Play> = Box::new(move |request, count| Box::pin(play(request, count)));
        let service = Arc::new(Service { play, heads: Mutex::default() });
        let now = Arc::new(|| Timestamp::from_millis(1_700_000_000_000));
        let store = Arc::new(MemoryStore::default());
        let proxy = Proxy::new(settings, Arc::clone(&service) as _, store, now).expect("legal");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let stopped = async { drop(stopped.await) };
        tasks.spawn(proxy.serve(listener, stopped, ServerLimits::default()));
        Self { service, address, stop: Some(stop), tasks }
    }

    /// How many requests have come to the service.
    pub(crate) fn runs(&self) -> usize {
        self.service.heads.lock().expect("no panic").len()
    }

    /// The head of the last request that came to the service.
    pub(crate) fn last(&self) -> Parts {
        self.service.heads.lock().expect("no panic").last().expect("one").clone()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Sends a request with these header lines, each with its end, and reads the whole answer.
    pub(crate) async fn send(&self, start: &str, lines: &str, body: &str) -> Answer {
        let mut stream = self.connect().await;
        let head = format!("{start} HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n{lines}");
        let rest = format!("content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all((head + &rest).as_bytes()).await.expect("taken");
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.expect("an end in order");
        Answer::new(&read)
    }

    /// A POST of `{}` with this key.
    pub(crate) async fn post(&self, key: &str) -> Answer {
        self.send("POST /orders?x=1", &format!("idempotency-key: {key}\r\n"), "{}").await
    }

    /// Asks the proxy to stop; the task ends when it has.
    pub(crate) fn stop(mut self) -> JoinSet<()> {
        drop(self.stop.take());
        self.tasks
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn new(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        Self { status, head: format!("{}\r\n", head.to_lowercase()), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.head.split_once(&format!("\r\n{name}: "))?;
        rest.split("\r\n").next()
    }

    /// Asserts an answer of the service, given for the first time or again.
    pub(crate) fn expect(&self, status: u16, body: &str, replayed: bool) {
        let is_replay = self.header("idempotency-replayed") == Some("true");
        assert_eq!((self.status, self.body.as_str(), is_replay), (status, body, replayed));
    }

    /// Asserts a problem.
    pub(crate) fn expect_problem(&self, status: u16, slug: &str) -> serde_json::Value {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem: serde_json::Value = serde_json::from_str(&self.body).expect("JSON");
        assert_eq!(problem["type"], format!("urn:everhook:problem:{slug}"));
        problem
    }
}

/// A whole answer of the service.
pub(crate) fn text(status: u16, body: &str) -> Response<Body> {
    let body = Body::from(body.to_owned());
    Response::builder().status(status).body(body).expect("legal")
}

/// A gate at which the service waits, and at which it is seen that it does.
#[derive(Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.expect("open").forget();
    }

    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.expect("open").forget();
    }

    pub(crate) fn open(&self, count: usize) {
        self.open.add_permits(count);
    }
}
