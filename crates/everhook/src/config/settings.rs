//! The settings, by section, with what each may be. Their meaning stands in `default.toml`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use everhook_domain::header::HeaderPrefix;
use everhook_domain::schedule::Schedule;
use everhook_web::base_url::BaseUrl;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::auth::{self, Auth};
use super::idempotency::{self, Claims, Idempotency};
use super::problem::{Origin, Problem};
use super::proxy::{self, Proxy};
use super::reader::Reader;
use super::receive::{self, Receive};
use super::rule::{self, Rule, duration_text, size_text};
use super::secrets::{self, Secrets};
use super::security::{self, Security};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A lease must leave the attempt its timeout and the store time to record the result: at least
/// this many tenths of the timeout, 4 s beyond one of 10 s.
const LEASE_TENTHS_OF_TIMEOUT: u32 = 14;

/// All settings.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// `[server]`
    pub(crate) server: Server,
    /// `[retry]`
    pub(crate) retry: Retry,
    /// `[delivery]`
    pub(crate) delivery: Delivery,
    /// `[replay]`
    pub(crate) replay: Replay,
    /// `[events]`
    pub(crate) events: Events,
    /// `[receive]`
    pub(crate) receive: Receive,
    /// `[idempotency]`
    pub(crate) idempotency: Idempotency,
    /// `[claims]`
    pub(crate) claims: Claims,
    /// `[proxy]`
    pub(crate) proxy: Proxy,
    /// `[auth]`
    pub(crate) auth: Auth,
    /// `[secrets]`
    pub(crate) secrets: Secrets,
    /// `[headers]`
    pub(crate) headers: Headers,
    /// `[security]`
    pub(crate) security: Security,
    /// `[store]`
    pub(crate) store: Store,
    /// `[log]`
    pub(crate) log: Log,
}

/// `[server]`
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// Where the API is served.
    pub(crate) listen: SocketAddr,
    /// What URLs that are given out begin with.
    pub(crate) public_url: Option<BaseUrl>,
    /// Threads that serve and send.
    pub(crate) threads: usize,
    /// All request bodies in memory, in bytes.
    pub(crate) bodies_bytes_max: usize,
    /// How long a body may take to arrive.
    pub(crate) body_timeout: Duration,
    /// Connections at the same time.
    pub(crate) connections_max: u32,
    /// From the end of one request to the headers of the next.
    pub(crate) idle_timeout: Duration,
    /// How long a client may take nothing of its answer.
    pub(crate) stall_timeout: Duration,
    /// The largest request line and headers, in bytes.
    pub(crate) head_bytes_max: usize,
    /// How long requests may go on after the signal to stop.
    pub(crate) stop_timeout: Duration,
    /// How late a delivery may be before the server is not ready.
    pub(crate) ready_overdue_max: Duration,
}

/// `[retry]`
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    /// When attempts are due.
    pub(crate) schedule: Schedule,
    /// Whether `Retry-After` may move the next attempt.
    pub(crate) honor_retry_after: bool,
}

/// `[delivery]`
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// The deadline of an attempt.
    pub(crate) timeout: Duration,
    /// How long an attempt owns its delivery.
    pub(crate) lease: Duration,
    /// Requests under way, all endpoints.
    pub(crate) in_flight_max: u32,
    /// Requests under way, one endpoint.
    pub(crate) endpoint_in_flight_max: u32,
    /// Requests started a second, one endpoint.
    pub(crate) endpoint_requests_per_second: Option<u32>,
    /// Requests started a second, one failing endpoint.
    pub(crate) failing_requests_per_second: u32,
    /// So long nothing but failures, and the endpoint is disabled.
    pub(crate) disable_after: Option<Duration>,
    /// New deliveries that wait in memory, one endpoint.
    pub(crate) endpoint_waiting_max: u32,
    /// Bodies of deliveries in memory, in bytes.
    pub(crate) in_flight_bytes_max: usize,
    /// Results that wait to be recorded.
    pub(crate) results_waiting_max: u32,
    /// Bytes of an answer's body that are kept.
    pub(crate) response_bytes_max: usize,
    /// Bytes of an answer's headers that are kept.
    pub(crate) response_headers_bytes_max: usize,
    /// Connections to endpoints.
    pub(crate) connections: Connections,
}

/// `[delivery]`: connections to endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    /// How long an unused one is kept.
    pub(crate) idle_max: Duration,
    /// How long one is used at all.
    pub(crate) age_max: Duration,
    /// Unused ones to one host and port.
    pub(crate) idle_per_host_max: u32,
    /// Unused ones to all.
    pub(crate) idle_total_max: u32,
    /// Whether HTTP/2 is spoken.
    pub(crate) http2: bool,
    /// Requests under way on one of HTTP/2.
    pub(crate) http2_streams_max: u32,
    /// How long one of HTTP/2 may be silent while requests wait.
    pub(crate) http2_silence_max: Duration,
    /// Hosts whose TLS sessions are remembered.
    pub(crate) tls_session_hosts_max: u32,
}

/// `[replay]`
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// Deliveries set going in a second by one bulk replay.
    pub(crate) rate_per_second: u32,
    /// The most that may be asked for.
    pub(crate) rate_per_second_max: u32,
}

/// `[events]`
#[derive(Clone, Debug)]
pub(crate) struct Events {
    /// How long a source event ID is remembered.
    pub(crate) dedupe_window: Duration,
    /// The largest publishing body, in bytes.
    pub(crate) body_bytes_max: usize,
    /// The largest body of a batch, in bytes.
    pub(crate) batch_bytes_max: usize,
}

/// `[headers]`
#[derive(Clone, Debug)]
pub(crate) struct Headers {
    /// What our own headers begin with.
    pub(crate) prefix: HeaderPrefix,
}

/// `[store]`
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// Where everything is kept.
    pub(crate) data_dir: PathBuf,
    /// Writes that wait.
    pub(crate) queue_max: u32,
    /// Writes that are committed together.
    pub(crate) commit_max: u32,
}

/// `[log]`
#[derive(Clone, Debug)]
pub(crate) struct Log {
    /// How lines are written.
    pub(crate) format: LogFormat,
    /// What is logged.
    pub(crate) level: LogLevel,
}

/// What is logged: a level for all parts, or for single ones.
#[derive(Clone, Debug)]
pub(crate) struct LogLevel {
    text: String,
    /// The filter that the text means.
    pub(crate) targets: Targets,
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        for part in text.split(',') {
            let level = part.split_once('=').map_or(part, |(_, level)| level);
            // A filter would take an unknown word for the name of a part.
            if level.parse::<LevelFilter>().is_err() {
                return Err(format!("{level:?} is no level"));
            }
        }
        let targets = text.parse().map_err(|_| "it cannot be read".to_owned())?;
        Ok(Self { text: text.to_owned(), targets })
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Reads every setting, in the order of the default file; `None` when a value is wrong, which the
/// reader then knows of.
pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Config> {
    let server = server(reader);
    let retry = retry(reader);
    let delivery = delivery(reader);
    let replay = replay(reader);
    let events = events(reader);
    let receive = receive::read(reader);
    let idempotency = idempotency::read(reader);
    let claims = idempotency::read_claims(reader);
    let proxy = proxy::read(reader);
    let auth = auth::read(reader);
    let secrets = secrets::read(reader);
    let headers = reader.read("headers.prefix", &header_prefix());
    let security = security::read(reader);
    let store = store(reader);
    let log = log(reader);
    let config = Config {
        server: server?,
        retry: retry?,
        delivery: delivery?,
        replay: replay?,
        events: events?,
        receive: receive?,
        idempotency: idempotency?,
        claims: claims?,
        proxy: proxy?,
        auth: auth?,
        secrets: secrets?,
        headers: Headers { prefix: headers? },
        security: security?,
        store: store?,
        log: log?,
    };
    check_together(reader, &config);
    Some(config)
}

/// Settings that are legal one by one and not together.
fn check_together(reader: &mut Reader<'_>, config: &Config) {
    let Config { server, delivery, replay, events, receive, idempotency, proxy, .. } = config;
    let lease_min = delivery.timeout * LEASE_TENTHS_OF_TIMEOUT / 10;
    if delivery.lease < lease_min {
        let reason = format!("delivery.timeout = {:?}", duration_text(delivery.timeout));
        let [lease, least] = [delivery.lease, lease_min].map(duration_text);
        too_small(reader, ["delivery.lease", "delivery.timeout"], [lease, reason, least]);
    }
    proxy::check(reader, proxy, idempotency.lease);
    if replay.rate_per_second_max < replay.rate_per_second {
        let reason = format!("replay.rate_per_second = {}", replay.rate_per_second);
        let [max, least] =
            [replay.rate_per_second_max, replay.rate_per_second].map(|rate| rate.to_string());
        let keys = ["replay.rate_per_second_max", "replay.rate_per_second"];
        too_small(reader, keys, [max, reason, least]);
    }
    let published = ("events.body_bytes_max", events.body_bytes_max);
    let batch = ("events.batch_bytes_max", events.batch_bytes_max);
    let received = ("receive.body_bytes_max", receive.body_bytes_max);
    for ((inner, least), (outer, size)) in [
        (published, batch),
        (batch, ("server.bodies_bytes_max", server.bodies_bytes_max)),
        (received, ("receive.bodies_bytes_max", receive.bodies_bytes_max)),
    ] {
        if size < least {
            let [size, least] = [size, least].map(|bytes| size_text(bytes as u64));
            let reason = format!("{inner} = {least:?}");
            too_small(reader, [outer, inner], [size, reason, least]);
        }
    }
}

/// Tells that a setting is too small for another, at the place of the one that was set.
pub(super) fn too_small(
    reader: &mut Reader<'_>,
    [key, other]: [&str; 2],
    [value, reason, least]: [String; 3],
) {
    let set = |origin: &&Origin| !matches!(origin, Origin::Default { .. });
    let place = reader.origin(key).filter(set).or_else(|| reader.origin(other));
    let place = place.map(ToString::to_string).unwrap_or_default();
    reader.problems.push(Problem::new(
        place,
        format!("{key} = {value:?} is too small for {reason}"),
        format!("set {key} to {least:?} or more, or {other} to less"),
    ));
}

fn server(reader: &mut Reader<'_>) -> Option<Server> {
    let address = "an IP address with a port, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080";
    let listen = reader.read("server.listen", &rule::text(address, "127.0.0.1:8080"));
    let url = "the URL under which others reach it, such as https://hooks.example.com";
    let url = rule::text::<BaseUrl>(url, "https://hooks.example.com");
    let public_url = reader.read("server.public_url", &rule::optional(url));
    let threads = reader.read("server.threads", &rule::count::<u32>(1..=256));
    let bodies_bytes_max = reader.read("server.bodies_bytes_max", &rule::size(MIB..=64 * GIB));
    let body_timeout = reader.read("server.body_timeout", &rule::duration(100 * MS..=HOUR));
    let connections_max = reader.read("server.connections_max", &rule::count(1..=65_536));
    let patience = rule::duration(SECOND..=HOUR);
    let idle_timeout = reader.read("server.idle_timeout", &patience);
    let stall_timeout = reader.read("server.stall_timeout", &patience);
    let head_bytes_max = reader.read("server.head_bytes_max", &rule::size(8 * KIB..=MIB));
    let stop_timeout = reader.read("server.stop_timeout", &rule::duration(100 * MS..=5 * MINUTE));
    let ready_overdue_max = reader.read("server.ready_overdue_max", &rule::duration(SECOND..=DAY));
    Some(Server {
        listen: listen?,
        public_url: public_url?,
        threads: threads? as usize,
        bodies_bytes_max: bodies_bytes_max?,
        body_timeout: body_timeout?,
        connections_max: connections_max?,
        idle_timeout: idle_timeout?,
        stall_timeout: stall_timeout?,
        head_bytes_max: head_bytes_max?,
        stop_timeout: stop_timeout?,
        ready_overdue_max: ready_overdue_max?,
    })
}

fn retry(reader: &mut Reader<'_>) -> Option<Retry> {
    let schedule = reader.read("retry.schedule", &schedule());
    let honor_retry_after = reader.read("retry.honor_retry_after", &rule::switch());
    Some(Retry { schedule: schedule?, honor_retry_after: honor_retry_after? })
}

fn delivery(reader: &mut Reader<'_>) -> Option<Delivery> {
    let per_second = || rule::count(1..=1_000_000);
    let timeout = reader.read("delivery.timeout", &rule::duration(100 * MS..=5 * MINUTE));
    let lease = reader.read("delivery.lease", &rule::duration(200 * MS..=15 * MINUTE));
    let in_flight_max = reader.read("delivery.in_flight_max", &rule::count(4..=65_536));
    let endpoint_in_flight_max =
        reader.read("delivery.endpoint_in_flight_max", &rule::count(1..=65_536));
    let endpoint_requests_per_second =
        reader.read("delivery.endpoint_requests_per_second", &rule::optional(per_second()));
    let failing_requests_per_second =
        reader.read("delivery.failing_requests_per_second", &per_second());
    let disable_after =
        reader.read("delivery.disable_after", &rule::optional(rule::duration(MINUTE..=365 * DAY)));
    let endpoint_waiting_max =
        reader.read("delivery.endpoint_waiting_max", &rule::count(1..=65_536));
    let in_flight_bytes_max =
        reader.read("delivery.in_flight_bytes_max", &rule::size(MIB..=64 * GIB));
    let results_waiting_max =
        reader.read("delivery.results_waiting_max", &rule::count(64..=1 << 20));
    let response_bytes_max = reader.read("delivery.response_bytes_max", &rule::size(0..=16 * KIB));
    let response_headers_bytes_max =
        reader.read("delivery.response_headers_bytes_max", &rule::size(0..=64 * KIB));
    let connections = connections(reader);
    Some(Delivery {
        timeout: timeout?,
        lease: lease?,
        in_flight_max: in_flight_max?,
        endpoint_in_flight_max: endpoint_in_flight_max?,
        endpoint_requests_per_second: endpoint_requests_per_second?,
        failing_requests_per_second: failing_requests_per_second?,
        disable_after: disable_after?,
        endpoint_waiting_max: endpoint_waiting_max?,
        in_flight_bytes_max: in_flight_bytes_max?,
        results_waiting_max: results_waiting_max?,
        response_bytes_max: response_bytes_max?,
        response_headers_bytes_max: response_headers_bytes_max?,
        connections: connections?,
    })
}

fn connections(reader: &mut Reader<'_>) -> Option<Connections> {
    let idle = rule::duration(Duration::ZERO..=5 * MINUTE);
    let idle_max = reader.read("delivery.connection_idle_max", &idle);
    let age_max = reader.read("delivery.connection_age_max", &rule::duration(SECOND..=DAY));
    let count = rule::count(0..=65_536);
    let idle_per_host_max = reader.read("delivery.host_idle_connections_max", &count);
    let idle_total_max = reader.read("delivery.idle_connections_max", &count);
    let http2 = reader.read("delivery.http2", &rule::switch());
    let http2_streams_max = reader.read("delivery.http2_streams_max", &rule::count(1..=65_536));
    let silence = rule::duration(100 * MS..=5 * MINUTE);
    let http2_silence_max = reader.read("delivery.http2_silence_max", &silence);
    let tls_session_hosts_max = reader.read("delivery.tls_session_hosts_max", &count);
    Some(Connections {
        idle_max: idle_max?,
        age_max: age_max?,
        idle_per_host_max: idle_per_host_max?,
        idle_total_max: idle_total_max?,
        http2: http2?,
        http2_streams_max: http2_streams_max?,
        http2_silence_max: http2_silence_max?,
        tls_session_hosts_max: tls_session_hosts_max?,
    })
}

fn replay(reader: &mut Reader<'_>) -> Option<Replay> {
    let per_second = rule::count(1..=1_000_000);
    let rate_per_second = reader.read("replay.rate_per_second", &per_second);
    let rate_per_second_max = reader.read("replay.rate_per_second_max", &per_second);
    Some(Replay { rate_per_second: rate_per_second?, rate_per_second_max: rate_per_second_max? })
}

fn events(reader: &mut Reader<'_>) -> Option<Events> {
    let dedupe_window = reader.read("events.dedupe_window", &rule::duration(SECOND..=90 * DAY));
    let body_bytes_max = reader.read("events.body_bytes_max", &rule::size(KIB..=16 * MIB));
    let batch_bytes_max = reader.read("events.batch_bytes_max", &rule::size(KIB..=GIB));
    Some(Events {
        dedupe_window: dedupe_window?,
        body_bytes_max: body_bytes_max?,
        batch_bytes_max: batch_bytes_max?,
    })
}

fn store(reader: &mut Reader<'_>) -> Option<Store> {
    let data_dir = reader.read("store.data_dir", &path());
    let queue_max = reader.read("store.queue_max", &rule::count(64..=1 << 20));
    let commit_max = reader.read("store.commit_max", &rule::count(1..=65_536));
    Some(Store { data_dir: data_dir?, queue_max: queue_max?, commit_max: commit_max? })
}

fn log(reader: &mut Reader<'_>) -> Option<Log> {
    let formats = &[("human", LogFormat::Human), ("json", LogFormat::Json)];
    let format = reader.read("log.format", &rule::word(formats));
    let levels = "off, error, warn, info, debug or trace; several as in info,everhook_engine=debug";
    let level = reader.read("log.level", &rule::text(levels, "info"));
    Some(Log { format: format?, level: level? })
}

fn schedule() -> Rule<Schedule> {
    let allowed = "1 to 20 durations, the first 0s, each longer than the one before";
    let offset = rule::duration(Duration::ZERO..=365 * DAY);
    rule::list(allowed, offset).into(Schedule::new, |schedule| schedule.offsets().to_vec())
}

fn header_prefix() -> Rule<HeaderPrefix> {
    let allowed = "2 or more characters of a header name, the last of them a hyphen";
    rule::text(allowed, "X-Message-")
}

/// A path, as it is written.
pub(super) fn path() -> Rule<PathBuf> {
    let allowed = "a path; a relative one counts from the working directory";
    rule::text::<String>(allowed, "./everhook-data").into(
        |text| Ok::<_, std::convert::Infallible>(PathBuf::from(text)),
        |path| path.display().to_string(),
    )
}
