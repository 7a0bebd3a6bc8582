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
use rusqlite::{Connection, Row, params};

use super::accounts::{Accounts, Place};
use super::row::{signed, unsigned};

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyEntry {
    /// The sequence of the event (a receipt has its event's) or of the idempotency record.
    pub(super) target: i64,
    /// Live before this.
    pub(super) expires_at: Timestamp,
}

impl KeyEntry {
    /// Where the record of an idempotency key stands in its account.
    pub(super) const fn place(self) -> Place {
        (self.expires_at, self.target)
    }
}

/// What an idempotency key is counted with, and the bytes of its answer.
pub(super) type Counted = (KeyHash, u64);

/// An entry that was removed from the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removed {
    pub(super) key: KeyHash,
    pub(super) entry: KeyEntry,
    /// What it was counted with.
    pub(super) account: Option<KeyHash>,
}

/// What removing entries returns: [`Removed::read`] reads it.
pub(super) const REMOVED: &str = "RETURNING key, ref, expires_at, account";

impl Removed {
    /// Reads a row of [`REMOVED`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let expires_at = Timestamp::from_millis(row.get(2)?);
        Ok(Self {
            key: KeyHash(row.get(0)?),
            entry: KeyEntry { target: row.get(1)?, expires_at },
            account: row.get::<_, Option<_>>(3)?.map(KeyHash),
        })
    }
}

/// The committed keys.
#[derive(Debug, Default)]
pub(super) struct Keys(HashMap<KeyHash, KeyEntry>);

impl Keys {
    /// Reads the log, and counts in their accounts what is counted.
    pub(super) fn load(connection: &Connection, accounts: &mut Accounts) -> rusqlite::Result<Self> {
        let mut keys = Self::default();
        let mut statement = connection
            .prepare("SELECT key, ref, expires_at, account, bytes FROM key_log ORDER BY seq")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let entry =
                KeyEntry { target: row.get(1)?, expires_at: Timestamp::from_millis(row.get(2)?) };
            if let Some(account) = row.get::<_, Option<_>>(3)? {
                let bytes = row.get::<_, Option<_>>(4)?.map_or(0, unsigned);
                accounts.add(KeyHash(account), entry.place(), bytes);
            }
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

    /// Forgets an entry, unless the key has been used anew since.
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
    (key, entry): (&KeyHash, KeyEntry),
    counted: Option<Counted>,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO key_log (key, ref, expires_at, tenant, account, bytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            key.0,
            entry.target,
            entry.expires_at.as_millis(),
            tenant,
            counted.map(|(account, _)| account.0),
            counted.map(|(_, bytes)| signed(bytes)),
        ])?;
    Ok(connection.last_insert_rowid())
}

/// Removes up to `limit` expired entries and returns them, those first that expired first: windows
/// differ, so that one that is live for long may stand at the head of the log.
pub(super) fn prune(
    connection: &Connection,
    now: Timestamp,
    limit: u32,
) -> rusqlite::Result<Vec<Removed>> {
    connection
        .prepare_cached(&format!(
            "DELETE FROM key_log WHERE seq IN (SELECT seq FROM key_log WHERE expires_at <= ?1 \
             ORDER BY expires_at LIMIT ?2) {REMOVED}"
        ))?
        .query_map(params![now.as_millis(), limit], Removed::read)?
        .collect()
}

/// Removes the entry of a key; the index by expiry leads to it.
pub(super) fn remove(
    connection: &Connection,
    key: &KeyHash,
    entry: KeyEntry,
) -> rusqlite::Result<Vec<Removed>> {
    connection
        .prepare_cached(&format!(
            "DELETE FROM key_log WHERE expires_at = ?1 AND key = ?2 AND ref = ?3 {REMOVED}"
        ))?
        .query_map(params![entry.expires_at.as_millis(), key.0, entry.target], Removed::read)?
        .collect()
}
