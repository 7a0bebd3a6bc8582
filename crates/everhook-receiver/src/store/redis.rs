//! Receipts in Redis or Valkey: for any number of processes, on the server's clock.
//!
//! An event has two keys: a record, which is set if it is not there (`SET … NX PX`) and ends by
//! itself when its time is over, and beside it a lease. Both have the event as their hash tag, so
//! on a cluster they live on one node. Each verb is one Lua script over these two, which the server
//! runs alone.
//!
//! The claim is not in your database's transaction, so between the handler's commit and the mark
//! there is an instant at which a crash makes the event run again. Where that must not be, use
//! [`postgres::claim_in`](crate::store::postgres::claim_in).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Timestamp, millis};
pub use redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script};
use tokio::sync::Mutex;

use super::{Claimed, Receipt, Store, StoreError, Terms, Token};
use crate::verify::EventKey;

/// How long connecting and each verb may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What keys begin with if nothing else is set.
const PREFIX: &str = "webhook";

/// Receipts in Redis.
#[derive(Clone)]
pub struct RedisStore {
    client: Client,
    prefix: Arc<str>,
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    scripts: Arc<Scripts>,
}

struct Scripts {
    claim: Script,
    renew: Script,
    finish: Script,
    release: Script,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").finish_non_exhaustive()
    }
}

impl From<redis::RedisError> for StoreError {
    fn from(error: redis::RedisError) -> Self {
        Self::new(error)
    }
}

impl RedisStore {
    /// A store on the server of this client.
    ///
    /// # Errors
    /// The server is away, or set to forget keys when its memory is full.
    pub async fn connect(client: Client) -> Result<Self, StoreError> {
        let scripts = Scripts {
            claim: Script::new(include_str!("redis/claim.lua")),
            renew: Script::new(include_str!("redis/renew.lua")),
            finish: Script::new(include_str!("redis/finish.lua")),
            release: Script::new(include_str!("redis/release.lua")),
        };
        let (prefix, connection) = (Arc::from(PREFIX), Arc::default());
        let store = Self { client, prefix, connection, scripts: Arc::new(scripts) };
        let memory: String =
            redis::cmd("INFO").arg("memory").query_async(&mut store.connection().await?).await?;
        match evicts(&memory) {
            false => Ok(store),
            true => Err(StoreError(
                "this server has a maxmemory and may evict keys before their time, so that events \
                 would run twice; set maxmemory-policy to noeviction"
                    .to_owned(),
            )),
        }
    }

    /// The same with keys that begin with `prefix` and `:` in place of `webhook:`.
    #[must_use]
    pub fn with_prefix(self, prefix: &str) -> Self {
        Self { prefix: Arc::from(prefix), ..self }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let mut held = self.connection.lock().await;
        if let Some(connection) = &*held {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIMEOUT))
            .set_response_timeout(Some(TIMEOUT));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        *held = Some(made.clone());
        Ok(made)
    }

    async fn run(
        &self,
        script: &Script,
        key: &EventKey,
        token: Token,
        terms: &[Duration],
    ) -> Result<i64, StoreError> {
        let [record, lease] = keys(&self.prefix, key);
        let mut invocation = script.key(record);
        invocation.key(lease).arg(token.0);
        for term in terms {
            // The server takes no time that is over at once.
            invocation.arg(millis(*term).max(1));
        }
        let mut connection = self.connection().await?;
        let result = invocation.invoke_async(&mut connection).await;
        if result.as_ref().is_err_and(redis::RedisError::is_unrecoverable_error) {
            // The next verb connects anew. This one is not repeated: it may have been done.
            *self.connection.lock().await = None;
        }
        Ok(result?)
    }
}

/// The names of an event's record and lease. The braces hold what decides about the node; a key
/// begins with its source, so that there is something between them.
fn keys(prefix: &str, key: &EventKey) -> [String; 2] {
    [format!("{prefix}:{{{key}}}"), format!("{prefix}:{{{key}}}:lease")]
}

/// Whether a server with this `INFO memory` may forget keys before their time.
fn evicts(info: &str) -> bool {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let limited = field("maxmemory").is_some_and(|bytes| bytes != "0");
    limited && field("maxmemory_policy") != Some("noeviction")
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError> {
        let times = [terms.lease, terms.keep];
        Ok(match self.run(&self.scripts.claim, key, token, &times).await? {
            0 => Claimed::InProgress,
            1 => Claimed::Yes,
            _ => Claimed::Processed,
        })
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        Ok(self.run(&self.scripts.renew, key, token, &[lease]).await? == 1)
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        Ok(self.run(&self.scripts.finish, key, token, &[]).await? == 1)
    }

    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        Ok(self.run(&self.scripts.release, key, token, &[]).await? == 1)
    }

    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError> {
        let [record, _] = keys(&self.prefix, key);
        let mut connection = self.connection().await?;
        let found: Option<String> =
            redis::cmd("GET").arg(record).query_async(&mut connection).await?;
        found.map(|record| read(&record)).transpose()
    }

    /// The server forgets by itself: always 0.
    async fn prune(&self, _keep: Duration, _limit: u32) -> Result<u64, StoreError> {
        Ok(0)
    }
}

/// Reads a record, as `claim.lua` describes it.
fn read(record: &str) -> Result<Receipt, StoreError> {
    let mut words = record.split(' ');
    let mut time = |nth| {
        let word = words.nth(nth);
        word.map(|word| word.parse().map(Timestamp::from_millis)).transpose()
    };
    match (time(0), time(1)) {
        (Ok(Some(received_at)), Ok(processed_at)) => Ok(Receipt { received_at, processed_at }),
        _ => Err(StoreError("a stored receipt cannot be read".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of a key decides about its node, by the specification of Redis Cluster.
    fn tag(key: &str) -> &str {
        let inner = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        inner.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key)
    }

    #[test]
    fn both_keys_of_an_event_are_on_one_node_of_a_cluster() {
        for id in ["evt_1", "", "}", "{}", "}{x", "a}b{c"] {
            let [record, lease] = keys(PREFIX, &EventKey::new("stripe", id));
            assert_eq!(tag(&record), tag(&lease), "{id}");
            assert!(tag(&record).starts_with("stripe:"), "{id}");
        }
        assert_eq!(keys(PREFIX, &EventKey::new("stripe", "evt_1"))[0], "webhook:{stripe:evt_1}");
    }

    #[test]
    fn a_server_that_may_forget_is_told() {
        let info = |memory: &str, policy: &str| {
            format!("# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\n")
        };
        for (memory, policy, expected) in [
            ("0", "allkeys-lru", false),
            ("100", "noeviction", false),
            // Our keys have an end, so these meet them.
            ("100", "volatile-lru", true),
            ("100", "allkeys-lru", true),
        ] {
            assert_eq!(evicts(&info(memory, policy)), expected, "{memory} {policy}");
        }
        assert!(evicts("maxmemory:100\r\n"));
    }
}
