//! `act` and `send_again`: what people do with deliveries.

use std::collections::HashSet;
use std::sync::Arc;

use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::{CancelReason, Due, IllegalStep, Input, Progress, State};
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::{EventType, Origin};
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::{OptionalExtension, params};

use super::claimed;
use super::command::{Verb, VerbError};
use super::receipt;
use super::row::{COLUMNS, DeliveryRow, first_key, key_of, last_key, signed};
use super::tx::{Tx, endpoint_no};
use crate::claim::{Claim, Claimed};
use crate::code;
use crate::error::Refusal;
use crate::reading::DeliveryRecord;
use crate::route::stored_facts;
use crate::sending::{Act, SentAgain};

/// `act`.
pub(super) struct ActVerb {
    pub(super) tenant: TenantId,
    pub(super) delivery: DeliveryId,
    pub(super) act: Act,
    pub(super) claim: Option<Claim<DeliveryRecord>>,
    pub(super) now: Timestamp,
}

impl Verb for ActVerb {
    type Output = Claimed<DeliveryRecord>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let tenant = tx.tenant(&self.tenant)?;
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| {
            let mut row = DeliveryRow::find(tx.connection, key_of(self.delivery))?
                .filter(|row| row.tenant == tenant && row.id(tx.tag()) == self.delivery)
                .ok_or(Refusal::NotFound)?;
            let input = match self.act {
                Act::Replay => Input::Replay,
                Act::Cancel => Input::Cancel(CancelReason::Requested),
                Act::Acknowledge => Input::Acknowledge,
            };
            tx.step(&mut row, input, self.now)?;
            shown(tx, &row)
        })
    }
}

/// What is shown of a row.
fn shown(tx: &Tx<'_>, row: &DeliveryRow) -> Result<DeliveryRecord, VerbError> {
    let endpoint = tx.endpoint(row.endpoint).ok_or(code::UnknownCode("endpoint", row.endpoint))?.id;
    Ok(row.record(tx.tag(), endpoint)?)
}

/// `send_again`.
pub(super) struct SendAgainVerb {
    pub(super) tenant: TenantId,
    pub(super) event: EventId,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) claim: Option<Claim<SentAgain>>,
    pub(super) now: Timestamp,
}

impl Verb for SendAgainVerb {
    type Output = Claimed<SentAgain>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let tenant = tx.tenant(&self.tenant)?;
        claimed::run(tx, self.claim.as_ref(), self.now, |tx| self.send(tx, tenant))
    }
}

impl SendAgainVerb {
    /// Sends it, in this transaction.
    pub(super) fn send(&self, tx: &mut Tx<'_>, tenant: i64) -> Result<SentAgain, VerbError> {
        let sequence = signed(self.event.sequence());
        let (event_type, origin, body) = self.stored_event(tx, tenant, sequence)?;
        let source = match origin {
            Origin::Received => receipt::running(tx, sequence)?,
            Origin::Published | Origin::System => None,
        };
        let mut rows: Vec<DeliveryRow> = tx
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM deliveries WHERE id BETWEEN ?1 AND ?2 ORDER BY id"
            ))?
            .query_map(params![first_key(sequence), last_key(sequence)], DeliveryRow::read)?
            .collect::<Result<_, _>>()?;
        let last = rows.last().map_or(first_key(sequence), |row| row.key);
        let targets: Vec<Arc<Endpoint>> = match self.endpoint {
            Some(id) => {
                let directory = &tx.catalog().directory;
                let endpoint = directory.endpoint_of(&self.tenant, id).ok_or(Refusal::NotFound)?;
                if let Some(reason) = endpoint.state.gone() {
                    return Err(IllegalStep::EndpointGone(reason).into());
                }
                rows.retain(|row| row.endpoint == endpoint_no(id));
                vec![Arc::clone(endpoint)]
            }
            None => {
                let facts = stored_facts(origin, &event_type, source.as_ref(), &body);
                tx.catalog().directory.route(&self.tenant, &facts).cloned().collect()
            }
        };
        let has: HashSet<i64> = rows.iter().map(|row| row.endpoint).collect();
        let without: Vec<&Arc<Endpoint>> =
            targets.iter().filter(|target| !has.contains(&endpoint_no(target.id))).collect();
        // Before the first write: a refusal writes nothing.
        if (last_key(sequence) - last) < i64::try_from(without.len()).unwrap_or(i64::MAX) {
            return Err(Refusal::TooManyEndpoints.into());
        }
        let (mut sent, mut left_out) = (Vec::new(), None);
        for row in &mut rows {
            match tx.step(row, Input::Replay, self.now) {
                Ok(()) => sent.push(shown(tx, row)?),
                // Its endpoint is disabled or deleted.
                Err(VerbError::Refused(refusal)) => left_out = Some(refusal),
                Err(error) => return Err(error),
            }
        }
        for (key, endpoint) in (last + 1..).zip(without) {
            let row = DeliveryRow {
                key,
                tenant,
                endpoint: endpoint_no(endpoint.id),
                event_type: event_type.as_str().to_owned(),
                event_at: self.event.created_at().as_millis(),
                created_at: Some(self.now.as_millis()),
                leased_at_birth: false,
                state: State::Due(Due { at: self.now, cause: Trigger::Replay }),
                progress: Progress::NEW,
            };
            row.insert(tx.connection)?;
            tx.hint(&row);
            sent.push(shown(tx, &row)?);
        }
        match left_out {
            // Nothing was left to send to, and so nothing was written.
            Some(refusal) if sent.is_empty() => Err(refusal.into()),
            Some(_) | None => Ok(sent),
        }
    }

    fn stored_event(
        &self,
        tx: &Tx<'_>,
        tenant: i64,
        sequence: i64,
    ) -> Result<(EventType, Origin, Vec<u8>), VerbError> {
        let found = tx
            .connection
            .prepare_cached(
                "SELECT created_at, type, origin, body FROM events WHERE seq = ?1 AND tenant = ?2",
            )?
            .query_row(params![sequence, tenant], |row| {
                let created_at: i64 = row.get(0)?;
                let event_type: String = row.get(1)?;
                Ok((created_at, event_type, row.get::<_, i64>(2)?, row.get::<_, Vec<u8>>(3)?))
            })
            .optional()?;
        let (created_at, event_type, origin, body) = found.ok_or(Refusal::NotFound)?;
        let id = super::row::event_id(first_key(sequence), created_at, tx.tag());
        if id != self.event {
            return Err(Refusal::NotFound.into());
        }
        let event_type =
            EventType::any(&event_type).map_err(|_| code::UnknownCode("event type", sequence))?;
        Ok((event_type, code::read_origin(origin)?, body))
    }
}
