//! Source event IDs and receipts' keys: one row decides, whoever comes at the same instant.

use std::collections::{BTreeMap, HashMap};

use everhook_domain::id::{EventId, ReceiptId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::number::{Bits, size};
use super::pool::Connection;
use super::tx::Tx;

/// Takes each key that is new or whose window is over for its event, and returns the first event of
/// every key: the one given where it was taken. Waits for a transaction that is about to take one.
pub(super) async fn first_events(
    connection: &mut Connection,
    tenant: &TenantId,
    keys: &HashMap<Bits, EventId>,
    (now, expires_at): (Timestamp, Timestamp),
) -> Result<HashMap<Bits, EventId>, VerbError> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let tenant = tenant.as_str();
    let (hashes, events): (Vec<Bits>, Vec<Bits>) =
        keys.iter().map(|(key, event)| (*key, Bits::from(*event))).unzip();
    // In the order of the keys, so that two batches never wait for each other.
    let taken = connection
        .query(
            "INSERT INTO source_event_ids (tenant, key, event, expires_at) \
             SELECT $1::text, v.key, v.event, $4::bigint \
             FROM unnest($2::uuid[], $3::uuid[]) AS v (key, event) ORDER BY v.key \
             ON CONFLICT (tenant, key) DO UPDATE \
             SET event = excluded.event, expires_at = excluded.expires_at \
             WHERE source_event_ids.expires_at <= $5::bigint RETURNING key",
            &[&tenant, &hashes, &events, &expires_at.as_millis(), &now.as_millis()],
        )
        .await?;
    let mut first = HashMap::with_capacity(keys.len());
    for row in taken {
        let key: Bits = row.try_get(0)?;
        first.extend(keys.get_key_value(&key));
    }
    let held: Vec<Bits> = hashes.into_iter().filter(|key| !first.contains_key(key)).collect();
    if !held.is_empty() {
        let statement =
            "SELECT key, event FROM source_event_ids WHERE tenant = $1 AND key = ANY($2)";
        for row in connection.query(statement, &[&tenant, &held]).await? {
            let Bits(event) = row.try_get(1)?;
            first.insert(row.try_get(0)?, EventId::from_bits(event));
        }
    }
    Ok(first)
}

/// Makes a key lead to this event until an instant, whatever it led to before.
pub(super) async fn set_first_event(
    connection: &mut Connection,
    tenant: &TenantId,
    (key, event, expires_at): (Bits, EventId, Timestamp),
) -> Result<(), VerbError> {
    let statement = "INSERT INTO source_event_ids (tenant, key, event, expires_at) \
                     VALUES ($1, $2, $3, $4) ON CONFLICT (tenant, key) DO UPDATE \
                     SET event = excluded.event, expires_at = excluded.expires_at";
    let values = (Bits::from(event), expires_at.as_millis());
    connection.execute(statement, &[&tenant.as_str(), &key, &values.0, &values.1]).await?;
    Ok(())
}

/// Takes each receipt key that is new or whose window is over for a receipt until an instant, and
/// returns the receipt that every key then leads to. Whether it was taken or not, the key is
/// locked: another transaction that wants it waits for this one.
pub(super) async fn take_receipt_keys(
    connection: &mut Connection,
    tenant: &TenantId,
    keys: &BTreeMap<Bits, (ReceiptId, Timestamp)>,
    now: Timestamp,
) -> Result<HashMap<Bits, ReceiptId>, VerbError> {
    let (hashes, receipts, expiries) = columns(keys);
    // In the order of the keys, so that two requests never wait for each other.
    let rows = connection
        .query(
            "INSERT INTO receipt_keys AS k (tenant, key, receipt, expires_at) \
             SELECT $1::text, v.* FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) \
             AS v (key, receipt, expires_at) ORDER BY v.key \
             ON CONFLICT (tenant, key) DO UPDATE SET \
             receipt = CASE WHEN k.expires_at <= $5 THEN excluded.receipt ELSE k.receipt END, \
             expires_at = CASE WHEN k.expires_at <= $5 THEN excluded.expires_at \
             ELSE k.expires_at END RETURNING key, receipt",
            &[&tenant.as_str(), &hashes, &receipts, &expiries, &now.as_millis()],
        )
        .await?;
    rows.iter().map(read_receipt_key).collect()
}

/// The receipts that these keys lead to, of those that are live.
pub(super) async fn receipts_of(
    connection: &mut Connection,
    tenant: &TenantId,
    keys: &[Bits],
    now: Timestamp,
) -> Result<HashMap<Bits, ReceiptId>, VerbError> {
    let statement = "SELECT key, receipt FROM receipt_keys \
                     WHERE tenant = $1 AND key = ANY($2) AND expires_at > $3";
    let rows = connection.query(statement, &[&tenant.as_str(), &keys, &now.as_millis()]).await?;
    rows.iter().map(read_receipt_key).collect()
}

/// Makes keys lead to these receipts, until these instants; they must be locked, or keys of
/// conflicts, which their item's key locks.
pub(super) async fn set_receipt_keys(
    connection: &mut Connection,
    tenant: &TenantId,
    keys: &BTreeMap<Bits, (ReceiptId, Timestamp)>,
) -> Result<(), VerbError> {
    if keys.is_empty() {
        return Ok(());
    }
    let (hashes, receipts, expiries) = columns(keys);
    let statement = "INSERT INTO receipt_keys (tenant, key, receipt, expires_at) \
                     SELECT $1::text, v.* FROM unnest($2::uuid[], $3::uuid[], $4::bigint[]) \
                     AS v (key, receipt, expires_at) ORDER BY v.key \
                     ON CONFLICT (tenant, key) DO UPDATE \
                     SET receipt = excluded.receipt, expires_at = excluded.expires_at";
    connection.execute(statement, &[&tenant.as_str(), &hashes, &receipts, &expiries]).await?;
    Ok(())
}

fn columns(keys: &BTreeMap<Bits, (ReceiptId, Timestamp)>) -> (Vec<Bits>, Vec<Bits>, Vec<i64>) {
    let hashes = keys.keys().copied().collect();
    let receipts = keys.values().map(|(receipt, _)| Bits::from(*receipt)).collect();
    (hashes, receipts, keys.values().map(|(_, until)| until.as_millis()).collect())
}

fn read_receipt_key(row: &Row) -> Result<(Bits, ReceiptId), VerbError> {
    let Bits(receipt) = row.try_get(1)?;
    Ok((row.try_get(0)?, ReceiptId::from_bits(receipt)))
}

/// Clears away up to `limit` rows of each kind of key whose time is over; returns whether more may
/// be left.
pub(super) async fn prune(tx: &mut Tx, limit: i64) -> Result<bool, VerbError> {
    let now = tx.now.as_millis();
    let mut more = false;
    for statement in [
        "DELETE FROM source_event_ids WHERE (tenant, key) IN (SELECT tenant, key \
         FROM source_event_ids WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM receipt_keys WHERE (tenant, key) IN (SELECT tenant, key \
         FROM receipt_keys WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
    ] {
        let removed = tx.connection.execute(statement, &[&now, &limit]).await?;
        more |= i64::try_from(removed) == Ok(limit);
    }
    for statement in [
        "DELETE FROM idempotency_records WHERE key IN (SELECT key \
         FROM idempotency_records WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) \
         RETURNING tenant, account, bytes",
        "DELETE FROM claims WHERE (tenant, key) IN (SELECT tenant, key \
         FROM claims WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) \
         RETURNING tenant, account, coalesce(octet_length(remembered), 0)::bigint",
    ] {
        let removed = tx.connection.query(statement, &[&now, &limit]).await?;
        more |= size(removed.len()) == limit;
        tx.accounts.removed(&removed)?;
    }
    Ok(more)
}
