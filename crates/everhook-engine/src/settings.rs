//! What an operator can set about sending. Every limit of the engine is here, with its unit.

use std::time::Duration;

use everhook_domain::budget::Budget;
use everhook_domain::header::HeaderPrefix;
use http::HeaderValue;

/// The most that [`EngineSettings::response_bytes_max`] may be.
pub const RESPONSE_BYTES_LIMIT: usize = 16 * 1_024;

/// How deliveries are sent. The defaults are the product's.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// From the start of name resolution until the answer's status line and headers are there.
    pub timeout: Duration,
    /// The most attempts under way on this node.
    pub in_flight_max: usize,
    /// The most attempts under way to one endpoint; an endpoint's own limit can only be lower.
    pub endpoint_in_flight_max: u32,
    /// The most attempts begun in any one second to one endpoint; an endpoint's own limit can only
    /// be lower. `None`: no limit.
    pub endpoint_requests_per_second: Option<u32>,
    /// As above, for an endpoint whose last attempts failed.
    pub failing_requests_per_second: u32,
    /// The most new deliveries that wait in memory for one endpoint; the others wait in the store.
    pub lane_handoff_max: u32,
    /// The most bytes of all bodies in memory, waiting or under way. Half of it is for new
    /// deliveries on their way from acceptance, half for those read from the store.
    pub in_flight_bytes_max: usize,
    /// The most results that may wait to be recorded before nothing more is started.
    pub results_waiting_max: usize,
    /// Bytes of an answer's body that are read and kept, at most [`RESPONSE_BYTES_LIMIT`].
    pub response_bytes_max: usize,
    /// Bytes of an answer's header names and values that are kept.
    pub response_headers_bytes_max: usize,
    /// What the names of our own headers begin with.
    pub header_prefix: HeaderPrefix,
    /// The value of `user-agent`.
    pub user_agent: HeaderValue,
    /// How long an unused connection is kept: shorter than common servers keep theirs.
    pub pool_idle: Duration,
    /// How long a connection is used at most.
    pub pool_age: Duration,
    /// The most unused connections kept to one host and port.
    pub pool_idle_per_host_max: usize,
    /// The most unused connections kept.
    pub pool_idle_max: usize,
    /// Whether HTTP/2 is spoken to `https` endpoints that choose it.
    pub http2: bool,
    /// The most requests under way at once on one HTTP/2 connection; the other side's limit can
    /// only lower it.
    pub http2_streams_max: usize,
    /// How long nothing may come in on an HTTP/2 connection on which requests wait, before others
    /// go elsewhere.
    pub http2_silence_max: Duration,
    /// The most hosts whose TLS sessions are remembered, so that they can be resumed.
    pub tls_session_hosts_max: usize,
    /// The longest sleep before the clock is looked at again: how late a clock that was set
    /// forward, or a machine that was suspended, is noticed.
    pub sleep_max: Duration,
}

impl EngineSettings {
    /// What must be left of a lease, beyond the timeout, for an attempt to start: time for the
    /// result to be recorded. One second for the default timeout.
    pub fn lease_margin(&self) -> Duration {
        (self.timeout / 10).min(Duration::from_secs(1))
    }

    /// What those may weigh that are on their way from acceptance, and apart from them those that
    /// were read from the store, so that neither keep the others waiting.
    pub(crate) const fn half_of_bytes(&self) -> Budget {
        Budget::new(self.in_flight_bytes_max / 2)
    }
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(10),
            in_flight_max: 512,
            endpoint_in_flight_max: 64,
            endpoint_requests_per_second: None,
            failing_requests_per_second: 100,
            lane_handoff_max: 64,
            in_flight_bytes_max: 64 * 1_024 * 1_024,
            results_waiting_max: 4_096,
            response_bytes_max: 4 * 1_024,
            response_headers_bytes_max: 8 * 1_024,
            header_prefix: HeaderPrefix::default(),
            user_agent: HeaderValue::from_static(concat!("Everhook/", env!("CARGO_PKG_VERSION"))),
            pool_idle: Duration::from_secs(4),
            pool_age: Duration::from_secs(300),
            pool_idle_per_host_max: 128,
            pool_idle_max: 512,
            http2: true,
            http2_streams_max: 100,
            http2_silence_max: Duration::from_secs(2),
            tls_session_hosts_max: 256,
            sleep_max: Duration::from_secs(60),
        }
    }
}
