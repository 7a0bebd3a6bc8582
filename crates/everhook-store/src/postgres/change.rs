//! `change`: tenants and endpoints.

use std::sync::Arc;

use everhook_domain::endpoint::{
    Endpoint, EndpointSettings, EndpointState, EndpointVerb, IllegalVerb,
};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::SecretSet;
use everhook_domain::tenant::{Tenant, TenantId, TenantName};

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, signed};
use super::tx::Tx;
use super::{catalog, schema, sweep};
use crate::directory::{Change, Directory, ENDPOINTS_PER_TENANT_MAX};
use crate::error::Refusal;
use crate::seal::Owner;

/// The verb. Only one transaction at a time runs it.
pub(super) async fn change(
    tx: &mut Tx,
    ids: &Ids,
    change: Change,
) -> Result<Option<Arc<Endpoint>>, VerbError> {
    match change {
        Change::CreateTenant { id, name } => create_tenant(tx, id, name).await.map(|()| None),
        Change::DeleteTenant(id) => delete_tenant(tx, &id).await.map(|()| None),
        Change::CreateEndpoint { tenant, settings, secrets } => {
            create_endpoint(tx, ids, tenant, *settings, secrets).await.map(Some)
        }
        Change::UpdateEndpoint { tenant, endpoint, expected_version, settings } => {
            let old = current(tx, &tenant, endpoint)?;
            if old.version != expected_version {
                return Err(Refusal::VersionChanged.into());
            }
            update(tx, Endpoint { settings: *settings, ..(*old).clone() }).await.map(Some)
        }
        Change::RotateSecret { tenant, endpoint, secret, overlap } => {
            let old = current(tx, &tenant, endpoint)?;
            let secrets = old.secrets.rotate(secret, tx.now, overlap)?;
            update(tx, Endpoint { secrets, ..(*old).clone() }).await.map(Some)
        }
        Change::ActOnEndpoint { tenant, endpoint, verb } => {
            act_on_endpoint(tx, &tenant, endpoint, verb).await.map(Some)
        }
    }
}

/// The directory as it is after the transaction.
async fn set_directory(tx: &mut Tx, directory: Directory) -> Result<(), VerbError> {
    let version = signed(directory.version());
    tx.directory = Arc::new(directory);
    schema::set_meta(&mut tx.connection, "directory_version", version).await
}

async fn create_tenant(tx: &mut Tx, id: TenantId, name: TenantName) -> Result<(), VerbError> {
    if tx.tenant(&id).is_ok() {
        return Err(Refusal::Taken.into());
    }
    let erasing = "SELECT 1 FROM tenants WHERE id = $1";
    if tx.connection.first(erasing, &[&id.as_str()]).await?.is_some() {
        return Err(Refusal::StillErasing.into());
    }
    let created_at = tx.now;
    let statement = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3)";
    tx.connection
        .execute(statement, &[&id.as_str(), &name.as_str(), &created_at.as_millis()])
        .await?;
    let tenant = Tenant { id, name, created_at };
    let directory = catalog::with(&tx.directory, Some(tenant), None);
    set_directory(tx, directory).await
}

async fn delete_tenant(tx: &mut Tx, id: &TenantId) -> Result<(), VerbError> {
    tx.tenant(id)?;
    if id.is_default() {
        return Err(Refusal::DefaultTenant.into());
    }
    let statement = "UPDATE tenants SET deleted_at = $2 WHERE id = $1";
    tx.connection.execute(statement, &[&id.as_str(), &tx.now.as_millis()]).await?;
    tx.jobs_pending();
    let directory = catalog::without_tenant(&tx.directory, id);
    set_directory(tx, directory).await
}

async fn create_endpoint(
    tx: &mut Tx,
    ids: &Ids,
    tenant: TenantId,
    settings: EndpointSettings,
    secrets: SecretSet,
) -> Result<Arc<Endpoint>, VerbError> {
    tx.tenant(&tenant)?;
    let existing = tx.directory.endpoints_of(&tenant).iter();
    let kept = existing.filter(|endpoint| endpoint.state != EndpointState::Deleted).count();
    if kept >= ENDPOINTS_PER_TENANT_MAX {
        return Err(Refusal::TooManyEndpoints.into());
    }
    let endpoint = Arc::new(Endpoint {
        id: ids.endpoint(tx.now),
        tenant,
        state: EndpointState::Enabled,
        version: 1,
        created_at: tx.now,
        updated_at: tx.now,
        settings,
        secrets,
    });
    let (settings, secrets) = stored(tx, &endpoint)?;
    tx.connection
        .execute(
            "INSERT INTO endpoints (tenant, id, state, version, created_at, updated_at, settings, \
             secrets) VALUES ($1, $2, $3, $4, $5, $5, $6, $7)",
            &[
                &endpoint.tenant.as_str(),
                &Bits::from(endpoint.id),
                &endpoint.state.as_str(),
                &signed(endpoint.version),
                &tx.now.as_millis(),
                &settings,
                &secrets,
            ],
        )
        .await?;
    let directory = catalog::with(&tx.directory, None, Some(Arc::clone(&endpoint)));
    set_directory(tx, directory).await?;
    Ok(endpoint)
}

/// The endpoint, if it is still there to be changed.
fn current(tx: &Tx, tenant: &TenantId, id: EndpointId) -> Result<Arc<Endpoint>, Refusal> {
    let endpoint = tx.directory.endpoint_of(tenant, id).ok_or(Refusal::NotFound)?;
    if endpoint.state == EndpointState::Deleted {
        return Err(IllegalVerb::Deleted.into());
    }
    Ok(Arc::clone(endpoint))
}

/// Settings and secrets as they are stored.
fn stored(tx: &Tx, endpoint: &Endpoint) -> Result<(String, String), VerbError> {
    let owner = Owner { tenant: &endpoint.tenant, endpoint: endpoint.id };
    Ok(tx.rules.sealer.write(owner, &endpoint.settings, &endpoint.secrets)?)
}

async fn update(tx: &mut Tx, endpoint: Endpoint) -> Result<Arc<Endpoint>, VerbError> {
    let endpoint =
        Arc::new(Endpoint { version: endpoint.version + 1, updated_at: tx.now, ..endpoint });
    let (settings, secrets) = stored(tx, &endpoint)?;
    tx.connection
        .execute(
            "UPDATE endpoints SET state = $3, version = $4, updated_at = $5, settings = $6, \
             secrets = $7 WHERE tenant = $1 AND id = $2",
            &[
                &endpoint.tenant.as_str(),
                &Bits::from(endpoint.id),
                &endpoint.state.as_str(),
                &signed(endpoint.version),
                &tx.now.as_millis(),
                &settings,
                &secrets,
            ],
        )
        .await?;
    let directory = catalog::with(&tx.directory, None, Some(Arc::clone(&endpoint)));
    set_directory(tx, directory).await?;
    Ok(endpoint)
}

async fn act_on_endpoint(
    tx: &mut Tx,
    tenant: &TenantId,
    id: EndpointId,
    verb: EndpointVerb,
) -> Result<Arc<Endpoint>, VerbError> {
    let old = current(tx, tenant, id)?;
    let state = old.state.after(verb)?;
    if state == old.state {
        return Ok(old);
    }
    let key = Bits::from(id);
    match state.gone() {
        None if sweep::is_under_way(tx, key).await? => {
            return Err(Refusal::StillCancelling.into());
        }
        None => {}
        Some(reason) => sweep::begin(tx, key, reason).await?,
    }
    update(tx, Endpoint { state, ..(*old).clone() }).await
}
