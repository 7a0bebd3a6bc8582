//! A running transaction: what a verb sees, and what it will change in memory.
//!
//! Nothing here touches the writer's own maps: what a transaction changes is collected in
//! [`After`], which the writer takes over once the commit is on the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use everhook_domain::delivery::{self, CancelReason, Effect, Input, Policy, State, Token};
use everhook_domain::endpoint::{DisabledReason, Endpoint};
use everhook_domain::event::Nature;
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::EndpointId;
use everhook_domain::idempotency::claim::Quota;
use everhook_domain::key::KeyHash;
use everhook_domain::system_event::{self, LastAttempt, SystemEvent};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::Connection;

use super::accounts::{Place, Room};
use super::catalog::Catalog;
use super::command::VerbError;
use super::keys::{self, Counted, KeyEntry, Removed};
use super::memory::{After, Memory};
use super::meta::{LAST_CREATED_AT, LAST_ENDPOINT, LAST_SEQUENCE, LAST_SOURCE, set_meta};
use super::row::{DeliveryRow, signed};
use super::{change, health, publish, record};
use crate::error::Refusal;
use crate::sending::StorePolicy;
use crate::share::Share;

/// The lease floor is written when it has risen by this many events; by fewer for the suites that
/// look for faults, so that they get there.
const FLOOR_STEP: i64 = if cfg!(feature = "faults") { 4 } else { 4_096 };
/// After this many new keys, expired ones are looked for.
const KEYS_BETWEEN_PRUNES: i64 = 1_024;
/// After this many claims, those that are over are looked for.
const CLAIMS_BETWEEN_PRUNES: u64 = 1_024;

/// A running transaction.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) policy: &'a StorePolicy,
    memory: &'a Memory,
    catalog: Arc<Catalog>,
    after: After,
    /// System events of this transaction that are not published yet.
    untold: Vec<(TenantId, SystemEvent, Timestamp)>,
    /// Endpoints where an attempt of this transaction failed, and when that was recorded.
    failed: BTreeMap<i64, Timestamp>,
}

impl<'a> Tx<'a> {
    /// A transaction that has begun on this connection.
    pub(super) fn new(
        connection: &'a Connection,
        policy: &'a StorePolicy,
        memory: &'a Memory,
    ) -> Self {
        let after = After::new(memory.counters, memory.floor);
        let (untold, failed) = (Vec::new(), BTreeMap::new());
        Self { connection, policy, memory, catalog: memory.catalog(), after, untold, failed }
    }

    /// What is to change in memory once it has committed.
    pub(super) fn into_after(self) -> After {
        self.after
    }

    /// Tenants and endpoints as this transaction sees them.
    pub(super) fn catalog(&self) -> &Arc<Catalog> {
        self.after.catalog.as_ref().unwrap_or(&self.catalog)
    }

    /// Replaces the catalog once the transaction has committed.
    pub(super) fn set_catalog(&mut self, catalog: Catalog) {
        self.after.catalog = Some(Arc::new(catalog));
    }

    /// The tag in this database's ids.
    pub(super) fn tag(&self) -> u16 {
        self.catalog.tag
    }

    /// The tenant's number.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Result<i64, Refusal> {
        self.catalog().tenant_no(tenant).ok_or(Refusal::NotFound)
    }

    /// An endpoint by its number.
    pub(super) fn endpoint(&self, number: i64) -> Option<&Arc<Endpoint>> {
        self.catalog().endpoint(number)
    }

    /// The next sequence of an event, a claim or an idempotency record, and the instant that goes
    /// with it, which never falls.
    pub(super) fn next_event(&mut self, now: Timestamp) -> (i64, Timestamp) {
        let sequence = self.after.counters.next_sequence;
        self.after.counters.next_sequence += 1;
        self.after.counters.last_created_at = self.after.counters.last_created_at.max(now);
        (sequence, self.after.counters.last_created_at)
    }

    /// A token that no lease of this store has had.
    pub(super) fn next_token(&mut self) -> Token {
        self.after.counters.next_token += 1;
        Token(self.after.counters.next_token)
    }

    /// Whether the lease is one of an earlier process.
    pub(super) fn is_void(&self, token: Token) -> bool {
        self.after.counters.is_void(token)
    }

    /// The live entry of a key, this transaction's own among them.
    pub(super) fn key(&self, key: &KeyHash, now: Timestamp) -> Option<KeyEntry> {
        match self.after.keys.get(key) {
            Some(entry) if entry.expires_at > now => Some(*entry),
            Some(_) | None => self.memory.keys.live(key, now),
        }
    }

    /// Remembers a key; an idempotency key counts in its account.
    pub(super) fn remember(
        &mut self,
        tenant: i64,
        (key, entry): (KeyHash, KeyEntry),
        counted: Option<Counted>,
    ) -> rusqlite::Result<()> {
        let number = keys::append(self.connection, tenant, (&key, entry), counted)?;
        // Now and then, so that what has expired is forgotten.
        if number % KEYS_BETWEEN_PRUNES == 0 {
            self.jobs_pending();
        }
        self.after.keys.insert(key, entry);
        if let Some((account, bytes)) = counted {
            self.count(account, entry.place(), bytes);
        }
        Ok(())
    }

    /// Forgets keys that were removed from the log.
    pub(super) fn forget(&mut self, removed: Vec<Removed>) {
        for Removed { key, entry, account } in removed {
            if let Some(account) = account {
                self.uncount(account, entry.place());
            }
            self.after.forgotten.push((key, entry));
        }
    }

    /// Notes a claim. Now and then, so that those that are over are cleared away.
    pub(super) fn claimed(&mut self) {
        self.after.counters.claims += 1;
        if self.after.counters.claims.is_multiple_of(CLAIMS_BETWEEN_PRUNES) {
            self.jobs_pending();
        }
    }

    /// Counts a record in its account.
    pub(super) fn count(&mut self, account: KeyHash, place: Place, bytes: u64) {
        self.after.accounts.add(account, place, bytes);
    }

    /// Takes a record out of its account.
    pub(super) fn uncount(&mut self, account: KeyHash, place: Place) {
        self.after.accounts.remove(&self.memory.accounts, account, place);
    }

    /// Whether an account may have one more key; what is over takes no room.
    pub(super) fn has_room(&mut self, account: &KeyHash, quota: Quota, now: Timestamp) -> bool {
        let room = self.after.accounts.room(&self.memory.accounts, account, quota, now);
        if room == Room::Expired {
            self.jobs_pending();
        }
        room != Room::Full
    }

    /// Notes deliveries that are no more.
    pub(super) fn erased(&mut self, deliveries: Vec<i64>) {
        self.after.ended.extend(deliveries);
    }

    /// Writes down how far sequences and time have come, so that numbers of what is removed from
    /// now on are not given again after a restart.
    pub(super) fn keep_marks(&self) -> rusqlite::Result<()> {
        let counters = &self.after.counters;
        for (name, value) in [
            (LAST_SEQUENCE, counters.next_sequence - 1),
            (LAST_CREATED_AT, counters.last_created_at.as_millis()),
            (LAST_ENDPOINT, self.catalog().last_endpoint_no()),
            (LAST_SOURCE, self.catalog().last_source_no()),
        ] {
            set_meta(self.connection, name, value)?;
        }
        Ok(())
    }

    /// Notes a delivery leased in the transaction that makes it.
    pub(super) fn leased_at_birth(&mut self, row: &DeliveryRow) {
        self.after.leased_at_birth.push((row.key, row.endpoint));
    }

    /// Deliveries leased at birth to this endpoint, in this transaction or before, and not settled
    /// before it.
    pub(super) fn outstanding_to(&self, endpoint: i64) -> Vec<i64> {
        let before = self.memory.outstanding.iter().map(|(key, to)| (*key, *to));
        let born = self.after.leased_at_birth.iter().copied();
        before.chain(born).filter(|(_, to)| *to == endpoint).map(|(key, _)| key).collect()
    }

    /// Where the search for leases of a dead process begins.
    pub(super) fn lease_floor(&self) -> i64 {
        self.after.floor.written
    }

    /// All leases of the process before have ended.
    pub(super) fn lapsed(&mut self) {
        self.after.floor.may_rise = true;
    }

    /// Says that a job has work.
    pub(super) fn jobs_pending(&mut self) {
        self.after.jobs_pending = true;
    }

    /// Tells the engine, after the commit, when a delivery is due.
    pub(super) fn hint(&mut self, row: &DeliveryRow) {
        if let State::Due(due) = row.state
            && let Some(endpoint) = self.endpoint(row.endpoint)
        {
            let hint = (endpoint.id, Share::of(&row.progress), due.at);
            self.after.due.push(hint);
        }
    }

    /// Lets the state machine decide, and writes what it decided.
    pub(super) fn step(
        &mut self,
        row: &mut DeliveryRow,
        input: Input,
        now: Timestamp,
    ) -> Result<(), VerbError> {
        let policy = Policy {
            schedule: &self.policy.schedule,
            interruptions_max: self.policy.interruptions_max,
            honor_retry_after: self.policy.honor_retry_after,
            endpoint_gone: match self.endpoint(row.endpoint) {
                Some(endpoint) => endpoint.state.gone(),
                // Its tenant is deleted.
                None => Some(CancelReason::EndpointDeleted),
            },
            nature: Nature::of(&row.event_type),
        };
        let is_observed = policy.nature.is_told_of() && policy.endpoint_gone.is_none();
        let (state, progress, effects) =
            delivery::step(row.state, row.progress, input, policy, now)?;
        if row.leased_at_birth && !matches!(state, State::Leased(_)) {
            self.after.ended.push(row.key);
            row.leased_at_birth = false;
        }
        row.state = state;
        row.progress = progress;
        row.update(self.connection)?;
        let mut last_attempt = None;
        for effect in effects {
            match effect {
                Effect::Attempt(attempt) => {
                    record::insert_attempt(self.connection, row.key, &attempt)?;
                    last_attempt = Some(LastAttempt::from(&*attempt));
                    if let Some(attempt) = last_attempt.filter(|_| is_observed) {
                        self.observe(row.endpoint, attempt, now);
                    }
                }
                Effect::Interruption { token } => {
                    record::insert_interruption(self.connection, row.key, token, now)?;
                }
                Effect::Dead(reason) => {
                    if let Some(endpoint) = self.endpoint(row.endpoint) {
                        let event = SystemEvent::DeliveryDead {
                            delivery: row.id(self.tag()),
                            endpoint: endpoint.id,
                            event_type: row.event_type.clone(),
                            reason,
                            progress,
                            last_attempt,
                        };
                        self.tell(endpoint.tenant.clone(), event, now);
                    }
                }
            }
        }
        self.hint(row);
        Ok(())
    }

    /// Publishes a system event at the end of the transaction.
    pub(super) fn tell(&mut self, tenant: TenantId, event: SystemEvent, now: Timestamp) {
        self.untold.push((tenant, event, now));
    }

    /// The endpoint's health as this transaction sees it.
    pub(super) fn health(&self, endpoint: i64) -> EndpointHealth {
        let changed = self.after.health.get(&endpoint);
        changed.or_else(|| self.memory.health.get(&endpoint)).copied().unwrap_or_default()
    }

    /// Forgets the endpoint's failures: it begins anew.
    pub(super) fn reset_health(&mut self, endpoint: i64) {
        if self.health(endpoint) != EndpointHealth::default() {
            self.after.health.insert(endpoint, EndpointHealth::default());
        }
    }

    /// Counts an attempt in the health of its endpoint.
    fn observe(&mut self, number: i64, attempt: LastAttempt, now: Timestamp) {
        let before = self.health(number);
        if attempt.is_success() && before == EndpointHealth::default() {
            return;
        }
        let Some(endpoint) = self.endpoint(number) else { return };
        let (health, event) =
            system_event::observe(endpoint, before, attempt, self.policy.disable_after);
        if let Some(event) = event {
            let tenant = endpoint.tenant.clone();
            self.tell(tenant, event, now);
        }
        self.after.health.insert(number, health);
        if !attempt.is_success() {
            self.failed.insert(number, now);
        }
    }

    /// The end of the transaction: endpoints where nothing has succeeded for too long are disabled,
    /// system events are published, and health that has changed is written, once an endpoint.
    pub(super) fn conclude(&mut self) -> Result<(), VerbError> {
        for (number, now) in std::mem::take(&mut self.failed) {
            let health = self.health(number);
            let must = health.must_be_disabled(self.policy.disable_after, now);
            let endpoint = self.endpoint(number).filter(|endpoint| endpoint.state.gone().is_none());
            if let Some(endpoint) = endpoint.filter(|_| must).cloned() {
                change::disable(self, &endpoint, DisabledReason::Automatic, now)?;
                self.after
                    .disabled
                    .extend(health.failing_since().map(|since| (endpoint.id, since)));
            }
        }
        for (tenant, event, now) in std::mem::take(&mut self.untold) {
            publish::own(self, tenant, event.compose(now), now)?;
        }
        for (endpoint, changed) in &self.after.health {
            health::write(self.connection, *endpoint, changed)?;
        }
        Ok(())
    }

    /// Writes the lease floor when it has risen far enough. It is that of the last commit, so it
    /// is at most too low.
    pub(super) fn raise_floor(&mut self) -> rusqlite::Result<()> {
        if !self.after.floor.may_rise {
            return Ok(());
        }
        let floor = self
            .memory
            .outstanding
            .first_key_value()
            .map_or(self.after.counters.next_sequence, |(key, _)| key >> 16);
        if floor >= self.after.floor.written + FLOOR_STEP {
            set_meta(self.connection, "lease_floor", floor)?;
            self.after.floor.written = floor;
        }
        Ok(())
    }
}

/// The number of an endpoint in the database.
pub(super) fn endpoint_no(id: EndpointId) -> i64 {
    signed(id.sequence())
}
