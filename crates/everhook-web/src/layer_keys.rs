//! The keys of the tower layer in Everhook's own store: for the layer that runs in this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_idempotency::store::{
    Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms,
};
use everhook_store::{
    HeldClaim, Keys, PageRequest, RecordName, RecordOrigin, RecordQuery, RecordStateWord,
};

use crate::query::{LIMIT_MAX, SCAN_LIMIT};
use crate::settings::Now;

/// Keys of one tenant, shown among its idempotency records as those of the proxy.
#[derive(Clone)]
pub struct LayerKeys {
    keys: Arc<dyn Keys>,
    tenant: TenantId,
    now: Now,
}

impl fmt::Debug for LayerKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerKeys").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl LayerKeys {
    /// Keys of this tenant, whose accounts the layer must name as its. Leases and lifetimes end by
    /// `now`, the clock that everything else of the store has.
    pub fn new(keys: Arc<dyn Keys>, tenant: TenantId, now: Now) -> Self {
        Self { keys, tenant, now }
    }

    fn held(&self, key: KeyHash, token: Token) -> HeldClaim {
        HeldClaim { tenant: self.tenant.clone(), key, token }
    }
}

#[async_trait]
impl Store for LayerKeys {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        let found = self.keys.look(self.tenant.clone(), key).await.map_err(StoreError::new)?;
        Ok(Look { record: found.map(|claim| claim.record), now: (self.now)() })
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        let name = RecordName {
            origin: RecordOrigin::Proxy,
            account: taking.account_name.clone(),
            subject: taking.subject.clone(),
        };
        let taking = everhook_store::Taking {
            tenant: self.tenant.clone(),
            key: taking.key,
            account: taking.account,
            name,
            rule: taking.rule,
            fingerprint: taking.fingerprint,
            token: taking.token,
            checkpoint: taking.checkpoint.clone(),
        };
        let seen = seen.map(|record| (record.token, record.expires_at));
        let taken = self.keys.take(taking, seen, terms, quota, (self.now)()).await;
        taken.map_err(StoreError::new)
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        let checkpoint = checkpoint.map(<[u8]>::to_vec);
        let claim = self.held(key, token);
        let renewed = self.keys.renew(claim, terms, checkpoint, (self.now)()).await;
        renewed.map_err(StoreError::new)
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        let claim = self.held(key, token);
        let finished = self.keys.finish(claim, remembered.to_vec(), ttl, (self.now)()).await;
        finished.map_err(StoreError::new)
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        self.keys.release(self.held(key, token)).await.map_err(StoreError::new)
    }

    /// Reads the whole list: an operator has the one of the API.
    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        let (tenant, now) = (&self.tenant, (self.now)());
        let query = RecordQuery {
            origin: Some(RecordOrigin::Proxy),
            state: Some(RecordStateWord::Unknown),
        };
        let mut request = PageRequest { limit: LIMIT_MAX, after: None, scan_limit: SCAN_LIMIT };
        let mut lapsed = Vec::new();
        loop {
            let page = self.keys.records(tenant.clone(), query, request, now).await;
            let page = page.map_err(StoreError::new)?;
            for record in page.items {
                let found = self.keys.look_at(tenant.clone(), record.id).await;
                let found = found.map_err(StoreError::new)?;
                lapsed.extend(found.and_then(|claim| match claim.record.state {
                    ClaimState::Open { lease_until, .. } if claim.record.has_lapsed(now) => {
                        Some(Lapsed { key: claim.key, since: lease_until })
                    }
                    ClaimState::Open { .. } | ClaimState::Finished(_) => None,
                }));
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => break,
            }
        }
        lapsed.sort_by_key(|one| (one.since, one.key));
        lapsed.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(lapsed)
    }

    /// Nothing: the store clears away what is over by itself.
    async fn clean(&self, _limit: u32) -> Result<u32, StoreError> {
        Ok(0)
    }
}
