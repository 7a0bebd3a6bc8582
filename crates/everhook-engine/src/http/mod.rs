//! The HTTP client that carries deliveries out: guarded, pooled, bounded.
//!
//! - Every address is judged right before it is connected to; a redirect is an answer, never
//!   followed; nothing leaves for an address that may not be reached.
//! - One deadline from the start of name resolution to the answer's status line and headers. These
//!   decide; the body is read only to be shown, and only its start.
//! - A connection that closed under a request, while it was reused and before any byte of an
//!   answer, is no failure of the endpoint: the request goes once more on a fresh one, and the
//!   outcome says so. So does one of which the endpoint says that it was not begun (RFC 9113
//!   §8.7).
//!   A request that was never written goes on another connection without a word.
//! - HTTP/2 is spoken where an `https` endpoint chooses it in the handshake, elsewhere HTTP/1.1.
//!
//! Nothing here outlives the client but what the operating system still has to send.

mod body;
mod connect;
mod connection;
mod exchange;
mod failure;
mod fetch;
mod forward;
mod http2;
mod opening;
mod overheard;
mod pool;
mod resolve;
mod response;
mod tls;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::address::AddressGuard;
use everhook_domain::attempt::{AttemptOutcome, ErrorClass};
use everhook_domain::endpoint_url::Scheme;
use everhook_domain::retry_after;
use everhook_domain::time::Clock;
use http::header::{HOST, RETRY_AFTER};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use rustls::RootCertStore;

use self::body::Body;
use self::exchange::{Carrier, Exchange};
use self::failure::{Failure, Phase};
pub use self::fetch::NotFetched;
pub use self::forward::{ForwardSettings, ForwardedBody, Forwarder, NotForwarded};
use self::opening::{Dialer, Openings, Stage};
use self::pool::{Destination, Pool};
pub use self::resolve::Resolver;
use self::response::Keep;
use self::tls::{Tls, Trust};
use crate::lock::lock;
use crate::sender::{OutgoingRequest, Sender};
use crate::settings::{EngineSettings, RESPONSE_BYTES_LIMIT};

/// TLS cannot be set up on this machine; holds the reason.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be set up: {0}")]
pub struct TlsUnavailable(rustls::Error);

/// Sends requests over HTTP/1.1, and over HTTP/2 where an `https` endpoint chooses it.
pub struct HttpSender {
    dialer: Dialer,
    openings: Openings,
    pool: Pool,
    settings: EngineSettings,
    keep: Keep,
}

/// An answer's head, and what its body comes by.
struct Answer {
    destination: Destination,
    carrier: Carrier,
    response: Response<Body>,
}

/// How far a request has come: told even when its time is up.
#[derive(Default)]
struct Course {
    stage: Stage,
    /// A connection that others wait for too, while this request does.
    opening: Mutex<Option<Arc<Stage>>>,
    resent: AtomicBool,
}

impl HttpSender {
    /// A client that reaches only what `guard` allows, resolves names by `resolver`, and trusts the
    /// public roots where an endpoint names no authorities of its own.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn new(
        settings: &EngineSettings,
        guard: AddressGuard,
        resolver: Resolver,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsUnavailable> {
        let tls = Tls::new(Tls::public_roots(), settings).map_err(TlsUnavailable)?;
        let dialer = Dialer {
            guard: Arc::new(guard),
            resolver: Arc::new(resolver),
            tls: Arc::new(tls),
            clock: Arc::clone(&clock),
            drivers: Arc::default(),
        };
        Ok(Self {
            dialer,
            openings: Openings::default(),
            pool: Pool::new(settings, clock),
            keep: Keep {
                body_bytes: settings.response_bytes_max.min(RESPONSE_BYTES_LIMIT),
                headers_bytes: settings.response_headers_bytes_max,
            },
            settings: settings.clone(),
        })
    }

    /// The same client with these roots in place of the public ones.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn with_roots(self, roots: RootCertStore) -> Result<Self, TlsUnavailable> {
        let tls = Arc::new(Tls::new(roots, &self.settings).map_err(TlsUnavailable)?);
        Ok(Self { dialer: Dialer { tls, ..self.dialer }, ..self })
    }

    async fn answer(&self, request: OutgoingRequest, course: &Course) -> Result<Answer, Failure> {
        let secure = request.url.scheme() == Scheme::Https;
        let own = request.ca_certificates.clone().filter(|_| secure);
        let trust = Trust::of(own.as_ref());
        let destination = Destination { url: Arc::clone(&request.url), trust };
        let outgoing = outgoing(request)?;
        while !course.resent.load(Relaxed)
            && let Some(mut carrier) = self.pool.take(&destination)
        {
            course.enter(Phase::Waiting);
            match carrier.exchange(outgoing.clone()).await {
                Exchange::Answered(response) => {
                    return Ok(Answer { destination, carrier, response: *response });
                }
                Exchange::Unsent => {}
                Exchange::Unprocessed(_) | Exchange::ClosedUnheard(_) => {
                    course.resent.store(true, Relaxed);
                }
                Exchange::Failed(failure) => return Err(failure),
            }
        }
        loop {
            let place = (&destination, own.as_ref());
            let mut carrier =
                self.openings.carrier(&self.dialer, &self.pool, place, course).await?;
            course.enter(Phase::Waiting);
            match carrier.exchange(outgoing.clone()).await {
                Exchange::Answered(response) => {
                    return Ok(Answer { destination, carrier, response: *response });
                }
                // Even a fresh one may take no more requests, and says so.
                Exchange::Unprocessed(_) if !course.resent.swap(true, Relaxed) => {}
                Exchange::Unprocessed(failure)
                | Exchange::ClosedUnheard(failure)
                | Exchange::Failed(failure) => return Err(failure),
                Exchange::Unsent => {
                    return Err(Failure::new(
                        ErrorClass::Reset,
                        "the connection was closed by the endpoint before the request was written",
                    ));
                }
            }
        }
    }

    /// The outcome of an answer, with the start of its body.
    async fn read(
        &self,
        answer: Answer,
        deadline: Pin<&mut impl Future<Output = ()>>,
    ) -> AttemptOutcome {
        let Answer { destination, mut carrier, response } = answer;
        let (head, body) = response.into_parts();
        let (kept, ended) = response::read(&head, body, &mut carrier, deadline, self.keep).await;
        if ended && let Carrier::Own(connection) = carrier {
            self.pool.put(&destination, connection);
        }
        let values = head.headers.get_all(RETRY_AFTER).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let retry_after = retry_after::parse_all(values, self.dialer.clock.wall());
        AttemptOutcome::answered(kept, retry_after)
    }
}

#[async_trait]
impl Sender for HttpSender {
    async fn send(&self, request: OutgoingRequest) -> AttemptOutcome {
        let timeout = request.timeout;
        let course = Course::default();
        let mut deadline = pin!(tokio::time::sleep(timeout));
        // The deadline is looked at first: one that is always busy does not hold it back.
        let answer = tokio::select! {
            biased;
            () = &mut deadline => Err(Failure::timeout(course.phase(), timeout)),
            answer = self.answer(request, &course) => answer,
        };
        let outcome = match answer {
            Ok(answer) => self.read(answer, deadline).await,
            Err(failure) => failure.into_outcome(),
        };
        AttemptOutcome { resent: course.resent.load(Relaxed), ..outcome }
    }
}

impl Course {
    fn enter(&self, phase: Phase) {
        *lock(&self.opening) = None;
        self.stage.enter(phase);
    }

    /// From now on it is as far as this opening.
    fn follow(&self, opening: Arc<Stage>) {
        *lock(&self.opening) = Some(opening);
    }

    fn phase(&self) -> Phase {
        lock(&self.opening).as_ref().map_or_else(|| self.stage.phase(), |stage| stage.phase())
    }
}

/// The request as it goes out: target in origin form (RFC 9112 §3.2.1), `Host` first.
fn outgoing(request: OutgoingRequest) -> Result<Request<Bytes>, Failure> {
    let unusable = |what: &str| {
        let detail = format!("the endpoint's URL cannot be sent: its {what} is not legal in HTTP");
        Failure::new(ErrorClass::Configuration, detail)
    };
    let path = PathAndQuery::try_from(request.url.path_and_query());
    let host = HeaderValue::from_str(request.url.authority());
    let mut headers = HeaderMap::with_capacity(request.headers.len() + 1);
    headers.insert(HOST, host.map_err(|_| unusable("host"))?);
    headers.extend(request.headers);
    let mut outgoing = Request::new(request.body);
    *outgoing.method_mut() = Method::POST;
    *outgoing.uri_mut() = Uri::from(path.map_err(|_| unusable("path"))?);
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}
