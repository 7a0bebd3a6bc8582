//! Joins store, engine, API and, where there is one, the proxy into a server, runs it, and stops it
//! in order.
//!
//! Each part is told to stop, and each is waited for: the API answers what is under way, the engine
//! finishes what is on the wire and gives every other lease back, then the store closes. If a part
//! ends by itself, or the store reports that it no longer knows what is on the disk, the server
//! ends with an error: the next process reads the truth from the disk. A crash at any instant
//! leaves nothing else to repair.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use everhook_domain::address::AddressGuard;
use everhook_domain::idempotency::claim::Quota;
use everhook_domain::time::Clock;
use everhook_engine::http::{HttpSender, Resolver};
use everhook_engine::{Engine, EngineSettings, Intake};
use everhook_store::StorePolicy;
use everhook_store::sqlite::{GroupCommit, OpenError, SqliteOptions, SqliteStore};
use everhook_web::endpoint::EndpointRules;
use everhook_web::{
    Access, BodyLimits, ClaimLimits, Now, ReceiveLimits, ReplayRates, ServerLimits, WebSettings,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::admin_token::TokenHash;
use crate::config::Config;
use crate::entropy;
use crate::exit::Failure;
use crate::fetch::EngineFetch;
use crate::jwt_keys;
use crate::master_key;
use crate::proxy;

/// Files that are open besides connections: the store's, the lock, the log, name resolution.
const OTHER_FILES: u64 = 128;

/// A server that is ready to run.
pub(crate) struct Server {
    config: Config,
    listener: TcpListener,
    proxy: Option<proxy::Ready>,
    store: Arc<SqliteStore>,
    engine: Engine,
    web: WebSettings,
}

/// Where requests come in.
pub(crate) struct Doors {
    /// The API's.
    pub(crate) api: TcpListener,
    /// The proxy's, if there is one.
    pub(crate) proxy: Option<proxy::Place>,
}

/// A part of the server that runs by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Api,
    Engine,
    Proxy,
}

/// The runtime that everything runs on.
///
/// # Errors
/// The operating system gives no threads.
pub(crate) fn runtime(threads: usize) -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime does not start: {error}")))
}

/// Takes an address to serve at, which the option of this name sets.
///
/// # Errors
/// It is taken, or not ours.
pub(crate) async fn bind(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error| {
        Failure::failed(format!(
            "{address} cannot be listened on: {error}; choose another address with {option}, \
             or stop what has it"
        ))
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// The most files and connections that a server with this configuration has open.
pub(crate) fn open_files_max(config: &Config) -> u64 {
    let Config { server, delivery, .. } = config;
    u64::from(server.connections_max)
        + u64::from(delivery.in_flight_max)
        + u64::from(delivery.connections.idle_total_max)
        + proxy::open_files_max(config)
        + OTHER_FILES
}

impl Server {
    /// Opens the store, which may take a while after a crash, and joins the parts.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub(crate) fn new(
        config: Config,
        database: &Path,
        Doors { api: listener, proxy }: Doors,
        admin_token: TokenHash,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let settings = engine_settings(&config);
        let intake = Intake::new(&settings);
        let options = SqliteOptions {
            policy: store_policy(&config),
            handoff: Arc::clone(&intake) as _,
            clock: Arc::clone(&clock),
            new_tag: u16::from_ne_bytes(entropy::bytes()?),
            sealer: master_key::sealer(&config.secrets)?,
            group_commit: GroupCommit {
                queue_max: config.store.queue_max as usize,
                commands_max: config.store.commit_max as usize,
                ..GroupCommit::default()
            },
        };
        let store = SqliteStore::open(database, options).map_err(|error| {
            let message = format!("{} cannot be used: {error}", database.display());
            match error {
                OpenError::Sqlite(_) => Failure::failed(message),
                // Starting again does not make it another file, nor this another version.
                _ => Failure::usage(message),
            }
        })?;
        let store = Arc::new(store);
        let guard = AddressGuard::new(config.security.allow_targets.clone());
        let resolver = Resolver::system();
        let sender = HttpSender::new(&settings, guard.clone(), resolver, Arc::clone(&clock))
            .map_err(Failure::failed)?;
        let sender = Arc::new(sender);
        let wall_clock = Arc::clone(&clock);
        let fetch = EngineFetch(Arc::clone(&sender));
        let engine =
            Engine::new(Arc::clone(&store) as _, intake, sender, Arc::clone(&clock), settings);
        let now: Now = Arc::new(engine.steady_now());
        let access = Access::new(admin_token).with_jwt(jwt_keys::load(&config.auth)?);
        let mut web = web_settings(&config, access, guard, Arc::clone(&now));
        web.wall_clock = Arc::new(move || wall_clock.wall());
        web.fetch = Arc::new(fetch);
        let proxy = proxy.map(|place| place.ready(&config, Arc::clone(&store) as _, now, clock));
        let proxy = proxy.transpose()?;
        Ok(Self { config, listener, proxy, store, engine, web })
    }

    /// Runs until `stop` resolves, then stops in order.
    ///
    /// # Errors
    /// Something ended that should not have: the process must end, and may be started again.
    pub(crate) async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Failure> {
        let Self { config, listener, proxy, store, engine, web } = self;
        let (stopping, stopped) = watch::channel(false);
        let stop_signal = || {
            let mut stopped = stopped.clone();
            // The sender lives until every part has ended.
            async move { drop(stopped.wait_for(|stopped| *stopped).await) }
        };
        let mut parts = JoinSet::new();
        let (router, limits) =
            (everhook_web::router(Arc::clone(&store) as _, web), server_limits(&config));
        let (api_stop, engine_stop) = (stop_signal(), stop_signal());
        parts.spawn(async move {
            everhook_web::serve(listener, router, api_stop, limits).await;
            Part::Api
        });
        parts.spawn(async move {
            engine.run(engine_stop).await;
            Part::Engine
        });
        if let Some(proxy) = proxy {
            let stop = stop_signal();
            parts.spawn(async move {
                proxy.serve(stop).await;
                Part::Proxy
            });
        }
        let outcome = tokio::select! {
            () = stop => Ok(()),
            why = store.failed() => Err(store_failed(&why)),
            Some(ended) = parts.join_next() => Err(ended_early(ended)),
        };
        if outcome.is_ok() {
            stopping.send_replace(true);
            tokio::select! {
                result = all_ended(&mut parts) => result?,
                why = store.failed() => return Err(store_failed(&why)),
            }
        }
        // Cuts off what is left after a failure.
        parts.shutdown().await;
        store.close();
        outcome
    }
}

async fn all_ended(parts: &mut JoinSet<Part>) -> Result<(), Failure> {
    while let Some(ended) = parts.join_next().await {
        match ended {
            Ok(part) => tracing::debug!(?part, "stopped"),
            Err(_) => return Err(ended_early(ended)),
        }
    }
    Ok(())
}

fn store_failed(why: &str) -> Failure {
    Failure::failed(format!(
        "the store has failed and what the disk holds is not known: {why}; see to the disk. The \
         next start reads what it holds; nothing that was accepted is lost"
    ))
}

fn ended_early(ended: Result<Part, JoinError>) -> Failure {
    match ended {
        Ok(part) => Failure::failed(format!("{part:?} ended by itself; start the server again")),
        Err(error) => Failure::failed(format!("a part of the server ended: {error}")),
    }
}

fn store_policy(config: &Config) -> StorePolicy {
    StorePolicy {
        schedule: config.retry.schedule.clone(),
        honor_retry_after: config.retry.honor_retry_after,
        dedupe_window: config.events.dedupe_window,
        idempotency_ttl: config.idempotency.ttl,
        idempotency_quota: idempotency_quota(config),
        disable_after: config.delivery.disable_after,
        ..StorePolicy::default()
    }
}

fn engine_settings(config: &Config) -> EngineSettings {
    let delivery = &config.delivery;
    EngineSettings {
        timeout: delivery.timeout,
        in_flight_max: delivery.in_flight_max as usize,
        endpoint_in_flight_max: delivery.endpoint_in_flight_max,
        endpoint_requests_per_second: delivery.endpoint_requests_per_second,
        failing_requests_per_second: delivery.failing_requests_per_second,
        lane_handoff_max: delivery.endpoint_waiting_max,
        in_flight_bytes_max: delivery.in_flight_bytes_max,
        results_waiting_max: delivery.results_waiting_max as usize,
        response_bytes_max: delivery.response_bytes_max,
        response_headers_bytes_max: delivery.response_headers_bytes_max,
        header_prefix: config.headers.prefix.clone(),
        pool_idle: delivery.connections.idle_max,
        pool_age: delivery.connections.age_max,
        pool_idle_per_host_max: delivery.connections.idle_per_host_max as usize,
        pool_idle_max: delivery.connections.idle_total_max as usize,
        http2: delivery.connections.http2,
        http2_streams_max: delivery.connections.http2_streams_max as usize,
        http2_silence_max: delivery.connections.http2_silence_max,
        tls_session_hosts_max: delivery.connections.tls_session_hosts_max as usize,
        ..EngineSettings::default()
    }
}

fn idempotency_quota(config: &Config) -> Quota {
    Quota {
        keys: u64::from(config.idempotency.account_keys_max),
        bytes: config.idempotency.account_bytes_max as u64,
    }
}

fn web_settings(
    config: &Config,
    access: Access,
    address_guard: AddressGuard,
    now: Now,
) -> WebSettings {
    let entropy = Arc::new(entropy::fill_or_end);
    let mut settings = WebSettings::new(access, now, entropy);
    settings.endpoint_rules = EndpointRules {
        https_only: config.security.require_https,
        address_guard,
        header_prefix: config.headers.prefix.clone(),
    };
    settings.secret_overlap = config.secrets.overlap;
    settings.body_limits = BodyLimits {
        body_bytes_max: config.events.body_bytes_max,
        batch_bytes_max: config.events.batch_bytes_max,
        in_flight_bytes_max: config.server.bodies_bytes_max,
        timeout: config.server.body_timeout,
    };
    settings.receive_limits = ReceiveLimits {
        body_bytes_max: config.receive.body_bytes_max,
        in_flight_bytes_max: config.receive.bodies_bytes_max,
        timeout: config.receive.body_timeout,
        body_pace_min: config.receive.body_pace_min,
        certificate_lifetime: config.receive.certificate_lifetime,
    };
    settings.public_url = config.server.public_url.clone();
    settings.ready_due_age_max = config.server.ready_overdue_max;
    settings.replay_rates = ReplayRates {
        default_per_second: config.replay.rate_per_second,
        max_per_second: config.replay.rate_per_second_max,
    };
    settings.claim_limits = ClaimLimits {
        wait_max: config.claims.wait_max,
        result_bytes_max: config.claims.result_bytes_max,
        quota: idempotency_quota(config),
    };
    settings
}

pub(crate) fn server_limits(config: &Config) -> ServerLimits {
    let server = &config.server;
    ServerLimits {
        connections_max: server.connections_max as usize,
        idle_timeout: server.idle_timeout,
        stall_timeout: server.stall_timeout,
        head_bytes_max: server.head_bytes_max,
        drain_timeout: server.stop_timeout,
    }
}
