//! The section `[proxy]`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::idempotency::claim::{Lapse, Policy};
use everhook_domain::tenant::TenantId;
use http::{HeaderName, Method};

use super::reader::Reader;
use super::rule::{self, Rule, duration_text};
use super::settings::too_small;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// `[proxy]`
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    /// The service that requests are handed on to; with none there is no proxy.
    pub(crate) upstream: Option<UpstreamUrl>,
    /// Where the proxy listens.
    pub(crate) listen: SocketAddr,
    /// The header that names the account.
    pub(crate) account_header: Option<HeaderName>,
    /// Whether keys without an account are one account's.
    pub(crate) anonymous: bool,
    /// The tenant of the records.
    pub(crate) tenant: TenantId,
    /// The methods whose requests may carry a key.
    pub(crate) methods: Vec<Method>,
    /// Whether they must.
    pub(crate) key_required: bool,
    /// Which answers are remembered.
    pub(crate) policy: Policy,
    /// What a lost answer means.
    pub(crate) lapse: Lapse,
    /// How long nothing may move.
    pub(crate) timeout: Duration,
    /// How long a connection to the service may take.
    pub(crate) connect_timeout: Duration,
    /// How long a request with a key may take in all.
    pub(crate) answer_max: Duration,
    /// The largest body of a request with a key, in bytes.
    pub(crate) request_bytes_max: usize,
    /// The largest body of an answer that is remembered, in bytes.
    pub(crate) answer_bytes_max: usize,
    /// Whether the service is called by the client's host.
    pub(crate) keeps_host: bool,
    /// Whether the word of the peer about who has called is taken.
    pub(crate) behind_proxy: bool,
    /// Requests under way.
    pub(crate) in_flight_max: u32,
    /// Connections of clients.
    pub(crate) connections_max: u32,
    /// How long an unused connection to the service may be used again.
    pub(crate) connection_idle_max: Duration,
    /// Unused connections to the service.
    pub(crate) idle_connections_max: u32,
}

/// The URL of the service.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamUrl(pub(crate) EndpointUrl);

impl FromStr for UpstreamUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let url = EndpointUrl::parse(text, false).map_err(|error| error.to_string())?;
        if url.basic_auth().is_some() {
            return Err("credentials are the client's own and are handed on: take them out".into());
        }
        if url.path_and_query().contains('?') {
            return Err("each request has its own query: take it out".into());
        }
        Ok(Self(url))
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Proxy> {
    let url = "an http or https URL without credentials and query, such as http://127.0.0.1:3000";
    let url = rule::text::<UpstreamUrl>(url, "http://127.0.0.1:3000");
    let upstream = reader.read("proxy.upstream", &rule::optional(url));
    let address = "an IP address with a port, such as 127.0.0.1:8081, 0.0.0.0:8081 or [::1]:8081";
    let listen = reader.read("proxy.listen", &rule::text(address, "127.0.0.1:8081"));
    let name = rule::text::<HeaderName>("the name of a header", "x-account");
    let account_header = reader.read("proxy.account_header", &rule::optional(name));
    let anonymous = reader.read("proxy.anonymous", &rule::switch());
    let id = "1 to 64 lower-case letters, digits, '-' and '_'";
    let tenant = reader.read("proxy.tenant", &rule::text::<TenantId>(id, "default"));
    let methods = reader.read("proxy.methods", &methods());
    let key_required = reader.read("proxy.key_required", &rule::switch());
    let policies = &[("final", Policy::Final), ("success_only", Policy::SuccessOnly)];
    let policy = reader.read("proxy.policy", &rule::word(policies));
    let lapses = &[("unknown", Lapse::Unknown), ("rerun", Lapse::Rerun)];
    let lapse = reader.read("proxy.lapse", &rule::word(lapses));
    let timeout = reader.read("proxy.timeout", &rule::duration(100 * MS..=HOUR));
    let connect_timeout = reader.read("proxy.connect_timeout", &rule::duration(100 * MS..=HOUR));
    let answer_max = reader.read("proxy.answer_max", &rule::duration(SECOND..=DAY));
    let request_bytes = rule::size(KIB..=64 * MIB);
    let request_bytes_max = reader.read("proxy.request_bytes_max", &request_bytes);
    let answer_bytes_max = reader.read("proxy.answer_bytes_max", &rule::size(0..=16 * MIB));
    let hosts = &[("client", true), ("upstream", false)];
    let keeps_host = reader.read("proxy.host", &rule::word(hosts));
    let behind_proxy = reader.read("proxy.behind_proxy", &rule::switch());
    let in_flight_max = reader.read("proxy.in_flight_max", &rule::count(1..=65_536));
    let connections_max = reader.read("proxy.connections_max", &rule::count(1..=65_536));
    let idle = rule::duration(Duration::ZERO..=HOUR);
    let connection_idle_max = reader.read("proxy.connection_idle_max", &idle);
    let idle_connections_max = reader.read("proxy.idle_connections_max", &rule::count(0..=65_536));
    Some(Proxy {
        upstream: upstream?,
        listen: listen?,
        account_header: account_header?,
        anonymous: anonymous?,
        tenant: tenant?,
        methods: methods?,
        key_required: key_required?,
        policy: policy?,
        lapse: lapse?,
        timeout: timeout?,
        connect_timeout: connect_timeout?,
        answer_max: answer_max?,
        request_bytes_max: request_bytes_max?,
        answer_bytes_max: answer_bytes_max?,
        keeps_host: keeps_host?,
        behind_proxy: behind_proxy?,
        in_flight_max: in_flight_max?,
        connections_max: connections_max?,
        connection_idle_max: connection_idle_max?,
        idle_connections_max: idle_connections_max?,
    })
}

/// Refuses settings that are legal one by one and not with this lease of a key.
pub(super) fn check(reader: &mut Reader<'_>, proxy: &Proxy, lease: Duration) {
    if proxy.answer_max < lease {
        let reason = format!("idempotency.lease = {:?}", duration_text(lease));
        let [max, least] = [proxy.answer_max, lease].map(duration_text);
        too_small(reader, ["proxy.answer_max", "idempotency.lease"], [max, reason, least]);
    }
}

/// Each method by its index in the list of those that change something.
fn methods() -> Rule<Vec<Method>> {
    const CHANGING: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
    const WORDS: &[(&str, usize)] = &[("POST", 0), ("PUT", 1), ("PATCH", 2), ("DELETE", 3)];
    let of = |index: usize| CHANGING.get(index).cloned();
    let back = |method: &Method| CHANGING.iter().position(|one| one == method);
    rule::list("one or more of POST, PUT, PATCH and DELETE", rule::word(WORDS)).into(
        move |chosen: Vec<usize>| -> Result<Vec<Method>, &'static str> {
            if chosen.is_empty() {
                return Err("name at least one, as in [\"POST\"]");
            }
            Ok(chosen.into_iter().filter_map(of).collect())
        },
        move |methods| methods.iter().filter_map(back).collect(),
    )
}
