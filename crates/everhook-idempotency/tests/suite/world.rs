//! A service under the layer, with everything that a case may want to do to it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use everhook_idempotency::store::Store;
use everhook_idempotency::{Account, AccountOf, Claim, IdempotencyLayer, Settings};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;
use tower_layer::Layer;
use tower_service::Service;

/// What the service does with a request that reaches it.
pub(crate) type Handler = Arc<
    dyn Fn(Request<Body>, u32) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>>
        + Send
        + Sync,
>;

/// The service itself: counts its runs, and hands them to the handler.
#[derive(Clone)]
pub(crate) struct Shop {
    runs: Arc<AtomicU32>,
    handler: Handler,
}

impl Service<Request<Body>> for Shop {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = (self.handler)(request, run);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// A handler from a plain function of the request and the number of the run.
pub(crate) fn handler<F>(make: impl Fn(Request<Body>, u32) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    Arc::new(move |request, run| Box::pin(make(request, run)))
}

/// Answers 201 with the number of the run.
pub(crate) fn numbered() -> Handler {
    handler(|_, run| async move { text(201, &run.to_string()) })
}

pub(crate) fn text(status: u16, body: &str) -> Response<Body> {
    Response::builder().status(status).body(Body::from(body.to_owned())).unwrap()
}

/// The claim in a request's extensions.
pub(crate) fn claim(request: &Request<Body>) -> Claim {
    request.extensions().get::<Claim>().unwrap().clone()
}

/// One process: a layer around the service.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) layer: IdempotencyLayer,
    pub(crate) shop: Shop,
}

impl Node {
    pub(crate) fn new(store: &Arc<dyn Store>, settings: Settings, handler: Handler) -> Self {
        // The account stands in a header that a real service would not trust.
        let account = AccountOf::request(|parts| {
            let id = parts.headers.get("account").map_or("one", |id| id.to_str().unwrap());
            (id != "nobody").then(|| Account::new(id))
        });
        let layer = IdempotencyLayer::new(Arc::clone(store), account, settings).unwrap();
        Self { layer, shop: Shop { runs: Arc::default(), handler } }
    }

    /// Another process in front of the same effects.
    pub(crate) fn beside(&self, store: &Arc<dyn Store>, settings: Settings) -> Self {
        let other = Self::new(store, settings, Arc::clone(&self.shop.handler));
        let runs = Arc::clone(&self.shop.runs);
        Self { shop: Shop { runs, ..other.shop }, ..other }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.shop.runs.load(Ordering::SeqCst)
    }

    /// Sends a request; dropping what is returned is a client that hangs up.
    pub(crate) fn send(&self, request: Request<Body>) -> impl Future<Output = Got> + Send + use<> {
        let mut service = self.layer.layer(self.shop.clone());
        async move {
            let response = service.call(request).await.unwrap();
            let (parts, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes().to_vec();
            Got { status: parts.status, headers: parts.headers, body }
        }
    }

    /// A POST of `{}` to `/orders` with this key.
    pub(crate) async fn post(&self, key: &str) -> Got {
        self.send(post(key, "{}")).await
    }
}

pub(crate) fn post(key: &str, body: &str) -> Request<Body> {
    request(Method::POST, "/orders", &[("idempotency-key", key)], body)
}

pub(crate) fn request(
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::from(body.to_owned())).unwrap()
}

/// An answer as a client has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// Asserts status and body.
    pub(crate) fn expect(&self, status: u16, body: &str, replayed: bool) {
        let got = (self.status.as_u16(), self.text(), self.is_replay());
        assert_eq!(got, (status, body, replayed));
    }

    /// Asserts a problem of this kind, in the form in which all are.
    pub(crate) fn expect_problem(&self, status: u16, slug: &str) -> serde_json::Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert!(!self.is_replay());
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["type"], format!("urn:everhook:problem:{slug}"));
        assert_eq!(problem["status"], status);
        assert!(problem["detail"].as_str().unwrap().len() > 20);
        problem
    }

    pub(crate) fn retry_after(&self) -> u64 {
        self.header("retry-after").expect("a Retry-After").parse().unwrap()
    }
}

/// A gate at which handlers wait, and at which it is seen that they do.
#[derive(Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    /// A handler's side.
    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Waits until one more handler is at the gate.
    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets so many pass.
    pub(crate) fn open(&self, count: usize) {
        self.open.add_permits(count);
    }
}

/// A handler that answers 201 with its number after it has passed the gate.
pub(crate) fn gated(gate: &Gate) -> Handler {
    let gate = gate.clone();
    handler(move |_, run| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            text(201, &run.to_string())
        }
    })
}

/// Settings with a lease of a tenth of a second.
pub(crate) fn short() -> Settings {
    Settings { lease: Duration::from_millis(100), ..Settings::default() }
}

/// What handlers have noted.
pub(crate) type Notes = Arc<Mutex<Vec<String>>>;

/// Asks until the store answers again; what fails on a dead connection is never run.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) async fn recovered(node: &Node) {
    let runs = node.runs();
    for number in 0.. {
        let got = node.post(&format!("new-{number}")).await;
        if got.status == StatusCode::CREATED {
            assert_eq!(node.runs(), runs + 1);
            return;
        }
        got.expect_problem(503, "store-unavailable");
        assert!(number < 10, "it does not recover");
    }
}

/// Asks with this key until the answer is another than that the first request still runs.
pub(crate) async fn settled(node: &Node, key: &str) -> Got {
    loop {
        let got = node.post(key).await;
        if !got.text().contains("idempotency-in-progress") {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
