//! Keys in the memory of one process. They are gone with it, so a retry after a restart runs again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::time::{Clock, SystemClock, Timestamp};

use super::{Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms};

/// Keys in memory, on the process's steady clock.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    keys: HashMap<KeyHash, Row>,
    accounts: HashMap<KeyHash, Usage>,
}

struct Row {
    record: ClaimRecord,
    /// As counted in its account.
    bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    keys: u64,
    bytes: u64,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock::start()))
    }
}

impl MemoryStore {
    /// A store on another clock, of which it reads the steady time: for tests.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, held: Arc::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0) + self.clock.monotonic()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Held {
    fn remove(&mut self, key: KeyHash) {
        let Some(row) = self.keys.remove(&key) else { return };
        if let Some(usage) = self.accounts.get_mut(&row.record.account) {
            usage.keys -= 1;
            usage.bytes -= row.bytes;
            if usage.keys == 0 {
                self.accounts.remove(&row.record.account);
            }
        }
    }

    /// Removes what is over and fits the filter.
    fn clean(&mut self, now: Timestamp, limit: usize, of: impl Fn(&Row) -> bool) -> u32 {
        let over = self.keys.iter().filter(|(_, row)| row.record.expires_at <= now && of(row));
        let over: Vec<KeyHash> = over.map(|(key, _)| *key).take(limit).collect();
        for key in &over {
            self.remove(*key);
        }
        u32::try_from(over.len()).unwrap_or(u32::MAX)
    }

    fn has_room(&self, account: KeyHash, quota: Quota) -> bool {
        let usage = self.accounts.get(&account).copied().unwrap_or_default();
        usage.keys < quota.keys && usage.bytes < quota.bytes
    }

    /// The row of a claim that has this token.
    fn own(&mut self, key: KeyHash, token: Token) -> Option<&mut Row> {
        self.keys.get_mut(&key).filter(|row| row.record.token == token)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        let held = self.held();
        Ok(Look { record: held.keys.get(&key).map(|row| row.record.clone()), now: self.now() })
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        let mut held = self.held();
        let now = self.now();
        let mark = |record: &ClaimRecord| (record.token, record.expires_at);
        if held.keys.get(&taking.key).map(|row| mark(&row.record)) != seen.map(mark) {
            return Ok(Taken::Changed);
        }
        held.remove(taking.key);
        if seen.is_none() && !held.has_room(taking.account, quota) {
            held.clean(now, usize::MAX, |row| row.record.account == taking.account);
            if !held.has_room(taking.account, quota) {
                return Ok(Taken::OverQuota);
            }
        }
        let lease_until = now + terms.lease;
        let record = ClaimRecord {
            account: taking.account,
            rule: taking.rule,
            fingerprint: taking.fingerprint,
            token: taking.token,
            expires_at: lease_until + terms.ttl,
            state: ClaimState::Open { lease_until, checkpoint: taking.checkpoint.clone() },
        };
        held.keys.insert(taking.key, Row { record, bytes: 0 });
        held.accounts.entry(taking.account).or_default().keys += 1;
        Ok(Taken::Yes)
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let mut held = self.held();
        let until = self.now() + terms.lease;
        let Some(row) = held.own(key, token) else { return Ok(false) };
        if let ClaimState::Open { lease_until, checkpoint: stored } = &mut row.record.state {
            row.record.expires_at = until + terms.ttl;
            *lease_until = until;
            if let Some(checkpoint) = checkpoint {
                *stored = Some(checkpoint.to_vec());
            }
        }
        Ok(true)
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        let decoded = Remembered::decode(remembered).map_err(StoreError::new)?;
        let bytes = u64::try_from(remembered.len()).unwrap_or(u64::MAX);
        let mut held = self.held();
        let expires_at = self.now() + ttl;
        let Some(row) = held.own(key, token) else { return Ok(Finished::Lost) };
        if matches!(row.record.state, ClaimState::Finished(_)) {
            return Ok(Finished::Before);
        }
        row.record.expires_at = expires_at;
        row.record.state = ClaimState::Finished(decoded);
        row.bytes = bytes;
        let account = row.record.account;
        held.accounts.entry(account).or_default().bytes += bytes;
        Ok(Finished::Now)
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        let mut held = self.held();
        let open = |row: &mut Row| matches!(row.record.state, ClaimState::Open { .. });
        let own = held.own(key, token).is_some_and(open);
        if own {
            held.remove(key);
        }
        Ok(own)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        let held = self.held();
        let now = self.now();
        let mut lapsed: Vec<Lapsed> = held
            .keys
            .iter()
            .filter(|(_, row)| row.record.has_lapsed(now))
            .filter_map(|(key, row)| match row.record.state {
                ClaimState::Open { lease_until, .. } => {
                    Some(Lapsed { key: *key, since: lease_until })
                }
                ClaimState::Finished(_) => None,
            })
            .collect();
        lapsed.sort_by_key(|one| (one.since, one.key));
        lapsed.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(lapsed)
    }

    async fn clean(&self, limit: u32) -> Result<u32, StoreError> {
        let mut held = self.held();
        let now = self.now();
        Ok(held.clean(now, usize::try_from(limit).unwrap_or(usize::MAX), |_| true))
    }
}
