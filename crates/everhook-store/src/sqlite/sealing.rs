//! At opening: what was stored before a master key was set, or under an older one, is sealed under
//! the current one.

use everhook_domain::endpoint::Endpoint;
use rusqlite::{Connection, params};

use super::catalog::Catalog;
use super::row::signed;
use super::schema::OpenError;
use crate::seal::Owner;

/// Endpoints of one transaction.
const STEP_ROWS: u32 = 500;

/// An endpoint's number, settings and secrets as they are stored.
type Stored = (i64, String, String);

/// Seals anew, a bounded number of endpoints a transaction. What it replaces is overwritten in the
/// file; what was in pages that were given up before this version ran stays until they are used.
pub(super) fn renew(connection: &Connection, catalog: &Catalog) -> Result<(), OpenError> {
    let Some(mark) = catalog.sealer.current_mark() else { return Ok(()) };
    connection.pragma_update(None, "secure_delete", true)?;
    let (mut renewed, mut left, mut after) = (0, 0, 0);
    loop {
        let rows = not_current(connection, &mark, after)?;
        let Some((last, _, _)) = rows.last() else { break };
        after = *last;
        let transaction = connection.unchecked_transaction()?;
        for (number, settings, secrets) in rows {
            // One of a deleted tenant is being erased.
            let Some(endpoint) = catalog.endpoint(number) else { continue };
            if renew_one(&transaction, catalog, endpoint, [settings, secrets])? {
                renewed += 1;
            } else {
                left += 1;
            }
        }
        transaction.commit()?;
    }
    if renewed > 0 {
        rewrite(connection)?;
    }
    connection.pragma_update(None, "secure_delete", false)?;
    if renewed > 0 {
        // The log holds what was there before.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    catalog.sealer.report_renewal(renewed, left);
    Ok(())
}

/// Writes the table anew while what is deleted is overwritten: a page that was split keeps a copy
/// of what it gave away.
fn rewrite(connection: &Connection) -> Result<(), OpenError> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(
        "CREATE TEMP TABLE kept_endpoints AS SELECT * FROM endpoints;
         DELETE FROM endpoints;
         INSERT INTO endpoints SELECT * FROM kept_endpoints;
         DROP TABLE kept_endpoints;",
    )?;
    Ok(transaction.commit()?)
}

/// The next endpoints that are not sealed under the current key.
fn not_current(
    connection: &Connection,
    mark: &str,
    after: i64,
) -> Result<Vec<Stored>, rusqlite::Error> {
    connection
        .prepare(
            "SELECT seq, settings, secrets FROM endpoints WHERE seq > ?1 AND \
             (substr(settings, 1, length(?2)) <> ?2 OR substr(secrets, 1, length(?2)) <> ?2) \
             ORDER BY seq LIMIT ?3",
        )?
        .query_map(params![after, mark, STEP_ROWS], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect()
}

/// Whether the endpoint could be sealed anew.
fn renew_one(
    connection: &Connection,
    catalog: &Catalog,
    endpoint: &Endpoint,
    [settings, secrets]: [String; 2],
) -> Result<bool, OpenError> {
    let owner = Owner { tenant: &endpoint.tenant, endpoint: endpoint.id };
    let sealed = catalog
        .sealer
        .renew(owner, &settings, &secrets)
        .map_err(|error| OpenError::Unusable(error.to_string()))?;
    let Some((settings, secrets)) = sealed else { return Ok(false) };
    connection.execute(
        "UPDATE endpoints SET settings = ?2, secrets = ?3 WHERE seq = ?1",
        params![signed(endpoint.id.sequence()), settings, secrets],
    )?;
    Ok(true)
}
