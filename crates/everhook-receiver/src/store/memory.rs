//! Receipts in the memory of one process. They are gone with it, so what comes again after a
//! restart runs again.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::{Clock, SystemClock, Timestamp};

use super::{Claimed, Receipt, Store, StoreError, Terms, Token};
use crate::verify::EventKey;

/// Receipts in memory. The clock is the process's steady one, so that their times count from when
/// it was made.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    rows: Arc<Mutex<HashMap<EventKey, Row>>>,
}

#[derive(Clone, Copy)]
struct Row {
    received_at: Timestamp,
    processed_at: Option<Timestamp>,
    token: Option<Token>,
    lease_until: Timestamp,
}

impl Row {
    fn is_free(&self, now: Timestamp) -> bool {
        self.processed_at.is_some() || self.token.is_none() || self.lease_until <= now
    }

    fn is_old(&self, now: Timestamp, keep: Duration) -> bool {
        self.received_at + keep <= now
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock::start()))
    }
}

impl MemoryStore {
    /// A store on another clock, of which it reads the steady time: for tests.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, rows: Arc::default() }
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<EventKey, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0) + self.clock.monotonic()
    }

    /// Changes the row of a claim, if it is still the token's.
    fn change(&self, key: &EventKey, token: Token, change: impl FnOnce(&mut Row)) -> bool {
        let mut rows = self.rows();
        let Some(row) = rows.get_mut(key).filter(|row| row.token == Some(token)) else {
            return false;
        };
        change(row);
        true
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError> {
        let mut rows = self.rows();
        let now = self.now();
        let known = rows.get(key).copied();
        if known.is_some_and(|row| !row.is_free(now)) {
            return Ok(Claimed::InProgress);
        }
        let known = known.filter(|row| !row.is_old(now, terms.keep));
        if known.is_some_and(|row| row.processed_at.is_some()) {
            return Ok(Claimed::Processed);
        }
        let row = Row {
            received_at: known.map_or(now, |row| row.received_at),
            processed_at: None,
            token: Some(token),
            lease_until: now + terms.lease,
        };
        rows.insert(key.clone(), row);
        Ok(Claimed::Yes)
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        Ok(self.change(key, token, |row| row.lease_until = now + lease))
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let now = self.now();
        Ok(self.change(key, token, |row| {
            row.processed_at.get_or_insert(now);
        }))
    }

    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        let mut is_open = false;
        self.change(key, token, |row| {
            is_open = row.processed_at.is_none();
            if is_open {
                row.token = None;
            }
        });
        Ok(is_open)
    }

    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError> {
        let receipt = |row: &Row| {
            let Row { received_at, processed_at, .. } = *row;
            Receipt { received_at, processed_at }
        };
        Ok(self.rows().get(key).map(receipt))
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let mut rows = self.rows();
        let now = self.now();
        let old = rows.iter().filter(|(_, row)| row.is_free(now) && row.is_old(now, keep));
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(limit as usize).collect();
        for key in &old {
            rows.remove(key);
        }
        Ok(old.len() as u64)
    }
}
