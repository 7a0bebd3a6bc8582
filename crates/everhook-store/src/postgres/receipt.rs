//! Receipts as rows.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use everhook_domain::event::EventType;
use everhook_domain::id::{EventId, ReceiptId, SourceId};
use everhook_domain::inbound::ForwardedHeaders;
use everhook_domain::receipt::{Decision, ReceiptReason, ReceiptStatus, Standing};
use everhook_domain::source::SourceName;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::number::{Bits, bits, signed, small, unsigned};
use super::pool::Connection;
use super::tx::Tx;
use crate::code;
use crate::error::Refusal;
use crate::receipt::{read_headers, read_reason, reason_columns};
use crate::receiving::ReceiptRecord;

/// What [`read`] reads, in its order.
pub(super) const COLUMNS: &str = "id, source, type, key, last_seen_at, duplicates, body_changed, \
     status, reason, reason_of, reason_text, released_at";

/// A receipt that is being made.
pub(super) struct NewReceiptRow<'a> {
    pub(super) id: ReceiptId,
    pub(super) event_type: &'a EventType,
    pub(super) key: &'a str,
    pub(super) content: &'a [u8; 32],
    pub(super) status: ReceiptStatus,
    pub(super) reason: Option<ReceiptReason>,
}

/// Reads [`COLUMNS`]; the rest is for [`fill_deliveries`].
pub(super) fn read(row: &Row) -> Result<ReceiptRecord, VerbError> {
    let (Bits(id), Bits(source)) = (row.try_get(0)?, row.try_get(1)?);
    let id = ReceiptId::from_bits(id);
    let event_type = EventType::any(row.try_get(2)?)
        .map_err(|error| VerbError::Unusable(format!("the type of receipt {id}: {error}")))?;
    let status: i16 = row.try_get(7)?;
    let reason: Option<i16> = row.try_get(8)?;
    let of: Option<Bits> = row.try_get(9)?;
    let of = of.map(|Bits(of)| ReceiptId::from_bits(of));
    let released_at: Option<i64> = row.try_get(11)?;
    Ok(ReceiptRecord {
        id,
        source: SourceId::from_bits(source),
        key: row.try_get(3)?,
        event_type,
        first_seen_at: id.created_at(),
        last_seen_at: Timestamp::from_millis(row.try_get(4)?),
        duplicates: unsigned(row.try_get(5)?),
        body_changed: row.try_get(6)?,
        status: code::read_receipt_status(i64::from(status))?,
        reason: read_reason((reason.map(i64::from), of, row.try_get(10)?))?,
        deliveries: 0,
        processed_at: None,
        released_at: released_at.map(Timestamp::from_millis),
    })
}

/// Where a receipt stands.
pub(super) const fn standing(record: &ReceiptRecord) -> Standing {
    Standing::of(record.status, record.reason.as_ref(), record.released_at.is_some())
}

/// Adds rows, all with the headers that are stored with this receipt.
pub(super) async fn insert(
    connection: &mut Connection,
    (tenant, source): (&TenantId, SourceId),
    rows: &[NewReceiptRow<'_>],
    headers: ReceiptId,
) -> Result<(), VerbError> {
    let ids: Vec<Bits> = rows.iter().map(|row| Bits::from(row.id)).collect();
    let types: Vec<&str> = rows.iter().map(|row| row.event_type.as_str()).collect();
    let keys: Vec<&str> = rows.iter().map(|row| row.key).collect();
    let contents: Vec<&[u8]> = rows.iter().map(|row| &row.content[..]).collect();
    let seen: Vec<i64> = rows.iter().map(|row| row.id.created_at().as_millis()).collect();
    let statuses: Vec<i16> =
        rows.iter().map(|row| small(code::receipt_status(row.status))).collect();
    let reasons: Vec<_> = rows.iter().map(|row| reason_columns(row.reason.as_ref())).collect();
    let codes: Vec<Option<i16>> = reasons.iter().map(|(code, ..)| code.map(small)).collect();
    let of: Vec<Option<Bits>> = reasons.iter().map(|(_, of, _)| of.map(Bits::from)).collect();
    let texts: Vec<Option<&str>> = reasons.iter().map(|(.., text)| *text).collect();
    connection
        .execute(
            "INSERT INTO receipts (tenant, source, headers, duplicates, body_changed, id, type, \
             key, content, last_seen_at, status, reason, reason_of, reason_text) \
             SELECT $1::text, $2::uuid, $3::uuid, 0, false, v.* FROM unnest($4::uuid[], \
             $5::text[], $6::text[], $7::bytea[], $8::bigint[], $9::smallint[], $10::smallint[], \
             $11::uuid[], $12::text[]) AS v",
            &[
                &tenant.as_str(),
                &Bits::from(source),
                &Bits::from(headers),
                &ids,
                &types,
                &keys,
                &contents,
                &seen,
                &statuses,
                &codes,
                &of,
                &texts,
            ],
        )
        .await?;
    Ok(())
}

/// Stores the headers of a request with the first of its receipts.
pub(super) async fn insert_headers(
    connection: &mut Connection,
    tenant: &TenantId,
    first: ReceiptId,
    headers: &ForwardedHeaders,
) -> Result<(), VerbError> {
    let statement = "INSERT INTO received_headers (tenant, id, headers) VALUES ($1, $2, $3)";
    let values = (tenant.as_str(), Bits::from(first), headers.to_stored());
    connection.execute(statement, &[&values.0, &values.1, &values.2]).await?;
    Ok(())
}

/// The contents that these receipts came with; one that is gone is not in it.
pub(super) async fn contents(
    connection: &mut Connection,
    tenant: &TenantId,
    receipts: &[ReceiptId],
) -> Result<HashMap<ReceiptId, Vec<u8>>, VerbError> {
    if receipts.is_empty() {
        return Ok(HashMap::new());
    }
    let statement = "SELECT id, content FROM receipts WHERE tenant = $1 AND id = ANY($2)";
    let rows = connection.query(statement, &[&tenant.as_str(), &bits(receipts)]).await?;
    let read = |row: &Row| {
        let Bits(id) = row.try_get(0)?;
        Ok((ReceiptId::from_bits(id), row.try_get(1)?))
    };
    rows.iter().map(read).collect()
}

/// Counts duplicates: how many of each receipt, and whether one of them had another body.
pub(super) async fn count(
    connection: &mut Connection,
    tenant: &TenantId,
    duplicates: &BTreeMap<ReceiptId, (u64, bool)>,
    now: Timestamp,
) -> Result<(), VerbError> {
    for (receipt, (count, body_changed)) in duplicates {
        let statement = "UPDATE receipts SET duplicates = duplicates + $3, \
                         body_changed = body_changed OR $4, \
                         last_seen_at = greatest(last_seen_at, $5) WHERE tenant = $1 AND id = $2";
        let values = (Bits::from(*receipt), signed(*count), now.as_millis());
        connection
            .execute(statement, &[&tenant.as_str(), &values.0, &values.1, body_changed, &values.2])
            .await?;
    }
    Ok(())
}

/// The name of the source of a received event.
///
/// # Errors
/// Its receipt waits, or is dead: it must not be sent.
pub(super) async fn running(
    tx: &mut Tx,
    tenant: &TenantId,
    event: EventId,
) -> Result<Option<SourceName>, VerbError> {
    let statement = format!("SELECT {COLUMNS} FROM receipts WHERE tenant = $1 AND id = $2");
    let found = tx.connection.first(&statement, &[&tenant.as_str(), &Bits::from(event)]).await?;
    let Some(row) = found else { return Ok(None) };
    let record = read(&row)?;
    standing(&record).decide(Decision::Force).map_err(Refusal::Receipt)?;
    Ok(tx.directory.source_name(record.source).cloned())
}

/// The headers that go on with those of these events that were received.
pub(super) async fn headers(
    connection: &mut Connection,
    (tenants, events): (&[&str], &[EventId]),
) -> Result<HashMap<EventId, Arc<ForwardedHeaders>>, VerbError> {
    let statement = "SELECT r.id, h.headers FROM receipts AS r JOIN received_headers AS h \
                     ON h.tenant = r.tenant AND h.id = r.headers \
                     WHERE r.tenant = ANY($1) AND r.id = ANY($2)";
    let rows = connection.query(statement, &[&tenants, &bits(events)]).await?;
    let read = |row: &Row| {
        let Bits(id) = row.try_get(0)?;
        let id = EventId::from_bits(id);
        Ok((id, Arc::new(read_headers(id, row.try_get(1)?))))
    };
    rows.iter().map(read).collect()
}

/// Fills in how many deliveries each one has, and when the last of them was delivered.
pub(super) async fn fill_deliveries(
    connection: &mut Connection,
    tenant: &TenantId,
    records: &mut [ReceiptRecord],
) -> Result<(), VerbError> {
    // The last attempt of a delivery that was delivered is the one that did it.
    let statement = "SELECT v.place, d.count, CASE WHEN d.delivered = d.count THEN \
         (SELECT max(a.started_at + a.duration_ms) FROM attempts AS a \
         WHERE a.delivery BETWEEN v.first AND v.last) END \
         FROM unnest($2::uuid[], $3::uuid[]) WITH ORDINALITY AS v (first, last, place), \
         LATERAL (SELECT count(*) AS count, count(*) FILTER (WHERE status = $4) AS delivered \
         FROM deliveries WHERE tenant = $1 AND id BETWEEN v.first AND v.last) AS d";
    let id = |record: &ReceiptRecord, ordinal| Bits::from(record.id.event().delivery(ordinal));
    let first: Vec<Bits> = records.iter().map(|record| id(record, 0)).collect();
    let last: Vec<Bits> = records.iter().map(|record| id(record, u16::MAX)).collect();
    let delivered = small(code::status::DELIVERED);
    let values = (tenant.as_str(), first, last);
    for row in connection.query(statement, &[&values.0, &values.1, &values.2, &delivered]).await? {
        let (place, count): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let at: Option<i64> = row.try_get(2)?;
        let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
        if let Some(record) = records.get_mut(place) {
            record.deliveries = u32::try_from(count).unwrap_or(u32::MAX);
            record.processed_at = at.map(Timestamp::from_millis);
        }
    }
    Ok(())
}

/// Writes back what a decision has changed.
pub(super) async fn update(
    connection: &mut Connection,
    tenant: &TenantId,
    record: &ReceiptRecord,
) -> Result<(), VerbError> {
    let (code, of, text) = reason_columns(record.reason.as_ref());
    let statement = "UPDATE receipts SET status = $3, reason = $4, reason_of = $5, \
                     reason_text = $6, released_at = $7 WHERE tenant = $1 AND id = $2";
    connection
        .execute(
            statement,
            &[
                &tenant.as_str(),
                &Bits::from(record.id),
                &small(code::receipt_status(record.status)),
                &code.map(small),
                &of.map(Bits::from),
                &text,
                &record.released_at.map(Timestamp::as_millis),
            ],
        )
        .await?;
    Ok(())
}
