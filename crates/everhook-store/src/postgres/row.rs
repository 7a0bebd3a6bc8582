//! A delivery as a row, and back; written in batches.

use std::collections::BTreeMap;
use std::time::Duration;

use everhook_domain::delivery::{Dead, Due, Lease, Progress, State, Token};
use everhook_domain::event::EventType;
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{Timestamp, millis};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::catalog;
use super::failure::VerbError;
use super::number::{Bits, count, int, signed, small, unsigned};
use super::pool::Connection;
use crate::code::{self, UnknownCode, status};
use crate::reading::DeliveryRecord;
use crate::share::Share;

/// What [`DeliveryRow::read`] reads, in its order.
pub(super) const COLUMNS: &str = "tenant, id, endpoint, type, created_at, status, cause, due_at, \
     token, lease_until, reason, acknowledged_at, round, number, step, anchor, shift_ms, \
     last_start, interruptions, owed, cancel";

/// Rows of one statement.
const BATCH_ROWS: usize = 4_096;

/// A delivery, and whose it is.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRow {
    pub(super) tenant: TenantId,
    pub(super) record: DeliveryRecord,
}

impl DeliveryRow {
    /// Reads [`COLUMNS`], which begin at column `at`.
    pub(super) fn read(row: &Row, at: usize) -> Result<Self, VerbError> {
        let Bits(id) = row.try_get(at + 1)?;
        let Bits(endpoint) = row.try_get(at + 2)?;
        let event_type: &str = row.try_get(at + 3)?;
        let cancel: Option<i16> = row.try_get(at + 20)?;
        let progress = Progress {
            round: count(row.try_get(at + 12)?),
            number: count(row.try_get(at + 13)?),
            step: count(row.try_get(at + 14)?),
            anchor: read_instant(row, at + 15)?,
            shift: Duration::from_millis(unsigned(row.try_get(at + 16)?)),
            last_start: read_instant(row, at + 17)?,
            interruptions: count(row.try_get(at + 18)?),
            owed: count(row.try_get(at + 19)?),
            cancel: cancel.map(|code| code::read_cancel(i64::from(code))).transpose()?,
        };
        let created_at = Timestamp::from_millis(row.try_get(at + 4)?);
        let event_type = EventType::any(event_type)
            .map_err(|error| VerbError::Unusable(format!("event type {event_type}: {error}")))?;
        let record = DeliveryRecord {
            id: DeliveryId::from_bits(id),
            endpoint: EndpointId::from_bits(endpoint),
            event_type,
            state: read_state(row, at)?,
            progress,
            created_at,
        };
        Ok(Self { tenant: catalog::tenant(row, at)?, record })
    }

    /// Reads every row of a result whose columns are [`COLUMNS`].
    pub(super) fn read_all(rows: &[Row]) -> Result<Vec<Self>, VerbError> {
        rows.iter().map(|row| Self::read(row, 0)).collect()
    }
}

fn read_instant(row: &Row, column: usize) -> Result<Option<Timestamp>, VerbError> {
    let millis: Option<i64> = row.try_get(column)?;
    Ok(millis.map(Timestamp::from_millis))
}

fn read_state(row: &Row, at: usize) -> Result<State, VerbError> {
    let code: i16 = row.try_get(at + 5)?;
    let reason = || -> Result<i64, VerbError> {
        let reason: Option<i16> = row.try_get(at + 10)?;
        Ok(reason.map_or(-1, i64::from))
    };
    let due = || -> Result<Due, VerbError> {
        let cause: i16 = row.try_get(at + 6)?;
        Ok(Due {
            at: Timestamp::from_millis(row.try_get(at + 7)?),
            cause: code::read_trigger(i64::from(cause))?,
        })
    };
    Ok(match i64::from(code) {
        status::DUE => State::Due(due()?),
        status::LEASED => State::Leased(Lease {
            token: Token(unsigned(row.try_get::<_, Option<i64>>(at + 8)?.unwrap_or(0))),
            until: read_instant(row, at + 9)?,
            due: due()?,
        }),
        status::DELIVERED => State::Delivered,
        status::DEAD => State::Dead(Dead {
            reason: code::read_dead(reason()?)?,
            acknowledged_at: read_instant(row, at + 11)?,
        }),
        status::CANCELLED => State::Cancelled(code::read_cancel(reason()?)?),
        unknown => return Err(UnknownCode("delivery status", unknown).into()),
    })
}

/// States and progress of many deliveries, column by column.
#[derive(Default)]
struct Columns {
    status: Vec<i16>,
    share: Vec<i16>,
    cause: Vec<i16>,
    due_at: Vec<i64>,
    token: Vec<Option<i64>>,
    lease_until: Vec<Option<i64>>,
    reason: Vec<Option<i16>>,
    acknowledged_at: Vec<Option<i64>>,
    round: Vec<i32>,
    number: Vec<i32>,
    step: Vec<i32>,
    anchor: Vec<Option<i64>>,
    shift_ms: Vec<i64>,
    last_start: Vec<Option<i64>>,
    interruptions: Vec<i32>,
    owed: Vec<i32>,
    cancel: Vec<Option<i16>>,
}

/// The names of [`Columns`] and their types, in the order of [`Columns::params`].
const STATE_COLUMNS: [(&str, &str); 17] = [
    ("status", "smallint"),
    ("share", "smallint"),
    ("cause", "smallint"),
    ("due_at", "bigint"),
    ("token", "bigint"),
    ("lease_until", "bigint"),
    ("reason", "smallint"),
    ("acknowledged_at", "bigint"),
    ("round", "integer"),
    ("number", "integer"),
    ("step", "integer"),
    ("anchor", "bigint"),
    ("shift_ms", "bigint"),
    ("last_start", "bigint"),
    ("interruptions", "integer"),
    ("owed", "integer"),
    ("cancel", "smallint"),
];

impl Columns {
    fn push(&mut self, state: &State, progress: &Progress) {
        let status = match state {
            State::Due(_) => status::DUE,
            State::Leased(_) => status::LEASED,
            State::Delivered => status::DELIVERED,
            State::Dead(_) => status::DEAD,
            State::Cancelled(_) => status::CANCELLED,
        };
        let (due, lease) = match state {
            State::Due(due) => (Some(due), None),
            State::Leased(lease) => (Some(&lease.due), Some(lease)),
            State::Delivered | State::Dead(_) | State::Cancelled(_) => (None, None),
        };
        let (reason, acknowledged_at) = match state {
            State::Dead(dead) => (Some(code::dead(dead.reason)), dead.acknowledged_at),
            State::Cancelled(reason) => (Some(code::cancel(*reason)), None),
            State::Due(_) | State::Leased(_) | State::Delivered => (None, None),
        };
        let instant = |at: Option<Timestamp>| at.map(Timestamp::as_millis);
        self.status.push(small(status));
        self.share.push(Share::of(progress) as i16);
        self.cause.push(due.map_or(0, |due| small(code::trigger(due.cause))));
        self.due_at.push(due.map_or(0, |due| due.at.as_millis()));
        self.token.push(lease.map(|lease| signed(lease.token.0)));
        self.lease_until.push(instant(lease.and_then(|lease| lease.until)));
        self.reason.push(reason.map(small));
        self.acknowledged_at.push(instant(acknowledged_at));
        self.round.push(int(progress.round));
        self.number.push(int(progress.number));
        self.step.push(int(progress.step));
        self.anchor.push(instant(progress.anchor));
        self.shift_ms.push(millis(progress.shift));
        self.last_start.push(instant(progress.last_start));
        self.interruptions.push(int(progress.interruptions));
        self.owed.push(int(progress.owed));
        self.cancel.push(progress.cancel.map(|reason| small(code::cancel(reason))));
    }

    fn params(&self) -> [&(dyn ToSql + Sync); STATE_COLUMNS.len()] {
        [
            &self.status,
            &self.share,
            &self.cause,
            &self.due_at,
            &self.token,
            &self.lease_until,
            &self.reason,
            &self.acknowledged_at,
            &self.round,
            &self.number,
            &self.step,
            &self.anchor,
            &self.shift_ms,
            &self.last_start,
            &self.interruptions,
            &self.owed,
            &self.cancel,
        ]
    }
}

/// `$from::type[], …` for [`STATE_COLUMNS`].
fn placeholders(from: usize) -> String {
    let typed = |(place, (_, of)): (usize, &(&str, &str))| format!("${place}::{of}[]");
    (from..).zip(&STATE_COLUMNS).map(typed).collect::<Vec<_>>().join(", ")
}

fn names() -> String {
    STATE_COLUMNS.map(|(name, _)| name).join(", ")
}

/// Adds deliveries of one tenant, in the order of their ids.
pub(super) async fn insert(
    connection: &mut Connection,
    tenant: &TenantId,
    rows: &[DeliveryRecord],
) -> Result<(), VerbError> {
    let statement = format!(
        "INSERT INTO deliveries (tenant, id, endpoint, type, created_at, {}) \
         SELECT $1::text, v.* FROM unnest($2::uuid[], $3::uuid[], $4::text[], $5::bigint[], {}) \
         AS v",
        names(),
        placeholders(6)
    );
    for batch in rows.chunks(BATCH_ROWS) {
        let mut columns = Columns::default();
        batch.iter().for_each(|row| columns.push(&row.state, &row.progress));
        let ids: Vec<Bits> = batch.iter().map(|row| row.id.into()).collect();
        let endpoints: Vec<Bits> = batch.iter().map(|row| row.endpoint.into()).collect();
        let types: Vec<&str> = batch.iter().map(|row| row.event_type.as_str()).collect();
        let created: Vec<i64> = batch.iter().map(|row| row.created_at.as_millis()).collect();
        let tenant = tenant.as_str();
        let mut params: Vec<&(dyn ToSql + Sync)> =
            vec![&tenant, &ids, &endpoints, &types, &created];
        params.extend(columns.params());
        connection.execute(&statement, &params).await?;
    }
    Ok(())
}

/// Writes states and progress back.
///
/// The rows are found by `= ANY`, and only then joined with their values: a join alone is planned
/// as a scan of the whole table while its statistics are young.
pub(super) async fn update(
    connection: &mut Connection,
    rows: &BTreeMap<DeliveryId, (State, Progress)>,
) -> Result<(), VerbError> {
    let set = STATE_COLUMNS.map(|(name, _)| format!("{name} = v.{name}")).join(", ");
    let statement = format!(
        "UPDATE deliveries AS d SET {set} FROM unnest($1::uuid[], {}) AS v (id, {}) \
         WHERE d.id = ANY($1) AND d.id = v.id",
        placeholders(2),
        names()
    );
    let rows: Vec<_> = rows.iter().collect();
    for batch in rows.chunks(BATCH_ROWS) {
        let mut columns = Columns::default();
        batch.iter().for_each(|(_, (state, progress))| columns.push(state, progress));
        let ids: Vec<Bits> = batch.iter().map(|(id, _)| (**id).into()).collect();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&ids];
        params.extend(columns.params());
        connection.execute(&statement, &params).await?;
    }
    Ok(())
}
