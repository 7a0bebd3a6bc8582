//! Work as a row, and back.

use everhook_domain::bulk::{BulkPace, BulkStatus};
use everhook_domain::id::ReplayId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, Row, params};

use super::super::meta::{meta, set_meta};
use super::super::row::{bad, signed, unsigned};
use crate::bulk::{BulkRecord, filter_from_stored, filter_to_stored, read_words, tally_to_stored};

const COLUMNS: &str = "seq, tenant, kind, filter, rate_per_second, status, matched, tally, \
     created_at, ended_at, cursor, last, paced_since, paced_done";

/// Work as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct BulkRow {
    pub(super) seq: i64,
    pub(super) tenant: i64,
    pub(super) record: BulkRecord,
    /// Up to this delivery (of a catch-up: event) all is done.
    pub(super) cursor: i64,
    /// Beyond this there is none.
    pub(super) last: i64,
    pub(super) pace: BulkPace,
}

/// Counts in the table `meta` all work that was ever begun, erased work too.
const BEGUN: &str = "bulks_begun";

/// How much work was ever begun.
pub(super) fn begun(connection: &Connection) -> rusqlite::Result<i64> {
    Ok(meta(connection, BEGUN)?.unwrap_or(0))
}

/// The public id.
pub(super) fn replay_id(seq: i64, created_at: Timestamp, tag: u16) -> ReplayId {
    ReplayId::from_parts(unsigned(created_at.as_millis()), unsigned(seq), tag, 0)
}

impl BulkRow {
    /// One of a tenant's.
    pub(super) fn find(
        connection: &Connection,
        tenant: i64,
        id: ReplayId,
        tag: u16,
    ) -> rusqlite::Result<Option<Self>> {
        let condition = "seq = ?1 AND tenant = ?2";
        let found = Self::select(connection, condition, [signed(id.sequence()), tenant], tag)?;
        Ok(found.into_iter().next().filter(|row| row.record.id == id))
    }

    /// A tenant's below a sequence, newest first.
    pub(super) fn list(
        connection: &Connection,
        tenant: i64,
        (below, limit): (i64, i64),
        tag: u16,
    ) -> rusqlite::Result<Vec<Self>> {
        let condition = "tenant = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3";
        Self::select(connection, condition, [tenant, below, limit], tag)
    }

    /// A tenant's that are not finished.
    pub(super) fn running(
        connection: &Connection,
        tenant: i64,
        tag: u16,
    ) -> rusqlite::Result<Vec<Self>> {
        Self::select(connection, "status = 'running' AND tenant = ?1", [tenant], tag)
    }

    /// The unfinished one that may go on first. Those of a deleted tenant wait for their end.
    pub(super) fn next(connection: &Connection, tag: u16) -> rusqlite::Result<Option<Self>> {
        let condition = "status = 'running' AND tenant NOT IN (SELECT no FROM tenants \
                         WHERE deleted_at IS NOT NULL) ORDER BY next_at LIMIT 1";
        Ok(Self::select(connection, condition, [], tag)?.into_iter().next())
    }

    fn select<const N: usize>(
        connection: &Connection,
        condition: &str,
        values: [i64; N],
        tag: u16,
    ) -> rusqlite::Result<Vec<Self>> {
        connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM bulks WHERE {condition}"))?
            .query_map(rusqlite::params_from_iter(values), |row| Self::read(row, tag))?
            .collect()
    }

    fn read(row: &Row<'_>, tag: u16) -> rusqlite::Result<Self> {
        let seq: i64 = row.get(0)?;
        let (kind, status, tally): (String, String, String) =
            (row.get(2)?, row.get(5)?, row.get(7)?);
        let (kind, status, tally) = read_words((&kind, &status, &tally), seq).map_err(bad)?;
        let created_at = Timestamp::from_millis(row.get(8)?);
        let record = BulkRecord {
            id: replay_id(seq, created_at, tag),
            kind,
            filter: filter_from_stored(&row.get::<_, String>(3)?, seq).map_err(bad)?,
            rate_per_second: row.get(4)?,
            status,
            matched: row.get::<_, Option<i64>>(6)?.map(unsigned),
            tally,
            created_at,
            ended_at: row.get::<_, Option<i64>>(9)?.map(Timestamp::from_millis),
        };
        let pace = BulkPace {
            rate_per_second: record.rate_per_second,
            since: Timestamp::from_millis(row.get(12)?),
            done: unsigned(row.get(13)?),
        };
        Ok(Self {
            seq,
            tenant: row.get(1)?,
            record,
            cursor: row.get(10)?,
            last: row.get(11)?,
            pace,
        })
    }

    /// Adds the row; its sequence must be the next after [`begun`].
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        set_meta(connection, BEGUN, self.seq)?;
        let record = &self.record;
        let running = record.status == BulkStatus::Running;
        connection
            .prepare_cached(
                "INSERT INTO bulks (seq, tenant, kind, filter, rate_per_second, status, matched, \
                 tally, created_at, ended_at, cursor, last, paced_since, paced_done, next_at, \
                 has_members) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, \
                 ?14, ?15, ?16)",
            )?
            .execute(params![
                self.seq,
                self.tenant,
                record.kind.as_str(),
                filter_to_stored(&record.filter),
                record.rate_per_second,
                record.status.as_str(),
                record.matched.map(signed),
                tally_to_stored(&record.tally),
                record.created_at.as_millis(),
                record.ended_at.map(Timestamp::as_millis),
                self.cursor,
                self.last,
                self.pace.since.as_millis(),
                signed(self.pace.done),
                self.pace.next().as_millis(),
                running && record.matched.is_some(),
            ])?;
        Ok(())
    }

    /// Writes back what changes.
    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "UPDATE bulks SET status = ?2, tally = ?3, ended_at = ?4, cursor = ?5, \
                 paced_since = ?6, paced_done = ?7, next_at = ?8 WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                self.record.status.as_str(),
                tally_to_stored(&self.record.tally),
                self.record.ended_at.map(Timestamp::as_millis),
                self.cursor,
                self.pace.since.as_millis(),
                signed(self.pace.done),
                self.pace.next().as_millis(),
            ])?;
        Ok(())
    }

    /// Ends the work.
    pub(super) fn end(&mut self, status: BulkStatus, now: Timestamp) {
        self.record.status = status;
        self.record.ended_at = Some(now);
    }
}
