//! What the binary hands in: rules, limits, time and chance.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::idempotency::claim::Quota;
use everhook_domain::time::Timestamp;

use everhook_store::StorePolicy;

use crate::access::Access;
use crate::base_url::BaseUrl;
use crate::endpoint::EndpointRules;
use crate::fetch::{Fetch, FetchNothing};

/// Tells the present, which must never go back (see
/// [`SteadyTime`](everhook_domain::time::SteadyTime)); the same for web and engine.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;
/// Fills bytes that nobody can guess.
pub type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// Bounds of what is taken from the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest body of every request but a batch, in bytes (`events.body_bytes_max`).
    pub body_bytes_max: usize,
    /// The largest body of a batch of events, in bytes.
    pub batch_bytes_max: usize,
    /// All bodies that are held at the same time, in bytes.
    pub in_flight_bytes_max: usize,
    /// How long a body may take from its headers to its end.
    pub timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        const MIB: usize = 1_024 * 1_024;
        Self {
            body_bytes_max: MIB,
            batch_bytes_max: 16 * MIB,
            in_flight_bytes_max: 128 * MIB,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Bounds of what comes to sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveLimits {
    /// The largest body of a webhook, in bytes, where its source does not say less
    /// (`receive.body_bytes_max`).
    pub body_bytes_max: usize,
    /// All such bodies that are held at the same time, in bytes (`receive.bodies_bytes_max`). Apart
    /// from those of the API, so that neither starves the other.
    pub in_flight_bytes_max: usize,
    /// How long a body may take from its headers to its end (`receive.body_timeout`).
    pub timeout: Duration,
    /// The slowest that a body may come, in bytes a second, so that the silent give their room back
    /// (`receive.body_pace_min`).
    pub body_pace_min: usize,
    /// How long a certificate that was fetched is used (`receive.certificate_lifetime`).
    pub certificate_lifetime: Duration,
}

impl Default for ReceiveLimits {
    fn default() -> Self {
        const MIB: usize = 1_024 * 1_024;
        Self {
            body_bytes_max: 25 * MIB,
            in_flight_bytes_max: 128 * MIB,
            timeout: Duration::from_secs(60),
            body_pace_min: 4 * 1_024,
            certificate_lifetime: Duration::from_secs(24 * 3_600),
        }
    }
}

/// Bounds of the claim API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimits {
    /// How long a request may wait for a claim to end (`claims.wait_max`).
    pub wait_max: Duration,
    /// The longest result, in bytes (`claims.result_bytes_max`).
    pub result_bytes_max: usize,
    /// What an account may have at a time, apart from its other keys
    /// (`idempotency.account_keys_max`, `idempotency.account_bytes_max`).
    pub quota: Quota,
}

impl Default for ClaimLimits {
    fn default() -> Self {
        Self {
            wait_max: Duration::from_secs(30),
            result_bytes_max: 256 << 10,
            quota: StorePolicy::default().idempotency_quota,
        }
    }
}

/// How fast deliveries are set going that are replayed in bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayRates {
    /// In a second, where none is asked for (`replay.rate_per_second`).
    pub default_per_second: u32,
    /// The most that may be asked for (`replay.rate_per_second_max`).
    pub max_per_second: u32,
}

impl Default for ReplayRates {
    fn default() -> Self {
        Self { default_per_second: 500, max_per_second: 10_000 }
    }
}

/// Everything that the web side depends on besides the store.
#[derive(Clone)]
pub struct WebSettings {
    /// What is accepted as credentials.
    pub access: Access,
    /// The present.
    pub now: Now,
    /// What the clock on the wall says, which may go back: signed timestamps are compared with it.
    pub wall_clock: Now,
    /// Chance, for signing secrets and seals.
    pub entropy: Entropy,
    /// What endpoints may be.
    pub endpoint_rules: EndpointRules,
    /// How long a rotated secret keeps signing (`secrets.overlap`).
    pub secret_overlap: Duration,
    /// Bounds of bodies.
    pub body_limits: BodyLimits,
    /// Bounds of what comes to sources.
    pub receive_limits: ReceiveLimits,
    /// What URLs that are given out begin with (`server.public_url`); `None`: what was called.
    pub public_url: Option<BaseUrl>,
    /// Who fetches certificates.
    pub fetch: Arc<dyn Fetch>,
    /// `/readyz` turns bad when deliveries that could be sent have waited for longer without any
    /// being begun at their endpoint.
    pub ready_due_age_max: Duration,
    /// The pace of bulk replays.
    pub replay_rates: ReplayRates,
    /// Bounds of the claim API.
    pub claim_limits: ClaimLimits,
}

impl fmt::Debug for WebSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSettings")
            .field("access", &self.access)
            .field("endpoint_rules", &self.endpoint_rules)
            .field("secret_overlap", &self.secret_overlap)
            .field("body_limits", &self.body_limits)
            .field("receive_limits", &self.receive_limits)
            .field("public_url", &self.public_url)
            .field("ready_due_age_max", &self.ready_due_age_max)
            .field("replay_rates", &self.replay_rates)
            .field("claim_limits", &self.claim_limits)
            .finish_non_exhaustive()
    }
}

impl WebSettings {
    /// The settings of a new installation.
    pub fn new(access: Access, now: Now, entropy: Entropy) -> Self {
        Self {
            access,
            wall_clock: Arc::clone(&now),
            now,
            entropy,
            endpoint_rules: EndpointRules::default(),
            secret_overlap: Duration::from_secs(24 * 3_600),
            body_limits: BodyLimits::default(),
            receive_limits: ReceiveLimits::default(),
            public_url: None,
            fetch: Arc::new(FetchNothing),
            ready_due_age_max: Duration::from_secs(300),
            replay_rates: ReplayRates::default(),
            claim_limits: ClaimLimits::default(),
        }
    }
}
