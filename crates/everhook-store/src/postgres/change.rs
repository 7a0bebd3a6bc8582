//! `change`: tenants and endpoints; sources have a file of their own.

use std::sync::Arc;

use everhook_domain::delivery::CancelReason;
use everhook_domain::endpoint::{
    Disabled, DisabledReason, Endpoint, EndpointSettings, EndpointState, EndpointVerb, IllegalVerb,
};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::SecretSet;
use everhook_domain::system_event::SystemEvent;
use everhook_domain::tenant::{Tenant, TenantId, TenantName};

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, signed};
use super::tx::{Noted, Tx};
use super::{catalog, health, schema, source, sweep};
use crate::directory::{Change, Changed, Directory, ENDPOINTS_PER_TENANT_MAX};
use crate::error::Refusal;
use crate::seal::{Owned, Owner, Texts};

/// The verb. Only one transaction at a time runs it.
pub(super) async fn change(tx: &mut Tx, ids: &Ids, change: Change) -> Result<Changed, VerbError> {
    match change {
        Change::CreateTenant { id, name } => {
            create_tenant(tx, id, name).await.map(|()| Changed::Nothing)
        }
        Change::DeleteTenant(id) => delete_tenant(tx, &id).await.map(|()| Changed::Nothing),
        Change::CreateEndpoint { tenant, settings, secrets } => {
            create_endpoint(tx, ids, tenant, *settings, secrets).await.map(Changed::Endpoint)
        }
        Change::UpdateEndpoint { tenant, endpoint, expected_version, settings } => {
            let old = current(tx, &tenant, endpoint)?;
            if old.version != expected_version {
                return Err(Refusal::VersionChanged.into());
            }
            let new = Endpoint { settings: *settings, ..(*old).clone() };
            update(tx, new).await.map(Changed::Endpoint)
        }
        Change::RotateSecret { tenant, endpoint, secret, overlap } => {
            let old = current(tx, &tenant, endpoint)?;
            let secrets = old.secrets.rotate(secret, tx.now, overlap)?;
            update(tx, Endpoint { secrets, ..(*old).clone() }).await.map(Changed::Endpoint)
        }
        Change::ActOnEndpoint { tenant, endpoint, verb } => {
            act_on_endpoint(tx, &tenant, endpoint, verb).await.map(Changed::Endpoint)
        }
        Change::CreateSource { tenant, settings } => {
            source::create(tx, ids, tenant, *settings).await.map(Changed::Source)
        }
        Change::UpdateSource { tenant, source, expected_version, settings } => {
            let of = (&tenant, source);
            source::update(tx, of, expected_version, *settings).await.map(Changed::Source)
        }
        Change::DeleteSource { tenant, source } => {
            source::delete(tx, tenant, source).await.map(|()| Changed::Nothing)
        }
    }
}

/// The directory as it is after the transaction.
pub(super) async fn set_directory(tx: &mut Tx, directory: Directory) -> Result<(), VerbError> {
    let version = signed(directory.version());
    tx.directory = Arc::new(directory);
    tx.directory_changed = true;
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
        disabled: None,
        version: 1,
        created_at: tx.now,
        updated_at: tx.now,
        settings,
        secrets,
    });
    let [settings, secrets] = stored(tx, &endpoint)?;
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
fn stored(tx: &Tx, endpoint: &Endpoint) -> Result<Texts, VerbError> {
    let owner = Owner { tenant: &endpoint.tenant, owned: Owned::Endpoint(endpoint.id) };
    let texts = [endpoint.settings.to_stored(), endpoint.secrets.to_stored()];
    Ok(tx.rules.sealer.write(owner, texts)?)
}

async fn update(tx: &mut Tx, endpoint: Endpoint) -> Result<Arc<Endpoint>, VerbError> {
    let endpoint =
        Arc::new(Endpoint { version: endpoint.version + 1, updated_at: tx.now, ..endpoint });
    let [settings, secrets] = stored(tx, &endpoint)?;
    tx.connection
        .execute(
            "UPDATE endpoints SET state = $3, version = $4, updated_at = $5, settings = $6, \
             secrets = $7, disabled_reason = $8, disabled_at = $9 WHERE tenant = $1 AND id = $2",
            &[
                &endpoint.tenant.as_str(),
                &Bits::from(endpoint.id),
                &endpoint.state.as_str(),
                &signed(endpoint.version),
                &tx.now.as_millis(),
                &settings,
                &secrets,
                &endpoint.disabled.map(|disabled| disabled.reason.as_str()),
                &endpoint.disabled.map(|disabled| disabled.at.as_millis()),
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
    match state {
        EndpointState::Disabled => disable(tx, &old, DisabledReason::Requested).await,
        EndpointState::Deleted => {
            sweep::begin(tx, Bits::from(id), CancelReason::EndpointDeleted).await?;
            update(tx, Endpoint { state, ..(*old).clone() }).await
        }
        EndpointState::Enabled | EndpointState::Paused => {
            if sweep::is_under_way(tx, Bits::from(id)).await? {
                return Err(Refusal::StillCancelling.into());
            }
            if old.state == EndpointState::Disabled {
                health::reset(&mut tx.connection, id).await?;
            }
            update(tx, Endpoint { state, disabled: None, ..(*old).clone() }).await
        }
    }
}

/// Disables an endpoint that was not, and tells of it. What waits for it is cancelled by a job,
/// what is on its way when its lease ends without success. The transaction has the directory for
/// itself.
pub(super) async fn disable(
    tx: &mut Tx,
    old: &Endpoint,
    reason: DisabledReason,
) -> Result<Arc<Endpoint>, VerbError> {
    // The sweep looks at the table: what this transaction has decided so far must be there.
    tx.flush().await?;
    sweep::begin(tx, Bits::from(old.id), CancelReason::EndpointDisabled).await?;
    let health = health::of(&mut tx.connection, old.id).await?;
    let event = SystemEvent::EndpointDisabled { endpoint: old.into(), reason, health };
    tx.noted.push(Noted::Event(old.tenant.clone(), event));
    let disabled = Some(Disabled { reason, at: tx.now });
    update(tx, Endpoint { state: EndpointState::Disabled, disabled, ..old.clone() }).await
}
