//! Sources as rows, and the changes of them.

use std::sync::Arc;

use everhook_domain::id::SourceId;
use everhook_domain::source::{Source, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::catalog;
use super::change::set_directory;
use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, signed, unsigned};
use super::pool::Connection;
use super::tx::Tx;
use crate::directory::{GoneSource, Sources};
use crate::error::Refusal;
use crate::seal::Sealer;
use crate::source::{StoredSource, check_new, stored_name, updated, write};

/// Adds one.
pub(super) async fn create(
    tx: &mut Tx,
    ids: &Ids,
    tenant: TenantId,
    settings: SourceSettings,
) -> Result<Arc<Source>, VerbError> {
    tx.tenant(&tenant)?;
    check_new(&tx.directory, &tenant, &settings.name)?;
    let source = Arc::new(Source {
        id: ids.source(tx.now),
        tenant,
        version: 1,
        created_at: tx.now,
        updated_at: tx.now,
        settings,
        unusable: None,
    });
    let [settings, secrets] = write(&tx.rules.sealer, &source)?;
    tx.connection
        .execute(
            "INSERT INTO sources (tenant, id, name, version, created_at, updated_at, settings, \
             secrets) VALUES ($1, $2, $3, $4, $5, $5, $6, $7)",
            &[
                &source.tenant.as_str(),
                &Bits::from(source.id),
                &source.settings.name.as_str(),
                &signed(source.version),
                &tx.now.as_millis(),
                &settings,
                &secrets,
            ],
        )
        .await?;
    set_sources(tx, tx.directory.sources().clone().with(Arc::clone(&source))).await?;
    Ok(source)
}

/// Replaces the settings of one.
pub(super) async fn update(
    tx: &mut Tx,
    of: (&TenantId, SourceId),
    expected_version: u64,
    settings: SourceSettings,
) -> Result<Arc<Source>, VerbError> {
    let source = Arc::new(updated(&tx.directory, of, expected_version, settings, tx.now)?);
    let [settings, secrets] = write(&tx.rules.sealer, &source)?;
    tx.connection
        .execute(
            "UPDATE sources SET name = $3, version = $4, updated_at = $5, settings = $6, \
             secrets = $7 WHERE tenant = $1 AND id = $2",
            &[
                &source.tenant.as_str(),
                &Bits::from(source.id),
                &source.settings.name.as_str(),
                &signed(source.version),
                &tx.now.as_millis(),
                &settings,
                &secrets,
            ],
        )
        .await?;
    set_sources(tx, tx.directory.sources().clone().with(Arc::clone(&source))).await?;
    Ok(source)
}

/// Deletes one.
pub(super) async fn delete(tx: &mut Tx, tenant: TenantId, id: SourceId) -> Result<(), VerbError> {
    let source = tx.directory.source_of(&tenant, id).ok_or(Refusal::NotFound)?;
    let name = source.settings.name.clone();
    let statement = "UPDATE sources SET deleted_at = $3, settings = '', secrets = '' \
                     WHERE tenant = $1 AND id = $2";
    let values = (Bits::from(id), tx.now.as_millis());
    tx.connection.execute(statement, &[&tenant.as_str(), &values.0, &values.1]).await?;
    let gone = GoneSource { id, tenant, name };
    set_sources(tx, tx.directory.sources().clone().with_gone(gone)).await
}

async fn set_sources(tx: &mut Tx, sources: Sources) -> Result<(), VerbError> {
    let directory = catalog::with(&tx.directory, None, None).with_sources(sources);
    set_directory(tx, directory).await
}

/// Reads all of them.
pub(super) async fn load(
    connection: &mut Connection,
    sealer: &Sealer,
) -> Result<Sources, VerbError> {
    let statement = "SELECT tenant, id, name, version, created_at, updated_at, settings, secrets, \
                     deleted_at IS NOT NULL FROM sources \
                     WHERE tenant NOT IN (SELECT id FROM tenants WHERE deleted_at IS NOT NULL)";
    let mut sources = Sources::default();
    for row in connection.query(statement, &[]).await? {
        let Bits(id) = row.try_get(1)?;
        let (id, tenant) = (SourceId::from_bits(id), catalog::tenant(&row, 0)?);
        sources = if row.try_get(8)? {
            let name = stored_name(id, row.try_get(2)?);
            sources.with_gone(GoneSource { id, tenant, name })
        } else {
            sources.with(Arc::new(read(&row, id, tenant, sealer)?))
        };
    }
    Ok(sources)
}

fn read(row: &Row, id: SourceId, tenant: TenantId, sealer: &Sealer) -> Result<Source, VerbError> {
    let stored = StoredSource {
        id,
        tenant,
        name: row.try_get(2)?,
        version: unsigned(row.try_get(3)?),
        created_at: Timestamp::from_millis(row.try_get(4)?),
        updated_at: Timestamp::from_millis(row.try_get(5)?),
        texts: [row.try_get(6)?, row.try_get(7)?],
    };
    Ok(stored.read(sealer)?)
}
