//! Opening the database: identity and migrations, once, whichever node comes first.

use everhook_domain::id::EventId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::failure::VerbError;
use super::number::Bits;
use super::pool::Connection;

/// One script a version; the index is the version before it.
const MIGRATIONS: &[&str] = &[
    include_str!("0001_initial.sql"),
    include_str!("0002_bulk.sql"),
    include_str!("0003_tenants.sql"),
    include_str!("0004_system_events.sql"),
    include_str!("0005_receiving.sql"),
    include_str!("0006_claims.sql"),
    include_str!("0007_conversations.sql"),
];

/// One node at a time migrates a schema.
const LOCK: &str =
    "SELECT pg_advisory_xact_lock(hashtextextended('everhook ' || current_schema(), 0))";

/// What a node knows of the database when it opens it.
pub(super) struct Identity {
    /// In every id of this database.
    pub(super) tag: u16,
    /// The newest event or idempotency record, by id.
    pub(super) newest: Option<EventId>,
    /// A random number of the server's.
    pub(super) seed: u64,
}

/// Migrates the schema that the connection's search path leads to, and reads its identity.
pub(super) async fn prepare(
    connection: &mut Connection,
    new_tag: u16,
    now: Timestamp,
) -> Result<Identity, VerbError> {
    connection.batch(&format!("BEGIN; {LOCK}")).await?;
    let exists = connection.batch("SELECT to_regclass('meta')::text").await?.is_some();
    let found = if exists { meta(connection, "schema").await?.unwrap_or(0) } else { 0 };
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(VerbError::Unusable(format!(
            "the database has schema {found}, this version knows schemas up to {known}: run the \
             newer version of Everhook, or restore a backup made before the upgrade"
        )));
    }
    for script in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        connection.batch(script).await?;
    }
    set_meta(connection, "schema", known).await?;
    if found == 0 {
        set_meta(connection, "tag", i64::from(new_tag)).await?;
        set_meta(connection, "directory_version", 1).await?;
        let tenant = TenantId::default_tenant();
        let statement = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $1, $2)";
        connection.execute(statement, &[&tenant.as_str(), &now.as_millis()]).await?;
    }
    let tag = meta(connection, "tag").await?.and_then(|tag| u16::try_from(tag).ok());
    let tag = tag.ok_or_else(|| VerbError::Unusable("the database has no tag".into()))?;
    let newest = newest(connection).await?;
    let seed = connection.first("SELECT gen_random_uuid()", &[]).await?;
    let seed: Bits = seed.map(|row| row.try_get(0)).transpose()?.unwrap_or(Bits(1));
    connection.batch("COMMIT").await?;
    // The lower half of a random uuid holds 62 random bits.
    Ok(Identity { tag, newest, seed: seed.0 as u64 })
}

/// Three seeks a tenant.
async fn newest(connection: &mut Connection) -> Result<Option<EventId>, VerbError> {
    let row = connection
        .first(
            "SELECT newest.id FROM tenants CROSS JOIN LATERAL (\
             (SELECT id FROM events WHERE tenant = tenants.id ORDER BY id DESC LIMIT 1) UNION ALL \
             (SELECT id FROM claims WHERE tenant = tenants.id ORDER BY id DESC LIMIT 1) UNION ALL \
             (SELECT id FROM idempotency_records WHERE tenant = tenants.id AND id IS NOT NULL \
             ORDER BY id DESC LIMIT 1)) AS newest ORDER BY newest.id DESC LIMIT 1",
            &[],
        )
        .await?;
    let newest: Option<Bits> = row.map(|row| row.try_get(0)).transpose()?;
    Ok(newest.map(|Bits(bits)| EventId::from_bits(bits)))
}

/// A number kept in the table `meta`.
pub(super) async fn meta(
    connection: &mut Connection,
    name: &str,
) -> Result<Option<i64>, VerbError> {
    let row = connection.first("SELECT value FROM meta WHERE name = $1", &[&name]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Sets a number in the table `meta`.
pub(super) async fn set_meta(
    connection: &mut Connection,
    name: &str,
    value: i64,
) -> Result<(), VerbError> {
    let statement = "INSERT INTO meta (name, value) VALUES ($1, $2) \
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(statement, &[&name, &value]).await?;
    Ok(())
}
