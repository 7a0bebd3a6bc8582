//! What is shown of idempotency records: claims and those of our own API, as one list.

use everhook_domain::id::RecordId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::super::failure::VerbError;
use super::super::number::Bits;
use super::super::reading::List;
use super::super::tx::Tx;
use super::row::{read_completed, read_name};
use crate::keys::{KeyRecord, RecordQuery, RecordState, RecordStateWord};
use crate::reading::{Page, PageRequest};

/// What [`read`] reads, in its order.
const COLUMNS: &str =
    "id, origin, account_name, subject, lease_until, expires_at, status, replayable";

/// Records of our own API, with the columns of claims.
macro_rules! own {
    () => {
        "SELECT tenant, id, 'api' AS origin, account_name, subject, expires_at AS lease_until, \
         expires_at, status, true AS replayable FROM idempotency_records WHERE id IS NOT NULL"
    };
}

const OWN: &str = concat!("(", own!(), ") AS records");
/// Both tables; the index by id of each gives its part of the order.
const ALL: &str = concat!(
    "(SELECT tenant, id, origin, account_name, subject, lease_until, expires_at, status, \
     replayable FROM claims UNION ALL ",
    own!(),
    ") AS records"
);

/// A tenant's records that are live, newest first.
pub(super) async fn records(
    tx: &mut Tx,
    tenant: &TenantId,
    query: RecordQuery,
    page: PageRequest,
    now: Timestamp,
) -> Result<Page<KeyRecord>, VerbError> {
    let table = match query.sides() {
        (true, true) => ALL,
        (true, false) => "claims",
        (false, true) => OWN,
        (false, false) => return Ok(Page { items: Vec::new(), next: None }),
    };
    let mut list = List::new(table, tenant, page, (0, u128::MAX));
    list.filter("expires_at > ", now.as_millis());
    if let Some(origin) = query.origin {
        list.filter("origin = ", origin.as_str());
    }
    match query.state {
        Some(RecordStateWord::InProgress) => {
            list.scan("status IS NULL");
            list.filter("lease_until > ", now.as_millis());
        }
        Some(RecordStateWord::Unknown) => {
            list.scan("status IS NULL");
            list.filter("lease_until <= ", now.as_millis());
        }
        Some(RecordStateWord::Completed) => list.filter("(status IS NOT NULL) = ", true),
        None => {}
    }
    let (rows, next) = list.read(tx, COLUMNS, 0).await?;
    let items = rows.iter().map(|row| read(row, now)).collect::<Result<_, _>>()?;
    Ok(Page { items, next })
}

/// A tenant's record that is live.
pub(super) async fn record(
    tx: &mut Tx,
    tenant: &TenantId,
    id: RecordId,
    now: Timestamp,
) -> Result<Option<KeyRecord>, VerbError> {
    let statement =
        format!("SELECT {COLUMNS} FROM {ALL} WHERE tenant = $1 AND id = $2 AND expires_at > $3");
    let params = [&tenant.as_str() as _, &Bits::from(id) as _, &now.as_millis() as _];
    let row = tx.connection.first(&statement, &params).await?;
    row.map(|row| read(&row, now)).transpose()
}

fn read(row: &Row, now: Timestamp) -> Result<KeyRecord, VerbError> {
    let Bits(id) = row.try_get(0)?;
    let completed = read_completed(row.try_get(6)?, row.try_get(7)?)?;
    let lease_until = Timestamp::from_millis(row.try_get(4)?);
    Ok(KeyRecord {
        id: RecordId::from_bits(id),
        name: read_name(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?)?,
        state: RecordState::of(completed, lease_until, now),
        expires_at: Timestamp::from_millis(row.try_get(5)?),
    })
}
