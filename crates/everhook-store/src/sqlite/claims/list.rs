//! What is shown of idempotency records: claims and those of our own API, as one list.

use everhook_domain::id::RecordId;
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};

use super::super::reading::{List, Reader};
use super::super::row::signed;
use super::row::{self, ClaimRow, record_id};
use crate::error::StoreError;
use crate::keys::{KeyRecord, RecordName, RecordOrigin, RecordQuery, RecordState, RecordStateWord};
use crate::reading::{Page, PageRequest, Position};

/// What [`read_own`] reads, in its order.
const OWN_COLUMNS: &str = "seq, created_at, tenant, account_name, subject, status, expires_at, key";

/// A record with whose it is.
struct Found {
    tenant: i64,
    record: KeyRecord,
}

/// A tenant's records that are live, newest first: sequences are drawn from one source, so two
/// tables are one order.
pub(super) fn records(
    reader: &Reader<'_>,
    tenant: i64,
    query: RecordQuery,
    page: PageRequest,
    now: Timestamp,
) -> Result<Page<KeyRecord>, StoreError> {
    let tag = reader.catalog.tag;
    let below =
        page.after.map_or(i64::MAX, |Position(bits)| signed(RecordId::from_bits(bits).sequence()));
    let (claims, own) = query.sides();
    let open = match query.state {
        Some(RecordStateWord::InProgress | RecordStateWord::Unknown) => "status IS NULL AND ",
        Some(RecordStateWord::Completed) | None => "",
    };
    let mut claimed = reader.connection.prepare_cached(&format!(
        "SELECT {} FROM claims WHERE {open}tenant = ?2 AND seq < ?1 ORDER BY seq DESC",
        row::COLUMNS
    ))?;
    let mut answered = reader.connection.prepare_cached(&format!(
        "SELECT {OWN_COLUMNS} FROM idempotency_records \
         WHERE created_at IS NOT NULL AND seq < ?1 ORDER BY seq DESC"
    ))?;
    // Below the first there is none.
    let from = |wanted: bool| if wanted { below } else { 0 };
    let mut claimed = claimed.query(params![from(claims), tenant])?;
    let mut answered = answered.query([from(own)])?;
    let read_claim = |row: &Row<'_>| {
        let row = ClaimRow::read(row)?;
        Ok(Found { tenant: row.tenant, record: row.shown(tag, now) })
    };
    let read_answer = |row: &Row<'_>| read_own(row, tag).map(|(found, _)| found);
    let mut next_claim = next(&mut claimed, read_claim)?;
    let mut next_answer = next(&mut answered, read_answer)?;
    let mut list = List::new(page);
    loop {
        let id = |found: &Option<Found>| found.as_ref().map(|found| found.record.id);
        let found = if id(&next_claim) > id(&next_answer) {
            std::mem::replace(&mut next_claim, next(&mut claimed, read_claim)?)
        } else {
            std::mem::replace(&mut next_answer, next(&mut answered, read_answer)?)
        };
        let Some(Found { tenant: owner, record }) = found else { break };
        let position = Position(record.id.bits());
        let wanted = owner == tenant && record.expires_at > now && query.wants(&record);
        if list.offer(position, wanted.then_some(record)) {
            break;
        }
    }
    Ok(list.finish())
}

fn next(
    rows: &mut Rows<'_>,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<Found>,
) -> rusqlite::Result<Option<Found>> {
    rows.next()?.map(read).transpose()
}

/// A tenant's record of our own API by its id, with its key.
pub(super) fn of_api(
    connection: &Connection,
    tenant: i64,
    id: RecordId,
    tag: u16,
) -> rusqlite::Result<Option<(KeyHash, KeyRecord)>> {
    let found = connection
        .prepare_cached(&format!(
            "SELECT {OWN_COLUMNS} FROM idempotency_records \
             WHERE seq = ?1 AND created_at IS NOT NULL"
        ))?
        .query_row([signed(id.sequence())], |row| read_own(row, tag))
        .optional()?;
    let own = found.filter(|(found, _)| found.tenant == tenant && found.record.id == id);
    Ok(own.map(|(found, key)| (key, found.record)))
}

fn read_own(row: &Row<'_>, tag: u16) -> rusqlite::Result<(Found, KeyHash)> {
    let record = KeyRecord {
        id: record_id(row.get(0)?, row.get(1)?, tag),
        name: RecordName { origin: RecordOrigin::Api, account: row.get(3)?, subject: row.get(4)? },
        state: RecordState::Completed { status: row.get(5)?, replayable: true },
        expires_at: Timestamp::from_millis(row.get(6)?),
    };
    Ok((Found { tenant: row.get(2)?, record }, KeyHash(row.get(7)?)))
}
