//! What accounts have of idempotency keys: live ones, and bytes of remembered answers.
//!
//! A row an account counts what is stored, over or not. A transaction changes these rows last, in
//! their order, so that an account's requests queue behind each other for no longer than a commit,
//! and never in a circle.

use std::collections::BTreeMap;

use everhook_domain::idempotency::claim::Quota;
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::number::{Bits, unsigned};
use super::pool::Connection;
use super::tx::Tx;

/// What a transaction changes: keys and bytes, more or fewer, by tenant and account.
#[derive(Debug, Default)]
pub(super) struct AccountChanges(BTreeMap<(String, Bits), (i64, i64)>);

impl AccountChanges {
    /// Adds to what an account has.
    pub(super) fn add(&mut self, (tenant, account): (&str, Bits), keys: i64, bytes: i64) {
        let change = self.0.entry((tenant.to_owned(), account)).or_default();
        change.0 += keys;
        change.1 += bytes;
    }

    /// Takes removed rows of tenant, account and bytes out of their accounts.
    pub(super) fn removed(&mut self, rows: &[Row]) -> Result<(), VerbError> {
        for row in rows {
            if let Some(account) = row.try_get::<_, Option<Bits>>(1)? {
                self.add((row.try_get(0)?, account), -1, -row.try_get::<_, i64>(2)?);
            }
        }
        Ok(())
    }
}

/// Writes what the transaction changes, and locks the accounts until it ends.
pub(super) async fn write(tx: &mut Tx) -> Result<(), VerbError> {
    for ((tenant, account), (keys, bytes)) in std::mem::take(&mut tx.accounts).0 {
        if (keys, bytes) != (0, 0) {
            change(&mut tx.connection, (&tenant, account), keys, bytes).await?;
        }
    }
    Ok(())
}

async fn change(
    connection: &mut Connection,
    (tenant, account): (&str, Bits),
    keys: i64,
    bytes: i64,
) -> Result<(), VerbError> {
    let statement = if keys > 0 {
        "INSERT INTO idempotency_accounts AS a (tenant, account, keys, bytes) \
         VALUES ($1, $2, $3, $4) ON CONFLICT (tenant, account) \
         DO UPDATE SET keys = a.keys + excluded.keys, bytes = a.bytes + excluded.bytes"
    } else {
        // One that is not there was erased with its tenant.
        "UPDATE idempotency_accounts SET keys = keys + $3, bytes = bytes + $4 \
         WHERE tenant = $1 AND account = $2"
    };
    connection.execute(statement, &[&tenant, &account, &keys, &bytes]).await?;
    if keys < 0 {
        let statement = "DELETE FROM idempotency_accounts \
                         WHERE tenant = $1 AND account = $2 AND keys = 0";
        connection.execute(statement, &[&tenant, &account]).await?;
    }
    Ok(())
}

/// Whether an account may have one more key than it has besides those of `counted`, which this
/// transaction has counted already. What is over takes no room.
pub(super) async fn has_room(
    tx: &mut Tx,
    tenant: &TenantId,
    account: KeyHash,
    quota: Quota,
    counted: u64,
) -> Result<bool, VerbError> {
    let (tenant, account) = (tenant.as_str(), Bits::from(account));
    let fits = |keys: i64, bytes: i64| {
        unsigned(keys).saturating_sub(counted) < quota.keys && unsigned(bytes) < quota.bytes
    };
    let statement = "SELECT keys, bytes FROM idempotency_accounts \
                     WHERE tenant = $1 AND account = $2";
    let row = tx.connection.first(statement, &[&tenant, &account]).await?;
    let (keys, bytes) = match row {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (0, 0),
    };
    if fits(keys, bytes) {
        return Ok(true);
    }
    let (keys, bytes) = live(&mut tx.connection, (tenant, account), tx.now).await?;
    let fits = fits(keys, bytes);
    if fits {
        // Some of it is over, and still there.
        tx.jobs_pending();
    }
    Ok(fits)
}

/// What an account has that is not over, as of one instant. The rows that are over are found by
/// their expiry, and are no more than what waits to be cleared away.
async fn live(
    connection: &mut Connection,
    (tenant, account): (&str, Bits),
    now: Timestamp,
) -> Result<(i64, i64), VerbError> {
    let statement = "SELECT a.keys - over.keys, a.bytes - over.bytes FROM idempotency_accounts a, \
                     (SELECT count(*) AS keys, coalesce(sum(bytes), 0)::bigint AS bytes FROM (\
                     SELECT bytes FROM idempotency_records \
                     WHERE expires_at <= $3 AND tenant = $1 AND account = $2 UNION ALL \
                     SELECT coalesce(octet_length(remembered), 0)::bigint FROM claims \
                     WHERE expires_at <= $3 AND tenant = $1 AND account = $2) AS those) AS over \
                     WHERE a.tenant = $1 AND a.account = $2";
    let row = connection.first(statement, &[&tenant, &account, &now.as_millis()]).await?;
    match row {
        Some(row) => Ok((row.try_get(0)?, row.try_get(1)?)),
        None => Ok((0, 0)),
    }
}
