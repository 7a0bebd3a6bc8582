//! The HTTP client that carries deliveries out: guarded, pooled, bounded.
//!
//! - Every address is judged right before it is connected to; a redirect is an answer, never
//!   followed; nothing leaves for an address that may not be reached.
//! - One deadline from the start of name resolution to the answer's status line and headers. These
//!   decide; the body is read only to be shown, and only its start.
//! - A connection that closed under a request, while it was reused and before any byte of an
//!   answer, is no failure of the endpoint: the request goes once more on a fresh one, and the
//!   outcome says so. A request that was never written goes on another connection without a word.
//!
//! Nothing here outlives the client but what the operating system still has to send.

mod connect;
mod connection;
mod failure;
mod pool;
mod resolve;
mod response;
mod tls;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::address::AddressGuard;
use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_domain::endpoint_url::{EndpointUrl, Host, Scheme};
use everhook_domain::retry_after;
use everhook_domain::time::Clock;
use http::header::{HOST, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::RootCertStore;

use self::connection::{Connection, Exchange};
use self::failure::{Failure, Phase};
use self::pool::Pool;
pub use self::resolve::Resolver;
use self::response::Keep;
use self::tls::Tls;
use crate::sender::{OutgoingRequest, Sender};
use crate::settings::{EngineSettings, RESPONSE_BYTES_LIMIT};

/// TLS cannot be set up on this machine; holds the reason.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct TlsUnavailable(rustls::Error);

/// Sends requests over HTTP/1.1.
pub struct HttpSender {
    guard: AddressGuard,
    resolver: Resolver,
    tls: Tls,
    pool: Pool,
    clock: Arc<dyn Clock>,
    keep: Keep,
}

/// An answer's head, and the connection that its body comes on.
struct Answer {
    connection: Connection,
    response: Response<Incoming>,
}

/// How far a request has come: told even when its time is up.
#[derive(Default)]
struct Course {
    phase: AtomicU8,
    resent: AtomicBool,
}

impl HttpSender {
    /// A client that reaches only what `guard` allows, resolves names by `resolver`, and trusts the
    /// public roots.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn new(
        settings: &EngineSettings,
        guard: AddressGuard,
        resolver: Resolver,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsUnavailable> {
        Ok(Self {
            guard,
            resolver,
            tls: Tls::new(Tls::public_roots()).map_err(TlsUnavailable)?,
            pool: Pool::new(settings, Arc::clone(&clock)),
            clock,
            keep: Keep {
                body_bytes: settings.response_bytes_max.min(RESPONSE_BYTES_LIMIT),
                headers_bytes: settings.response_headers_bytes_max,
            },
        })
    }

    /// The same client with these roots in place of the public ones.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn with_roots(self, roots: RootCertStore) -> Result<Self, TlsUnavailable> {
        Ok(Self { tls: Tls::new(roots).map_err(TlsUnavailable)?, ..self })
    }

    async fn answer(&self, request: OutgoingRequest, course: &Course) -> Result<Answer, Failure> {
        let url = Arc::clone(&request.url);
        let mut outgoing = outgoing(request)?;
        while let Some(mut connection) = self.pool.take(&url) {
            course.enter(Phase::Waiting);
            let again = outgoing.clone();
            match connection.exchange(outgoing).await {
                Exchange::Answered(response) => {
                    return Ok(Answer { connection, response: *response });
                }
                Exchange::Unsent(request) => outgoing = *request,
                Exchange::ClosedUnheard(_) => {
                    outgoing = again;
                    course.resent.store(true, Relaxed);
                    break;
                }
                Exchange::Failed(failure) => return Err(failure),
            }
        }
        let mut connection = self.connect(&url, course).await?;
        course.enter(Phase::Waiting);
        match connection.exchange(outgoing).await {
            Exchange::Answered(response) => Ok(Answer { connection, response: *response }),
            Exchange::ClosedUnheard(failure) | Exchange::Failed(failure) => Err(failure),
            Exchange::Unsent(_) => Err(Failure::new(
                ErrorClass::Reset,
                "the connection was closed by the endpoint before the request was written",
            )),
        }
    }

    async fn connect(&self, url: &EndpointUrl, course: &Course) -> Result<Connection, Failure> {
        course.enter(Phase::Resolving);
        let addresses = match url.host() {
            Host::Ip(address) => Arc::from([*address]),
            Host::Name(name) => self.resolver.addresses(name).await?,
        };
        course.enter(Phase::Connecting);
        let tcp = connect::connect(&self.guard, &addresses, url.port()).await?;
        let born = self.clock.monotonic();
        match url.scheme() {
            Scheme::Http => Connection::open(tcp, born).await,
            Scheme::Https => {
                course.enter(Phase::Securing);
                Connection::open(self.tls.secure(url.host(), tcp).await?, born).await
            }
        }
    }

    /// The outcome of an answer, with the start of its body.
    async fn read(
        &self,
        url: &EndpointUrl,
        answer: Answer,
        deadline: Pin<&mut impl Future<Output = ()>>,
    ) -> AttemptOutcome {
        let Answer { mut connection, response } = answer;
        let (head, body) = response.into_parts();
        let (kept, ended) = response::read(&head, body, &mut connection, deadline, self.keep).await;
        if ended {
            self.pool.put(url, connection);
        }
        let values = head.headers.get_all(RETRY_AFTER).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let retry_after = retry_after::parse_all(values, self.clock.wall());
        AttemptOutcome::answered(kept, retry_after)
    }
}

#[async_trait]
impl Sender for HttpSender {
    async fn send(&self, request: OutgoingRequest) -> AttemptOutcome {
        let timeout = request.timeout;
        let url = Arc::clone(&request.url);
        let course = Course::default();
        let mut deadline = pin!(tokio::time::sleep(timeout));
        // The deadline is looked at first: one that is always busy does not hold it back.
        let answer = tokio::select! {
            biased;
            () = &mut deadline => Err(Failure::timeout(course.phase(), timeout)),
            answer = self.answer(request, &course) => answer,
        };
        let outcome = match answer {
            Ok(answer) => self.read(&url, answer, deadline).await,
            Err(failure) => failure.into_outcome(),
        };
        AttemptOutcome { resent: course.resent.load(Relaxed), ..outcome }
    }
}

impl Course {
    fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    fn phase(&self) -> Phase {
        let reached = self.phase.load(Relaxed);
        [Phase::Resolving, Phase::Connecting, Phase::Securing]
            .into_iter()
            .find(|phase| *phase as u8 == reached)
            .unwrap_or(Phase::Waiting)
    }
}

/// The request as it goes out: target in origin form (RFC 9112 §3.2.1), `Host` first.
fn outgoing(request: OutgoingRequest) -> Result<Request<Full<Bytes>>, Failure> {
    let unusable = |what: &str| {
        let detail = format!("the endpoint's URL cannot be sent: its {what} is not legal in HTTP");
        Failure::new(ErrorClass::Configuration, detail)
    };
    let path = PathAndQuery::try_from(request.url.path_and_query());
    let host = HeaderValue::from_str(request.url.authority());
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 1);
    headers.insert(HOST, host.map_err(|_| unusable("host"))?);
    headers.extend(request.headers);
    let mut outgoing = Request::new(Full::new(request.body));
    *outgoing.method_mut() = Method::POST;
    *outgoing.uri_mut() = Uri::from(path.map_err(|_| unusable("path"))?);
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}
