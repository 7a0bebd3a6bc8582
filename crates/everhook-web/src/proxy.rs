//! `everhook proxy`: the idempotency layer in front of any HTTP service.
//!
//! A request without a key streams through, both ways. One with a key is read as a whole, claimed,
//! handed on once, and its answer is remembered before it is given. Three outcomes are told apart,
//! and each has its status:
//!
//! | status | what is known |
//! | --- | --- |
//! | 503 | nothing of the request was sent: nothing was done, and the key is free |
//! | 502, 504 | it was sent, and the answer was lost: nobody knows, and it is not sent again |
//! | any other | the service's own answer, or a refusal that was made here |
//!
//! | part | what it does |
//! | --- | --- |
//! | `front` | refuses what cannot be handed on, bounds what is under way, tells what was lost |
//! | the layer | everything about keys ([`everhook_idempotency`]) |
//! | `onward` | rewrites headers and calls the service |

mod account;
mod front;
mod onward;
mod patient;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use axum::body::Body;
use everhook_domain::tenant::TenantId;
use everhook_idempotency::IdempotencyLayer;
use everhook_idempotency::store::Store;
pub use everhook_idempotency::{InvalidSettings, Settings as KeySettings};
use http::{HeaderName, HeaderValue, Request, Response};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_layer::Layer as _;

use self::front::{Front, Passage};
use self::onward::Onward;
use crate::pace::LogPace;
use crate::server::{self, ServerLimits};
use crate::settings::Now;

/// Hands a request on to the service. The binary says who does it.
#[async_trait]
pub trait Upstream: Send + Sync {
    /// Sends a request once, as it is but for the path that the service's URL begins with. The
    /// answer's head; its body follows.
    ///
    /// # Errors
    /// [`NotAnswered`], which says whether anything was sent.
    async fn forward(&self, request: Request<Body>) -> Result<Response<Body>, NotAnswered>;
}

/// Why the service has not answered, with the reason in words for the operator's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAnswered {
    /// Not a byte of the request was sent.
    Unsent(String),
    /// It was sent, at least in part, and the connection or the answer broke.
    Lost(String),
    /// It was sent, at least in part, and then nothing moved for too long.
    Silent(String),
}

/// How the proxy behaves.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// The header that names the account, set by whatever authenticates in front of us
    /// (`proxy.account_header`).
    pub account_header: Option<HeaderName>,
    /// Whether keys without any account are one account's (`proxy.anonymous`).
    pub anonymous: bool,
    /// The tenant that the records belong to (`proxy.tenant`).
    pub tenant: TenantId,
    /// Whether the peer's `X-Forwarded-*` are right (`proxy.behind_proxy`).
    pub behind_proxy: bool,
    /// The service's own host, as in its URL.
    pub upstream_host: HeaderValue,
    /// Whether the service is called by the client's `Host` (`proxy.host`).
    pub keeps_host: bool,
    /// How long a client may be silent in the middle of its body (`proxy.timeout`).
    pub silence_max: Duration,
    /// Requests under way at the same time (`proxy.in_flight_max`).
    pub in_flight_max: usize,
    /// What keys mean.
    pub keys: KeySettings,
}

/// The proxy, ready to serve.
#[derive(Clone)]
pub struct Proxy {
    layer: IdempotencyLayer,
    front: Front<Passage>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy in front of `upstream` that keeps its records in `store`.
    ///
    /// # Errors
    /// [`InvalidSettings`] says everything that is wrong with [`ProxySettings::keys`].
    pub fn new(
        settings: ProxySettings,
        upstream: Arc<dyn Upstream>,
        store: Arc<dyn Store>,
        now: Now,
    ) -> Result<Self, InvalidSettings> {
        let account_of = account::account_of(&settings);
        let layer = IdempotencyLayer::new(store, account_of, settings.keys.clone())?;
        let silence_max = settings.silence_max;
        let slots = Arc::new(Semaphore::new(settings.in_flight_max));
        let onward = Onward::new(upstream, settings, (now, LogPace::default()));
        let front = Front::new(layer.layer(onward), slots, silence_max);
        Ok(Self { layer, front })
    }

    /// Serves until `stop` is ready. Returns when every connection has ended, and every request
    /// with a key as well, whose client may have gone before it: each of the two within
    /// `limits.drain_timeout`. What has not ended by then is lost, and unknown after its lease.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send,
        limits: ServerLimits,
    ) {
        let Self { layer, front } = self;
        server::serve(listener, front, stop, limits).await;
        if tokio::time::timeout(limits.drain_timeout, layer.drain()).await.is_err() {
            tracing::warn!(
                "requests with an Idempotency-Key did not end in time; their outcome \
                            will be unknown"
            );
        }
    }
}
