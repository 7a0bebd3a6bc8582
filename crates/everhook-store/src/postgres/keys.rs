//! Source event IDs: one row decides, whoever comes at the same instant.

use std::collections::HashMap;

use everhook_domain::id::EventId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::number::Bits;
use super::pool::Connection;

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

/// Clears away up to `limit` rows of both kinds of key whose time is over; returns whether more may
/// be left.
pub(super) async fn prune(
    connection: &mut Connection,
    now: Timestamp,
    limit: i64,
) -> Result<bool, VerbError> {
    let mut more = false;
    for statement in [
        "DELETE FROM source_event_ids WHERE (tenant, key) IN (SELECT tenant, key \
         FROM source_event_ids WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
        "DELETE FROM idempotency_records WHERE key IN (SELECT key \
         FROM idempotency_records WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)",
    ] {
        let removed = connection.execute(statement, &[&now.as_millis(), &limit]).await?;
        more |= i64::try_from(removed) == Ok(limit);
    }
    Ok(more)
}
