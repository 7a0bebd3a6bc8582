//! Work as a row, and back.

use everhook_domain::bulk::{BulkPace, BulkStatus};
use everhook_domain::id::ReplayId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::catalog;
use super::super::failure::VerbError;
use super::super::number::{Bits, count, int, signed, unsigned};
use super::super::pool::Connection;
use super::super::schema;
use crate::bulk::{BulkRecord, filter_from_stored, filter_to_stored, read_words, tally_to_stored};

const COLUMNS: &str = "tenant, id, kind, filter, rate_per_second, status, matched, tally, \
     created_at, ended_at, cursor, last, paced_since, paced_done";

/// Counts in the table `meta` all work that was ever begun.
const BEGUN: &str = "bulks_begun";

/// Work as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct BulkRow {
    pub(super) tenant: TenantId,
    pub(super) record: BulkRecord,
    /// Up to this delivery (of a catch-up: event) all is done.
    pub(super) cursor: Bits,
    /// Beyond this there is none.
    pub(super) last: Bits,
    pub(super) pace: BulkPace,
}

/// How much work was ever begun.
pub(super) async fn begun(connection: &mut Connection) -> Result<i64, VerbError> {
    Ok(schema::meta(connection, BEGUN).await?.unwrap_or(0))
}

/// Counts one more, and returns how much was begun before it. Others wait until this transaction
/// has ended.
pub(super) async fn count_begun(connection: &mut Connection) -> Result<i64, VerbError> {
    let statement = "INSERT INTO meta (name, value) VALUES ($1, 1) \
                     ON CONFLICT (name) DO UPDATE SET value = meta.value + 1 RETURNING value - 1";
    let row = connection.first(statement, &[&BEGUN]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
}

impl BulkRow {
    /// One of a tenant's. `lock`: nobody else changes it until this transaction has ended.
    pub(super) async fn find(
        connection: &mut Connection,
        tenant: &TenantId,
        id: ReplayId,
        lock: bool,
    ) -> Result<Option<Self>, VerbError> {
        let lock = if lock { "FOR UPDATE" } else { "" };
        let condition = format!("tenant = $1 AND id = $2 {lock}");
        let values: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &Bits::from(id)];
        Ok(Self::select(connection, &condition, &values).await?.into_iter().next())
    }

    /// A tenant's below an id, newest first.
    pub(super) async fn list(
        connection: &mut Connection,
        tenant: &TenantId,
        below: Bits,
        limit: i64,
    ) -> Result<Vec<Self>, VerbError> {
        let condition = "tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
        Self::select(connection, condition, &[&tenant.as_str(), &below, &limit]).await
    }

    /// A tenant's that are not finished.
    pub(super) async fn running(
        connection: &mut Connection,
        tenant: &TenantId,
    ) -> Result<Vec<Self>, VerbError> {
        let condition = "status = 'running' AND tenant = $1";
        Self::select(connection, condition, &[&tenant.as_str()]).await
    }

    /// The unfinished one that may go on first and that no other node is at. Those of a deleted
    /// tenant wait for their end.
    pub(super) async fn next(connection: &mut Connection) -> Result<Option<Self>, VerbError> {
        let condition = "status = 'running' AND tenant NOT IN (SELECT id FROM tenants \
             WHERE deleted_at IS NOT NULL) ORDER BY next_at, tenant, id LIMIT 1 \
             FOR UPDATE SKIP LOCKED";
        Ok(Self::select(connection, condition, &[]).await?.into_iter().next())
    }

    async fn select(
        connection: &mut Connection,
        condition: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Self>, VerbError> {
        let statement = format!("SELECT {COLUMNS} FROM bulks WHERE {condition}");
        connection.query(&statement, values).await?.iter().map(Self::read).collect()
    }

    fn read(row: &Row) -> Result<Self, VerbError> {
        let words = (row.try_get(2)?, row.try_get(5)?, row.try_get(7)?);
        let (kind, status, tally) = read_words(words, 0)?;
        let Bits(id) = row.try_get(1)?;
        let record = BulkRecord {
            id: ReplayId::from_bits(id),
            kind,
            filter: filter_from_stored(row.try_get(3)?, 0)?,
            rate_per_second: count(row.try_get(4)?),
            status,
            matched: row.try_get::<_, Option<i64>>(6)?.map(unsigned),
            tally,
            created_at: Timestamp::from_millis(row.try_get(8)?),
            ended_at: row.try_get::<_, Option<i64>>(9)?.map(Timestamp::from_millis),
        };
        let pace = BulkPace {
            rate_per_second: record.rate_per_second,
            since: Timestamp::from_millis(row.try_get(12)?),
            done: unsigned(row.try_get(13)?),
        };
        let tenant = catalog::tenant(row, 0)?;
        Ok(Self { tenant, record, cursor: row.try_get(10)?, last: row.try_get(11)?, pace })
    }

    /// Adds the row.
    pub(super) async fn insert(&self, connection: &mut Connection) -> Result<(), VerbError> {
        let record = &self.record;
        let running = record.status == BulkStatus::Running;
        let statement = format!(
            "INSERT INTO bulks ({COLUMNS}, next_at, has_members) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"
        );
        let values: [&(dyn ToSql + Sync); 16] = [
            &self.tenant.as_str(),
            &Bits::from(record.id),
            &record.kind.as_str(),
            &filter_to_stored(&record.filter),
            &int(record.rate_per_second),
            &record.status.as_str(),
            &record.matched.map(signed),
            &tally_to_stored(&record.tally),
            &record.created_at.as_millis(),
            &record.ended_at.map(Timestamp::as_millis),
            &self.cursor,
            &self.last,
            &self.pace.since.as_millis(),
            &signed(self.pace.done),
            &self.pace.next().as_millis(),
            &(running && record.matched.is_some()),
        ];
        connection.execute(&statement, &values).await?;
        Ok(())
    }

    /// Writes back what changes.
    pub(super) async fn update(&self, connection: &mut Connection) -> Result<(), VerbError> {
        let statement = "UPDATE bulks SET status = $3, tally = $4, ended_at = $5, cursor = $6, \
                         paced_since = $7, paced_done = $8, next_at = $9 \
                         WHERE tenant = $1 AND id = $2";
        let values: [&(dyn ToSql + Sync); 9] = [
            &self.tenant.as_str(),
            &Bits::from(self.record.id),
            &self.record.status.as_str(),
            &tally_to_stored(&self.record.tally),
            &self.record.ended_at.map(Timestamp::as_millis),
            &self.cursor,
            &self.pace.since.as_millis(),
            &signed(self.pace.done),
            &self.pace.next().as_millis(),
        ];
        connection.execute(statement, &values).await?;
        Ok(())
    }

    /// Ends the work.
    pub(super) fn end(&mut self, status: BulkStatus, now: Timestamp) {
        self.record.status = status;
        self.record.ended_at = Some(now);
    }
}
