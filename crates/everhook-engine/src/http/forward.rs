//! Requests of others handed on to one service, bodies streamed both ways.
//!
//! - The operator names the service, so the address guard lets every address pass; the connection
//!   is made by the same connector as all others.
//! - A request goes once. It may change to another connection only while not a byte of it has been
//!   written, and whoever asks is told whether one was.
//! - HTTP/1.1 is spoken. Every connection has a task of its own, since both its directions move at
//!   the same time; the tasks end with the forwarder.

mod body;
mod line;

use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::address::AddressGuard;
use everhook_domain::endpoint_url::{EndpointUrl, Host, Scheme};
use everhook_domain::time::Clock;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use rustls::RootCertStore;
use tokio::task::JoinSet;

pub use self::body::ForwardedBody;
use self::line::{Exchange, Idle, Line, Outgoing};
use super::failure::{Failure, Phase};
use super::opening::Stage;
use super::resolve::Resolver;
use super::tls::Tls;
use super::{TlsUnavailable, connect};
use crate::lock::lock;
use crate::settings::EngineSettings;

/// How requests are handed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardSettings {
    /// From the start of name resolution until a connection is there.
    pub connect_timeout: Duration,
    /// How long nothing may move on a connection, in either direction, while it is waited for.
    pub silence_max: Duration,
    /// How long an unused connection may be used again: shorter than the service keeps it, so that
    /// no request is written into a connection that closes.
    pub idle_max: Duration,
    /// The most unused connections that are kept.
    pub idle_connections_max: usize,
}

/// Why there is no answer, in words for the operator's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotForwarded {
    /// Not a byte of the request was written.
    #[error("{0}")]
    Unsent(String),
    /// It was written, at least in part, and the answer was lost.
    #[error("{0}")]
    Lost(String),
    /// It was written, at least in part, and nothing moved for too long.
    #[error("nothing moved for {} ms", .0.as_millis())]
    Silent(Duration),
}

/// Hands requests on to one service.
pub struct Forwarder {
    service: EndpointUrl,
    settings: ForwardSettings,
    resolver: Resolver,
    tls: Tls,
    clock: Arc<dyn Clock>,
    idle: Arc<Idle>,
    drivers: Mutex<JoinSet<()>>,
}

impl Forwarder {
    /// Hands requests on to what this URL leads to; its path stands before that of each request.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn new(
        service: EndpointUrl,
        settings: ForwardSettings,
        resolver: Resolver,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsUnavailable> {
        let tls = tls(Tls::public_roots())?;
        let idle = Idle::new(settings.idle_max, settings.idle_connections_max, Arc::clone(&clock));
        let idle = Arc::new(idle);
        Ok(Self { service, settings, resolver, tls, clock, idle, drivers: Mutex::default() })
    }

    /// The same with these roots in place of the public ones.
    ///
    /// # Errors
    /// [`TlsUnavailable`].
    pub fn with_roots(self, roots: RootCertStore) -> Result<Self, TlsUnavailable> {
        Ok(Self { tls: tls(roots)?, ..self })
    }

    /// Hands a request on as it is, but for its path, and gives the head of its answer; the body
    /// follows. Dropping either ends the connection.
    ///
    /// # Errors
    /// [`NotForwarded`].
    pub async fn forward<B>(
        &self,
        request: Request<B>,
    ) -> Result<Response<ForwardedBody>, NotForwarded>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut request = self.outgoing(request)?;
        while let Some(mut line) = self.idle.take() {
            match self.exchange(&mut line, request).await {
                Exchange::Answered(head) => return self.answer(*head, line),
                Exchange::Unsent(back) => request = *back,
                Exchange::Failed(failure) => return Err(failure),
            }
        }
        let mut line = self.open().await.map_err(|failure| NotForwarded::Unsent(failure.detail))?;
        match self.exchange(&mut line, request).await {
            Exchange::Answered(head) => self.answer(*head, line),
            Exchange::Unsent(_) => {
                let why = "the service closed the connection before the request was written";
                Err(NotForwarded::Unsent(why.to_owned()))
            }
            Exchange::Failed(failure) => Err(failure),
        }
    }

    fn outgoing<B>(&self, request: Request<B>) -> Result<Request<Outgoing>, NotForwarded>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        let asked = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let before = self.service.path_and_query().trim_end_matches('/');
        let path = match asked.strip_prefix('/') {
            Some(rest) => PathAndQuery::try_from(format!("{before}/{rest}")),
            // `OPTIONS *` is about the service as a whole.
            None => PathAndQuery::try_from(asked),
        };
        let unusable = |_| NotForwarded::Unsent("the path is not legal in HTTP".to_owned());
        *request.uri_mut() = Uri::from(path.map_err(unusable)?);
        *request.version_mut() = http::Version::HTTP_11;
        Ok(request)
    }

    async fn exchange(&self, line: &mut Line, request: Request<Outgoing>) -> Exchange {
        line.begin();
        let mut silence = line.silence(self.settings.silence_max);
        let silent = std::future::poll_fn(|context| silence.poll(context));
        tokio::select! {
            biased;
            () = silent => {
                Exchange::Failed(NotForwarded::Silent(self.settings.silence_max))
            }
            exchange = line.exchange(request) => exchange,
        }
    }

    fn answer(
        &self,
        head: Response<Incoming>,
        line: Line,
    ) -> Result<Response<ForwardedBody>, NotForwarded> {
        if head.status() == StatusCode::SWITCHING_PROTOCOLS {
            let why = "the service changed to another protocol, which nobody has asked it for";
            return Err(NotForwarded::Lost(why.to_owned()));
        }
        let silence = line.silence(self.settings.silence_max);
        Ok(head.map(|body| ForwardedBody::new(body, line, silence, Arc::clone(&self.idle))))
    }

    /// A new connection.
    async fn open(&self) -> Result<Line, Failure> {
        let stage = Stage::default();
        let mut deadline = pin!(tokio::time::sleep(self.settings.connect_timeout));
        tokio::select! {
            biased;
            () = &mut deadline => {
                Err(Failure::timeout(stage.phase(), self.settings.connect_timeout))
            }
            opened = self.dial(&stage) => opened,
        }
    }

    async fn dial(&self, stage: &Stage) -> Result<Line, Failure> {
        stage.enter(Phase::Resolving);
        let addresses = match self.service.host() {
            Host::Ip(address) => Arc::from([*address]),
            Host::Name(name) => self.resolver.addresses(name).await?,
        };
        stage.enter(Phase::Connecting);
        let tcp = connect::connect(&AddressGuard::open(), &addresses, self.service.port()).await?;
        let clock = Arc::clone(&self.clock);
        let (line, driver) = match self.service.scheme() {
            Scheme::Http => line::open(tcp, clock).await?,
            Scheme::Https => {
                stage.enter(Phase::Securing);
                let secured = self.tls.secure(self.service.host(), None, tcp).await?;
                line::open(secured, clock).await?
            }
        };
        let mut drivers = lock(&self.drivers);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(driver);
        Ok(line)
    }
}

/// Only HTTP/1.1 is offered; one service has few sessions to remember.
fn tls(roots: RootCertStore) -> Result<Tls, TlsUnavailable> {
    let settings =
        EngineSettings { http2: false, tls_session_hosts_max: 1, ..EngineSettings::default() };
    Tls::new(roots, &settings).map_err(TlsUnavailable)
}
