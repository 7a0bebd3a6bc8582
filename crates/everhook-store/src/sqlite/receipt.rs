//! Receipts as rows.

use std::sync::Arc;

use everhook_domain::event::EventType;
use everhook_domain::id::{ReceiptId, SourceId};
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::receipt::{Decision, ReceiptReason, ReceiptStatus, Standing};
use everhook_domain::source::SourceName;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::command::VerbError;
use super::row::{bad, event_id, first_key, last_key, signed, unsigned};
use super::tx::Tx;
use crate::code::{self, UnknownCode, status};
use crate::error::Refusal;
use crate::receipt::{read_reason, reason_columns};
use crate::receiving::ReceiptRecord;

/// What [`ReceiptRow::read`] reads, in its order.
pub(super) const COLUMNS: &str = "seq, tenant, source, created_at, type, key, last_seen_at, \
     duplicates, body_changed, status, reason, reason_of, reason_at, reason_text, released_at";

/// A receipt as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct ReceiptRow {
    pub(super) id: ReceiptId,
    pub(super) tenant: i64,
    /// The source's number.
    pub(super) source: i64,
    pub(super) event_type: EventType,
    pub(super) key: String,
    pub(super) last_seen_at: Timestamp,
    pub(super) duplicates: u64,
    pub(super) body_changed: bool,
    pub(super) status: ReceiptStatus,
    pub(super) reason: Option<ReceiptReason>,
    pub(super) released_at: Option<Timestamp>,
}

impl ReceiptRow {
    /// Reads the columns of [`COLUMNS`].
    pub(super) fn read(row: &Row<'_>, tag: u16) -> rusqlite::Result<Self> {
        let sequence: i64 = row.get(0)?;
        let event_type: String = row.get(4)?;
        let of: Option<i64> = row.get(11)?;
        let at: Option<i64> = row.get(12)?;
        let of = of.zip(at).map(|(of, at)| receipt_id(of, at, tag));
        let text: Option<String> = row.get(13)?;
        Ok(Self {
            id: receipt_id(sequence, row.get(3)?, tag),
            tenant: row.get(1)?,
            source: row.get(2)?,
            event_type: EventType::any(&event_type)
                .map_err(|_| bad(UnknownCode("event type", sequence)))?,
            key: row.get(5)?,
            last_seen_at: Timestamp::from_millis(row.get(6)?),
            duplicates: unsigned(row.get(7)?),
            body_changed: row.get(8)?,
            status: code::read_receipt_status(row.get(9)?).map_err(bad)?,
            reason: read_reason((row.get(10)?, of, text.as_deref())).map_err(bad)?,
            released_at: row.get::<_, Option<i64>>(14)?.map(Timestamp::from_millis),
        })
    }

    /// A tenant's receipt.
    pub(super) fn find(
        connection: &Connection,
        tenant: i64,
        id: ReceiptId,
        tag: u16,
    ) -> rusqlite::Result<Option<Self>> {
        let found = connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM receipts WHERE seq = ?1"))?
            .query_row([signed(id.sequence())], |row| Self::read(row, tag))
            .optional()?;
        Ok(found.filter(|row| row.tenant == tenant && row.id == id))
    }

    /// Adds the row. `headers` is the row of its headers.
    pub(super) fn insert(
        &self,
        connection: &Connection,
        content: &[u8; 32],
        headers: i64,
    ) -> rusqlite::Result<()> {
        let (reason, of, text) = reason_columns(self.reason.as_ref());
        connection
            .prepare_cached(
                "INSERT INTO receipts (seq, tenant, source, created_at, type, key, content, \
                 headers, last_seen_at, duplicates, body_changed, status, reason, reason_of, \
                 reason_at, reason_text) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
                 ?12, ?13, ?14, ?15, ?16)",
            )?
            .execute(params![
                signed(self.id.sequence()),
                self.tenant,
                self.source,
                self.id.created_at().as_millis(),
                self.event_type.as_str(),
                self.key,
                content,
                headers,
                self.last_seen_at.as_millis(),
                signed(self.duplicates),
                self.body_changed,
                code::receipt_status(self.status),
                reason,
                of.map(|of| signed(of.sequence())),
                of.map(|of| of.created_at().as_millis()),
                text,
            ])?;
        Ok(())
    }

    /// Writes back what a decision has changed.
    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        let (reason, of, text) = reason_columns(self.reason.as_ref());
        connection
            .prepare_cached(
                "UPDATE receipts SET status = ?2, reason = ?3, reason_of = ?4, reason_at = ?5, \
                 reason_text = ?6, released_at = ?7 WHERE seq = ?1",
            )?
            .execute(params![
                signed(self.id.sequence()),
                code::receipt_status(self.status),
                reason,
                of.map(|of| signed(of.sequence())),
                of.map(|of| of.created_at().as_millis()),
                text,
                self.released_at.map(Timestamp::as_millis),
            ])?;
        Ok(())
    }

    /// Where it stands.
    pub(super) const fn standing(&self) -> Standing {
        Standing::of(self.status, self.reason.as_ref(), self.released_at.is_some())
    }

    /// What is shown of it.
    pub(super) fn record(
        &self,
        connection: &Connection,
        source: SourceId,
    ) -> rusqlite::Result<ReceiptRecord> {
        let (deliveries, processed_at) = deliveries(connection, signed(self.id.sequence()))?;
        Ok(ReceiptRecord {
            id: self.id,
            source,
            key: self.key.clone(),
            event_type: self.event_type.clone(),
            first_seen_at: self.id.created_at(),
            last_seen_at: self.last_seen_at,
            duplicates: self.duplicates,
            body_changed: self.body_changed,
            status: self.status,
            reason: self.reason.clone(),
            deliveries,
            processed_at,
            released_at: self.released_at,
        })
    }
}

/// The public id of a receipt.
fn receipt_id(sequence: i64, created_at: i64, tag: u16) -> ReceiptId {
    event_id(first_key(sequence), created_at, tag).receipt()
}

/// A receipt by the sequence that a key leads to, with the content that it came with; `None` if it
/// is gone.
pub(super) fn first_of(
    connection: &Connection,
    sequence: i64,
    tag: u16,
) -> rusqlite::Result<Option<(ReceiptId, [u8; 32])>> {
    connection
        .prepare_cached("SELECT created_at, content FROM receipts WHERE seq = ?1")?
        .query_row([sequence], |row| Ok((receipt_id(sequence, row.get(0)?, tag), row.get(1)?)))
        .optional()
}

/// Counts a duplicate.
pub(super) fn count(
    connection: &Connection,
    of: ReceiptId,
    body_changed: bool,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE receipts SET duplicates = duplicates + 1, \
             last_seen_at = max(last_seen_at, ?2), body_changed = body_changed OR ?3 \
             WHERE seq = ?1",
        )?
        .execute(params![signed(of.sequence()), now.as_millis(), body_changed])?;
    Ok(())
}

/// The name of the source of a received event.
///
/// # Errors
/// Its receipt waits, or is dead: it must not be sent.
pub(super) fn running(tx: &Tx<'_>, sequence: i64) -> Result<Option<SourceName>, VerbError> {
    let found = tx
        .connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM receipts WHERE seq = ?1"))?
        .query_row([sequence], |row| ReceiptRow::read(row, tx.tag()))
        .optional()?;
    let Some(row) = found else { return Ok(None) };
    row.standing().decide(Decision::Force).map_err(Refusal::Receipt)?;
    let catalog = tx.catalog();
    let source = catalog.source(row.source);
    Ok(source.and_then(|source| catalog.directory.source_name(source)).cloned())
}

/// Stores the headers of a request whose first event has this sequence.
pub(super) fn insert_headers(
    connection: &Connection,
    tenant: i64,
    sequence: i64,
    headers: &ForwardedHeaders,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO received_headers (seq, tenant, headers) VALUES (?1, ?2, ?3)")?
        .execute(params![sequence, tenant, headers.to_stored()])?;
    Ok(())
}

/// The headers that go on with an event, if it was received.
pub(super) fn headers(
    connection: &Connection,
    sequence: i64,
) -> rusqlite::Result<Option<Arc<ForwardedHeaders>>> {
    let stored: Option<String> = connection
        .prepare_cached(
            "SELECT received_headers.headers FROM receipts JOIN received_headers \
             ON received_headers.seq = receipts.headers WHERE receipts.seq = ?1",
        )?
        .query_row([sequence], |row| row.get(0))
        .optional()?;
    Ok(stored.map(|stored| Arc::new(crate::receipt::read_headers(sequence, &stored))))
}

/// How many deliveries an event has, and when the last of them was delivered: `None` while one is
/// not, or without any.
fn deliveries(
    connection: &Connection,
    sequence: i64,
) -> rusqlite::Result<(u32, Option<Timestamp>)> {
    let span = (first_key(sequence), last_key(sequence));
    let (count, delivered): (u32, u32) = connection
        .prepare_cached(
            "SELECT count(*), count(*) FILTER (WHERE status = ?3) FROM deliveries \
             WHERE id BETWEEN ?1 AND ?2",
        )?
        .query_row(params![span.0, span.1, status::DELIVERED], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    if delivered < count {
        return Ok((count, None));
    }
    // The last attempt of a delivery that was delivered is the one that did it.
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT max(started_at + duration_ms) FROM attempts WHERE delivery BETWEEN ?1 AND ?2",
        )?
        .query_row(params![span.0, span.1], |row| row.get(0))?;
    Ok((count, last.map(Timestamp::from_millis)))
}
