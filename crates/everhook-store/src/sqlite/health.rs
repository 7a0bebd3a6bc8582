//! The health of endpoints.
//!
//! The writer mirrors the health of those endpoints that have failed since their last success, so
//! that an attempt that succeeds where nothing had failed reads and writes nothing.

use std::collections::HashMap;

use everhook_domain::health::{EndpointHealth, Health};
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::tx::endpoint_no;

/// Endpoint → health of those that have failed since their last success.
pub(super) type Healths = HashMap<i64, EndpointHealth>;

/// All that is stored and is not as it is without a row.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Healths> {
    connection
        .prepare(
            "SELECT consecutive_failures, first_failure_at, endpoint FROM endpoint_health \
             WHERE consecutive_failures > 0",
        )?
        .query_map([], |row| Ok((row.get(2)?, read(row)?)))?
        .collect()
}

/// The stored health of these endpoints; one that has not failed since its last success is not in
/// it.
pub(super) fn of(
    connection: &Connection,
    endpoints: &[EndpointId],
) -> rusqlite::Result<HashMap<EndpointId, EndpointHealth>> {
    let mut found = HashMap::new();
    for endpoint in endpoints {
        let health = connection
            .prepare_cached(
                "SELECT consecutive_failures, first_failure_at FROM endpoint_health \
                 WHERE endpoint = ?1 AND consecutive_failures > 0",
            )?
            .query_row([endpoint_no(*endpoint)], read)
            .optional()?;
        found.extend(health.map(|health| (*endpoint, health)));
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> rusqlite::Result<EndpointHealth> {
    Ok(EndpointHealth {
        health: Health { consecutive_failures: row.get(0)? },
        first_failure_at: row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis),
    })
}

/// Writes the health of one endpoint.
pub(super) fn write(
    connection: &Connection,
    endpoint: i64,
    health: &EndpointHealth,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO endpoint_health (endpoint, consecutive_failures, first_failure_at) \
             VALUES (?1, ?2, ?3) ON CONFLICT (endpoint) DO UPDATE SET \
             consecutive_failures = excluded.consecutive_failures, \
             first_failure_at = excluded.first_failure_at",
        )?
        .execute(params![
            endpoint,
            health.health.consecutive_failures,
            health.first_failure_at.map(Timestamp::as_millis),
        ])?;
    Ok(())
}
