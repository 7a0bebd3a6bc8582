//! Connections that can take a request, by scheme, host, port and what is trusted.
//!
//! The one used last is taken first, so that the others grow old and go. An idle time shorter than
//! common servers' makes it rare that a connection closes under a request; one that has been closed
//! is noticed when it is taken up. Expired ones are dropped when they are touched, and by a task
//! that runs only while something idles.
//!
//! A connection of HTTP/1.1 is here only while it idles. One of HTTP/2 is here as long as it takes
//! requests. It takes none while it is silent although somebody waits, and none for ever after a
//! request to which it was silent to the end: a dead one takes few requests with it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::endpoint_url::{EndpointUrl, Scheme};
use everhook_domain::time::Clock;
use http::Request;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::exchange::{Carrier, Exchange};
use super::http2::Http2;
use super::tls::Trust;
use crate::lock::lock;
use crate::settings::EngineSettings;

/// Where a connection leads, and under which trust it was made.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) url: Arc<EndpointUrl>,
    pub(super) trust: Trust,
}

/// The connections. Dropping it closes those that idle.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

/// A place for one request on a shared connection; dropping it gives the place back.
pub(super) struct Seat {
    pool: Arc<Shared>,
    destination: Destination,
    connection: Arc<Http2>,
    /// When the request that has no answer yet began.
    waiting_since: Option<Duration>,
}

struct Shared {
    idle_max: Duration,
    age_max: Duration,
    per_host_max: usize,
    all_max: usize,
    streams_max: usize,
    silence_max: Duration,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    reaper: Mutex<JoinSet<()>>,
}

#[derive(Default)]
struct State {
    plain: Hosts,
    secure: HashMap<Trust, Hosts>,
    /// How many connections idle.
    count: usize,
    reaping: bool,
}

/// By host and port, as in a URL; the default port left out.
type Hosts = HashMap<Box<str>, Host>;

#[derive(Default)]
struct Host {
    /// Least recently used first.
    idle: VecDeque<Idle>,
    /// Oldest first.
    shared: Vec<Table>,
}

struct Idle {
    connection: Connection,
    since: Duration,
}

/// A shared connection and who sits at it.
struct Table {
    connection: Arc<Http2>,
    taken: usize,
    /// When the last one left; means nothing while somebody is there.
    since: Duration,
}

impl Pool {
    /// An empty pool.
    pub(super) fn new(settings: &EngineSettings, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared {
            idle_max: settings.pool_idle,
            age_max: settings.pool_age,
            per_host_max: settings.pool_idle_per_host_max,
            all_max: settings.pool_idle_max,
            streams_max: settings.http2_streams_max,
            silence_max: settings.http2_silence_max,
            clock,
            state: Mutex::default(),
            reaper: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What carries a request there now, as far as is known.
    pub(super) fn take(&self, destination: &Destination) -> Option<Carrier> {
        loop {
            let mut carrier = self.shared.take(destination)?;
            if carrier.is_ready() {
                return Some(carrier);
            }
        }
    }

    /// Keeps a connection for later, if it can be used again.
    pub(super) fn put(&self, destination: &Destination, mut connection: Connection) {
        let since = self.shared.clock.monotonic();
        if !connection.is_ready() || since.saturating_sub(connection.born()) >= self.shared.age_max
        {
            return;
        }
        self.shared.push(destination, Idle { connection, since });
    }

    /// A place on a connection that has just been opened; `None` when it has none left, unless the
    /// request shall wait there for its turn.
    pub(super) fn sit(
        &self,
        destination: &Destination,
        connection: &Arc<Http2>,
        crowd: bool,
    ) -> Option<Seat> {
        self.shared.sit(destination, connection, crowd).then(|| {
            Seat::new(Arc::clone(&self.shared), destination.clone(), Arc::clone(connection))
        })
    }
}

impl Seat {
    fn new(pool: Arc<Shared>, destination: Destination, connection: Arc<Http2>) -> Self {
        Self { pool, destination, connection, waiting_since: None }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Bytes>) -> Exchange {
        self.waiting_since = Some(self.pool.clock.monotonic());
        let exchange = self.connection.exchange(request).await;
        self.waiting_since = None;
        exchange
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Given up, and nothing came in all that time: later requests would fare no better.
        let silent = |since| self.connection.quiet_since() <= since;
        if self.waiting_since.is_some_and(silent) {
            self.connection.retire();
        }
        self.pool.release(&self.destination, &self.connection);
    }
}

impl Shared {
    fn take(self: &Arc<Self>, destination: &Destination) -> Option<Carrier> {
        let now = self.clock.monotonic();
        let mut state = lock(&self.state);
        let host = state.host(destination)?;
        let over: Vec<Table> =
            host.shared.extract_if(.., |table| self.is_over(table, now)).collect();
        let mut gone = over.iter().filter(|table| table.taken == 0).count();
        let mut expired = Vec::new();
        let table = host.shared.iter_mut().rev().find(|table| self.has_room(table, now));
        let taken = if let Some(table) = table {
            gone += usize::from(table.taken == 0);
            Some(Carrier::Shared(Seat::new(Arc::clone(self), destination.clone(), table.sit())))
        } else {
            loop {
                let Some(idle) = host.idle.pop_back() else { break None };
                gone += 1;
                if now < self.expiry(idle.since, idle.connection.born()) {
                    break Some(Carrier::Own(idle.connection));
                }
                expired.push(idle);
            }
        };
        state.count -= gone;
        drop(state);
        // Closing is a system call: not under the lock.
        drop((over, expired));
        taken
    }

    fn sit(&self, destination: &Destination, connection: &Arc<Http2>, crowd: bool) -> bool {
        let mut state = lock(&self.state);
        let host = state.host_or_new(destination);
        let mut tables = host.shared.iter_mut();
        match tables.find(|table| Arc::ptr_eq(&table.connection, connection)) {
            Some(table) if !crowd && !self.has_seats(table) => return false,
            Some(table) => {
                let was_idle = table.taken == 0;
                table.sit();
                state.count -= usize::from(was_idle);
            }
            None => host.shared.push(Table {
                connection: Arc::clone(connection),
                taken: 1,
                since: Duration::ZERO,
            }),
        }
        true
    }

    fn release(self: &Arc<Self>, destination: &Destination, connection: &Arc<Http2>) {
        let now = self.clock.monotonic();
        let mut state = lock(&self.state);
        let (count, all_max) = (state.count, self.all_max);
        let Some(host) = state.host(destination) else { return };
        let mut tables = host.shared.iter_mut();
        let at = tables.position(|table| Arc::ptr_eq(&table.connection, connection));
        let Some(at) = at else { return };
        let table = &mut host.shared[at];
        table.taken -= 1;
        if table.taken > 0 {
            return;
        }
        table.since = now;
        if count >= all_max || self.is_over(table, now) {
            let over = host.shared.remove(at);
            drop(state);
            drop(over);
        } else {
            state.count += 1;
            self.start_reaper(state);
        }
    }

    /// Adds one that idles.
    fn push(self: &Arc<Self>, destination: &Destination, idle: Idle) {
        let mut state = lock(&self.state);
        let (count, all_max) = (state.count, self.all_max);
        let host = state.host_or_new(destination);
        let replaced = if host.idle.len() >= self.per_host_max || count >= all_max {
            let Some(oldest) = host.idle.pop_front() else { return };
            Some(oldest)
        } else {
            None
        };
        host.idle.push_back(idle);
        state.count += usize::from(replaced.is_none());
        self.start_reaper(state);
        // Closing is a system call: not under the lock.
        drop(replaced);
    }

    /// Has somebody look after what idles, from now on.
    fn start_reaper(self: &Arc<Self>, mut state: std::sync::MutexGuard<'_, State>) {
        if state.reaping {
            return;
        }
        // A runtime that ends drops requests too, and has no use for a reaper.
        let Ok(runtime) = Handle::try_current() else { return };
        state.reaping = true;
        drop(state);
        let mut reaper = lock(&self.reaper);
        while reaper.try_join_next().is_some() {}
        reaper.spawn_on(reap(Arc::downgrade(self)), &runtime);
    }

    fn expiry(&self, since: Duration, born: Duration) -> Duration {
        (since + self.idle_max).min(born + self.age_max)
    }

    /// Whether it takes no requests any more.
    fn is_over(&self, table: &Table, now: Duration) -> bool {
        let born = table.connection.born();
        let expiry = match table.taken {
            0 => self.expiry(table.since, born),
            _ => born + self.age_max,
        };
        expiry <= now || table.connection.is_over()
    }

    fn has_seats(&self, table: &Table) -> bool {
        table.taken < self.streams_max.min(table.connection.streams_max())
    }

    fn has_room(&self, table: &Table, now: Duration) -> bool {
        let silent = || now.saturating_sub(table.connection.quiet_since()) >= self.silence_max;
        self.has_seats(table) && (table.taken == 0 || !silent())
    }

    /// Drops what has expired; gives the time of the next expiry, or notes that the reaper ends.
    fn drop_expired(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let (mut expired, mut over) = (Vec::new(), Vec::new());
        let mut next: Option<Duration> = None;
        let mut wait_for = |expiry: Duration| {
            next = Some(next.map_or(expiry, |next| next.min(expiry)));
        };
        let mut state = lock(&self.state);
        let State { plain, secure, .. } = &mut *state;
        for hosts in std::iter::once(plain).chain(secure.values_mut()) {
            hosts.retain(|_, host| {
                while let Some(oldest) = host.idle.pop_front() {
                    let expiry = self.expiry(oldest.since, oldest.connection.born());
                    if now < expiry {
                        wait_for(expiry);
                        host.idle.push_front(oldest);
                        break;
                    }
                    expired.push(oldest);
                }
                over.extend(host.shared.extract_if(.., |table| self.is_over(table, now)));
                for table in host.shared.iter().filter(|table| table.taken == 0) {
                    wait_for(self.expiry(table.since, table.connection.born()));
                }
                !host.idle.is_empty() || !host.shared.is_empty()
            });
        }
        secure.retain(|_, hosts| !hosts.is_empty());
        let idled = over.iter().filter(|table| table.taken == 0).count();
        state.count -= expired.len() + idled;
        state.reaping = next.is_some();
        drop(state);
        next.map(|next| next.saturating_sub(now))
    }
}

impl Table {
    fn sit(&mut self) -> Arc<Http2> {
        if self.taken == 0 {
            self.connection.wake();
        }
        self.taken += 1;
        Arc::clone(&self.connection)
    }
}

impl State {
    fn host(&mut self, destination: &Destination) -> Option<&mut Host> {
        let hosts = match destination.url.scheme() {
            Scheme::Http => &mut self.plain,
            Scheme::Https => self.secure.get_mut(&destination.trust)?,
        };
        hosts.get_mut(destination.url.authority())
    }

    fn host_or_new(&mut self, destination: &Destination) -> &mut Host {
        let hosts = match destination.url.scheme() {
            Scheme::Http => &mut self.plain,
            Scheme::Https => self.secure.entry(destination.trust).or_default(),
        };
        let authority = destination.url.authority();
        if !hosts.contains_key(authority) {
            hosts.insert(authority.into(), Host::default());
        }
        hosts.entry(authority.into()).or_default()
    }
}

/// Sleeps from expiry to expiry until nothing idles.
async fn reap(shared: Weak<Shared>) {
    while let Some(wait) = shared.upgrade().and_then(|shared| shared.drop_expired()) {
        tokio::time::sleep(wait).await;
    }
}
