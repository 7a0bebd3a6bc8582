//! The directory as it stands in the database.

use std::sync::Arc;

use everhook_domain::endpoint::{
    Disabled, DisabledReason, Endpoint, EndpointSettings, EndpointState,
};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::SecretSet;
use everhook_domain::tenant::{Tenant, TenantId};
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::number::{Bits, unsigned};
use super::pool::Connection;
use super::source;
use crate::directory::Directory;
use crate::seal::{Owned, Owner, Sealer};

/// Reads tenants, endpoints and sources, as the transaction sees them.
pub(super) async fn load(
    connection: &mut Connection,
    version: u64,
    sealer: &Sealer,
) -> Result<Directory, VerbError> {
    let mut tenants = Vec::new();
    let statement = "SELECT id, name, created_at FROM tenants WHERE deleted_at IS NULL";
    for row in connection.query(statement, &[]).await? {
        tenants.push(read_tenant(&row)?);
    }
    let mut endpoints = Vec::new();
    let statement = "SELECT tenant, id, state, version, created_at, updated_at, settings, secrets, \
                     disabled_reason, disabled_at FROM endpoints \
                     WHERE tenant NOT IN (SELECT id FROM tenants WHERE deleted_at IS NOT NULL)";
    for row in connection.query(statement, &[]).await? {
        endpoints.push(Arc::new(read_endpoint(&row, sealer)?));
    }
    let sources = source::load(connection, sealer).await?;
    Ok(Directory::new(version, tenants, endpoints).with_sources(sources))
}

/// The directory after a change: with a tenant more, or an endpoint added or replaced.
pub(super) fn with(
    directory: &Directory,
    tenant: Option<Tenant>,
    endpoint: Option<Arc<Endpoint>>,
) -> Directory {
    let tenants = directory.tenants().cloned().chain(tenant);
    let changed = endpoint.as_ref().map(|endpoint| endpoint.id);
    let others = directory.all().filter(|other| Some(other.id) != changed).cloned();
    Directory::new(directory.version() + 1, tenants, others.chain(endpoint))
        .with_sources(directory.sources().clone())
}

/// The directory without a tenant, its endpoints and its sources.
pub(super) fn without_tenant(directory: &Directory, gone: &TenantId) -> Directory {
    let tenants = directory.tenants().filter(|tenant| tenant.id != *gone).cloned();
    let endpoints = directory.all().filter(|endpoint| endpoint.tenant != *gone).cloned();
    Directory::new(directory.version() + 1, tenants, endpoints)
        .with_sources(directory.sources().clone().without_tenant(gone))
}

fn read_tenant(row: &Row) -> Result<Tenant, VerbError> {
    let id = tenant(row, 0)?;
    let name: &str = row.try_get(1)?;
    let name = name
        .parse()
        .map_err(|error| VerbError::Unusable(format!("the name of tenant {id}: {error}")))?;
    Ok(Tenant { id, name, created_at: Timestamp::from_millis(row.try_get(2)?) })
}

/// A tenant's id from a column.
pub(super) fn tenant(row: &Row, column: usize) -> Result<TenantId, VerbError> {
    let text: &str = row.try_get(column)?;
    text.parse().map_err(|error| VerbError::Unusable(format!("tenant {text}: {error}")))
}

fn read_endpoint(row: &Row, sealer: &Sealer) -> Result<Endpoint, VerbError> {
    let Bits(id) = row.try_get(1)?;
    let id = EndpointId::from_bits(id);
    let unusable = |why: String| VerbError::Unusable(format!("endpoint {id}: {why}"));
    let state: &str = row.try_get(2)?;
    let tenant = tenant(row, 0)?;
    let owner = Owner { tenant: &tenant, owned: Owned::Endpoint(id) };
    let [settings, secrets] = sealer.read(owner, [row.try_get(6)?, row.try_get(7)?])?;
    Ok(Endpoint {
        id,
        tenant,
        state: EndpointState::from_word(state)
            .ok_or_else(|| unusable(format!("its state is {state}")))?,
        disabled: read_disabled(row)?,
        version: unsigned(row.try_get(3)?),
        created_at: Timestamp::from_millis(row.try_get(4)?),
        updated_at: Timestamp::from_millis(row.try_get(5)?),
        settings: EndpointSettings::from_stored(&settings),
        secrets: SecretSet::from_stored(&secrets)
            .unwrap_or_else(|_| SecretSet::unreadable(&secrets)),
    })
}

/// A word that this version does not know hurts nobody: it is shown as unknown.
fn read_disabled(row: &Row) -> Result<Option<Disabled>, VerbError> {
    let (reason, at): (Option<&str>, Option<i64>) = (row.try_get(8)?, row.try_get(9)?);
    let reason = reason.and_then(DisabledReason::from_word);
    let disabled = reason.zip(at.map(Timestamp::from_millis));
    Ok(disabled.map(|(reason, at)| Disabled { reason, at }))
}
