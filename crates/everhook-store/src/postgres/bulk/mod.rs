//! Work on many deliveries at once: beginning, ending and reading it.
//!
//! The set is read bit by bit, and then stored in one transaction, unless other work was begun
//! meanwhile, on whichever node: then it is read again, because a delivery in unfinished work is in
//! no other.

mod catch_up;
mod members;
mod row;
mod step;

use std::collections::HashSet;

use async_trait::async_trait;
use everhook_domain::bulk::{BulkKind, BulkPace, BulkStatus, Tally, catches_up};
use everhook_domain::delivery::IllegalStep;
use everhook_domain::id::{DeliveryId, EndpointId, ReplayId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::number::{Bits, size};
use super::tx::{Access, Tx};
use super::{PostgresStore, claimed, reading};
use crate::bulk::{self, Bulk, BulkRecord, BulkRequest, BulkStarted};
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::reading::{DeliveryRecord, Page, PageRequest, Position};
use row::BulkRow;
pub(super) use step::step;

#[async_trait]
impl Bulk for PostgresStore {
    async fn start_bulk(
        &self,
        request: BulkRequest,
        claim: Option<Claim<BulkStarted>>,
        now: Timestamp,
    ) -> Result<Claimed<BulkStarted>, StoreError> {
        loop {
            let set = if request.kind == BulkKind::CatchUp {
                Set { members: Vec::new(), begun: None }
            } else {
                let mut tx = self.read(&request.tenant).await?;
                let done = OtherWork::read(&mut tx, &request.tenant).await;
                let other = self.end(tx, done).await?;
                let replay = request.kind == BulkKind::Replay;
                let in_other = |record: &DeliveryRecord| replay && other.has(record);
                let members = bulk::members(self, &request, in_other).await?;
                Set { members, begun: Some(other.begun) }
            };
            let id = self.ids.replay(now);
            let mut tx = self.begin(Access::Write, now).await?;
            let done = started(&mut tx, &request, claim.as_ref(), (id, &set)).await;
            if matches!(done, Ok(None)) {
                tx.roll_back().await;
                continue;
            }
            if let Some(claimed) = self.end(tx, done).await? {
                return Ok(claimed);
            }
        }
    }

    async fn cancel_bulk(
        &self,
        tenant: TenantId,
        id: ReplayId,
        now: Timestamp,
    ) -> Result<BulkRecord, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = cancel(&mut tx, &tenant, id).await;
        self.end(tx, done).await
    }

    async fn bulk(&self, tenant: TenantId, id: ReplayId) -> Result<Option<BulkRecord>, StoreError> {
        let mut tx = self.read(&tenant).await?;
        let done = BulkRow::find(&mut tx.connection, &tenant, id, false).await;
        Ok(self.end(tx, done).await?.map(|row| row.record))
    }

    async fn bulks(
        &self,
        tenant: TenantId,
        page: PageRequest,
    ) -> Result<Page<BulkRecord>, StoreError> {
        let below = Bits(page.after.map_or(u128::MAX, |Position(bits)| bits));
        let one_more = size(page.limit).saturating_add(1);
        let mut tx = self.read(&tenant).await?;
        let done = BulkRow::list(&mut tx.connection, &tenant, below, one_more).await;
        let rows = self.end(tx, done).await?;
        Ok(bulk::page_of(rows.into_iter().map(|row| row.record).collect(), page.limit))
    }
}

/// What unfinished work of the tenant has, as far as it sends anything.
struct OtherWork {
    /// All that was ever begun, by this count.
    begun: i64,
    members: HashSet<Bits>,
    /// Endpoints that catch up, after which event and up to which.
    catching_up: Vec<(EndpointId, Bits, Bits)>,
}

impl OtherWork {
    async fn read(tx: &mut Tx, tenant: &TenantId) -> Result<Self, VerbError> {
        let begun = row::begun(&mut tx.connection).await?;
        let mut other = Self { begun, members: HashSet::new(), catching_up: Vec::new() };
        for bulk in BulkRow::running(&mut tx.connection, tenant).await? {
            match bulk.record.kind {
                BulkKind::Replay => {
                    let id = bulk.record.id;
                    other.members.extend(members::all(&mut tx.connection, tenant, id).await?);
                }
                BulkKind::CatchUp => {
                    let endpoint = bulk.record.filter.endpoint;
                    let caught = endpoint.map(|endpoint| (endpoint, bulk.cursor, bulk.last));
                    other.catching_up.extend(caught);
                }
                BulkKind::Acknowledge => {}
            }
        }
        Ok(other)
    }

    fn has(&self, record: &DeliveryRecord) -> bool {
        let event = Bits::from(record.id.event());
        let catches_up = catches_up(&record.state)
            && self.catching_up.iter().any(|(endpoint, after, last)| {
                *endpoint == record.endpoint && event > *after && event <= *last
            });
        catches_up || self.members.contains(&Bits::from(record.id))
    }
}

/// A set of deliveries, and when it was read.
struct Set {
    /// Oldest first.
    members: Vec<DeliveryId>,
    /// What had been begun when it was read; `None` where there is no set.
    begun: Option<i64>,
}

/// `start_bulk` under its claim: `None` if other work was begun since the set was read.
async fn started(
    tx: &mut Tx,
    request: &BulkRequest,
    claim: Option<&Claim<BulkStarted>>,
    (id, set): (ReplayId, &Set),
) -> Result<Option<Claimed<BulkStarted>>, VerbError> {
    tx.tenant(&request.tenant)?;
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(Some(answered));
    }
    let begun = match request.dry_run {
        true => row::begun(&mut tx.connection).await?,
        false => row::count_begun(&mut tx.connection).await?,
    };
    if set.begun.is_some_and(|before| before != begun) {
        return Ok(None);
    }
    let started = start(tx, request, id, set).await?;
    claimed::done(tx, claim, started).await.map(Some)
}

async fn start(
    tx: &mut Tx,
    request: &BulkRequest,
    id: ReplayId,
    set: &Set,
) -> Result<BulkStarted, VerbError> {
    let tenant = &request.tenant;
    if let Some(id) = request.filter.endpoint {
        let endpoint = tx.directory.endpoint_of(tenant, id).ok_or(Refusal::NotFound)?;
        if request.kind == BulkKind::CatchUp
            && let Some(reason) = endpoint.state.gone()
        {
            return Err(IllegalStep::EndpointGone(reason).into());
        }
    }
    let (matched, cursor, last) = match request.kind {
        BulkKind::CatchUp => {
            let (after, last) = reading::events_since(tx, tenant, request.filter.from).await?;
            (None, after, last)
        }
        BulkKind::Replay | BulkKind::Acknowledge => {
            let matched = u64::try_from(set.members.len()).unwrap_or(u64::MAX);
            let last = set.members.last().map_or(Bits(0), |last| Bits::from(*last));
            (Some(matched), Bits(0), last)
        }
    };
    if request.dry_run {
        return Ok(BulkStarted { id: None, matched });
    }
    let record = BulkRecord {
        id,
        kind: request.kind,
        filter: request.filter.clone(),
        rate_per_second: request.rate_per_second,
        status: BulkStatus::Running,
        matched,
        tally: Tally::default(),
        created_at: tx.now,
        ended_at: None,
    };
    let pace = BulkPace::new(request.rate_per_second, tx.now);
    let mut bulk = BulkRow { tenant: tenant.clone(), record, cursor, last, pace };
    if cursor >= last {
        bulk.end(BulkStatus::Done, tx.now);
    }
    bulk.insert(&mut tx.connection).await?;
    members::insert(&mut tx.connection, tenant, id, &set.members).await?;
    tx.jobs_pending();
    Ok(BulkStarted { id: Some(id), matched })
}

/// `cancel_bulk`.
async fn cancel(tx: &mut Tx, tenant: &TenantId, id: ReplayId) -> Result<BulkRecord, VerbError> {
    tx.tenant(tenant)?;
    let found = BulkRow::find(&mut tx.connection, tenant, id, true).await?;
    let mut bulk = found.ok_or(Refusal::NotFound)?;
    if bulk.record.status == BulkStatus::Running {
        bulk.end(BulkStatus::Cancelled, tx.now);
        bulk.update(&mut tx.connection).await?;
        tx.jobs_pending();
    }
    Ok(bulk.record)
}
