//! What the writer holds in memory beside the database: a mirror of what is committed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use everhook_domain::delivery::Token;
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::EndpointId;
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::accounts::{AccountChanges, Accounts};
use super::catalog::Catalog;
use super::claims;
use super::health::{self, Healths};
use super::keys::{KeyEntry, Keys};
use super::meta::{LAST_CREATED_AT, LAST_SEQUENCE, meta, set_meta};
use super::row::unsigned;
use crate::handoff::Handoff;
use crate::share::Share;

/// Bits of a token below the epoch.
const EPOCH_SHIFT: u32 = 40;

/// The mirror.
pub(super) struct Memory {
    pub(super) keys: Keys,
    pub(super) accounts: Accounts,
    catalog: Arc<RwLock<Arc<Catalog>>>,
    pub(super) counters: Counters,
    /// Delivery → endpoint of those leased at birth and not settled yet.
    pub(super) outstanding: BTreeMap<i64, i64>,
    pub(super) floor: Floor,
    /// Of endpoints that have failed since their last success.
    pub(super) health: Healths,
}

/// Numbers that rise with every transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub(super) next_sequence: i64,
    pub(super) last_created_at: Timestamp,
    pub(super) next_token: u64,
    /// Claims that this process has taken.
    pub(super) claims: u64,
}

/// Where the search for leases of a dead process begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    pub(super) written: i64,
    /// Before the leases of the process before have lapsed, the floor must not rise.
    pub(super) may_rise: bool,
}

/// What a transaction changes in memory, and whom it tells, once it has committed.
pub(super) struct After {
    pub(super) counters: Counters,
    pub(super) floor: Floor,
    pub(super) keys: HashMap<KeyHash, KeyEntry>,
    pub(super) forgotten: Vec<(KeyHash, KeyEntry)>,
    pub(super) accounts: AccountChanges,
    pub(super) catalog: Option<Arc<Catalog>>,
    pub(super) leased_at_birth: Vec<(i64, i64)>,
    pub(super) ended: Vec<i64>,
    pub(super) due: Vec<(EndpointId, Share, Timestamp)>,
    pub(super) jobs_pending: bool,
    /// The health that has changed.
    pub(super) health: Healths,
    /// Endpoints disabled automatically, and since when nothing had succeeded there.
    pub(super) disabled: Vec<(EndpointId, Timestamp)>,
}

/// What draws its sequences with events.
const SEQUENCED: [&str; 3] = ["events", "idempotency_records", "claims"];

impl Counters {
    /// Goes on after all that was ever given.
    fn load(connection: &Connection, next_token: u64) -> rusqlite::Result<Self> {
        // What came last may be removed.
        let mut last_sequence = meta(connection, LAST_SEQUENCE)?.unwrap_or(0);
        let mut last_created_at = meta(connection, LAST_CREATED_AT)?.unwrap_or(0);
        for table in SEQUENCED {
            let last = format!("SELECT seq, created_at FROM {table} ORDER BY seq DESC LIMIT 1");
            let last = connection
                .query_row(&last, [], |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?)))
                .optional()?;
            if let Some((sequence, created_at)) = last {
                last_sequence = last_sequence.max(sequence);
                last_created_at = last_created_at.max(created_at.unwrap_or(0));
            }
        }
        let last_created_at = Timestamp::from_millis(last_created_at);
        Ok(Self { next_sequence: last_sequence + 1, last_created_at, next_token, claims: 0 })
    }

    /// Whether the lease is one of an earlier process.
    pub(super) fn is_void(&self, token: Token) -> bool {
        token.0 >> EPOCH_SHIFT < self.next_token >> EPOCH_SHIFT
    }
}

impl After {
    /// No change yet.
    pub(super) fn new(counters: Counters, floor: Floor) -> Self {
        Self {
            counters,
            floor,
            keys: HashMap::new(),
            forgotten: Vec::new(),
            accounts: AccountChanges::default(),
            catalog: None,
            leased_at_birth: Vec::new(),
            ended: Vec::new(),
            due: Vec::new(),
            jobs_pending: false,
            health: Healths::new(),
            disabled: Vec::new(),
        }
    }

    /// Tells the engine what the commit means for it.
    pub(super) fn tell(&self, handoff: &dyn Handoff) {
        if self.catalog.is_some() {
            handoff.directory_changed();
        }
        for (endpoint, share, at) in &self.due {
            handoff.due(*endpoint, *share, *at);
        }
        if self.jobs_pending {
            handoff.jobs_pending();
        }
        for (endpoint, since) in &self.disabled {
            handoff.disabled(*endpoint, *since);
        }
    }
}

impl Memory {
    /// Reads what is committed. Begins a new epoch, in which all older leases are void.
    pub(super) fn load(
        connection: &Connection,
        catalog: Arc<RwLock<Arc<Catalog>>>,
    ) -> rusqlite::Result<Self> {
        let epoch = meta(connection, "epoch")?.unwrap_or(0) + 1;
        set_meta(connection, "epoch", epoch)?;
        let mut accounts = Accounts::default();
        let keys = Keys::load(connection, &mut accounts)?;
        claims::count(connection, &mut accounts)?;
        Ok(Self {
            keys,
            accounts,
            catalog,
            counters: Counters::load(connection, unsigned(epoch) << EPOCH_SHIFT)?,
            outstanding: BTreeMap::new(),
            floor: Floor {
                written: meta(connection, "lease_floor")?.unwrap_or(0),
                may_rise: false,
            },
            health: health::load(connection)?,
        })
    }

    /// Tenants and endpoints as committed.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what a committed transaction changed.
    pub(super) fn take_over(&mut self, after: &mut After) {
        self.counters = after.counters;
        self.floor = after.floor;
        self.keys.extend(std::mem::take(&mut after.keys));
        for (key, entry) in &after.forgotten {
            self.keys.forget(key, *entry);
        }
        self.accounts.take_over(std::mem::take(&mut after.accounts));
        self.outstanding.extend(after.leased_at_birth.drain(..));
        for key in &after.ended {
            self.outstanding.remove(key);
        }
        for (endpoint, health) in after.health.drain() {
            match health == EndpointHealth::default() {
                true => self.health.remove(&endpoint),
                false => self.health.insert(endpoint, health),
            };
        }
        if let Some(catalog) = &after.catalog {
            *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(catalog);
        }
    }
}
