//! From host names to addresses: the system's name servers and hosts file, asked asynchronously.
//!
//! Answers are kept as long as they say, but at least five seconds and at most five minutes. Many
//! attempts that need one name at the same time share one question. Whether an address may be
//! connected to is not decided here: it is judged each time, right before connecting.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use everhook_domain::attempt::ErrorClass;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;

use super::failure::Failure;
use crate::lock::lock;

/// The shortest time that an answer is kept.
const TTL_MIN: Duration = Duration::from_secs(5);
/// The longest time that an answer is kept.
const TTL_MAX: Duration = Duration::from_secs(300);
/// How long one name server is waited for; a second try and another server fit into an attempt.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Tries per name server.
const TRIES: usize = 2;

const NO_ANSWER: &str = "no name server answered in time for the host's name";

type Answer = Result<Arc<[IpAddr]>, Failure>;
type Ask = BoxFuture<'static, Answer>;

/// Resolves host names.
pub struct Resolver {
    resolver: Result<TokioResolver, Failure>,
    /// Questions that somebody waits for; one that nobody waits for any more is gone.
    under_way: Mutex<HashMap<String, WeakShared<Ask>>>,
}

impl Resolver {
    /// As the system is configured. Where that cannot be read, every name fails with the reason.
    pub fn system() -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|mut builder| {
            limit(builder.options_mut());
            builder.build()
        });
        Self::from(resolver)
    }

    /// Asks these name servers only, by UDP and then TCP.
    pub fn with_servers(servers: &[SocketAddr]) -> Self {
        let servers = servers.iter().map(|server| {
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            let connections = connections.into_iter().map(|mut connection| {
                connection.port = server.port();
                connection
            });
            NameServerConfig::new(server.ip(), true, connections.collect())
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let provider = TokioRuntimeProvider::default();
        let mut builder = TokioResolver::builder_with_config(config, provider);
        limit(builder.options_mut());
        Self::from(builder.build())
    }

    fn from(resolver: Result<TokioResolver, NetError>) -> Self {
        let resolver = resolver.map_err(|error| {
            let detail = format!("this machine's name servers are not known ({error})");
            Failure::new(ErrorClass::Dns, detail)
        });
        Self { resolver, under_way: Mutex::default() }
    }

    /// The addresses of a name; at least one.
    pub(super) async fn addresses(&self, name: &str) -> Answer {
        if is_localhost(name) {
            let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            return Ok(Arc::from(loopback));
        }
        let resolver = self.resolver.as_ref().map_err(Clone::clone)?;
        self.question(resolver, name).await
    }

    /// The question for this name that is under way, or a new one.
    fn question(&self, resolver: &TokioResolver, name: &str) -> Shared<Ask> {
        let mut under_way = lock(&self.under_way);
        if let Some(asked) = under_way.get(name).and_then(WeakShared::upgrade) {
            return asked;
        }
        let question = ask(resolver.clone(), name.to_owned()).boxed().shared();
        under_way.retain(|_, asked| asked.upgrade().is_some());
        if let Some(weak) = question.downgrade() {
            under_way.insert(name.to_owned(), weak);
        }
        question
    }
}

async fn ask(resolver: TokioResolver, name: String) -> Answer {
    match resolver.lookup_ip(&*name).await {
        Ok(found) => {
            let addresses: Arc<[IpAddr]> = found.iter().collect();
            if addresses.is_empty() { Err(no_address()) } else { Ok(addresses) }
        }
        Err(error) => Err(failure(&error)),
    }
}

/// `localhost` and what ends in `.localhost` is this machine, whatever a name server says (RFC 6761
/// §6.3).
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

fn limit(options: &mut ResolverOpts) {
    options.timeout = SERVER_TIMEOUT;
    options.attempts = TRIES;
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.positive_min_ttl = Some(TTL_MIN);
    options.positive_max_ttl = Some(TTL_MAX);
    options.negative_min_ttl = Some(TTL_MIN);
    options.negative_max_ttl = Some(TTL_MAX);
}

/// Says what matters to the endpoint's owner; which server was asked and what it sent is ours.
fn failure(error: &NetError) -> Failure {
    let detail = match error {
        NetError::Io(io) => match Failure::ours(io) {
            Some(failure) => return failure,
            None => "no name server could be reached for the host's name".to_owned(),
        },
        NetError::Dns(DnsError::NoRecordsFound(none)) => return no_records(none.response_code),
        NetError::Dns(DnsError::ResponseCode(code)) => return no_records(*code),
        NetError::Timeout => NO_ANSWER.to_owned(),
        NetError::NoConnections => "no name server could be reached for the host's name".to_owned(),
        NetError::Proto(_) => "the answer for the host's name was not a proper one".to_owned(),
        _ => "the host's name could not be resolved".to_owned(),
    };
    Failure::new(ErrorClass::Dns, detail)
}

fn no_records(code: ResponseCode) -> Failure {
    let detail = match code {
        ResponseCode::NoError => return no_address(),
        ResponseCode::NXDomain => "the host's name does not exist",
        ResponseCode::ServFail => {
            "the name servers could not answer for the host's name (SERVFAIL)"
        }
        ResponseCode::Refused => "the name servers refuse to answer for the host's name (REFUSED)",
        _ => "the name servers answered for the host's name with an error",
    };
    Failure::new(ErrorClass::Dns, detail)
}

fn no_address() -> Failure {
    Failure::new(ErrorClass::Dns, "the host's name has no address")
}
