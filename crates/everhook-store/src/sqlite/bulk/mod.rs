//! Work on many deliveries at once: beginning, ending and reading it.
//!
//! The set is read on a reading connection, bit by bit, and then stored in one transaction, unless
//! other work was begun meanwhile: then it is read again, because a delivery in unfinished work is
//! in no other.

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

use super::command::{Verb, VerbError};
use super::reading::Reader;
use super::row::{key_of, signed};
use super::tx::Tx;
use super::{SqliteStore, claimed};
use crate::bulk::{self, Bulk, BulkRecord, BulkRequest, BulkStarted};
use crate::claim::{Claim, Claimed};
use crate::error::{Refusal, StoreError};
use crate::reading::{DeliveryRecord, Page, PageRequest, Position};
use row::BulkRow;
pub(super) use step::step;

#[async_trait]
impl Bulk for SqliteStore {
    async fn start_bulk(
        &self,
        request: BulkRequest,
        claim: Option<Claim<BulkStarted>>,
        now: Timestamp,
    ) -> Result<Claimed<BulkStarted>, StoreError> {
        let tenant = self.tenant_no(&request.tenant)?;
        loop {
            let (set, begun) = if request.kind == BulkKind::CatchUp {
                (Set::default(), None)
            } else {
                let other = self.read(move |reader| OtherWork::read(&reader, tenant)).await?;
                let replay = request.kind == BulkKind::Replay;
                let in_other = |record: &DeliveryRecord| replay && other.has(record);
                (Set::of(bulk::members(self, &request, in_other).await?), Some(other.begun))
            };
            let (request, claim) = (request.clone(), claim.clone());
            let verb = StartVerb { request, claim, now, set, begun };
            if let Some(claimed) = self.run(verb).await? {
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
        self.run(CancelVerb { tenant, id, now }).await
    }

    async fn bulk(&self, tenant: TenantId, id: ReplayId) -> Result<Option<BulkRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        self.read(move |reader| {
            let tag = reader.catalog.tag;
            Ok(BulkRow::find(reader.connection, tenant, id, tag)?.map(|row| row.record))
        })
        .await
    }

    async fn bulks(
        &self,
        tenant: TenantId,
        page: PageRequest,
    ) -> Result<Page<BulkRecord>, StoreError> {
        let tenant = self.tenant_no(&tenant)?;
        let below = page
            .after
            .map_or(i64::MAX, |Position(bits)| signed(ReplayId::from_bits(bits).sequence()));
        let one_more = i64::try_from(page.limit).unwrap_or(i64::MAX).saturating_add(1);
        self.read(move |reader| {
            let tag = reader.catalog.tag;
            let rows = BulkRow::list(reader.connection, tenant, (below, one_more), tag)?;
            Ok(bulk::page_of(rows.into_iter().map(|row| row.record).collect(), page.limit))
        })
        .await
    }
}

/// What unfinished work of the tenant has, as far as it sends anything.
struct OtherWork {
    /// All that was ever begun, by this count.
    begun: i64,
    members: HashSet<i64>,
    /// Endpoints that catch up, and with which events they do.
    catching_up: Vec<(EndpointId, std::ops::RangeInclusive<i64>)>,
}

impl OtherWork {
    fn read(reader: &Reader<'_>, tenant: i64) -> Result<Self, StoreError> {
        let begun = row::begun(reader.connection)?;
        let mut other = Self { begun, members: HashSet::new(), catching_up: Vec::new() };
        for bulk in BulkRow::running(reader.connection, tenant, reader.catalog.tag)? {
            match bulk.record.kind {
                BulkKind::Replay => {
                    other.members.extend(members::all(reader.connection, bulk.seq)?);
                }
                BulkKind::CatchUp => {
                    let events = bulk.cursor + 1..=bulk.last;
                    let endpoint = bulk.record.filter.endpoint;
                    other.catching_up.extend(endpoint.map(|endpoint| (endpoint, events)));
                }
                BulkKind::Acknowledge => {}
            }
        }
        Ok(other)
    }

    fn has(&self, record: &DeliveryRecord) -> bool {
        let event = signed(record.id.sequence());
        let catches_up = catches_up(&record.state)
            && self
                .catching_up
                .iter()
                .any(|(endpoint, events)| *endpoint == record.endpoint && events.contains(&event));
        catches_up || self.members.contains(&key_of(record.id))
    }
}

/// The deliveries of work that is begun, made ready before the writer's turn.
#[derive(Default)]
struct Set {
    matched: u64,
    last: Option<i64>,
    chunks: Vec<members::Chunk>,
}

impl Set {
    fn of(members: Vec<DeliveryId>) -> Self {
        let keys: Vec<i64> = members.into_iter().map(key_of).collect();
        let matched = u64::try_from(keys.len()).unwrap_or(u64::MAX);
        Self { matched, last: keys.last().copied(), chunks: members::chunks(&keys) }
    }
}

/// `start_bulk`: `None` if other work was begun since the set was read.
struct StartVerb {
    request: BulkRequest,
    claim: Option<Claim<BulkStarted>>,
    now: Timestamp,
    set: Set,
    /// What had been begun when the set was read; `None` where there is no set.
    begun: Option<i64>,
}

impl Verb for StartVerb {
    type Output = Option<Claimed<BulkStarted>>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        if let Some(begun) = self.begun
            && begun != row::begun(tx.connection)?
        {
            return Ok(None);
        }
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| self.start(tx)).map(Some)
    }

    fn weight(&self) -> usize {
        self.set.chunks.iter().map(members::Chunk::weight).sum()
    }
}

impl StartVerb {
    fn start(&self, tx: &mut Tx<'_>) -> Result<BulkStarted, VerbError> {
        let request = &self.request;
        let tenant = tx.tenant(&request.tenant)?;
        if let Some(id) = request.filter.endpoint {
            let directory = &tx.catalog().directory;
            let endpoint = directory.endpoint_of(&request.tenant, id).ok_or(Refusal::NotFound)?;
            if request.kind == BulkKind::CatchUp
                && let Some(reason) = endpoint.state.gone()
            {
                return Err(IllegalStep::EndpointGone(reason).into());
            }
        }
        let (matched, cursor, last) = match request.kind {
            BulkKind::CatchUp => {
                let catalog = tx.catalog();
                let reader = Reader { connection: tx.connection, catalog };
                let (first, last) = reader.events_since(request.filter.from)?;
                (None, first - 1, last)
            }
            BulkKind::Replay | BulkKind::Acknowledge => {
                (Some(self.set.matched), -1, self.set.last.unwrap_or(-1))
            }
        };
        if request.dry_run {
            return Ok(BulkStarted { id: None, matched });
        }
        let seq = row::begun(tx.connection)? + 1;
        let id = row::replay_id(seq, self.now, tx.tag());
        let record = BulkRecord {
            id,
            kind: request.kind,
            filter: request.filter.clone(),
            rate_per_second: request.rate_per_second,
            status: BulkStatus::Running,
            matched,
            tally: Tally::default(),
            created_at: self.now,
            ended_at: None,
        };
        let pace = BulkPace::new(request.rate_per_second, self.now);
        let mut bulk = BulkRow { seq, tenant, record, cursor, last, pace };
        if cursor >= last {
            bulk.end(BulkStatus::Done, self.now);
        }
        bulk.insert(tx.connection)?;
        members::insert(tx.connection, seq, &self.set.chunks)?;
        tx.jobs_pending();
        Ok(BulkStarted { id: Some(id), matched })
    }
}

/// `cancel_bulk`.
struct CancelVerb {
    tenant: TenantId,
    id: ReplayId,
    now: Timestamp,
}

impl Verb for CancelVerb {
    type Output = BulkRecord;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let tenant = tx.tenant(&self.tenant)?;
        let found = BulkRow::find(tx.connection, tenant, self.id, tx.tag())?;
        let mut bulk = found.ok_or(Refusal::NotFound)?;
        if bulk.record.status == BulkStatus::Running {
            bulk.end(BulkStatus::Cancelled, self.now);
            bulk.update(tx.connection)?;
            tx.jobs_pending();
        }
        Ok(bulk.record)
    }
}
