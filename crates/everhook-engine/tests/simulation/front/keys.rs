//! Claims of keys, as a process sees them.

use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::id::RecordId;
use everhook_domain::idempotency::Answer;
use everhook_domain::idempotency::claim::{Finished, Quota, Taken, Terms, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Claim, Claimed, HeldClaim, KeyRecord, Keys, Page, PageRequest, RecordQuery, StoreError,
    StoredClaim, Taking,
};

use super::Front;

#[async_trait]
impl Keys for Front {
    async fn look(
        &self,
        tenant: TenantId,
        key: KeyHash,
    ) -> Result<Option<StoredClaim>, StoreError> {
        self.own("look", async |store| store.look(tenant, key).await).await
    }

    async fn look_at(
        &self,
        tenant: TenantId,
        id: RecordId,
    ) -> Result<Option<StoredClaim>, StoreError> {
        self.own("look_at", async |store| store.look_at(tenant, id).await).await
    }

    async fn take(
        &self,
        taking: Taking,
        seen: Option<(Token, Timestamp)>,
        terms: Terms,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Taken, StoreError> {
        self.own("take", async |store| store.take(taking, seen, terms, quota, now).await).await
    }

    async fn renew(
        &self,
        claim: HeldClaim,
        terms: Terms,
        checkpoint: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.own("renew", async |store| store.renew(claim, terms, checkpoint, now).await).await
    }

    async fn finish(
        &self,
        claim: HeldClaim,
        remembered: Vec<u8>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Finished, StoreError> {
        self.own("finish", async |store| store.finish(claim, remembered, ttl, now).await).await
    }

    async fn release(&self, claim: HeldClaim) -> Result<bool, StoreError> {
        self.own("release", async |store| store.release(claim).await).await
    }

    async fn records(
        &self,
        tenant: TenantId,
        query: RecordQuery,
        page: PageRequest,
        now: Timestamp,
    ) -> Result<Page<KeyRecord>, StoreError> {
        self.own("records", async |store| store.records(tenant, query, page, now).await).await
    }

    async fn record(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<Option<KeyRecord>, StoreError> {
        self.own("record", async |store| store.record(tenant, id, now).await).await
    }

    async fn resolve(
        &self,
        tenant: TenantId,
        id: RecordId,
        answer: Answer,
        claim: Option<Claim<KeyRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<KeyRecord>, StoreError> {
        self.own("resolve", async |store| store.resolve(tenant, id, answer, claim, now).await).await
    }

    async fn remember(&self, claim: Claim<()>, now: Timestamp) -> Result<Claimed<()>, StoreError> {
        self.own("remember", async |store| store.remember(claim, now).await).await
    }

    async fn forget(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.own("forget", async |store| store.forget(tenant, id, now).await).await
    }
}
