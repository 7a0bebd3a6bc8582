//! Sources as rows, and the changes of them.

use std::collections::HashMap;
use std::sync::Arc;

use everhook_domain::id::SourceId;
use everhook_domain::source::{Source, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, Row, params};

use super::command::VerbError;
use super::row::{signed, unsigned};
use super::schema::OpenError;
use super::tx::Tx;
use crate::directory::{GoneSource, Sources};
use crate::error::Refusal;
use crate::seal::Sealer;
use crate::source::{StoredSource, check_new, stored_name, updated, write};

/// Adds one.
pub(super) fn create(
    tx: &mut Tx<'_>,
    tenant: &TenantId,
    settings: &SourceSettings,
    now: Timestamp,
) -> Result<Arc<Source>, VerbError> {
    let tenant_no = tx.tenant(tenant)?;
    check_new(&tx.catalog().directory, tenant, &settings.name)?;
    let number = tx.catalog().last_source_no() + 1;
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    let source = Arc::new(Source {
        id: SourceId::from_parts(millis, unsigned(number), tx.tag(), 0),
        tenant: tenant.clone(),
        version: 1,
        created_at: now,
        updated_at: now,
        settings: settings.clone(),
        unusable: None,
    });
    let [settings, secrets] = write(&tx.catalog().sealer, &source)?;
    tx.connection
        .prepare_cached(
            "INSERT INTO sources (seq, tenant, name, version, created_at, updated_at, settings, \
             secrets) VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7)",
        )?
        .execute(params![
            number,
            tenant_no,
            source.settings.name.as_str(),
            signed(source.version),
            now.as_millis(),
            settings,
            secrets,
        ])?;
    tx.set_catalog(tx.catalog().with_source(Arc::clone(&source)));
    Ok(source)
}

/// Replaces the settings of one.
pub(super) fn update(
    tx: &mut Tx<'_>,
    of: (&TenantId, SourceId),
    expected_version: u64,
    settings: &SourceSettings,
    now: Timestamp,
) -> Result<Arc<Source>, VerbError> {
    let directory = &tx.catalog().directory;
    let source = Arc::new(updated(directory, of, expected_version, settings.clone(), now)?);
    let [settings, secrets] = write(&tx.catalog().sealer, &source)?;
    tx.connection
        .prepare_cached(
            "UPDATE sources SET name = ?2, version = ?3, updated_at = ?4, settings = ?5, \
             secrets = ?6 WHERE seq = ?1",
        )?
        .execute(params![
            source_no(source.id),
            source.settings.name.as_str(),
            signed(source.version),
            now.as_millis(),
            settings,
            secrets,
        ])?;
    tx.set_catalog(tx.catalog().with_source(Arc::clone(&source)));
    Ok(source)
}

/// Deletes one.
pub(super) fn delete(
    tx: &mut Tx<'_>,
    tenant: &TenantId,
    id: SourceId,
    now: Timestamp,
) -> Result<(), VerbError> {
    let source = tx.catalog().directory.source_of(tenant, id).ok_or(Refusal::NotFound)?;
    let gone = GoneSource { id, tenant: tenant.clone(), name: source.settings.name.clone() };
    tx.connection
        .prepare_cached(
            "UPDATE sources SET deleted_at = ?2, settings = '', secrets = '' WHERE seq = ?1",
        )?
        .execute(params![source_no(id), now.as_millis()])?;
    tx.set_catalog(tx.catalog().without_source(gone));
    Ok(())
}

/// The number of a source in the database.
pub(super) fn source_no(id: SourceId) -> i64 {
    signed(id.sequence())
}

/// Reads all of them, and their numbers.
pub(super) fn load(
    connection: &Connection,
    tag: u16,
    tenants: &HashMap<i64, TenantId>,
    sealer: &Sealer,
) -> Result<(Sources, HashMap<i64, SourceId>), OpenError> {
    let mut sources = Sources::default();
    let mut numbers = HashMap::new();
    let mut statement = connection.prepare(
        "SELECT seq, tenant, name, version, created_at, updated_at, settings, secrets, \
         deleted_at IS NOT NULL FROM sources \
         WHERE tenant NOT IN (SELECT no FROM tenants WHERE deleted_at IS NOT NULL)",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let id = SourceId::from_parts(unsigned(row.get(4)?), unsigned(number), tag, 0);
        let tenant = tenants
            .get(&row.get(1)?)
            .cloned()
            .ok_or_else(|| OpenError::Unusable(format!("source {id} belongs to no tenant")))?;
        numbers.insert(number, id);
        sources = if row.get(8)? {
            let name = stored_name(id, &row.get::<_, String>(2)?);
            sources.with_gone(GoneSource { id, tenant, name })
        } else {
            sources.with(Arc::new(read(row, id, tenant, sealer)?))
        };
    }
    Ok((sources, numbers))
}

fn read(
    row: &Row<'_>,
    id: SourceId,
    tenant: TenantId,
    sealer: &Sealer,
) -> Result<Source, OpenError> {
    let (name, settings, secrets): (String, String, String) =
        (row.get(2)?, row.get(6)?, row.get(7)?);
    let stored = StoredSource {
        id,
        tenant,
        name: &name,
        version: unsigned(row.get(3)?),
        created_at: Timestamp::from_millis(row.get(4)?),
        updated_at: Timestamp::from_millis(row.get(5)?),
        texts: [&settings, &secrets],
    };
    Ok(stored.read(sealer)?)
}
