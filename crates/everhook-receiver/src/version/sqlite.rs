//! Versions in your own SQLite file, in your own transaction.

use std::time::Duration;

use everhook_domain::time::Timestamp;
pub use rusqlite;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::{Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, Version, decide};

/// The table that [`VersionGate`] needs; executing it again changes nothing.
pub const SCHEMA: &str = include_str!("sqlite.sql");

/// The present in whole milliseconds.
const NOW: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER)";

/// The version gate of what is written to a SQLite file.
#[derive(Clone, Copy, Debug)]
pub struct VersionGate {
    /// For how long the states of deleted objects are held.
    pub tombstones: Duration,
}

impl Default for VersionGate {
    fn default() -> Self {
        Self { tombstones: TOMBSTONES_KEPT }
    }
}

impl VersionGate {
    /// What this state is to the one that is held. If it is fresh, it is held from now on, and
    /// what it stands for is to be written in the same transaction: both are there after its
    /// commit, or neither is.
    ///
    /// Begin the transaction as `IMMEDIATE`: another one that reads first and is overtaken by a
    /// writer cannot write any more.
    ///
    /// # Errors
    /// The file failed: roll back.
    pub fn advance_in(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
    ) -> Result<Verdict, rusqlite::Error> {
        self.step(tx, object, state, None)
    }

    /// As [`Self::advance_in`], for the state that was fetched from the publisher because of a
    /// conflict with `held`.
    ///
    /// # Errors
    /// The file failed: roll back.
    pub fn settle_in(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        held: &State,
        fetched: &State,
    ) -> Result<Verdict, rusqlite::Error> {
        self.step(tx, object, fetched, Some(held))
    }

    /// Forgets at most `limit` states of deleted objects whose time is over; returns how many.
    /// Never needed for a right answer: what is over counts as absent.
    ///
    /// # Errors
    /// The file failed.
    pub fn clean(&self, connection: &Connection, limit: u32) -> Result<usize, rusqlite::Error> {
        connection.execute(
            "DELETE FROM everhook_versions WHERE object IN
                 (SELECT object FROM everhook_versions WHERE expires_at <= ?1
                  ORDER BY expires_at LIMIT ?2)",
            params![now(connection)?.as_millis(), limit],
        )
    }

    fn step(
        &self,
        tx: &Transaction<'_>,
        object: &ObjectKey,
        state: &State,
        settles: Option<&State>,
    ) -> Result<Verdict, rusqlite::Error> {
        let now = now(tx)?;
        let verdict = decide(find(tx, object, now)?.as_ref(), state, settles);
        if verdict == Verdict::Fresh {
            let (content, expires_at) = match state.content {
                Content::Of(hash) => (Some(hash), None),
                Content::Deleted => (None, Some((now + self.tombstones).as_millis())),
            };
            tx.prepare_cached(
                "INSERT INTO everhook_versions (object, version, content, expires_at)
                 VALUES (?1, ?2, ?3, ?4) ON CONFLICT (object) DO UPDATE SET
                     version = excluded.version, content = excluded.content,
                     expires_at = excluded.expires_at",
            )?
            .execute(params![object.0, state.version.0, content, expires_at])?;
        }
        Ok(verdict)
    }
}

fn now(connection: &Connection) -> Result<Timestamp, rusqlite::Error> {
    let millis = connection.prepare_cached(NOW)?.query_row([], |row| row.get(0))?;
    Ok(Timestamp::from_millis(millis))
}

fn find(
    tx: &Transaction<'_>,
    object: &ObjectKey,
    now: Timestamp,
) -> Result<Option<State>, rusqlite::Error> {
    tx.prepare_cached(
        "SELECT version, content FROM everhook_versions
         WHERE object = ?1 AND (expires_at IS NULL OR expires_at > ?2)",
    )?
    .query_row(params![object.0, now.as_millis()], |row| {
        let content: Option<[u8; 32]> = row.get(1)?;
        let content = content.map_or(Content::Deleted, Content::Of);
        Ok(State { version: Version(row.get(0)?), content })
    })
    .optional()
}
