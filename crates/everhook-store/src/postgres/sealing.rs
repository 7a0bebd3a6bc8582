//! At opening: what was stored before a master key was set, or under an older one, is sealed under
//! the current one. What it means does not change, so the directory's version stays.

use everhook_domain::id::{EndpointId, SourceId};
use tokio_postgres::Row;

use super::catalog;
use super::failure::VerbError;
use super::number::Bits;
use super::tx::Tx;
use crate::seal::{Owned, Owner};

/// Rows of one transaction.
const STEP_ROWS: i64 = 500;

/// What the row with this id is.
type OwnedOf = fn(u128) -> Owned;

/// Tables whose rows have settings and secrets.
const TABLES: [(&str, OwnedOf); 2] = [
    ("endpoints", |id| Owned::Endpoint(EndpointId::from_bits(id))),
    ("sources", |id| Owned::Source(SourceId::from_bits(id))),
];

/// How far it has come.
#[derive(Default)]
pub(super) struct Progress {
    /// Which of [`TABLES`].
    table: usize,
    after: u128,
    pub(super) renewed: usize,
    /// Those that do not open.
    pub(super) left: usize,
    pub(super) done: bool,
}

/// One step.
pub(super) async fn renew(tx: &mut Tx, progress: &mut Progress) -> Result<(), VerbError> {
    let table = TABLES.get(progress.table);
    let Some((mark, (table, owned))) = tx.rules.sealer.current_mark().zip(table) else {
        progress.done = true;
        return Ok(());
    };
    // Those of a deleted tenant are being erased; of what is deleted itself, nothing is left.
    let statement = format!(
        "SELECT tenant, id, settings, secrets FROM {table} WHERE id > $1 AND \
         (settings <> '' OR secrets <> '') AND \
         tenant NOT IN (SELECT id FROM tenants WHERE deleted_at IS NOT NULL) AND \
         (left(settings, length($2::text)) <> $2 OR left(secrets, length($2)) <> $2) \
         ORDER BY id LIMIT $3"
    );
    let after = Bits(progress.after);
    let rows = tx.connection.query(&statement, &[&after, &mark, &STEP_ROWS]).await?;
    if rows.is_empty() {
        (progress.table, progress.after) = (progress.table + 1, 0);
    }
    for row in &rows {
        let Bits(id) = row.try_get(1)?;
        progress.after = id;
        if renew_one(tx, row, (table, owned(id))).await? {
            progress.renewed += 1;
        } else {
            progress.left += 1;
        }
    }
    Ok(())
}

/// Whether the row could be sealed anew.
async fn renew_one(
    tx: &mut Tx,
    row: &Row,
    (table, owned): (&str, Owned),
) -> Result<bool, VerbError> {
    let tenant = catalog::tenant(row, 0)?;
    let id: Bits = row.try_get(1)?;
    let owner = Owner { tenant: &tenant, owned };
    let sealed = tx.rules.sealer.renew(owner, [row.try_get(2)?, row.try_get(3)?])?;
    let Some([settings, secrets]) = sealed else { return Ok(false) };
    let statement =
        format!("UPDATE {table} SET settings = $3, secrets = $4 WHERE tenant = $1 AND id = $2");
    let values = (tenant.as_str(), id);
    tx.connection.execute(&statement, &[&values.0, &values.1, &settings, &secrets]).await?;
    Ok(true)
}
