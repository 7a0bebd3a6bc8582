//! The directory as it stands in the database, with the numbers that rows refer to it by.

use std::collections::HashMap;
use std::sync::Arc;

use everhook_domain::endpoint::{Endpoint, EndpointSettings, EndpointState};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::SecretSet;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, Row};

use super::row::{signed, unsigned};
use super::schema::OpenError;
use crate::directory::Directory;

/// A snapshot of tenants and endpoints, and the database's identity.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    pub(super) directory: Arc<Directory>,
    /// In every id of this database.
    pub(super) tag: u16,
    tenants: HashMap<TenantId, i64>,
    endpoints: HashMap<i64, Arc<Endpoint>>,
}

impl Catalog {
    /// Reads the database.
    pub(super) fn load(connection: &Connection, tag: u16) -> Result<Self, OpenError> {
        let mut tenants = HashMap::new();
        let mut names = HashMap::new();
        let mut statement = connection.prepare("SELECT no, id FROM tenants")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (no, text): (i64, String) = (row.get(0)?, row.get(1)?);
            let tenant: TenantId = text.parse().map_err(unusable)?;
            names.insert(no, tenant.clone());
            tenants.insert(tenant, no);
        }
        let mut endpoints = HashMap::new();
        let mut statement = connection.prepare(
            "SELECT seq, tenant, state, version, created_at, updated_at, settings, secrets \
             FROM endpoints",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let endpoint = read_endpoint(row, tag, &names)?;
            endpoints.insert(signed(endpoint.id.sequence()), Arc::new(endpoint));
        }
        Ok(Self::new(1, tag, tenants, endpoints))
    }

    fn new(
        version: u64,
        tag: u16,
        tenants: HashMap<TenantId, i64>,
        endpoints: HashMap<i64, Arc<Endpoint>>,
    ) -> Self {
        let directory =
            Directory::new(version, tenants.keys().cloned(), endpoints.values().cloned());
        Self { directory: Arc::new(directory), tag, tenants, endpoints }
    }

    /// The tenant's number.
    pub(super) fn tenant_no(&self, tenant: &TenantId) -> Option<i64> {
        self.tenants.get(tenant).copied()
    }

    /// An endpoint by its number.
    pub(super) fn endpoint(&self, number: i64) -> Option<&Arc<Endpoint>> {
        self.endpoints.get(&number)
    }

    /// The highest endpoint number so far.
    pub(super) fn last_endpoint_no(&self) -> i64 {
        self.endpoints.keys().copied().max().unwrap_or(0)
    }

    /// This catalog with one more tenant.
    pub(super) fn with_tenant(&self, tenant: TenantId, no: i64) -> Self {
        let mut tenants = self.tenants.clone();
        tenants.insert(tenant, no);
        Self::new(self.directory.version() + 1, self.tag, tenants, self.endpoints.clone())
    }

    /// This catalog with an endpoint added or replaced.
    pub(super) fn with_endpoint(&self, endpoint: Arc<Endpoint>) -> Self {
        let mut endpoints = self.endpoints.clone();
        endpoints.insert(signed(endpoint.id.sequence()), endpoint);
        Self::new(self.directory.version() + 1, self.tag, self.tenants.clone(), endpoints)
    }
}

fn read_endpoint(
    row: &Row<'_>,
    tag: u16,
    tenants: &HashMap<i64, TenantId>,
) -> Result<Endpoint, OpenError> {
    let sequence: i64 = row.get(0)?;
    let created_at: i64 = row.get(4)?;
    let id = EndpointId::from_parts(unsigned(created_at), unsigned(sequence), tag, 0);
    let tenant = tenants
        .get(&row.get(1)?)
        .cloned()
        .ok_or_else(|| OpenError::Unusable(format!("endpoint {id} belongs to no tenant")))?;
    let state: String = row.get(2)?;
    Ok(Endpoint {
        id,
        tenant,
        state: EndpointState::from_word(&state)
            .ok_or_else(|| OpenError::Unusable(format!("endpoint {id} has state {state}")))?,
        version: unsigned(row.get(3)?),
        created_at: Timestamp::from_millis(created_at),
        updated_at: Timestamp::from_millis(row.get(5)?),
        settings: EndpointSettings::from_stored(&row.get::<_, String>(6)?),
        secrets: read_secrets(&row.get::<_, String>(7)?),
    })
}

fn read_secrets(stored: &str) -> SecretSet {
    SecretSet::from_stored(stored).unwrap_or_else(|_| SecretSet::unreadable(stored))
}

fn unusable(error: impl std::fmt::Display) -> OpenError {
    OpenError::Unusable(error.to_string())
}
