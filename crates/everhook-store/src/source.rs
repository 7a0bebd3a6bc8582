//! Sources, as far as both stores treat them alike: how one is read from what is stored, and what a
//! change of one must keep to.

use std::sync::Arc;

use everhook_domain::endpoint::{Endpoint, EndpointState};
use everhook_domain::id::SourceId;
use everhook_domain::source::{Source, SourceName, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use crate::directory::{Directory, SOURCES_PER_TENANT_MAX};
use crate::error::Refusal;
use crate::seal::{CannotSeal, MissingKey, Owned, Owner, Sealer, Texts};

/// A source as it is stored.
pub(crate) struct StoredSource<'a> {
    pub(crate) id: SourceId,
    pub(crate) tenant: TenantId,
    pub(crate) name: &'a str,
    pub(crate) version: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// Settings and secrets.
    pub(crate) texts: [&'a str; 2],
}

impl StoredSource<'_> {
    /// The source. What cannot be used makes it unusable, and hurts no other.
    pub(crate) fn read(self, sealer: &Sealer) -> Result<Source, MissingKey> {
        let owner = Owner { tenant: &self.tenant, owned: Owned::Source(self.id) };
        let [settings, secrets] = sealer.read(owner, self.texts)?;
        let name = stored_name(self.id, self.name);
        let (settings, unusable) = match SourceSettings::from_stored(&settings, &secrets) {
            Ok(settings) if settings.name == name => (settings, None),
            Ok(settings) => {
                let why = format!("it is stored as {name}, and its settings name another");
                (SourceSettings { name, ..settings }, Some(why))
            }
            Err(why) => {
                (SourceSettings::salvaged(name, &settings, &secrets), Some(why.to_string()))
            }
        };
        Ok(Source {
            id: self.id,
            tenant: self.tenant,
            version: self.version,
            created_at: self.created_at,
            updated_at: self.updated_at,
            settings,
            unusable,
        })
    }
}

/// A name from what is stored; one that cannot be used is replaced by one that nobody else has.
pub(crate) fn stored_name(id: SourceId, stored: &str) -> SourceName {
    stored.parse().unwrap_or_else(|_| SourceName::unreadable(id))
}

/// Settings and secrets as they are to be stored.
pub(crate) fn write(sealer: &Sealer, source: &Source) -> Result<Texts, CannotSeal> {
    let owner = Owner { tenant: &source.tenant, owned: Owned::Source(source.id) };
    let settings = &source.settings;
    sealer.write(owner, [settings.to_stored(), settings.secrets_to_stored()])
}

/// Whether there is room for one more, and whether its name is free.
pub(crate) fn check_new(
    directory: &Directory,
    tenant: &TenantId,
    name: &SourceName,
) -> Result<(), Refusal> {
    if directory.source_named(tenant, name).is_some() {
        return Err(Refusal::NameTaken);
    }
    if directory.sources_of(tenant).count() >= SOURCES_PER_TENANT_MAX {
        return Err(Refusal::TooManySources);
    }
    Ok(())
}

/// A source with other settings, made from this version of it. Its name stays while an endpoint
/// takes its events by it alone: renaming must not cut anybody off unseen.
pub(crate) fn updated(
    directory: &Directory,
    (tenant, id): (&TenantId, SourceId),
    expected_version: u64,
    settings: SourceSettings,
    now: Timestamp,
) -> Result<Source, Refusal> {
    let old = directory.source_of(tenant, id).ok_or(Refusal::NotFound)?;
    if old.version != expected_version {
        return Err(Refusal::VersionChanged);
    }
    let same_name = directory.source_named(tenant, &settings.name);
    if same_name.is_some_and(|other| other.id != id) {
        return Err(Refusal::NameTaken);
    }
    let names = |endpoint: &Endpoint, source: &SourceName| {
        endpoint.settings.subscription.sources.iter().any(|name| name == source.as_str())
    };
    let (before, after) = (&old.settings.name, &settings.name);
    let is_cut_off = |endpoint: &&Arc<Endpoint>| {
        endpoint.state != EndpointState::Deleted
            && names(endpoint, before)
            && !names(endpoint, after)
    };
    let cut_off: Vec<_> = directory.endpoints_of(tenant).iter().filter(is_cut_off).collect();
    if before != after && !cut_off.is_empty() {
        return Err(Refusal::StillNamed(cut_off.iter().map(|endpoint| endpoint.id).collect()));
    }
    let version = old.version + 1;
    Ok(Source { version, updated_at: now, settings, unusable: None, ..(**old).clone() })
}
