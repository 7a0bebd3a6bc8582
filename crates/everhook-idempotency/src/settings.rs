//! How a layer behaves, and what may be chosen.

use std::time::Duration;

use everhook_domain::idempotency::claim::{Lapse, Policy};
use http::Method;

use crate::store::{Quota, Terms};

/// How a layer behaves. Processes that share a store and serve the same routes have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The methods whose requests may carry a key; `POST` alone unless said otherwise. `GET`,
    /// `HEAD` and `OPTIONS` cannot be among them: they change nothing that could happen twice.
    pub methods: Vec<Method>,
    /// Whether a request of such a method must carry a key (400 without one).
    pub key_required: bool,
    /// Which answers are remembered.
    pub policy: Policy,
    /// What it means that a handler was never heard of again.
    pub lapse: Lapse,
    /// How long a key belongs to a handler that is not heard of; renewed at every third of it.
    pub lease: Duration,
    /// How long a handler may run before its lease is renewed no longer.
    pub handler_max: Duration,
    /// How long an answer is remembered, from its completion.
    pub ttl: Duration,
    /// The longest body of a request with a key, which is read as a whole (413 above it).
    pub request_bytes_max: usize,
    /// The longest body of an answer that is remembered. A longer one is sent once, and whoever
    /// asks again is told so.
    pub answer_bytes_max: usize,
    /// The keys that an account may have at a time (429 above it).
    pub account_keys_max: u64,
    /// The bytes of answers that an account may have remembered before it gets no new key (429).
    pub account_bytes_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            methods: vec![Method::POST],
            key_required: false,
            policy: Policy::Final,
            lapse: Lapse::Unknown,
            lease: Duration::from_secs(30),
            handler_max: Duration::from_secs(15 * 60),
            ttl: Duration::from_secs(24 * 60 * 60),
            request_bytes_max: 1 << 20,
            answer_bytes_max: 256 << 10,
            account_keys_max: 100_000,
            account_bytes_max: 256 << 20,
        }
    }
}

/// The shortest and the longest lease.
const LEASE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60 * 60));
/// The shortest and the longest time for which answers are remembered.
const TTL: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_secs(366 * 24 * 60 * 60));

/// Everything that is wrong with settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InvalidSettings(Vec<&'static str>);

impl Settings {
    /// Refuses what cannot be right, everything at once.
    pub(crate) fn check(&self) -> Result<(), InvalidSettings> {
        let safe = [Method::GET, Method::HEAD, Method::OPTIONS];
        let rules = [
            (!self.methods.is_empty(), "methods: name at least one"),
            (
                !self.methods.iter().any(|method| safe.contains(method)),
                "methods: GET, HEAD and OPTIONS have no effect that could happen twice",
            ),
            (
                (LEASE.0..=LEASE.1).contains(&self.lease),
                "lease: between 50 milliseconds and one hour",
            ),
            (self.handler_max >= self.lease, "handler_max: at least the lease"),
            ((TTL.0..=TTL.1).contains(&self.ttl), "ttl: between one millisecond and 366 days"),
            (self.account_keys_max > 0, "account_keys_max: at least 1"),
            (self.account_bytes_max > 0, "account_bytes_max: at least 1"),
        ];
        let broken: Vec<&'static str> =
            rules.into_iter().filter(|(holds, _)| !holds).map(|(_, rule)| rule).collect();
        if broken.is_empty() { Ok(()) } else { Err(InvalidSettings(broken)) }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms { lease: self.lease, ttl: self.ttl }
    }

    pub(crate) fn quota(&self) -> Quota {
        Quota { keys: self.account_keys_max, bytes: self.account_bytes_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut Settings), expected: &str) {
        let mut settings = Settings::default();
        change(&mut settings);
        let said = settings.check().map_or_else(|error| error.to_string(), |()| String::new());
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{said}");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        check(|_| {}, "");
        check(|settings| settings.lease = ms(50), "");
        check(|settings| settings.lease = ms(49), "lease");
        check(|settings| settings.lease = s(3_601), "lease");
        check(|settings| settings.handler_max = s(29), "handler_max");
        check(|settings| settings.ttl = ms(1), "");
        check(|settings| settings.ttl = Duration::from_micros(999), "ttl");
        check(|settings| settings.ttl = s(u64::MAX), "ttl");
        check(|settings| settings.methods.clear(), "methods");
        check(|settings| settings.methods.push(Method::GET), "methods: GET");
        check(|settings| settings.account_keys_max = 0, "account_keys_max");
        check(|settings| settings.account_bytes_max = 0, "account_bytes_max");
    }

    #[test]
    fn everything_is_said_at_once() {
        let settings =
            Settings { ttl: Duration::ZERO, lease: Duration::ZERO, ..Settings::default() };
        assert_eq!(settings.check().map_err(|error| error.0.len()), Err(2));
    }
}
