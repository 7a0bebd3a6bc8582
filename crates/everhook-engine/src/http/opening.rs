//! Connections that are being made.
//!
//! Many requests that need the same HTTP/2 connection wait for one and the same to be opened. What
//! a host speaks is known only when the TLS handshake has ended, so requests to one that is not
//! known wait too; each request to a host that turned out to speak HTTP/1.1 opens its own.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use everhook_domain::address::AddressGuard;
use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint_url::{Host, Scheme};
use everhook_domain::time::Clock;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::task::JoinSet;

use super::connection::Connection;
use super::exchange::Carrier;
use super::failure::{Failure, Phase};
use super::http2::Http2;
use super::pool::{Destination, Pool};
use super::resolve::Resolver;
use super::tls::{self, Tls, Trust};
use super::{Course, connect};
use crate::lock::lock;

/// The most hosts of which it is remembered that they speak HTTP/1.1. Beyond it all are forgotten:
/// it only costs that the next few requests to each wait for one another.
const HTTP1_HOSTS_MAX: usize = 16_384;
/// After so many connections that were full before it got a place, a request waits for one.
const FULL_MAX: usize = 8;

/// How far the opening of a connection has come.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

/// What it takes to open a connection.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) guard: Arc<AddressGuard>,
    pub(super) resolver: Arc<Resolver>,
    pub(super) tls: Arc<Tls>,
    pub(super) clock: Arc<dyn Clock>,
    /// What drives shared connections; ends with the sender.
    pub(super) drivers: Arc<Mutex<JoinSet<()>>>,
}

/// The connections that are being made.
#[derive(Default)]
pub(super) struct Openings {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those that somebody waits for; one that nobody waits for any more is gone.
    under_way: HashMap<Key, (WeakShared<Open>, Arc<Stage>)>,
    http1: HashSet<Key>,
}

type Key = (Trust, Box<str>);
type Open = BoxFuture<'static, Result<Opened, Failure>>;

/// A connection that was made for everybody who waited.
#[derive(Clone)]
enum Opened {
    /// For the first one who takes it.
    Own(Arc<Mutex<Option<Connection>>>),
    /// For all, up to its limit.
    Shared(Arc<Http2>),
}

impl Stage {
    pub(super) fn enter(&self, phase: Phase) {
        self.0.store(phase as u8, Relaxed);
    }

    pub(super) fn phase(&self) -> Phase {
        let reached = self.0.load(Relaxed);
        [Phase::Resolving, Phase::Connecting, Phase::Securing]
            .into_iter()
            .find(|phase| *phase as u8 == reached)
            .unwrap_or(Phase::Waiting)
    }
}

impl Dialer {
    async fn open(
        &self,
        destination: &Destination,
        own: Option<&CaCertificates>,
        stage: &Stage,
    ) -> Result<Opened, Failure> {
        let url = &destination.url;
        stage.enter(Phase::Resolving);
        let addresses = match url.host() {
            Host::Ip(address) => Arc::from([*address]),
            Host::Name(name) => self.resolver.addresses(name).await?,
        };
        stage.enter(Phase::Connecting);
        let tcp = connect::connect(&self.guard, &addresses, url.port()).await?;
        let born = self.clock.monotonic();
        let connection = match url.scheme() {
            Scheme::Http => Connection::open(tcp, born).await?,
            Scheme::Https => {
                stage.enter(Phase::Securing);
                let stream = self.tls.secure(url.host(), own, tcp).await?;
                if tls::is_http2(&stream) {
                    let (connection, driver) = Http2::open(stream, Arc::clone(&self.clock)).await?;
                    let mut drivers = lock(&self.drivers);
                    while drivers.try_join_next().is_some() {}
                    drivers.spawn(driver);
                    return Ok(Opened::Shared(connection));
                }
                Connection::open(stream, born).await?
            }
        };
        Ok(Opened::Own(Arc::new(Mutex::new(Some(connection)))))
    }
}

impl Openings {
    /// A carrier on a connection that was not there when this was called.
    pub(super) async fn carrier(
        &self,
        dialer: &Dialer,
        pool: &Pool,
        (destination, own): (&Destination, Option<&CaCertificates>),
        course: &Course,
    ) -> Result<Carrier, Failure> {
        let mut full = 0;
        loop {
            let opened = match self.join(dialer, destination, own) {
                None => dialer.open(destination, own, &course.stage).await?,
                Some((opening, stage)) => {
                    course.follow(stage);
                    opening.await?
                }
            };
            match opened {
                Opened::Own(connection) => {
                    self.learn(destination, true);
                    if let Some(connection) = lock(&connection).take() {
                        return Ok(Carrier::Own(connection));
                    }
                }
                Opened::Shared(connection) => {
                    self.learn(destination, false);
                    if let Some(seat) = pool.sit(destination, &connection, full >= FULL_MAX) {
                        return Ok(Carrier::Shared(seat));
                    }
                    full += 1;
                }
            }
        }
    }

    /// The opening that is to be waited for, under way or new; `None` where each has its own.
    fn join(
        &self,
        dialer: &Dialer,
        destination: &Destination,
        own: Option<&CaCertificates>,
    ) -> Option<(Shared<Open>, Arc<Stage>)> {
        if destination.url.scheme() == Scheme::Http || !dialer.tls.offers_http2() {
            return None;
        }
        let key = key(destination);
        let mut state = lock(&self.state);
        if state.http1.contains(&key) {
            return None;
        }
        if let Some((opening, stage)) = state.under_way.get(&key)
            && let Some(opening) = opening.upgrade()
            // One that has ended belongs to those who waited for it.
            && opening.peek().is_none()
        {
            return Some((opening, Arc::clone(stage)));
        }
        let stage = Arc::new(Stage::default());
        let (dialer, destination, own) = (dialer.clone(), destination.clone(), own.cloned());
        let told = Arc::clone(&stage);
        let opening = async move { dialer.open(&destination, own.as_ref(), &told).await };
        let opening = opening.boxed().shared();
        state.under_way.retain(|_, (opening, _)| opening.upgrade().is_some());
        if let Some(weak) = opening.downgrade() {
            state.under_way.insert(key, (weak, Arc::clone(&stage)));
        }
        Some((opening, stage))
    }

    /// Remembers what the host speaks.
    fn learn(&self, destination: &Destination, http1: bool) {
        if destination.url.scheme() == Scheme::Http {
            return;
        }
        let key = key(destination);
        let mut state = lock(&self.state);
        if !http1 {
            state.http1.remove(&key);
        } else if !state.http1.contains(&key) {
            if state.http1.len() >= HTTP1_HOSTS_MAX {
                state.http1.clear();
            }
            state.http1.insert(key);
        }
    }
}

fn key(destination: &Destination) -> Key {
    (destination.trust, destination.url.authority().into())
}
