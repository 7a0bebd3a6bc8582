//! Tenants, endpoints and sources: small, read by everything, kept in memory as one snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::endpoint::{Endpoint, EndpointSettings, EndpointVerb};
use everhook_domain::id::{EndpointId, SourceId};
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::source::{Source, SourceName, SourceSettings};
use everhook_domain::subscription::Facts;
use everhook_domain::tenant::{Tenant, TenantId, TenantName};
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;

/// The most endpoints a tenant may have that are not deleted.
pub const ENDPOINTS_PER_TENANT_MAX: usize = 10_000;
/// The most sources a tenant may have that are not deleted.
pub const SOURCES_PER_TENANT_MAX: usize = 1_000;

/// A snapshot of all tenants, endpoints and sources. Deleted endpoints stay in it for their
/// history, and of deleted sources the names; deleted tenants and what was theirs do not.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    version: u64,
    tenants: BTreeMap<TenantId, Tenant>,
    endpoints: HashMap<EndpointId, Arc<Endpoint>>,
    by_tenant: HashMap<TenantId, Vec<Arc<Endpoint>>>,
    sources: Sources,
}

/// The sources of all tenants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    all: HashMap<SourceId, Arc<Source>>,
    by_tenant: HashMap<TenantId, BTreeMap<SourceName, Arc<Source>>>,
    /// The deleted ones.
    gone: HashMap<SourceId, GoneSource>,
}

/// What is left of a deleted source: its receipts stay.
#[derive(Clone, Debug)]
pub(crate) struct GoneSource {
    pub(crate) id: SourceId,
    pub(crate) tenant: TenantId,
    pub(crate) name: SourceName,
}

impl Sources {
    /// With a source added or replaced.
    pub(crate) fn with(mut self, source: Arc<Source>) -> Self {
        let of_tenant = self.by_tenant.entry(source.tenant.clone()).or_default();
        if let Some(before) = self.all.insert(source.id, Arc::clone(&source)) {
            of_tenant.remove(&before.settings.name);
        }
        of_tenant.insert(source.settings.name.clone(), source);
        self
    }

    /// With a source that was deleted.
    pub(crate) fn with_gone(mut self, gone: GoneSource) -> Self {
        let of_tenant = self.by_tenant.get_mut(&gone.tenant);
        if let (Some(before), Some(of_tenant)) = (self.all.remove(&gone.id), of_tenant) {
            of_tenant.remove(&before.settings.name);
        }
        self.gone.insert(gone.id, gone);
        self
    }

    /// Whether it is one of these, or a deleted one of them.
    pub(crate) fn knows(&self, id: SourceId) -> bool {
        self.all.contains_key(&id) || self.gone.contains_key(&id)
    }

    /// Without those of a tenant.
    pub(crate) fn without_tenant(mut self, tenant: &TenantId) -> Self {
        self.by_tenant.remove(tenant);
        self.all.retain(|_, source| source.tenant != *tenant);
        self.gone.retain(|_, source| source.tenant != *tenant);
        self
    }
}

impl Directory {
    /// A snapshot without sources; `version` rises with every change.
    pub fn new(
        version: u64,
        tenants: impl IntoIterator<Item = Tenant>,
        endpoints: impl IntoIterator<Item = Arc<Endpoint>>,
    ) -> Self {
        let tenants = tenants.into_iter().map(|tenant| (tenant.id.clone(), tenant)).collect();
        let mut by_tenant: HashMap<TenantId, Vec<Arc<Endpoint>>> = HashMap::new();
        let mut all = HashMap::new();
        for endpoint in endpoints {
            by_tenant.entry(endpoint.tenant.clone()).or_default().push(Arc::clone(&endpoint));
            all.insert(endpoint.id, endpoint);
        }
        for list in by_tenant.values_mut() {
            list.sort_by_key(|endpoint| endpoint.id);
        }
        Self { version, tenants, endpoints: all, by_tenant, sources: Sources::default() }
    }

    /// This snapshot with these sources.
    pub(crate) fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// The sources, as they go into the next snapshot.
    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Rises with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the tenant exists.
    pub fn has_tenant(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// A tenant.
    pub fn tenant(&self, id: &TenantId) -> Option<&Tenant> {
        self.tenants.get(id)
    }

    /// All tenants, by id.
    pub fn tenants(&self) -> impl Iterator<Item = &Tenant> {
        self.tenants.values()
    }

    /// An endpoint of any tenant, deleted ones among them: for the engine.
    pub fn endpoint(&self, id: EndpointId) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(&id)
    }

    /// An endpoint of this tenant, deleted ones among them.
    pub fn endpoint_of(&self, tenant: &TenantId, id: EndpointId) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(&id).filter(|endpoint| endpoint.tenant == *tenant)
    }

    /// The tenant's endpoints by id, oldest first, deleted ones among them.
    pub fn endpoints_of(&self, tenant: &TenantId) -> &[Arc<Endpoint>] {
        self.by_tenant.get(tenant).map_or(&[], Vec::as_slice)
    }

    /// Every endpoint of every tenant, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.endpoints.values()
    }

    /// A source of any tenant.
    pub fn source(&self, id: SourceId) -> Option<&Arc<Source>> {
        self.sources.all.get(&id)
    }

    /// A source of this tenant.
    pub fn source_of(&self, tenant: &TenantId, id: SourceId) -> Option<&Arc<Source>> {
        self.source(id).filter(|source| source.tenant == *tenant)
    }

    /// The tenant's source with this name.
    pub fn source_named(&self, tenant: &TenantId, name: &SourceName) -> Option<&Arc<Source>> {
        self.sources.by_tenant.get(tenant)?.get(name)
    }

    /// The tenant's sources by name.
    pub fn sources_of(&self, tenant: &TenantId) -> impl Iterator<Item = &Arc<Source>> {
        self.sources.by_tenant.get(tenant).into_iter().flat_map(BTreeMap::values)
    }

    /// The name of a source of any tenant; of a deleted one, the last.
    pub fn source_name(&self, id: SourceId) -> Option<&SourceName> {
        let gone = || self.sources.gone.get(&id).map(|gone| &gone.name);
        self.source(id).map(|source| &source.settings.name).or_else(gone)
    }

    /// Tells the operator of what cannot work because of what is stored: endpoints that nothing can
    /// be sent to, and sources that take nothing.
    pub(crate) fn warn_of_unusable(&self) {
        for source in self.sources.all.values() {
            if let Some(why) = &source.unusable {
                tracing::warn!(source = %source.id, tenant = %source.tenant, "{why}");
            }
        }
        for endpoint in self.all().filter(|endpoint| endpoint.state.gone().is_none()) {
            if let Some(obstacle) = endpoint.obstacle() {
                tracing::warn!(endpoint = %endpoint.id, tenant = %endpoint.tenant, "{obstacle}");
            }
        }
    }

    /// The endpoints that an event makes deliveries for, oldest first: enabled and paused ones
    /// whose subscription matches.
    pub fn route<'a>(
        &'a self,
        tenant: &TenantId,
        facts: &'a Facts<'a>,
    ) -> impl Iterator<Item = &'a Arc<Endpoint>> {
        self.endpoints_of(tenant).iter().filter(move |endpoint| {
            endpoint.state.gone().is_none() && endpoint.settings.wants(facts)
        })
    }
}

/// A change of the directory.
#[derive(Clone, Debug)]
pub enum Change {
    /// Adds a tenant. Refused: an id that is taken, or whose deleted tenant is still being erased.
    CreateTenant {
        /// Its id.
        id: TenantId,
        /// What people call it.
        name: TenantName,
    },
    /// Deletes a tenant, but not the default one. From then on nothing of it is accepted, read or
    /// started, on any path; then all it had is erased, as a job.
    DeleteTenant(TenantId),
    /// Adds an endpoint, enabled.
    CreateEndpoint {
        /// Whose it is.
        tenant: TenantId,
        /// What its owner has set.
        settings: Box<EndpointSettings>,
        /// What signs its requests.
        secrets: SecretSet,
    },
    /// Replaces an endpoint's settings.
    UpdateEndpoint {
        /// Whose it is.
        tenant: TenantId,
        /// Which one.
        endpoint: EndpointId,
        /// The version that the change was made from.
        expected_version: u64,
        /// What its owner has set.
        settings: Box<EndpointSettings>,
    },
    /// Makes a new secret the newest; the one before it signs on for a while. Refused when too many
    /// would sign.
    RotateSecret {
        /// Whose it is.
        tenant: TenantId,
        /// Which endpoint.
        endpoint: EndpointId,
        /// The new one.
        secret: Secret,
        /// How long the one before it signs on.
        overlap: Duration,
    },
    /// Changes an endpoint's state, as
    /// [`EndpointState::after`](everhook_domain::endpoint::EndpointState::after) has it. Pausing
    /// and resuming touch no delivery. Disabling and deleting cancel what is due, with the reason,
    /// as a job (where nothing is due, there is none), and what is leased when its lease ends
    /// without success. Enabling is refused while that job runs. Asking for the state it already
    /// has changes nothing.
    ActOnEndpoint {
        /// Whose it is.
        tenant: TenantId,
        /// Which one.
        endpoint: EndpointId,
        /// What is done.
        verb: EndpointVerb,
    },
    /// Adds a source. Refused: a name that another source of the tenant has.
    CreateSource {
        /// Whose it is.
        tenant: TenantId,
        /// What its owner has set.
        settings: Box<SourceSettings>,
    },
    /// Replaces a source's settings, secrets and name among them; what could not be used of them is
    /// thereby mended. Keys that it has seen are remembered for the window that they came in.
    UpdateSource {
        /// Whose it is.
        tenant: TenantId,
        /// Which one.
        source: SourceId,
        /// The version that the change was made from.
        expected_version: u64,
        /// What its owner has set.
        settings: Box<SourceSettings>,
    },
    /// Deletes a source: it takes nothing any more, its name is free and its secrets are gone. What
    /// it has received stays.
    DeleteSource {
        /// Whose it is.
        tenant: TenantId,
        /// Which one.
        source: SourceId,
    },
}

/// What a change was of, as it is then.
#[derive(Clone, Debug)]
pub enum Changed {
    /// A tenant, or a source that is deleted: there is nothing to show.
    Nothing,
    /// An endpoint.
    Endpoint(Arc<Endpoint>),
    /// A source.
    Source(Arc<Source>),
}

impl Changed {
    /// The endpoint, if it is one.
    pub fn endpoint(self) -> Option<Arc<Endpoint>> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::Nothing | Self::Source(_) => None,
        }
    }

    /// The source, if it is one.
    pub fn source(self) -> Option<Arc<Source>> {
        match self {
            Self::Source(source) => Some(source),
            Self::Nothing | Self::Endpoint(_) => None,
        }
    }
}

/// Tenants, endpoints and sources.
#[async_trait]
pub trait DirectoryStore: Send + Sync {
    /// The directory as of now: what a finished [`DirectoryStore::change`] did is in it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no snapshot is known to be current.
    fn directory(&self) -> Result<Arc<Directory>, StoreError>;

    /// Makes one change. When it returns, it holds for every event accepted and every request
    /// started afterwards. Returns what was changed, as it is then.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal) by the rules of [`Change`].
    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Changed>>,
        now: Timestamp,
    ) -> Result<Claimed<Changed>, StoreError>;
}
