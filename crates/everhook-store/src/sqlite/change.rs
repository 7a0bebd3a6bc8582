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
use everhook_domain::time::Timestamp;
use rusqlite::params;

use super::command::{Verb, VerbError};
use super::row::{signed, unsigned};
use super::tx::{Tx, endpoint_no};
use super::{claimed, erase, source, sweep};
use crate::claim::{Claim, Claimed};
use crate::directory::{Change, Changed, ENDPOINTS_PER_TENANT_MAX};
use crate::error::Refusal;
use crate::seal::{Owned, Owner, Texts};

/// The verb.
pub(super) struct ChangeVerb {
    pub(super) change: Change,
    pub(super) claim: Option<Claim<Changed>>,
    pub(super) now: Timestamp,
}

impl Verb for ChangeVerb {
    type Output = Claimed<Changed>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let now = self.now;
        claimed::run(tx, self.claim.as_ref(), now, |tx| change(tx, &self.change, now))
    }
}

fn change(tx: &mut Tx<'_>, change: &Change, now: Timestamp) -> Result<Changed, VerbError> {
    match change {
        Change::CreateTenant { id, name } => {
            create_tenant(tx, id, name, now).map(|()| Changed::Nothing)
        }
        Change::DeleteTenant(id) => delete_tenant(tx, id, now).map(|()| Changed::Nothing),
        Change::CreateEndpoint { tenant, settings, secrets } => {
            create_endpoint(tx, tenant, settings, secrets, now).map(Changed::Endpoint)
        }
        Change::UpdateEndpoint { tenant, endpoint, expected_version, settings } => {
            let old = current(tx, tenant, *endpoint)?;
            if old.version != *expected_version {
                return Err(Refusal::VersionChanged.into());
            }
            let new = Endpoint { settings: (**settings).clone(), ..(*old).clone() };
            update(tx, new, now).map(Changed::Endpoint)
        }
        Change::RotateSecret { tenant, endpoint, secret, overlap } => {
            let old = current(tx, tenant, *endpoint)?;
            let secrets = old.secrets.rotate(secret.clone(), now, *overlap)?;
            update(tx, Endpoint { secrets, ..(*old).clone() }, now).map(Changed::Endpoint)
        }
        Change::ActOnEndpoint { tenant, endpoint, verb } => {
            act_on_endpoint(tx, tenant, *endpoint, *verb, now).map(Changed::Endpoint)
        }
        Change::CreateSource { tenant, settings } => {
            source::create(tx, tenant, settings, now).map(Changed::Source)
        }
        Change::UpdateSource { tenant, source, expected_version, settings } => {
            let of = (tenant, *source);
            source::update(tx, of, *expected_version, settings, now).map(Changed::Source)
        }
        Change::DeleteSource { tenant, source } => {
            source::delete(tx, tenant, *source, now).map(|()| Changed::Nothing)
        }
    }
}

fn create_tenant(
    tx: &mut Tx<'_>,
    id: &TenantId,
    name: &TenantName,
    now: Timestamp,
) -> Result<(), VerbError> {
    if tx.tenant(id).is_ok() {
        return Err(Refusal::Taken.into());
    }
    let erasing = tx
        .connection
        .prepare_cached("SELECT 1 FROM tenants WHERE id = ?1")?
        .exists([id.as_str()])?;
    if erasing {
        return Err(Refusal::StillErasing.into());
    }
    tx.connection
        .prepare_cached("INSERT INTO tenants (id, name, created_at) VALUES (?1, ?2, ?3)")?
        .execute(params![id.as_str(), name.as_str(), now.as_millis()])?;
    let no = tx.connection.last_insert_rowid();
    let tenant = Tenant { id: id.clone(), name: name.clone(), created_at: now };
    tx.set_catalog(tx.catalog().with_tenant(tenant, no));
    Ok(())
}

fn delete_tenant(tx: &mut Tx<'_>, id: &TenantId, now: Timestamp) -> Result<(), VerbError> {
    let no = tx.tenant(id)?;
    if id.is_default() {
        return Err(Refusal::DefaultTenant.into());
    }
    tx.connection
        .prepare_cached("UPDATE tenants SET deleted_at = ?2 WHERE no = ?1")?
        .execute(params![no, now.as_millis()])?;
    erase::begin(tx, no)?;
    tx.set_catalog(tx.catalog().without_tenant(id));
    Ok(())
}

fn create_endpoint(
    tx: &mut Tx<'_>,
    tenant: &TenantId,
    settings: &EndpointSettings,
    secrets: &SecretSet,
    now: Timestamp,
) -> Result<Arc<Endpoint>, VerbError> {
    let tenant_no = tx.tenant(tenant)?;
    let catalog = Arc::clone(tx.catalog());
    let existing = catalog.directory.endpoints_of(tenant);
    let kept = existing.iter().filter(|endpoint| endpoint.state != EndpointState::Deleted).count();
    if kept >= ENDPOINTS_PER_TENANT_MAX {
        return Err(Refusal::TooManyEndpoints.into());
    }
    let number = catalog.last_endpoint_no() + 1;
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    let endpoint = Arc::new(Endpoint {
        id: EndpointId::from_parts(millis, unsigned(number), tx.tag(), 0),
        tenant: tenant.clone(),
        state: EndpointState::Enabled,
        disabled: None,
        version: 1,
        created_at: now,
        updated_at: now,
        settings: settings.clone(),
        secrets: secrets.clone(),
    });
    let [settings, secrets] = stored(tx, &endpoint)?;
    tx.connection
        .prepare_cached(
            "INSERT INTO endpoints (seq, tenant, state, version, created_at, updated_at, settings, \
             secrets) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            number,
            tenant_no,
            endpoint.state.as_str(),
            signed(endpoint.version),
            now.as_millis(),
            now.as_millis(),
            settings,
            secrets,
        ])?;
    tx.set_catalog(catalog.with_endpoint(Arc::clone(&endpoint)));
    Ok(endpoint)
}

/// The endpoint, if it is still there to be changed.
fn current(tx: &Tx<'_>, tenant: &TenantId, id: EndpointId) -> Result<Arc<Endpoint>, Refusal> {
    let endpoint = tx.catalog().directory.endpoint_of(tenant, id).ok_or(Refusal::NotFound)?;
    if endpoint.state == EndpointState::Deleted {
        return Err(IllegalVerb::Deleted.into());
    }
    Ok(Arc::clone(endpoint))
}

/// Settings and secrets as they are stored.
fn stored(tx: &Tx<'_>, endpoint: &Endpoint) -> Result<Texts, VerbError> {
    let owner = Owner { tenant: &endpoint.tenant, owned: Owned::Endpoint(endpoint.id) };
    let texts = [endpoint.settings.to_stored(), endpoint.secrets.to_stored()];
    Ok(tx.catalog().sealer.write(owner, texts)?)
}

fn update(tx: &mut Tx<'_>, endpoint: Endpoint, now: Timestamp) -> Result<Arc<Endpoint>, VerbError> {
    let endpoint =
        Arc::new(Endpoint { version: endpoint.version + 1, updated_at: now, ..endpoint });
    let [settings, secrets] = stored(tx, &endpoint)?;
    tx.connection
        .prepare_cached(
            "UPDATE endpoints SET state = ?2, version = ?3, updated_at = ?4, settings = ?5, \
             secrets = ?6, disabled_reason = ?7, disabled_at = ?8 WHERE seq = ?1",
        )?
        .execute(params![
            endpoint_no(endpoint.id),
            endpoint.state.as_str(),
            signed(endpoint.version),
            now.as_millis(),
            settings,
            secrets,
            endpoint.disabled.map(|disabled| disabled.reason.as_str()),
            endpoint.disabled.map(|disabled| disabled.at.as_millis()),
        ])?;
    tx.set_catalog(tx.catalog().with_endpoint(Arc::clone(&endpoint)));
    Ok(endpoint)
}

fn act_on_endpoint(
    tx: &mut Tx<'_>,
    tenant: &TenantId,
    id: EndpointId,
    verb: EndpointVerb,
    now: Timestamp,
) -> Result<Arc<Endpoint>, VerbError> {
    let old = current(tx, tenant, id)?;
    let state = old.state.after(verb)?;
    if state == old.state {
        return Ok(old);
    }
    let number = endpoint_no(id);
    match state {
        EndpointState::Disabled => disable(tx, &old, DisabledReason::Requested, now),
        EndpointState::Deleted => {
            sweep::begin(tx, number, CancelReason::EndpointDeleted, now)?;
            update(tx, Endpoint { state, ..(*old).clone() }, now)
        }
        EndpointState::Enabled | EndpointState::Paused => {
            if sweep::is_under_way(tx, number)? {
                return Err(Refusal::StillCancelling.into());
            }
            if old.state == EndpointState::Disabled {
                tx.reset_health(number);
            }
            update(tx, Endpoint { state, disabled: None, ..(*old).clone() }, now)
        }
    }
}

/// Disables an endpoint that was not, and tells of it. What waits for it is cancelled by a job,
/// what is on its way when its lease ends without success.
pub(super) fn disable(
    tx: &mut Tx<'_>,
    old: &Endpoint,
    reason: DisabledReason,
    now: Timestamp,
) -> Result<Arc<Endpoint>, VerbError> {
    let number = endpoint_no(old.id);
    sweep::begin(tx, number, CancelReason::EndpointDisabled, now)?;
    let event =
        SystemEvent::EndpointDisabled { endpoint: old.into(), reason, health: tx.health(number) };
    tx.tell(old.tenant.clone(), event, now);
    let disabled = Some(Disabled { reason, at: now });
    update(tx, Endpoint { state: EndpointState::Disabled, disabled, ..old.clone() }, now)
}
