//! The health of endpoints, and what a transaction has to tell of itself.
//!
//! An endpoint that goes on succeeding has its row read, without a lock, and never written. Where
//! an attempt failed, or had failed before, the row is locked, so that several nodes count as one.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use everhook_domain::endpoint::DisabledReason;
use everhook_domain::health::{EndpointHealth, Health};
use everhook_domain::id::EndpointId;
use everhook_domain::system_event;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::ids::Ids;
use super::number::{Bits, bits, count, int};
use super::pool::Connection;
use super::tx::{Access, Noted, Tx};
use super::{change, publish};

/// The end of a transaction: attempts are counted in the health of their endpoints, endpoints where
/// nothing has succeeded for too long are disabled, and system events are published.
///
/// # Errors
/// [`VerbError::NeedsDirectory`]: one must be disabled, and others may be reading the directory.
pub(super) async fn conclude(tx: &mut Tx, ids: &Ids) -> Result<(), VerbError> {
    let noted = std::mem::take(&mut tx.noted);
    let mut told = count_attempts(tx, noted).await?;
    // What disabling has to tell.
    told.append(&mut tx.noted);
    for noted in told {
        if let Noted::Event(tenant, event) = noted {
            let event = event.compose(tx.now);
            publish::own(tx, ids, tenant, event).await?;
        }
    }
    Ok(())
}

/// Counts attempts; returns what is to be told, in its order.
async fn count_attempts(tx: &mut Tx, noted: Vec<Noted>) -> Result<Vec<Noted>, VerbError> {
    let (mut all, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for noted in &noted {
        if let Noted::Attempt(endpoint, attempt) = noted {
            all.insert(*endpoint);
            failed.extend((!attempt.is_success()).then_some(*endpoint));
        }
    }
    let mut healths = lock(&mut tx.connection, &all, &failed).await?;
    let before = healths.clone();
    let disable_after = tx.rules.policy.disable_after;
    let mut told = Vec::new();
    for noted in noted {
        let Noted::Attempt(id, attempt) = noted else {
            told.push(noted);
            continue;
        };
        // One that is not there has not failed, in this transaction or before it.
        let Some(health) = healths.get_mut(&id) else { continue };
        let Some(endpoint) = tx.directory.endpoint(id) else { continue };
        let (after, event) = system_event::observe(endpoint, *health, attempt, disable_after);
        *health = after;
        told.extend(event.map(|event| Noted::Event(endpoint.tenant.clone(), event)));
    }
    let changed: Vec<_> = healths.iter().filter(|(id, health)| before[*id] != **health).collect();
    write(&mut tx.connection, &changed).await?;
    for id in failed {
        let health = healths.get(&id).copied().unwrap_or_default();
        if health.must_be_disabled(disable_after, tx.now) {
            disable(tx, id, health).await?;
        }
    }
    Ok(told)
}

/// Disables an endpoint where nothing has succeeded for too long.
async fn disable(tx: &mut Tx, id: EndpointId, health: EndpointHealth) -> Result<(), VerbError> {
    let endpoint = tx.directory.endpoint(id).filter(|endpoint| endpoint.state.gone().is_none());
    let Some(endpoint) = endpoint.cloned() else { return Ok(()) };
    if tx.access != Access::Change {
        return Err(VerbError::NeedsDirectory);
    }
    change::disable(tx, &endpoint, DisabledReason::Automatic).await?;
    tx.disabled.extend(health.failing_since().map(|since| (id, since)));
    Ok(())
}

/// Locks, in order, the rows of the endpoints where something failed, in this transaction or before
/// it, and reads them.
async fn lock(
    connection: &mut Connection,
    all: &BTreeSet<EndpointId>,
    failed: &BTreeSet<EndpointId>,
) -> Result<BTreeMap<EndpointId, EndpointHealth>, VerbError> {
    if all.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<EndpointId> = all.iter().copied().collect();
    let failed: Vec<EndpointId> = failed.iter().copied().collect();
    let wanted: BTreeSet<EndpointId> =
        read(connection, &ids).await?.into_keys().chain(failed.iter().copied()).collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let missing = "INSERT INTO endpoint_health (endpoint, consecutive_failures) \
                   SELECT endpoint, 0 FROM unnest($1::uuid[]) AS v (endpoint) \
                   ON CONFLICT (endpoint) DO NOTHING";
    connection.execute(missing, &[&bits(&failed)]).await?;
    let wanted: Vec<EndpointId> = wanted.into_iter().collect();
    let statement = "SELECT endpoint, consecutive_failures, first_failure_at FROM endpoint_health \
                     WHERE endpoint = ANY($1) ORDER BY endpoint FOR UPDATE";
    let rows = connection.query(statement, &[&bits(&wanted)]).await?;
    rows.iter().map(read_row).collect()
}

/// The health of those among these endpoints that have failed since their last success.
pub(super) async fn read(
    connection: &mut Connection,
    endpoints: &[EndpointId],
) -> Result<HashMap<EndpointId, EndpointHealth>, VerbError> {
    let statement = "SELECT endpoint, consecutive_failures, first_failure_at FROM endpoint_health \
                     WHERE endpoint = ANY($1) AND consecutive_failures > 0";
    let rows = connection.query(statement, &[&bits(endpoints)]).await?;
    rows.iter().map(read_row).collect()
}

/// The failures of one endpoint since its last success. Nobody else is counting them: the caller
/// holds the directory alone.
pub(super) async fn of(
    connection: &mut Connection,
    endpoint: EndpointId,
) -> Result<EndpointHealth, VerbError> {
    let found = read(connection, &[endpoint]).await?;
    Ok(found.get(&endpoint).copied().unwrap_or_default())
}

fn read_row(row: &Row) -> Result<(EndpointId, EndpointHealth), VerbError> {
    let Bits(endpoint) = row.try_get(0)?;
    let health = EndpointHealth {
        health: Health { consecutive_failures: count(row.try_get(1)?) },
        first_failure_at: row.try_get::<_, Option<i64>>(2)?.map(Timestamp::from_millis),
    };
    Ok((EndpointId::from_bits(endpoint), health))
}

async fn write(
    connection: &mut Connection,
    changed: &[(&EndpointId, &EndpointHealth)],
) -> Result<(), VerbError> {
    if changed.is_empty() {
        return Ok(());
    }
    let endpoints: Vec<Bits> = changed.iter().map(|(id, _)| (**id).into()).collect();
    let failures: Vec<i32> =
        changed.iter().map(|(_, health)| int(health.health.consecutive_failures)).collect();
    let first: Vec<Option<i64>> = changed
        .iter()
        .map(|(_, health)| health.first_failure_at.map(Timestamp::as_millis))
        .collect();
    let statement = "INSERT INTO endpoint_health (endpoint, consecutive_failures, \
                     first_failure_at) SELECT * FROM unnest($1::uuid[], $2::integer[], \
                     $3::bigint[]) ON CONFLICT (endpoint) DO UPDATE SET \
                     consecutive_failures = excluded.consecutive_failures, \
                     first_failure_at = excluded.first_failure_at";
    connection.execute(statement, &[&endpoints, &failures, &first]).await?;
    Ok(())
}

/// Forgets an endpoint's failures: it begins anew.
pub(super) async fn reset(
    connection: &mut Connection,
    endpoint: EndpointId,
) -> Result<(), VerbError> {
    let statement = "DELETE FROM endpoint_health WHERE endpoint = $1";
    connection.execute(statement, &[&Bits::from(endpoint)]).await?;
    Ok(())
}
