//! Idempotency records: claims that are made first and finished later, and what is shown of those
//! and of our own API's.
//!
//! Claims have a table of their own, in which a key is unique; what there is of them comes and goes
//! with what runs. What a key of our own API means is in the key log.

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
use rusqlite::{Connection, Params};

use super::accounts::Accounts;
use super::command::{Verb, VerbError};
use super::keys::{self, KeyEntry};
use super::row::{signed, unsigned};
use super::tx::Tx;
use super::{SqliteStore, claimed};
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::keys::{Completed, HeldClaim, KeyRecord, Keys, RecordQuery, StoredClaim, Taking};
use crate::reading::{Page, PageRequest};
use row::ClaimRow;

#[async_trait]
impl Keys for SqliteStore {
    async fn look(
        &self,
        tenant: TenantId,
        key: KeyHash,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let tenant = (tenant.clone(), self.tenant_no(&tenant)?);
        self.read(move |reader| {
            let tag = reader.catalog.tag;
            Ok(row::stored(reader.connection, &tenant, tag, ("key = ?2", key.0))?)
        })
        .await
    }

    async fn look_at(
        &self,
        tenant: TenantId,
        id: RecordId,
    ) -> Result<Option<StoredClaim>, StoreError> {
        let tenant = (tenant.clone(), self.tenant_no(&tenant)?);
        self.read(move |reader| {
            let named = ("seq = ?2", signed(id.sequence()));
            let found = row::stored(reader.connection, &tenant, reader.catalog.tag, named)?;
            Ok(found.filter(|claim| claim.id == id))
        })
        .await
    }

    async fn take(
        &self,
        taking: Taking,
        seen: Option<(Token, Timestamp)>,
        terms: Terms,
        quota: Quota,
        now: Timestamp,
    ) -> Result<Taken, StoreError> {
        self.run(TakeVerb { taking, seen, terms, quota, now }).await
    }

    async fn renew(
        &self,
        claim: HeldClaim,
        terms: Terms,
        checkpoint: Option<Vec<u8>>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.run(RenewVerb { claim, terms, checkpoint, now }).await
    }

    async fn finish(
        &self,
        claim: HeldClaim,
        remembered: Vec<u8>,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Finished, StoreError> {
        let completed = Completed::read(&remembered)?;
        self.run(FinishVerb { claim, remembered, completed, ttl, now }).await
    }

    async fn release(&self, claim: HeldClaim) -> Result<bool, StoreError> {
        self.run(ReleaseVerb { claim }).await
    }

    async fn records(
        &self,
        tenant: TenantId,
        query: RecordQuery,
        page: PageRequest,
        now: Timestamp,
    ) -> Result<Page<KeyRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| list::records(&reader, tenant, query, page, now)).await
    }

    async fn record(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<Option<KeyRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| {
            let (connection, tag) = (reader.connection, reader.catalog.tag);
            let claim = ClaimRow::find(connection, tenant, id, tag)?;
            if let Some(row) = claim.filter(|row| row.is_live(now)) {
                return Ok(Some(row.shown(tag, now)));
            }
            let own = list::of_api(connection, tenant, id, tag)?;
            Ok(own.map(|(_, record)| record).filter(|record| record.expires_at > now))
        })
        .await
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
        self.run(ResolveVerb { tenant, id, remembered, claim, now }).await
    }

    async fn remember(&self, claim: Claim<()>, now: Timestamp) -> Result<Claimed<()>, StoreError> {
        self.run(RememberVerb { claim, now }).await
    }

    async fn forget(
        &self,
        tenant: TenantId,
        id: RecordId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.run(ForgetVerb { tenant, id, now }).await
    }
}

/// Counts all claims in their accounts.
pub(super) fn count(connection: &Connection, accounts: &mut Accounts) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare("SELECT account, expires_at, seq, ifnull(length(remembered), 0) FROM claims")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // One that is damaged hurts nobody else, and the store opens.
        if let Ok(account) = row.get(0) {
            let place = (Timestamp::from_millis(row.get(1)?), row.get(2)?);
            accounts.add(KeyHash(account), place, unsigned(row.get(3)?));
        }
    }
    Ok(())
}

/// Removes claims and takes them out of their accounts; returns how many.
pub(super) fn remove(
    tx: &mut Tx<'_>,
    condition: &str,
    params: impl Params,
) -> rusqlite::Result<usize> {
    let mut statement = tx.connection.prepare_cached(&format!(
        "DELETE FROM claims WHERE {condition} RETURNING account, expires_at, seq"
    ))?;
    let mut rows = statement.query(params)?;
    let mut removed = 0;
    while let Some(row) = rows.next()? {
        removed += 1;
        if let Ok(account) = row.get(0) {
            let place = (Timestamp::from_millis(row.get(1)?), row.get(2)?);
            tx.uncount(KeyHash(account), place);
        }
    }
    Ok(removed)
}

/// Removes up to `limit` claims that are over; returns how many.
pub(super) fn prune(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> rusqlite::Result<usize> {
    let condition = "seq IN (SELECT seq FROM claims WHERE expires_at <= ?1 \
                     ORDER BY expires_at LIMIT ?2)";
    remove(tx, condition, (now.as_millis(), limit))
}

/// The caller's claim, if it still has it.
fn held(tx: &Tx<'_>, claim: &HeldClaim) -> rusqlite::Result<Option<ClaimRow>> {
    // What a deleted tenant had is nobody's.
    let Ok(tenant) = tx.tenant(&claim.tenant) else { return Ok(None) };
    let row = ClaimRow::of_key(tx.connection, claim.key)?;
    Ok(row.filter(|row| row.tenant == tenant && row.token == claim.token))
}

/// Counts a claim as it is now, and no longer as it was.
fn recount(tx: &mut Tx<'_>, before: &ClaimRow, after: &ClaimRow, bytes: usize) {
    tx.uncount(before.account, before.place());
    tx.count(after.account, after.place(), u64::try_from(bytes).unwrap_or(u64::MAX));
}

struct TakeVerb {
    taking: Taking,
    seen: Option<(Token, Timestamp)>,
    terms: Terms,
    quota: Quota,
    now: Timestamp,
}

impl Verb for TakeVerb {
    type Output = Taken;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let Self { taking, now, .. } = self;
        let tenant = tx.tenant(&taking.tenant)?;
        let found = ClaimRow::of_key(tx.connection, taking.key)?;
        if found.as_ref().map(|row| (row.token, row.expires_at)) != self.seen {
            return Ok(Taken::Changed);
        }
        let live = found.as_ref().filter(|row| row.is_live(*now));
        let (seq, created_at) = match live {
            Some(row) => (row.seq, Timestamp::from_millis(row.created_at)),
            None if tx.has_room(&taking.account, self.quota, *now) => tx.next_event(*now),
            None => return Ok(Taken::OverQuota),
        };
        if let Some(row) = &found {
            remove(tx, "seq = ?1", [row.seq])?;
        }
        let lease_until = *now + self.terms.lease;
        let expires_at = lease_until + self.terms.ttl;
        let place = (seq, created_at, tenant);
        ClaimRow::insert(tx.connection, place, taking, (lease_until, expires_at))?;
        tx.count(taking.account, (expires_at, seq), 0);
        tx.claimed();
        Ok(Taken::Yes)
    }
}

struct RenewVerb {
    claim: HeldClaim,
    terms: Terms,
    checkpoint: Option<Vec<u8>>,
    now: Timestamp,
}

impl Verb for RenewVerb {
    type Output = bool;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let row = held(tx, &self.claim)?;
        let Some(before) = row.filter(|row| row.is_live(self.now)) else { return Ok(false) };
        if before.completed.is_none() {
            let mut after = before.clone();
            after.renew(tx.connection, self.terms, self.checkpoint.as_deref(), self.now)?;
            recount(tx, &before, &after, 0);
        }
        Ok(true)
    }
}

struct FinishVerb {
    claim: HeldClaim,
    remembered: Vec<u8>,
    completed: Completed,
    ttl: Duration,
    now: Timestamp,
}

impl Verb for FinishVerb {
    type Output = Finished;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let row = held(tx, &self.claim)?;
        let Some(before) = row.filter(|row| row.is_live(self.now)) else {
            return Ok(Finished::Lost);
        };
        if before.completed.is_some() {
            return Ok(Finished::Before);
        }
        let mut after = before.clone();
        after.finish(tx.connection, self.completed, &self.remembered, self.now + self.ttl)?;
        recount(tx, &before, &after, self.remembered.len());
        Ok(Finished::Now)
    }

    fn weight(&self) -> usize {
        self.remembered.len()
    }
}

struct ReleaseVerb {
    claim: HeldClaim,
}

impl Verb for ReleaseVerb {
    type Output = bool;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let open = held(tx, &self.claim)?.filter(|row| row.completed.is_none());
        let Some(row) = open else { return Ok(false) };
        forget_claim(tx, &row)?;
        Ok(true)
    }
}

fn forget_claim(tx: &mut Tx<'_>, row: &ClaimRow) -> rusqlite::Result<()> {
    remove(tx, "seq = ?1", [row.seq])?;
    tx.keep_marks()
}

struct ResolveVerb {
    tenant: TenantId,
    id: RecordId,
    remembered: Remembered,
    claim: Option<Claim<KeyRecord>>,
    now: Timestamp,
}

impl Verb for ResolveVerb {
    type Output = Claimed<KeyRecord>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| self.resolve(tx))
    }
}

impl ResolveVerb {
    fn resolve(&self, tx: &mut Tx<'_>) -> Result<KeyRecord, VerbError> {
        let (now, tag) = (self.now, tx.tag());
        let tenant = tx.tenant(&self.tenant)?;
        let found = ClaimRow::find(tx.connection, tenant, self.id, tag)?;
        let Some(before) = found.filter(|row| row.is_live(now)) else {
            let own = list::of_api(tx.connection, tenant, self.id, tag)?;
            let live = own.filter(|(_, record)| record.expires_at > now);
            let (_, record) = live.ok_or(Refusal::NotFound)?;
            // All of our own API's are completed.
            record.state.may_be_settled().map_err(Refusal::Record)?;
            return Ok(record);
        };
        before.state(now).may_be_settled().map_err(Refusal::Record)?;
        let mut after = ClaimRow { token: before.token.nobodys(), ..before.clone() };
        let (completed, remembered) = (Completed::of(&self.remembered), self.remembered.encode());
        let expires_at = now + tx.policy.idempotency_ttl;
        after.finish(tx.connection, completed, &remembered, expires_at)?;
        recount(tx, &before, &after, remembered.len());
        Ok(after.shown(tag, now))
    }
}

struct RememberVerb {
    claim: Claim<()>,
    now: Timestamp,
}

impl Verb for RememberVerb {
    type Output = Claimed<()>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        claimed::run(tx, Some(&self.claim), self.now, |_| Ok(()))
    }
}

struct ForgetVerb {
    tenant: TenantId,
    id: RecordId,
    now: Timestamp,
}

impl Verb for ForgetVerb {
    type Output = ();

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let (now, tag) = (self.now, tx.tag());
        let tenant = tx.tenant(&self.tenant)?;
        let claim = ClaimRow::find(tx.connection, tenant, self.id, tag)?;
        if let Some(row) = claim.filter(|row| row.is_live(now)) {
            row.state(now).may_be_forgotten().map_err(Refusal::Record)?;
            return Ok(forget_claim(tx, &row)?);
        }
        let own = list::of_api(tx.connection, tenant, self.id, tag)?;
        let live = own.filter(|(_, record)| record.expires_at > now);
        let (key, record) = live.ok_or(Refusal::NotFound)?;
        let target = signed(self.id.sequence());
        let entry = KeyEntry { target, expires_at: record.expires_at };
        let removed = keys::remove(tx.connection, &key, entry)?;
        tx.forget(removed);
        tx.connection
            .prepare_cached("DELETE FROM idempotency_records WHERE seq = ?1")?
            .execute([target])?;
        Ok(tx.keep_marks()?)
    }
}
