//! Objects in Redis or Valkey, each with its version beside it.
//!
//! A script sets both at once, and only over the state that the verdict was about. What is written
//! elsewhere cannot be one step with a version in Redis: for that the gate of its database is the
//! right one. A server that evicts keys lets what is old in again.

use std::time::Duration;

use everhook_domain::time::millis;
pub use redis;
use redis::aio::ConnectionLike;
use redis::{ErrorKind, RedisError, RedisResult, Script};

use super::{Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, Version, decide};

/// What all keys begin with; what follows in braces is the hash tag.
const PREFIX: &str = "everhook-version:";
/// How the content of a deleted object is written.
const DELETED: &str = "deleted";

/// The version gate of objects in Redis.
#[derive(Clone, Debug)]
pub struct VersionGate {
    tombstones: Duration,
    swap: Script,
}

impl Default for VersionGate {
    fn default() -> Self {
        Self::new(TOMBSTONES_KEPT)
    }
}

/// What an object is in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The state that was applied last.
    pub state: State,
    /// Its value; empty if it is deleted.
    pub value: Vec<u8>,
}

impl VersionGate {
    /// A gate that holds the states of deleted objects for this long, at least one millisecond.
    pub fn new(tombstones: Duration) -> Self {
        Self { tombstones, swap: Script::new(include_str!("swap.lua")) }
    }

    /// What this state is to the one that is held; if it is fresh, it is held from now on with
    /// this value. The value of a deleted object is removed, whatever is given.
    ///
    /// # Errors
    /// The server is away, or its answer was lost: ask again.
    pub async fn advance(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        object: &ObjectKey,
        state: &State,
        value: &[u8],
    ) -> RedisResult<Verdict> {
        self.step(connection, object, (state, value), None).await
    }

    /// As [`Self::advance`], for the state that was fetched from the publisher because of a
    /// conflict with `held`.
    ///
    /// # Errors
    /// The server is away, or its answer was lost: ask again.
    pub async fn settle(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        object: &ObjectKey,
        held: &State,
        (fetched, value): (&State, &[u8]),
    ) -> RedisResult<Verdict> {
        self.step(connection, object, (fetched, value), Some(held)).await
    }

    /// What is held of an object; `None` also after its deletion has been forgotten.
    ///
    /// # Errors
    /// The server is away.
    pub async fn stored(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        object: &ObjectKey,
    ) -> RedisResult<Option<Stored>> {
        let fields = ["version", "content", "value"];
        let (version, content, value): (Option<String>, Option<String>, Option<Vec<u8>>) =
            redis::cmd("HMGET").arg(key(object)).arg(&fields).query_async(connection).await?;
        let (Some(version), Some(content)) = (version, content) else { return Ok(None) };
        let unreadable = || RedisError::from((ErrorKind::UnexpectedReturnType, "a stored version"));
        let version = version.parse().map(Version).map_err(|_| unreadable())?;
        let content = read(&content).ok_or_else(unreadable)?;
        Ok(Some(Stored { state: State { version, content }, value: value.unwrap_or_default() }))
    }

    async fn step(
        &self,
        connection: &mut (impl ConnectionLike + Send),
        object: &ObjectKey,
        (state, value): (&State, &[u8]),
        settles: Option<&State>,
    ) -> RedisResult<Verdict> {
        loop {
            let held = self.stored(connection, object).await?.map(|stored| stored.state);
            let verdict = decide(held.as_ref(), state, settles);
            if verdict != Verdict::Fresh {
                return Ok(verdict);
            }
            let (version, content) = held.as_ref().map(texts).unwrap_or_default();
            let (new_version, new_content) = texts(state);
            let forgotten = match state.content {
                Content::Of(_) => String::new(),
                Content::Deleted => millis(self.tombstones).max(1).to_string(),
            };
            let mut swap = self.swap.key(key(object));
            swap.arg(version).arg(content).arg(new_version).arg(new_content);
            swap.arg(value).arg(forgotten);
            // Otherwise another one was quicker, and the verdict was about a state that is gone.
            if swap.invoke_async(connection).await? {
                return Ok(verdict);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(object: &ObjectKey) -> String {
    format!("{PREFIX}{{{}}}", hex(&object.0))
}

/// Version and content as they are stored.
fn texts(state: &State) -> (String, String) {
    let content = match &state.content {
        Content::Of(hash) => hex(hash),
        Content::Deleted => DELETED.to_owned(),
    };
    (state.version.0.to_string(), content)
}

fn read(content: &str) -> Option<Content> {
    if content == DELETED {
        return Some(Content::Deleted);
    }
    let byte = |at| u8::from_str_radix(content.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..content.len()).step_by(2).map(byte).collect();
    Some(Content::Of(bytes?.try_into().ok()?))
}
