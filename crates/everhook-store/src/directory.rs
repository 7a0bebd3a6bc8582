//! Tenants and endpoints: small, read by everything, kept in memory as one snapshot.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::endpoint::{Endpoint, EndpointSettings, EndpointVerb};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::Facts;
use everhook_domain::tenant::{Tenant, TenantId, TenantName};
use everhook_domain::time::Timestamp;

use crate::claim::{Claim, Claimed};
use crate::error::StoreError;

/// The most endpoints a tenant may have that are not deleted.
pub const ENDPOINTS_PER_TENANT_MAX: usize = 10_000;

/// A snapshot of all tenants and endpoints. Deleted endpoints stay in it for their history; deleted
/// tenants and what was theirs do not.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    version: u64,
    tenants: BTreeMap<TenantId, Tenant>,
    endpoints: HashMap<EndpointId, Arc<Endpoint>>,
    by_tenant: HashMap<TenantId, Vec<Arc<Endpoint>>>,
}

impl Directory {
    /// A snapshot; `version` rises with every change.
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
        Self { version, tenants, endpoints: all, by_tenant }
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

    /// Tells the operator of the endpoints that nothing can be sent to, because of what is stored.
    pub(crate) fn warn_of_unusable(&self) {
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
}

/// Tenants and endpoints.
#[async_trait]
pub trait DirectoryStore: Send + Sync {
    /// The directory as of now: what a finished [`DirectoryStore::change`] did is in it.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] when no snapshot is known to be current.
    fn directory(&self) -> Result<Arc<Directory>, StoreError>;

    /// Makes one change. When it returns, it holds for every event accepted and every request
    /// started afterwards. Returns the endpoint as it is then; `None` for a change of a tenant.
    ///
    /// # Errors
    /// [`Refusal`](crate::Refusal) by the rules of [`Change`].
    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Option<Arc<Endpoint>>>>,
        now: Timestamp,
    ) -> Result<Claimed<Option<Arc<Endpoint>>>, StoreError>;
}
