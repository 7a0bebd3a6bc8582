//! The exact map of all keys in their windows: source event IDs, idempotency keys, receipts.
//!
//! `key_log` is append-only and mirrored here by the writer; a unique index on random keys would
//! cost more than everything else together. A key is live while `expires_at`, fixed when it was
//! first seen, is after now; an expired or missing one is new. Pruning only reclaims space.
//!
//! After a crash the map is rebuilt from the log, which commits with the effects it stands for.

use std::collections::HashMap;

use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, params};

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyEntry {
    /// The sequence of the event (a receipt has its event's) or of the idempotency record.
    pub(super) target: i64,
    /// Live before this.
    pub(super) expires_at: Timestamp,
}

/// The committed keys.
#[derive(Debug, Default)]
pub(super) struct Keys(HashMap<KeyHash, KeyEntry>);

impl Keys {
    /// Reads the log.
    pub(super) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut keys = Self::default();
        let mut statement =
            connection.prepare("SELECT key, ref, expires_at FROM key_log ORDER BY seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let entry =
                KeyEntry { target: row.get(1)?, expires_at: Timestamp::from_millis(row.get(2)?) };
            // A later entry replaces an expired one of the same key.
            keys.0.insert(KeyHash(row.get(0)?), entry);
        }
        Ok(keys)
    }

    /// The entry if it is live.
    pub(super) fn live(&self, key: &KeyHash, now: Timestamp) -> Option<KeyEntry> {
        self.0.get(key).copied().filter(|entry| entry.expires_at > now)
    }

    /// Takes over what a transaction has committed.
    pub(super) fn extend(&mut self, added: HashMap<KeyHash, KeyEntry>) {
        self.0.extend(added);
    }

    /// Forgets a pruned entry, unless the key has been used anew since. Only both parts tell: the
    /// sequence of a record may be given again once all records are pruned.
    pub(super) fn forget(&mut self, key: &KeyHash, pruned: KeyEntry) {
        if self.0.get(key) == Some(&pruned) {
            self.0.remove(key);
        }
    }
}

/// Appends a tenant's key to the log; returns its place there.
pub(super) fn append(
    connection: &Connection,
    tenant: i64,
    key: &KeyHash,
    entry: KeyEntry,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO key_log (key, ref, expires_at, tenant) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key.0, entry.target, entry.expires_at.as_millis(), tenant])?;
    Ok(connection.last_insert_rowid())
}

/// Removes up to `limit` expired entries and returns them, those first that expired first: windows
/// differ, so that one that is live for long may stand at the head of the log.
pub(super) fn prune(
    connection: &Connection,
    now: Timestamp,
    limit: u32,
) -> rusqlite::Result<Vec<(KeyHash, KeyEntry)>> {
    connection
        .prepare_cached(
            "DELETE FROM key_log WHERE seq IN (SELECT seq FROM key_log WHERE expires_at <= ?1 \
             ORDER BY expires_at LIMIT ?2) RETURNING key, ref, expires_at",
        )?
        .query_map(params![now.as_millis(), limit], |row| {
            let expires_at = Timestamp::from_millis(row.get(2)?);
            Ok((KeyHash(row.get(0)?), KeyEntry { target: row.get(1)?, expires_at }))
        })?
        .collect()
}
