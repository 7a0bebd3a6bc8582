//! At opening: what was stored before a master key was set, or under an older one, is sealed under
//! the current one.

use everhook_domain::tenant::TenantId;
use rusqlite::{Connection, params};

use super::catalog::Catalog;
use super::schema::OpenError;
use crate::seal::{Owned, Owner, Texts};

/// Rows of one transaction.
const STEP_ROWS: u32 = 500;

/// Whose the row with this number is; `None`: nobody's, it is being erased or holds nothing.
type OwnerOf = fn(&Catalog, i64) -> Option<(TenantId, Owned)>;

/// Tables whose rows have settings and secrets.
const TABLES: [(&str, OwnerOf); 2] = [("endpoints", endpoint), ("sources", source)];

fn endpoint(catalog: &Catalog, number: i64) -> Option<(TenantId, Owned)> {
    let endpoint = catalog.endpoint(number)?;
    Some((endpoint.tenant.clone(), Owned::Endpoint(endpoint.id)))
}

fn source(catalog: &Catalog, number: i64) -> Option<(TenantId, Owned)> {
    let source = catalog.directory.source(catalog.source(number)?)?;
    Some((source.tenant.clone(), Owned::Source(source.id)))
}

/// Seals anew, a bounded number of rows a transaction. What it replaces is overwritten in the file;
/// what was in pages that were given up before this version ran stays until they are used.
pub(super) fn renew(connection: &Connection, catalog: &Catalog) -> Result<(), OpenError> {
    let Some(mark) = catalog.sealer.current_mark() else { return Ok(()) };
    connection.pragma_update(None, "secure_delete", true)?;
    let (mut all_renewed, mut all_left) = (0, 0);
    for (table, owner_of) in TABLES {
        let (renewed, left) = renew_table(connection, catalog, &mark, (table, owner_of))?;
        if renewed > 0 {
            rewrite(connection, table)?;
        }
        all_renewed += renewed;
        all_left += left;
    }
    connection.pragma_update(None, "secure_delete", false)?;
    if all_renewed > 0 {
        // The log holds what was there before.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    catalog.sealer.report_renewal(all_renewed, all_left);
    Ok(())
}

/// How many rows of a table were sealed anew, and how many do not open.
fn renew_table(
    connection: &Connection,
    catalog: &Catalog,
    mark: &str,
    (table, owner_of): (&str, OwnerOf),
) -> Result<(usize, usize), OpenError> {
    let (mut renewed, mut left, mut after) = (0, 0, 0);
    loop {
        let rows = not_current(connection, table, mark, after)?;
        let Some((last, _)) = rows.last() else { return Ok((renewed, left)) };
        after = *last;
        let transaction = connection.unchecked_transaction()?;
        for (number, texts) in rows {
            let Some((tenant, owned)) = owner_of(catalog, number) else { continue };
            let owner = Owner { tenant: &tenant, owned };
            let sealed = catalog
                .sealer
                .renew(owner, texts.each_ref().map(String::as_str))
                .map_err(|error| OpenError::Unusable(error.to_string()))?;
            let Some([settings, secrets]) = sealed else {
                left += 1;
                continue;
            };
            renewed += 1;
            transaction.execute(
                &format!("UPDATE {table} SET settings = ?2, secrets = ?3 WHERE seq = ?1"),
                params![number, settings, secrets],
            )?;
        }
        transaction.commit()?;
    }
}

/// Writes a table anew while what is deleted is overwritten: a page that was split keeps a copy of
/// what it gave away.
fn rewrite(connection: &Connection, table: &str) -> Result<(), OpenError> {
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(&format!(
        "CREATE TEMP TABLE kept AS SELECT * FROM {table};
         DELETE FROM {table};
         INSERT INTO {table} SELECT * FROM kept;
         DROP TABLE kept;"
    ))?;
    Ok(transaction.commit()?)
}

/// The next rows that are not sealed under the current key, with settings and secrets.
fn not_current(
    connection: &Connection,
    table: &str,
    mark: &str,
    after: i64,
) -> Result<Vec<(i64, Texts)>, rusqlite::Error> {
    connection
        .prepare(&format!(
            "SELECT seq, settings, secrets FROM {table} WHERE seq > ?1 AND \
             (substr(settings, 1, length(?2)) <> ?2 OR substr(secrets, 1, length(?2)) <> ?2) \
             ORDER BY seq LIMIT ?3"
        ))?
        .query_map(params![after, mark, STEP_ROWS], |row| {
            Ok((row.get(0)?, [row.get(1)?, row.get(2)?]))
        })?
        .collect()
}
