//! A job: erasing what a deleted tenant had.
//!
//! The tenant left the directory when it was deleted, and its id is taken until this has ended; so
//! nothing of its is added. It needs no cursor: what it erases leaves the index that it reads. Two
//! nodes take two tenants.

use super::failure::VerbError;
use super::jobs::STEP_ROWS;
use super::number::Bits;
use super::tx::Tx;
use crate::jobs::JobStep;

/// What goes by the tenant alone. Keys come before what they lead to.
const OF_TENANT: [&str; 13] = [
    "DELETE FROM receipt_keys WHERE (tenant, key) IN (SELECT tenant, key \
     FROM receipt_keys WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM receipts WHERE (tenant, id) IN (SELECT tenant, id \
     FROM receipts WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM received_headers WHERE (tenant, id) IN (SELECT tenant, id \
     FROM received_headers WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM sources WHERE (tenant, id) IN (SELECT tenant, id \
     FROM sources WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM source_event_ids WHERE (tenant, key) IN (SELECT tenant, key \
     FROM source_event_ids WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM idempotency_records WHERE key IN (SELECT key \
     FROM idempotency_records WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM claims WHERE (tenant, key) IN (SELECT tenant, key \
     FROM claims WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM idempotency_accounts WHERE (tenant, account) IN (SELECT tenant, account \
     FROM idempotency_accounts WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM bulk_members WHERE (tenant, bulk, last) IN (SELECT tenant, bulk, last \
     FROM bulk_members WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM bulks WHERE (tenant, id) IN (SELECT tenant, id \
     FROM bulks WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM messages WHERE (tenant, conversation, version) IN (SELECT tenant, conversation, \
     version FROM messages WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM conversations WHERE (tenant, id) IN (SELECT tenant, id \
     FROM conversations WHERE tenant = $1 LIMIT $2)",
    "DELETE FROM conversation_changes WHERE tenant IN (SELECT tenant \
     FROM conversation_changes WHERE tenant = $1 LIMIT $2)",
];

/// What hangs on a delivery.
const OF_DELIVERIES: [&str; 2] = [
    "DELETE FROM attempts WHERE (delivery, number) IN (SELECT delivery, number \
     FROM attempts WHERE delivery = ANY($1) LIMIT $2)",
    "DELETE FROM interruptions WHERE (delivery, token) IN (SELECT delivery, token \
     FROM interruptions WHERE delivery = ANY($1) LIMIT $2)",
];

/// One step of the first erasure that no other node is at.
pub(super) async fn step(tx: &mut Tx) -> Result<JobStep, VerbError> {
    let statement = "SELECT id FROM tenants WHERE deleted_at IS NOT NULL ORDER BY id LIMIT 1 \
                     FOR UPDATE SKIP LOCKED";
    let Some(row) = tx.connection.first(statement, &[]).await? else { return Ok(JobStep::Idle) };
    let tenant: &str = row.try_get(0)?;
    let mut left = STEP_ROWS;
    for statement in OF_TENANT {
        left -= execute(tx, statement, tenant, left).await?;
    }
    left -= endpoints(tx, tenant, left).await?;
    left -= deliveries(tx, tenant, left).await?;
    // Events stay until nothing hangs on them.
    if left > 0 {
        let statement = "DELETE FROM events WHERE tenant = $1 AND id IN (SELECT id \
                         FROM events WHERE tenant = $1 ORDER BY id LIMIT $2)";
        left -= execute(tx, statement, tenant, left).await?;
    }
    if left > 0 {
        tx.connection.execute("DELETE FROM tenants WHERE id = $1", &[&tenant]).await?;
    }
    Ok(JobStep::More)
}

/// An endpoint has at most one row in each of three tables.
const ROWS_OF_ENDPOINT: i64 = 3;

/// Endpoints with their secrets and their health, and what is still to be cancelled for them. Where
/// some may be left, all that the step may still touch counts as touched.
async fn endpoints(tx: &mut Tx, tenant: &str, left: i64) -> Result<i64, VerbError> {
    let most = left / ROWS_OF_ENDPOINT;
    let statement = "DELETE FROM endpoints WHERE tenant = $1 AND id IN (SELECT id \
                     FROM endpoints WHERE tenant = $1 ORDER BY id LIMIT $2) RETURNING id";
    let mut gone: Vec<Bits> = Vec::new();
    for row in tx.connection.query(statement, &[&tenant, &most]).await? {
        gone.push(row.try_get(0)?);
    }
    for statement in [
        "DELETE FROM sweeps WHERE endpoint = ANY($1)",
        "DELETE FROM endpoint_health WHERE endpoint = ANY($1)",
    ] {
        tx.connection.execute(statement, &[&gone]).await?;
    }
    let gone = i64::try_from(gone.len()).unwrap_or(most);
    Ok(if gone < most { gone * ROWS_OF_ENDPOINT } else { left })
}

/// Deliveries, each after all that hangs on it. They are locked first, so that no result comes in
/// between.
async fn deliveries(tx: &mut Tx, tenant: &str, limit: i64) -> Result<i64, VerbError> {
    let statement = "SELECT id FROM deliveries WHERE tenant = $1 ORDER BY id LIMIT $2 FOR UPDATE";
    let mut ids: Vec<Bits> = Vec::new();
    for row in tx.connection.query(statement, &[&tenant, &limit]).await? {
        ids.push(row.try_get(0)?);
    }
    let mut left = limit;
    for statement in OF_DELIVERIES {
        let erased = tx.connection.execute(statement, &[&ids, &left]).await?;
        left -= i64::try_from(erased).unwrap_or(left);
    }
    // With something left, nothing hangs on them any more.
    ids.truncate(usize::try_from(left).unwrap_or(0));
    let statement = "DELETE FROM deliveries WHERE tenant = $1 AND id = ANY($2)";
    let erased = tx.connection.execute(statement, &[&tenant, &ids]).await?;
    Ok(limit - left + i64::try_from(erased).unwrap_or(left))
}

async fn execute(tx: &mut Tx, statement: &str, tenant: &str, left: i64) -> Result<i64, VerbError> {
    let erased = tx.connection.execute(statement, &[&tenant, &left]).await?;
    Ok(i64::try_from(erased).unwrap_or(left))
}
