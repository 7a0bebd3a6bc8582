//! A delivery as a row, and back.

use std::time::Duration;

use everhook_domain::delivery::{Dead, Due, Lease, Progress, State, Token};
use everhook_domain::event::EventType;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::time::{Timestamp, millis};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::code::{self, UnknownCode, status};
use crate::reading::DeliveryRecord;
use crate::share::Share;

/// What [`DeliveryRow::read`] reads, in its order.
pub(super) const COLUMNS: &str = "id, tenant, endpoint, type, event_at, created_at, status, cause, \
     due_at, token, reason, acknowledged_at, round, number, step, anchor, shift_ms, last_start, \
     interruptions, owed, cancel";

/// A delivery as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRow {
    /// The event's sequence << 16 | ordinal.
    pub(super) key: i64,
    pub(super) tenant: i64,
    /// The endpoint's sequence.
    pub(super) endpoint: i64,
    pub(super) event_type: String,
    /// When the event was accepted: part of the id.
    pub(super) event_at: i64,
    /// When the delivery was made; `None`: with its event.
    pub(super) created_at: Option<i64>,
    /// Leased in the transaction that made it.
    pub(super) leased_at_birth: bool,
    pub(super) state: State,
    pub(super) progress: Progress,
}

/// The key of an event's first possible delivery row.
pub(super) const fn first_key(event_sequence: i64) -> i64 {
    event_sequence << 16
}

/// The key of an event's last possible delivery row.
pub(super) const fn last_key(event_sequence: i64) -> i64 {
    event_sequence << 16 | 0xffff
}

/// The row key that an id stands for.
pub(super) fn key_of(id: DeliveryId) -> i64 {
    signed(id.sequence()) << 16 | i64::from(id.ordinal())
}

/// A number of ours as SQLite writes it; all of them are below 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number as SQLite wrote it; none of ours is negative.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The public id of a row's event.
pub(super) fn event_id(key: i64, event_at: i64, tag: u16) -> EventId {
    EventId::from_parts(unsigned(event_at), unsigned(key >> 16), tag, 0)
}

impl DeliveryRow {
    /// The public id.
    pub(super) fn id(&self, tag: u16) -> DeliveryId {
        let ordinal = u16::try_from(self.key & 0xffff).unwrap_or(0);
        event_id(self.key, self.event_at, tag).delivery(ordinal)
    }

    /// What is shown of it.
    pub(super) fn record(
        &self,
        tag: u16,
        endpoint: EndpointId,
    ) -> Result<DeliveryRecord, UnknownCode> {
        Ok(DeliveryRecord {
            id: self.id(tag),
            endpoint,
            event_type: EventType::any(&self.event_type)
                .map_err(|_| UnknownCode("event type", self.key))?,
            state: self.state,
            progress: self.progress,
            created_at: Timestamp::from_millis(self.created_at.unwrap_or(self.event_at)),
        })
    }

    /// The row with this key.
    pub(super) fn find(connection: &Connection, key: i64) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM deliveries WHERE id = ?1"))?
            .query_row([key], Self::read)
            .optional()
    }

    /// Reads the columns of [`COLUMNS`].
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let code: i64 = row.get(6)?;
        let progress = Progress {
            round: row.get(12)?,
            number: row.get(13)?,
            step: row.get(14)?,
            anchor: row.get::<_, Option<i64>>(15)?.map(Timestamp::from_millis),
            shift: Duration::from_millis(unsigned(row.get(16)?)),
            last_start: row.get::<_, Option<i64>>(17)?.map(Timestamp::from_millis),
            interruptions: row.get(18)?,
            owed: row.get(19)?,
            cancel: row
                .get::<_, Option<i64>>(20)?
                .map(code::read_cancel)
                .transpose()
                .map_err(bad)?,
        };
        Ok(Self {
            key: row.get(0)?,
            tenant: row.get(1)?,
            endpoint: row.get(2)?,
            event_type: row.get(3)?,
            event_at: row.get(4)?,
            created_at: row.get(5)?,
            leased_at_birth: code == status::LEASED_AT_BIRTH,
            state: read_state(row, code)?,
            progress,
        })
    }

    /// Adds the row.
    pub(super) fn insert(&self, connection: &Connection) -> rusqlite::Result<()> {
        let columns = StateColumns::of(&self.state, self.leased_at_birth);
        let progress = &self.progress;
        connection
            .prepare_cached(
                "INSERT INTO deliveries (id, tenant, endpoint, type, event_at, created_at, \
                 status, share, cause, due_at, token, reason, acknowledged_at, round, number, \
                 step, anchor, shift_ms, last_start, interruptions, owed, cancel) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, \
                 ?17, ?18, ?19, ?20, ?21, ?22)",
            )?
            .execute(params![
                self.key,
                self.tenant,
                self.endpoint,
                self.event_type,
                self.event_at,
                self.created_at,
                columns.status,
                Share::of(progress) as i64,
                columns.cause,
                columns.due_at,
                columns.token,
                columns.reason,
                columns.acknowledged_at,
                progress.round,
                progress.number,
                progress.step,
                progress.anchor.map(Timestamp::as_millis),
                millis(progress.shift),
                progress.last_start.map(Timestamp::as_millis),
                progress.interruptions,
                progress.owed,
                progress.cancel.map(code::cancel),
            ])?;
        Ok(())
    }

    /// Writes state and progress back.
    pub(super) fn update(&self, connection: &Connection) -> rusqlite::Result<()> {
        let columns = StateColumns::of(&self.state, self.leased_at_birth);
        let progress = &self.progress;
        connection
            .prepare_cached(
                "UPDATE deliveries SET status = ?2, share = ?3, cause = ?4, due_at = ?5, \
                 token = ?6, reason = ?7, acknowledged_at = ?8, round = ?9, number = ?10, \
                 step = ?11, anchor = ?12, shift_ms = ?13, last_start = ?14, interruptions = ?15, \
                 owed = ?16, cancel = ?17 WHERE id = ?1",
            )?
            .execute(params![
                self.key,
                columns.status,
                Share::of(progress) as i64,
                columns.cause,
                columns.due_at,
                columns.token,
                columns.reason,
                columns.acknowledged_at,
                progress.round,
                progress.number,
                progress.step,
                progress.anchor.map(Timestamp::as_millis),
                millis(progress.shift),
                progress.last_start.map(Timestamp::as_millis),
                progress.interruptions,
                progress.owed,
                progress.cancel.map(code::cancel),
            ])?;
        Ok(())
    }
}

/// The columns that hold a [`State`]; those without a meaning for it are zero or NULL.
#[derive(Default)]
struct StateColumns {
    status: i64,
    cause: i64,
    due_at: i64,
    token: Option<i64>,
    reason: Option<i64>,
    acknowledged_at: Option<i64>,
}

impl StateColumns {
    fn of(state: &State, leased_at_birth: bool) -> Self {
        match state {
            State::Due(due) => Self {
                status: status::DUE,
                cause: code::trigger(due.cause),
                due_at: due.at.as_millis(),
                ..Self::default()
            },
            State::Leased(lease) => Self {
                status: if leased_at_birth { status::LEASED_AT_BIRTH } else { status::LEASED },
                cause: code::trigger(lease.due.cause),
                due_at: lease.due.at.as_millis(),
                token: Some(signed(lease.token.0)),
                ..Self::default()
            },
            State::Delivered => Self { status: status::DELIVERED, ..Self::default() },
            State::Dead(dead) => Self {
                status: status::DEAD,
                reason: Some(code::dead(dead.reason)),
                acknowledged_at: dead.acknowledged_at.map(Timestamp::as_millis),
                ..Self::default()
            },
            State::Cancelled(reason) => Self {
                status: status::CANCELLED,
                reason: Some(code::cancel(*reason)),
                ..Self::default()
            },
        }
    }
}

fn read_state(row: &Row<'_>, code: i64) -> rusqlite::Result<State> {
    let due = || -> rusqlite::Result<Due> {
        Ok(Due {
            at: Timestamp::from_millis(row.get(8)?),
            cause: code::read_trigger(row.get(7)?).map_err(bad)?,
        })
    };
    Ok(match code {
        status::DUE => State::Due(due()?),
        status::LEASED_AT_BIRTH | status::LEASED => State::Leased(Lease {
            token: Token(unsigned(row.get(9)?)),
            // Embedded leases have no clock: they end with their owner, this process.
            until: None,
            due: due()?,
        }),
        status::DELIVERED => State::Delivered,
        status::DEAD => State::Dead(Dead {
            reason: code::read_dead(row.get(10)?).map_err(bad)?,
            acknowledged_at: row.get::<_, Option<i64>>(11)?.map(Timestamp::from_millis),
        }),
        status::CANCELLED => State::Cancelled(code::read_cancel(row.get(10)?).map_err(bad)?),
        _ => return Err(bad(UnknownCode("delivery status", code))),
    })
}

/// An unknown code as the error of reading a row.
pub(super) fn bad(code: UnknownCode) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, Box::new(code))
}
