//! The directory as it stands in the database, with the numbers that rows refer to it by.

use std::collections::HashMap;
use std::sync::Arc;

use everhook_domain::endpoint::{
    Disabled, DisabledReason, Endpoint, EndpointSettings, EndpointState,
};
use everhook_domain::id::{EndpointId, SourceId};
use everhook_domain::secret::SecretSet;
use everhook_domain::source::Source;
use everhook_domain::tenant::{Tenant, TenantId};
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, Row};

use super::meta::{LAST_ENDPOINT, LAST_SOURCE, meta};
use super::row::{signed, unsigned};
use super::schema::OpenError;
use super::source::{self, source_no};
use crate::directory::{Directory, GoneSource, Sources};
use crate::seal::{Owned, Owner, Sealer};

/// A snapshot of tenants, endpoints and sources, and the database's identity.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    pub(super) directory: Arc<Directory>,
    /// In every id of this database.
    pub(super) tag: u16,
    /// How settings and secrets are stored.
    pub(super) sealer: Sealer,
    tenants: HashMap<TenantId, (i64, Tenant)>,
    endpoints: HashMap<i64, Arc<Endpoint>>,
    last_endpoint_no: i64,
    /// Deleted ones too.
    sources: HashMap<i64, SourceId>,
    last_source_no: i64,
}

impl Catalog {
    /// Reads the database.
    pub(super) fn load(
        connection: &Connection,
        tag: u16,
        sealer: Sealer,
    ) -> Result<Self, OpenError> {
        let mut tenants = HashMap::new();
        let mut names = HashMap::new();
        let mut statement = connection
            .prepare("SELECT no, id, name, created_at FROM tenants WHERE deleted_at IS NULL")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let id: TenantId = row.get::<_, String>(1)?.parse().map_err(unusable)?;
            let name = row.get::<_, String>(2)?.parse().map_err(unusable)?;
            let created_at = Timestamp::from_millis(row.get(3)?);
            names.insert(no, id.clone());
            tenants.insert(id.clone(), (no, Tenant { id, name, created_at }));
        }
        let mut endpoints = HashMap::new();
        let mut statement = connection.prepare(
            "SELECT seq, tenant, state, version, created_at, updated_at, settings, secrets, \
             disabled_reason, disabled_at FROM endpoints \
             WHERE tenant NOT IN (SELECT no FROM tenants WHERE deleted_at IS NOT NULL)",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let endpoint = read_endpoint(row, tag, &names, &sealer)?;
            endpoints.insert(signed(endpoint.id.sequence()), Arc::new(endpoint));
        }
        let (all_sources, sources) = source::load(connection, tag, &names, &sealer)?;
        let catalog = Self {
            directory: Arc::default(),
            tag,
            sealer,
            tenants,
            endpoints,
            last_endpoint_no: last(connection, "endpoints", LAST_ENDPOINT)?,
            sources,
            last_source_no: last(connection, "sources", LAST_SOURCE)?,
        };
        Ok(catalog.renewed(all_sources))
    }

    /// With the directory of what is in it and these sources, as a new version.
    fn renewed(self, sources: Sources) -> Self {
        let tenants = self.tenants.values().map(|(_, tenant)| tenant.clone());
        let endpoints = self.endpoints.values().cloned();
        let directory = Directory::new(self.directory.version() + 1, tenants, endpoints);
        Self { directory: Arc::new(directory.with_sources(sources)), ..self }
    }

    /// The sources of all tenants, for the next version.
    fn all_sources(&self) -> Sources {
        self.directory.sources().clone()
    }

    /// The tenant's number.
    pub(super) fn tenant_no(&self, tenant: &TenantId) -> Option<i64> {
        self.tenants.get(tenant).map(|(no, _)| *no)
    }

    /// An endpoint by its number.
    pub(super) fn endpoint(&self, number: i64) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(&number)
    }

    /// The highest endpoint number so far.
    pub(super) fn last_endpoint_no(&self) -> i64 {
        self.last_endpoint_no
    }

    /// The id of a source by its number; of a deleted one too.
    pub(super) fn source(&self, number: i64) -> Option<SourceId> {
        self.sources.get(&number).copied()
    }

    /// The highest source number so far.
    pub(super) fn last_source_no(&self) -> i64 {
        self.last_source_no
    }

    /// This catalog with one more tenant.
    pub(super) fn with_tenant(&self, tenant: Tenant, no: i64) -> Self {
        let mut catalog = self.clone();
        catalog.tenants.insert(tenant.id.clone(), (no, tenant));
        catalog.renewed(self.all_sources())
    }

    /// This catalog without a tenant, its endpoints and its sources.
    pub(super) fn without_tenant(&self, tenant: &TenantId) -> Self {
        let mut catalog = self.clone();
        catalog.tenants.remove(tenant);
        catalog.endpoints.retain(|_, endpoint| endpoint.tenant != *tenant);
        let sources = self.all_sources().without_tenant(tenant);
        catalog.sources.retain(|_, source| sources.knows(*source));
        catalog.renewed(sources)
    }

    /// This catalog with an endpoint added or replaced.
    pub(super) fn with_endpoint(&self, endpoint: Arc<Endpoint>) -> Self {
        let mut catalog = self.clone();
        let number = signed(endpoint.id.sequence());
        catalog.endpoints.insert(number, endpoint);
        catalog.last_endpoint_no = catalog.last_endpoint_no.max(number);
        catalog.renewed(self.all_sources())
    }

    /// This catalog with a source added or replaced.
    pub(super) fn with_source(&self, source: Arc<Source>) -> Self {
        let mut catalog = self.clone();
        let number = source_no(source.id);
        catalog.sources.insert(number, source.id);
        catalog.last_source_no = catalog.last_source_no.max(number);
        catalog.renewed(self.all_sources().with(source))
    }

    /// This catalog after a source was deleted.
    pub(super) fn without_source(&self, gone: GoneSource) -> Self {
        self.clone().renewed(self.all_sources().with_gone(gone))
    }
}

/// The highest number that was given in a table, erased rows' among them.
fn last(connection: &Connection, table: &str, mark: &str) -> Result<i64, OpenError> {
    let statement = format!("SELECT max(seq) FROM {table}");
    let last: Option<i64> = connection.query_row(&statement, [], |row| row.get(0))?;
    Ok(last.max(meta(connection, mark)?).unwrap_or(0))
}

fn read_endpoint(
    row: &Row<'_>,
    tag: u16,
    tenants: &HashMap<i64, TenantId>,
    sealer: &Sealer,
) -> Result<Endpoint, OpenError> {
    let sequence: i64 = row.get(0)?;
    let created_at: i64 = row.get(4)?;
    let id = EndpointId::from_parts(unsigned(created_at), unsigned(sequence), tag, 0);
    let tenant = tenants
        .get(&row.get(1)?)
        .cloned()
        .ok_or_else(|| OpenError::Unusable(format!("endpoint {id} belongs to no tenant")))?;
    let state: String = row.get(2)?;
    let (settings, secrets): (String, String) = (row.get(6)?, row.get(7)?);
    let owner = Owner { tenant: &tenant, owned: Owned::Endpoint(id) };
    let [settings, secrets] = sealer.read(owner, [&settings, &secrets])?;
    Ok(Endpoint {
        id,
        tenant,
        state: EndpointState::from_word(&state)
            .ok_or_else(|| OpenError::Unusable(format!("endpoint {id} has state {state}")))?,
        disabled: read_disabled(row)?,
        version: unsigned(row.get(3)?),
        created_at: Timestamp::from_millis(created_at),
        updated_at: Timestamp::from_millis(row.get(5)?),
        settings: EndpointSettings::from_stored(&settings),
        secrets: SecretSet::from_stored(&secrets)
            .unwrap_or_else(|_| SecretSet::unreadable(&secrets)),
    })
}

/// A word that this version does not know hurts nobody: it is shown as unknown.
fn read_disabled(row: &Row<'_>) -> Result<Option<Disabled>, rusqlite::Error> {
    let (reason, at): (Option<String>, Option<i64>) = (row.get(8)?, row.get(9)?);
    let reason = reason.and_then(|reason| DisabledReason::from_word(&reason));
    let disabled = reason.zip(at.map(Timestamp::from_millis));
    Ok(disabled.map(|(reason, at)| Disabled { reason, at }))
}

fn unusable(error: impl std::fmt::Display) -> OpenError {
    OpenError::Unusable(error.to_string())
}
