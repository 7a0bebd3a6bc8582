//! Connections that wait for their next request, by scheme, host and port.
//!
//! The one used last is taken first, so that the others grow old and go. An idle time shorter than
//! common servers' makes it rare that a connection closes under a request; one that has been closed
//! is noticed when it is taken up. Expired ones are dropped when they are touched, and by a task
//! that runs only while something idles.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use everhook_domain::endpoint_url::{EndpointUrl, Scheme};
use everhook_domain::time::Clock;
use tokio::task::JoinSet;

use super::connection::Connection;
use crate::lock::lock;
use crate::settings::EngineSettings;

/// Idle connections. Dropping it closes all of them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    reaper: Mutex<JoinSet<()>>,
}

struct Shared {
    idle_max: Duration,
    age_max: Duration,
    per_host_max: usize,
    all_max: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By host and port, as in a URL; the default port left out.
    plain: Hosts,
    secure: Hosts,
    count: usize,
    reaping: bool,
}

/// Least recently used first.
type Hosts = HashMap<Box<str>, VecDeque<Idle>>;

struct Idle {
    connection: Connection,
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
            clock,
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared), reaper: Mutex::default() }
    }

    /// A connection to where this URL leads, still open as far as is known.
    pub(super) fn take(&self, url: &EndpointUrl) -> Option<Connection> {
        loop {
            let mut idle = self.shared.pop(url)?;
            if self.shared.is_fresh(&idle) && idle.connection.is_ready() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection for later, if it can be used again.
    pub(super) fn put(&self, url: &EndpointUrl, mut connection: Connection) {
        let since = self.shared.clock.monotonic();
        if !connection.is_ready() || since.saturating_sub(connection.born()) >= self.shared.age_max
        {
            return;
        }
        if self.shared.push(url, Idle { connection, since }) {
            let mut reaper = lock(&self.reaper);
            while reaper.try_join_next().is_some() {}
            reaper.spawn(reap(Arc::downgrade(&self.shared)));
        }
    }
}

impl Shared {
    fn is_fresh(&self, idle: &Idle) -> bool {
        let now = self.clock.monotonic();
        now < idle.since + self.idle_max && now < idle.connection.born() + self.age_max
    }

    fn expiry(&self, idle: &Idle) -> Duration {
        (idle.since + self.idle_max).min(idle.connection.born() + self.age_max)
    }

    fn pop(&self, url: &EndpointUrl) -> Option<Idle> {
        let mut state = lock(&self.state);
        let idle = state.hosts(url.scheme()).get_mut(url.authority())?.pop_back()?;
        state.count -= 1;
        Some(idle)
    }

    /// Adds one; true when the reaper must be started.
    fn push(&self, url: &EndpointUrl, idle: Idle) -> bool {
        let mut state = lock(&self.state);
        let (count, all_max) = (state.count, self.all_max);
        let hosts = state.hosts(url.scheme());
        let host = match hosts.get_mut(url.authority()) {
            Some(host) => host,
            None => hosts.entry(url.authority().into()).or_default(),
        };
        let replaced = if host.len() >= self.per_host_max || count >= all_max {
            let Some(oldest) = host.pop_front() else { return false };
            Some(oldest)
        } else {
            None
        };
        host.push_back(idle);
        state.count += usize::from(replaced.is_none());
        let start = !std::mem::replace(&mut state.reaping, true);
        drop(state);
        // Closing is a system call: not under the lock.
        drop(replaced);
        start
    }

    /// Drops what has expired; gives the time of the next expiry, or notes that the reaper ends.
    fn drop_expired(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut expired = Vec::new();
        let mut next: Option<Duration> = None;
        let mut state = lock(&self.state);
        let State { plain, secure, .. } = &mut *state;
        for hosts in [plain, secure] {
            hosts.retain(|_, host| {
                while let Some(oldest) = host.pop_front() {
                    let expiry = self.expiry(&oldest);
                    if now < expiry {
                        next = Some(next.map_or(expiry, |next| next.min(expiry)));
                        host.push_front(oldest);
                        break;
                    }
                    expired.push(oldest);
                }
                !host.is_empty()
            });
        }
        state.count -= expired.len();
        state.reaping = next.is_some();
        drop(state);
        next.map(|next| next.saturating_sub(now))
    }
}

impl State {
    fn hosts(&mut self, scheme: Scheme) -> &mut Hosts {
        match scheme {
            Scheme::Http => &mut self.plain,
            Scheme::Https => &mut self.secure,
        }
    }
}

/// Sleeps from expiry to expiry until nothing idles.
async fn reap(shared: Weak<Shared>) {
    while let Some(wait) = shared.upgrade().and_then(|shared| shared.drop_expired()) {
        tokio::time::sleep(wait).await;
    }
}
