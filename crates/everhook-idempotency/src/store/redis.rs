//! Keys in Redis or Valkey: for any number of processes, on the server's clock.
//!
//! Each verb is one Lua script, which the server runs alone. A server that forgets keys runs them
//! twice, so [`RedisStore::connect`] refuses one that evicts, and what is to outlive the server's
//! own crash needs its append-only file with `appendfsync always`. All keys have one hash tag, so
//! on a cluster they live on one node.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::claim::{ClaimRecord, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::time::{Timestamp, millis};
pub use redis;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Script};
use tokio::sync::Mutex;

use super::row::{self, Row};
use super::{Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms};

/// How long connecting and each verb may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// What all keys begin with; the braces are the hash tag.
const PREFIX: &str = "{everhook-idempotency}:";

/// Keys in Redis.
#[derive(Clone)]
pub struct RedisStore {
    client: Client,
    connection: Arc<Mutex<Option<MultiplexedConnection>>>,
    scripts: Arc<Scripts>,
}

struct Scripts {
    look: Script,
    take: Script,
    renew: Script,
    finish: Script,
    release: Script,
    lapsed: Script,
    clean: Script,
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
            look: Script::new(include_str!("redis/look.lua")),
            take: Script::new(include_str!("redis/take.lua")),
            renew: Script::new(include_str!("redis/renew.lua")),
            finish: Script::new(include_str!("redis/finish.lua")),
            release: Script::new(include_str!("redis/release.lua")),
            lapsed: Script::new(include_str!("redis/lapsed.lua")),
            clean: Script::new(include_str!("redis/clean.lua")),
        };
        let connection = Arc::default();
        let store = Self { client, connection, scripts: Arc::new(scripts) };
        let memory: String =
            redis::cmd("INFO").arg("memory").query_async(&mut store.connection().await?).await?;
        match evicts(&memory) {
            false => Ok(store),
            true => Err(StoreError(
                "this server has a maxmemory and may evict keys, so that they would run twice; \
                 set maxmemory-policy to noeviction"
                    .to_owned(),
            )),
        }
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

    async fn run<T: FromRedisValue>(
        &self,
        invocation: &redis::ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let mut connection = self.connection().await?;
        let result = invocation.invoke_async(&mut connection).await;
        if result.as_ref().is_err_and(redis::RedisError::is_unrecoverable_error) {
            // The next verb connects anew. This one is not repeated: it may have been done.
            *self.connection.lock().await = None;
        }
        Ok(result?)
    }

    /// The account that a key is counted with; `None` when there is no such key.
    async fn account(&self, key: KeyHash) -> Result<Option<String>, StoreError> {
        let mut connection = self.connection().await?;
        let mut command = redis::cmd("HGET");
        Ok(command.arg(record(key)).arg("account").query_async(&mut connection).await?)
    }
}

/// Whether a server with this `INFO memory` may forget keys that have no end.
fn evicts(info: &str) -> bool {
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let limited = field("maxmemory").is_some_and(|bytes| bytes != "0");
    let keeps = |policy: &str| policy == "noeviction" || policy.starts_with("volatile-");
    limited && !field("maxmemory_policy").is_some_and(keeps)
}

fn hex(key: KeyHash) -> String {
    key.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of a text that [`hex`] made; those before what is none.
fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len()).step_by(2).map(|at| text.get(at..at + 2));
    pairs.map_while(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

fn record(key: KeyHash) -> String {
    format!("{PREFIX}key:{}", hex(key))
}

fn live(account: &str) -> String {
    format!("{PREFIX}live:{account}")
}

fn bytes(account: &str) -> String {
    format!("{PREFIX}bytes:{account}")
}

fn open() -> String {
    format!("{PREFIX}open")
}

fn ends() -> String {
    format!("{PREFIX}ends")
}

/// A stored number, which Redis holds as text.
fn number(text: Option<String>) -> Result<i64, StoreError> {
    let read = text.and_then(|text| text.parse().ok());
    read.ok_or_else(|| StoreError("a stored number cannot be read".to_owned()))
}

/// What `look.lua` returns.
type Fields = (
    Option<String>,
    Option<Vec<u8>>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Option<String>,
    i64,
);

#[async_trait]
impl Store for RedisStore {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        let fields: Fields = self.run(&self.scripts.look.key(record(key))).await?;
        let (
            rule,
            fingerprint,
            token,
            lease_until,
            expires_at,
            checkpoint,
            remembered,
            account,
            now,
        ) = fields;
        let now = Timestamp::from_millis(now);
        let Some(account) = account else { return Ok(Look { record: None, now }) };
        let row = Row {
            account: unhex(&account),
            rule: number(rule)?,
            fingerprint: fingerprint.unwrap_or_default(),
            token: number(token)?,
            lease_until: number(lease_until)?,
            expires_at: number(expires_at)?,
            checkpoint,
            remembered,
        };
        Ok(Look { record: Some(row.record()?), now })
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        let account = hex(taking.account);
        let mark =
            seen.map(|seen| (seen.token.0.to_string(), seen.expires_at.as_millis().to_string()));
        let (token, end) = mark.unwrap_or_default();
        let taken: i64 = self
            .run(
                self.scripts
                    .take
                    .key(record(taking.key))
                    .key(live(&account))
                    .key(bytes(&account))
                    .key(open())
                    .key(ends())
                    .arg(hex(taking.key))
                    .arg(&account)
                    .arg(token)
                    .arg(end)
                    .arg(taking.token.0)
                    .arg(taking.rule)
                    .arg(&taking.fingerprint.0[..])
                    .arg(taking.checkpoint.as_deref().unwrap_or_default())
                    .arg(millis(terms.lease))
                    .arg(millis(terms.ttl))
                    .arg(quota.keys)
                    .arg(quota.bytes)
                    .arg(PREFIX)
                    .arg(u8::from(taking.checkpoint.is_some())),
            )
            .await?;
        match taken {
            0 => Ok(Taken::Changed),
            1 => Ok(Taken::Yes),
            _ => Ok(Taken::OverQuota),
        }
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let Some(account) = self.account(key).await? else { return Ok(false) };
        self.run(
            self.scripts
                .renew
                .key(record(key))
                .key(live(&account))
                .key(open())
                .key(ends())
                .arg(hex(key))
                .arg(&account)
                .arg(token.0)
                .arg(millis(terms.lease))
                .arg(millis(terms.ttl))
                .arg(checkpoint.unwrap_or_default())
                .arg(u8::from(checkpoint.is_some())),
        )
        .await
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        let Some(account) = self.account(key).await? else { return Ok(Finished::Lost) };
        let finished: i64 = self
            .run(
                self.scripts
                    .finish
                    .key(record(key))
                    .key(live(&account))
                    .key(bytes(&account))
                    .key(open())
                    .key(ends())
                    .arg(hex(key))
                    .arg(&account)
                    .arg(token.0)
                    .arg(remembered)
                    .arg(millis(ttl)),
            )
            .await?;
        match finished {
            0 => Ok(Finished::Lost),
            1 => Ok(Finished::Now),
            _ => Ok(Finished::Before),
        }
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        let Some(account) = self.account(key).await? else { return Ok(false) };
        self.run(
            self.scripts
                .release
                .key(record(key))
                .key(live(&account))
                .key(bytes(&account))
                .key(open())
                .key(ends())
                .arg(hex(key))
                .arg(&account)
                .arg(token.0),
        )
        .await
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        let found: Vec<(String, i64)> =
            self.run(self.scripts.lapsed.key(open()).arg(limit).arg(PREFIX)).await?;
        let lapsed = found.into_iter().map(|(key, since)| {
            let since = Timestamp::from_millis(since);
            Ok(Lapsed { key: row::key(unhex(&key))?, since })
        });
        lapsed.collect()
    }

    async fn clean(&self, limit: u32) -> Result<u32, StoreError> {
        self.run(self.scripts.clean.key(ends()).key(open()).arg(limit).arg(PREFIX)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_may_forget_is_told() {
        let info = |memory: &str, policy: &str| {
            format!("# Memory\r\nmaxmemory:{memory}\r\nmaxmemory_policy:{policy}\r\n")
        };
        for (memory, policy, expected) in [
            ("0", "allkeys-lru", false),
            ("100", "noeviction", false),
            // Our keys have no end of Redis's own, so these never meet them.
            ("100", "volatile-lru", false),
            ("100", "allkeys-lru", true),
            ("100", "allkeys-random", true),
        ] {
            assert_eq!(evicts(&info(memory, policy)), expected, "{memory} {policy}");
        }
        assert!(evicts("maxmemory:100\r\n"));
    }
}
