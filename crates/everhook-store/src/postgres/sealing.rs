//! At opening: what was stored before a master key was set, or under an older one, is sealed under
//! the current one. What it means does not change, so the directory's version stays.

use everhook_domain::id::EndpointId;
use tokio_postgres::Row;

use super::catalog;
use super::failure::VerbError;
use super::number::Bits;
use super::tx::Tx;
use crate::seal::Owner;

/// Endpoints of one transaction.
const STEP_ROWS: i64 = 500;

/// How far it has come.
#[derive(Default)]
pub(super) struct Progress {
    after: u128,
    pub(super) renewed: usize,
    /// Those that do not open.
    pub(super) left: usize,
    pub(super) done: bool,
}

/// One step.
pub(super) async fn renew(tx: &mut Tx, progress: &mut Progress) -> Result<(), VerbError> {
    let Some(mark) = tx.rules.sealer.current_mark() else {
        progress.done = true;
        return Ok(());
    };
    // Those of a deleted tenant are being erased.
    let statement = "SELECT tenant, id, settings, secrets FROM endpoints WHERE id > $1 AND \
                     tenant NOT IN (SELECT id FROM tenants WHERE deleted_at IS NOT NULL) AND \
                     (left(settings, length($2::text)) <> $2 OR left(secrets, length($2)) <> $2) \
                     ORDER BY id LIMIT $3";
    let after = Bits(progress.after);
    let rows = tx.connection.query(statement, &[&after, &mark, &STEP_ROWS]).await?;
    progress.done = rows.is_empty();
    for row in &rows {
        let Bits(id) = row.try_get(1)?;
        progress.after = id;
        if renew_one(tx, row, EndpointId::from_bits(id)).await? {
            progress.renewed += 1;
        } else {
            progress.left += 1;
        }
    }
    Ok(())
}

/// Whether the endpoint could be sealed anew.
async fn renew_one(tx: &mut Tx, row: &Row, endpoint: EndpointId) -> Result<bool, VerbError> {
    let tenant = catalog::tenant(row, 0)?;
    let owner = Owner { tenant: &tenant, endpoint };
    let sealed = tx.rules.sealer.renew(owner, row.try_get(2)?, row.try_get(3)?)?;
    let Some((settings, secrets)) = sealed else { return Ok(false) };
    let statement =
        "UPDATE endpoints SET settings = $3, secrets = $4 WHERE tenant = $1 AND id = $2";
    let id = Bits::from(endpoint);
    tx.connection.execute(statement, &[&tenant.as_str(), &id, &settings, &secrets]).await?;
    Ok(true)
}
