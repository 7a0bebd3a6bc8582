//! Idempotency records: claims that are made first and finished later, and what is shown of those
//! and of our own API's.
//!
//! A verb locks the claim's row, decides, and writes; accounts come last.

mod list;
mod row;

use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::id::RecordId;
use everhook_domain::idempotency::Answer;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{Finished, Quota, Taken, Terms, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::number::Bits;
use super::tx::{Access, Tx};
use super::{PostgresStore, accounts, claimed};
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::keys::{
    Completed, HeldClaim, KeyRecord, Keys, RecordQuery, RecordState, StoredClaim, Taking,
};
use crate::reading::{Page, PageRequest};
use row::ClaimRow;
pub(super) use row::holdable;

#[async_trait]
impl Keys for PostgresStore {
    async fn look(
        &self,
        tenant: TenantId,
        key: KeyHash,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = row::stored(&mut tx.connection, &tenant, ("key", key.into())).await;
        self.end(tx, done).await
    }

    async fn look_at(
        &self,
        tenant: TenantId,
        id: RecordId,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = row::stored(&mut tx.connection, &tenant, ("id", id.into())).await;
        self.end(tx, done).await
    }

    async fn take(
        &self,
        taking: Taking,
        seen: Option<(Token, Timestamp)>,
        terms: Terms,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Taken, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = take(&mut tx, &taking, seen, terms, quota).await;
        if matches!(done, Ok(Taken::OverQuota)) {
            tx.roll_back().await;
            return Ok(Taken::OverQuota);
        }
        let taken = self.end(tx, done).await?;
        self.count_keys(1);
        Ok(taken)
    }

    async fn renew(
        &self,
        claim: HeldClaim,
        terms: Terms,
        checkpoint: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = renew(&mut tx, &claim, terms, checkpoint.as_deref()).await;
        self.end(tx, done).await
    }

    async fn finish(
        &self,
        claim: HeldClaim,
        remembered: Vec<u8>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Finished, StoreError> {
        let completed = Completed::read(&remembered)?;
        let mut tx = self.begin(Access::Write, now).await?;
        let done = finish(&mut tx, &claim, (completed, &remembered), now + ttl).await;
        self.end(tx, done).await
    }

    async fn release(&self, claim: HeldClaim) -> Result<bool, StoreError> {
        // It decides nothing by the time.
        let mut tx = self.begin(Access::Write, Timestamp::default()).await?;
        let done = release(&mut tx, &claim).await;
        self.end(tx, done).await
    }

    async fn records(
        &self,
        tenant: TenantId,
        query: RecordQuery,
        page: PageRequest,
        now: Timestamp,
    ) -> Result<Page<KeyRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = list::records(&mut tx, &tenant, query, page, now).await;
        self.end(tx, done).await
    }

    async fn record(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = list::record(&mut tx, &tenant, id, now).await;
        self.end(tx, done).await
    }

    async fn resolve(
        &self,
        tenant: TenantId,
        id: RecordId,
        answer: Answer,
        claim: Option<Claim<KeyRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<KeyRecord>, StoreError> {
        let remembered = Remembered::Answer(answer);
        let mut tx = self.begin(Access::Write, now).await?;
        let done = resolved(&mut tx, &tenant, id, &remembered, claim.as_ref()).await;
        self.end(tx, done).await
    }

    async fn remember(&self, claim: Claim<()>, now: Timestamp) -> Result<Claimed<()>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = remember(&mut tx, &claim).await;
        self.end(tx, done).await
    }

    async fn forget(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = forget(&mut tx, &tenant, id).await;
        self.end(tx, done).await
    }
}

/// [`Taken::OverQuota`] is to be rolled back.
async fn take(
    tx: &mut Tx,
    taking: &Taking,
    seen: Option<(Token, Timestamp)>,
    terms: Terms,
    quota: Quota,
) -> Result<Taken, VerbError> {
    tx.tenant(&taking.tenant)?;
    let found = ClaimRow::of_key(&mut tx.connection, &taking.tenant, taking.key).await?;
    if found.as_ref().map(|row| (row.token, row.expires_at)) != seen {
        return Ok(Taken::Changed);
    }
    let live = found.as_ref().filter(|row| row.is_live(tx.now));
    let id = live.map_or_else(|| tx.rules.ids.record(tx.now), |row| row.id);
    let lease_until = tx.now + terms.lease;
    let ends = (lease_until, lease_until + terms.ttl);
    let replaced = found.is_some();
    if !ClaimRow::write(&mut tx.connection, taking, id, ends, replaced).await? {
        return Ok(Taken::Changed);
    }
    let tenant = taking.tenant.as_str();
    if let Some(row) = &found {
        tx.accounts.add((tenant, row.account), -1, -row.bytes);
    }
    tx.accounts.add((tenant, Bits::from(taking.account)), 1, 0);
    if live.is_some() {
        return Ok(Taken::Yes);
    }
    // Written before the look, so that of many at once each sees those before it.
    accounts::write(tx).await?;
    if accounts::has_room(tx, &taking.tenant, taking.account, quota, 1).await? {
        Ok(Taken::Yes)
    } else {
        Ok(Taken::OverQuota)
    }
}

/// The caller's claim, locked, if it still has it.
async fn held(tx: &mut Tx, claim: &HeldClaim) -> Result<Option<ClaimRow>, VerbError> {
    // What a deleted tenant had is nobody's.
    if tx.tenant(&claim.tenant).is_err() {
        return Ok(None);
    }
    let row = ClaimRow::of_key(&mut tx.connection, &claim.tenant, claim.key).await?;
    Ok(row.filter(|row| row.token == claim.token))
}

async fn renew(
    tx: &mut Tx,
    claim: &HeldClaim,
    terms: Terms,
    checkpoint: Option<&[u8]>,
) -> Result<bool, VerbError> {
    let row = held(tx, claim).await?;
    let Some(row) = row.filter(|row| row.is_live(tx.now)) else { return Ok(false) };
    if row.completed.is_none() {
        row.renew(&mut tx.connection, &claim.tenant, terms, checkpoint, tx.now).await?;
    }
    Ok(true)
}

async fn finish(
    tx: &mut Tx,
    claim: &HeldClaim,
    remembered: (Completed, &[u8]),
    expires_at: Timestamp,
) -> Result<Finished, VerbError> {
    let row = held(tx, claim).await?;
    let Some(mut row) = row.filter(|row| row.is_live(tx.now)) else { return Ok(Finished::Lost) };
    if row.completed.is_some() {
        return Ok(Finished::Before);
    }
    let more = row.finish(&mut tx.connection, &claim.tenant, remembered, expires_at).await?;
    tx.accounts.add((claim.tenant.as_str(), row.account), 0, more);
    Ok(Finished::Now)
}

async fn release(tx: &mut Tx, claim: &HeldClaim) -> Result<bool, VerbError> {
    let open = held(tx, claim).await?.filter(|row| row.completed.is_none());
    let Some(row) = open else { return Ok(false) };
    remove(tx, &claim.tenant, &row).await?;
    Ok(true)
}

async fn remove(tx: &mut Tx, tenant: &TenantId, row: &ClaimRow) -> Result<(), VerbError> {
    row.remove(&mut tx.connection, tenant).await?;
    tx.accounts.add((tenant.as_str(), row.account), -1, -row.bytes);
    Ok(())
}

/// `resolve` under its claim.
async fn resolved(
    tx: &mut Tx,
    tenant: &TenantId,
    id: RecordId,
    remembered: &Remembered,
    claim: Option<&Claim<KeyRecord>>,
) -> Result<Claimed<KeyRecord>, VerbError> {
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let record = resolve(tx, tenant, id, remembered).await?;
    claimed::done(tx, claim, record).await
}

async fn resolve(
    tx: &mut Tx,
    tenant: &TenantId,
    id: RecordId,
    remembered: &Remembered,
) -> Result<KeyRecord, VerbError> {
    tx.tenant(tenant)?;
    let row = ClaimRow::of_id(&mut tx.connection, tenant, id).await?;
    let record = list::record(tx, tenant, id, tx.now).await?.ok_or(Refusal::NotFound)?;
    record.state.may_be_settled().map_err(Refusal::Record)?;
    // What may be settled is a claim.
    let mut row = row.ok_or(Refusal::NotFound)?;
    row.token = row.token.nobodys();
    let (completed, bytes) = (Completed::of(remembered), remembered.encode());
    let expires_at = tx.now + tx.rules.policy.idempotency_ttl;
    let more = row.finish(&mut tx.connection, tenant, (completed, &bytes), expires_at).await?;
    tx.accounts.add((tenant.as_str(), row.account), 0, more);
    let state = RecordState::of(row.completed, row.lease_until, tx.now);
    Ok(KeyRecord { state, expires_at, ..record })
}

async fn remember(tx: &mut Tx, claim: &Claim<()>) -> Result<Claimed<()>, VerbError> {
    match claimed::earlier(tx, Some(claim)).await? {
        Some(answered) => Ok(answered),
        None => claimed::done(tx, Some(claim), ()).await,
    }
}

async fn forget(tx: &mut Tx, tenant: &TenantId, id: RecordId) -> Result<(), VerbError> {
    tx.tenant(tenant)?;
    let row = ClaimRow::of_id(&mut tx.connection, tenant, id).await?;
    let record = list::record(tx, tenant, id, tx.now).await?.ok_or(Refusal::NotFound)?;
    record.state.may_be_forgotten().map_err(Refusal::Record)?;
    if let Some(row) = row {
        return remove(tx, tenant, &row).await;
    }
    let statement = "DELETE FROM idempotency_records WHERE tenant = $1 AND id = $2 \
                     RETURNING tenant, account, bytes";
    let gone = tx.connection.query(statement, &[&tenant.as_str(), &Bits::from(id)]).await?;
    tx.accounts.removed(&gone)
}
