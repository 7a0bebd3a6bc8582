//! The deliveries of one piece of work: fixed when it is begun, many in a row.

use everhook_domain::id::{DeliveryId, ReplayId};
use everhook_domain::tenant::TenantId;
use tokio_postgres::Row;

use super::super::failure::VerbError;
use super::super::number::{Bits, bits};
use super::super::pool::Connection;
use crate::bulk::CHUNK_MEMBERS;

/// Rows that are removed in one step.
const CLEAR_ROWS: i64 = 100;

/// Stores ids, which must rise.
pub(super) async fn insert(
    connection: &mut Connection,
    tenant: &TenantId,
    bulk: ReplayId,
    members: &[DeliveryId],
) -> Result<(), VerbError> {
    let statement = "INSERT INTO bulk_members (tenant, bulk, last, ids) VALUES ($1, $2, $3, $4)";
    for chunk in members.chunks(CHUNK_MEMBERS) {
        let ids = bits(chunk);
        let last = ids.last();
        connection.execute(statement, &[&tenant.as_str(), &Bits::from(bulk), &last, &ids]).await?;
    }
    Ok(())
}

/// The next ids after this one; empty if none is left.
pub(super) async fn after(
    connection: &mut Connection,
    tenant: &TenantId,
    bulk: ReplayId,
    after: Bits,
) -> Result<Vec<Bits>, VerbError> {
    let statement = "SELECT ids FROM bulk_members WHERE tenant = $1 AND bulk = $2 AND last > $3 \
                     ORDER BY last LIMIT 1";
    let chunk = connection.first(statement, &[&tenant.as_str(), &Bits::from(bulk), &after]).await?;
    let mut ids = chunk.as_ref().map(read).transpose()?.unwrap_or_default();
    ids.retain(|id| *id > after);
    Ok(ids)
}

/// Every id.
pub(super) async fn all(
    connection: &mut Connection,
    tenant: &TenantId,
    bulk: ReplayId,
) -> Result<Vec<Bits>, VerbError> {
    let statement = "SELECT ids FROM bulk_members WHERE tenant = $1 AND bulk = $2 ORDER BY last";
    let chunks = connection.query(statement, &[&tenant.as_str(), &Bits::from(bulk)]).await?;
    let chunks = chunks.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(chunks.into_iter().flatten().collect())
}

/// Removes some; false when none was left.
pub(super) async fn clear(
    connection: &mut Connection,
    tenant: &str,
    bulk: Bits,
) -> Result<bool, VerbError> {
    let statement = "DELETE FROM bulk_members WHERE tenant = $1 AND bulk = $2 AND last IN \
                     (SELECT last FROM bulk_members WHERE tenant = $1 AND bulk = $2 LIMIT $3)";
    let cleared = connection.execute(statement, &[&tenant, &bulk, &CLEAR_ROWS]).await?;
    Ok(cleared > 0)
}

fn read(row: &Row) -> Result<Vec<Bits>, VerbError> {
    Ok(row.try_get(0)?)
}
