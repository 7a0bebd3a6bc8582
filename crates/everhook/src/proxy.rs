//! Joins the proxy of the web side to the client that hands requests on, and to the store.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use everhook_domain::time::Clock;
use everhook_engine::http::{ForwardSettings, Forwarder, NotForwarded, Resolver};
use everhook_store::Store;
use everhook_web::proxy::{Body, KeySettings, NotAnswered, Proxy, ProxySettings, Upstream};
use everhook_web::{LayerKeys, Now, ServerLimits};
use http::{HeaderValue, Request, Response};
use tokio::net::TcpListener;

use crate::config::{Config, UpstreamUrl};
use crate::exit::Failure;

/// The address that the proxy listens at, and the service it is in front of.
pub(crate) struct Place {
    listener: TcpListener,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Where requests are handed on to.
    pub(crate) upstream: UpstreamUrl,
}

/// The proxy with its listener.
pub(crate) struct Ready {
    proxy: Proxy,
    listener: TcpListener,
    limits: ServerLimits,
}

impl Place {
    /// Takes the address, if there is to be a proxy. Whether the service is there shows at the
    /// first request.
    ///
    /// # Errors
    /// It is taken, or not ours.
    pub(crate) async fn take(config: &Config) -> Result<Option<Self>, Failure> {
        let Some(upstream) = config.proxy.upstream.clone() else { return Ok(None) };
        let (listener, address) =
            crate::server::bind(config.proxy.listen, "--proxy-listen").await?;
        Ok(Some(Self { listener, address, upstream }))
    }

    /// The proxy that serves there.
    ///
    /// # Errors
    /// TLS cannot be set up, or the settings contradict one another.
    pub(crate) fn ready(
        self,
        config: &Config,
        store: Arc<dyn Store>,
        now: Now,
        clock: Arc<dyn Clock>,
    ) -> Result<Ready, Failure> {
        let Self { listener, upstream: UpstreamUrl(url), .. } = self;
        let host = HeaderValue::from_str(url.authority()).map_err(Failure::usage)?;
        let forwarder = Forwarder::new(url, forwarding(config), Resolver::system(), clock)
            .map_err(Failure::failed)?;
        let upstream = Arc::new(Onward(forwarder));
        let tenant = config.proxy.tenant.clone();
        if store.directory().is_ok_and(|directory| !directory.has_tenant(&tenant)) {
            tracing::warn!(%tenant, "requests with a key get 503 until there is the tenant that \
                                     proxy.tenant names");
        }
        let keys = Arc::new(LayerKeys::new(store, tenant, Arc::clone(&now)));
        let proxy = Proxy::new(settings(config, host), upstream, keys, now)
            .map_err(|error| Failure::usage(format!("the proxy cannot be set up: {error}")))?;
        let limits = ServerLimits {
            connections_max: config.proxy.connections_max as usize,
            ..crate::server::server_limits(config)
        };
        Ok(Ready { proxy, listener, limits })
    }
}

impl Ready {
    /// Serves until `stop` is ready and what was under way has ended.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()> + Send) {
        self.proxy.serve(self.listener, stop, self.limits).await;
    }
}

/// The most files and connections that the proxy has open.
pub(crate) fn open_files_max(config: &Config) -> u64 {
    let proxy = &config.proxy;
    match proxy.upstream {
        None => 0,
        Some(_) => [proxy.connections_max, proxy.in_flight_max, proxy.idle_connections_max]
            .map(u64::from)
            .iter()
            .sum(),
    }
}

struct Onward(Forwarder);

#[async_trait]
impl Upstream for Onward {
    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, NotAnswered> {
        let answered = self.0.forward(request).await;
        answered.map(|answer| answer.map(Body::new)).map_err(|why| match &why {
            NotForwarded::Unsent(_) => NotAnswered::Unsent(why.to_string()),
            NotForwarded::Lost(_) => NotAnswered::Lost(why.to_string()),
            NotForwarded::Silent(_) => NotAnswered::Silent(why.to_string()),
        })
    }
}

fn forwarding(config: &Config) -> ForwardSettings {
    ForwardSettings {
        connect_timeout: config.proxy.connect_timeout,
        silence_max: config.proxy.timeout,
        idle_max: config.proxy.connection_idle_max,
        idle_connections_max: config.proxy.idle_connections_max as usize,
    }
}

fn settings(config: &Config, upstream_host: HeaderValue) -> ProxySettings {
    let proxy = &config.proxy;
    ProxySettings {
        account_header: proxy.account_header.clone(),
        anonymous: proxy.anonymous,
        tenant: proxy.tenant.clone(),
        behind_proxy: proxy.behind_proxy,
        upstream_host,
        keeps_host: proxy.keeps_host,
        silence_max: proxy.timeout,
        in_flight_max: proxy.in_flight_max as usize,
        keys: KeySettings {
            methods: proxy.methods.clone(),
            key_required: proxy.key_required,
            policy: proxy.policy,
            lapse: proxy.lapse,
            lease: config.idempotency.lease,
            handler_max: proxy.answer_max,
            ttl: config.idempotency.ttl,
            request_bytes_max: proxy.request_bytes_max,
            answer_bytes_max: proxy.answer_bytes_max,
            account_keys_max: u64::from(config.idempotency.account_keys_max),
            account_bytes_max: config.idempotency.account_bytes_max as u64,
        },
    }
}
