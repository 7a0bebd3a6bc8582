//! Leases: taken by `claim`, ended by `settle` or, after the death of their owner, by `lapse`.

use bytes::Bytes;
use everhook_domain::budget::Budget;
use everhook_domain::delivery::{Input, RETRY_AFTER_MAX, State};
use everhook_domain::event::Origin;
use everhook_domain::fault::{self, Plant};
use everhook_domain::id::EndpointId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::command::{Verb, VerbError};
use super::row::{COLUMNS, DeliveryRow, first_key, key_of};
use super::tx::{Tx, endpoint_no};
use super::{receipt, record};
use crate::code;
use crate::error::Refusal;
use crate::sending::{LaneDue, LeasedDelivery, Settled, Settlement, SettlementResult, Wanted};
use crate::share::Share;

/// A claim stops when the bodies it leased weigh this much, so that it does not hold up the writer.
const CLAIM_BYTES_MAX: usize = 8 << 20;
/// Leases ended in one transaction of `lapse`.
const LAPSE_ROWS: usize = 500;

/// `claim`.
pub(super) struct ClaimVerb {
    pub(super) wanted: Vec<Wanted>,
    pub(super) budget: Budget,
    pub(super) now: Timestamp,
}

impl Verb for ClaimVerb {
    type Output = (Vec<LeasedDelivery>, Vec<LaneDue>);

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let (budget, now) = (self.budget, self.now);
        let mut claim = Claiming { budget, now, weight: 0, leased: Vec::new() };
        let mut lanes = Vec::with_capacity(self.wanted.len());
        for wanted in &self.wanted {
            let mut lane = Lane { endpoint: wanted.endpoint, held: wanted.held, too_heavy: None };
            for (share, limit) in [
                (Share::Suspect, wanted.suspect),
                (Share::Retry, wanted.retry),
                (Share::Fresh, wanted.fresh),
            ] {
                if limit > 0 {
                    claim.lease_due(tx, &mut lane, share, limit)?;
                }
            }
            let due = lane_due(tx.connection, wanted.endpoint)?;
            lanes.push(LaneDue { too_heavy: lane.too_heavy, ..due });
        }
        Ok((claim.leased, lanes))
    }
}

/// A claim under way.
struct Claiming {
    budget: Budget,
    now: Timestamp,
    /// What the bodies of `leased` weigh.
    weight: usize,
    leased: Vec<LeasedDelivery>,
}

/// A lane that is claimed from.
struct Lane {
    endpoint: EndpointId,
    held: usize,
    too_heavy: Option<usize>,
}

impl Claiming {
    fn lease_due(
        &mut self,
        tx: &mut Tx<'_>,
        lane: &mut Lane,
        share: Share,
        limit: u32,
    ) -> Result<(), VerbError> {
        let rows: Vec<DeliveryRow> = tx
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM deliveries WHERE status = 0 AND endpoint = ?1 \
                 AND share = ?2 AND due_at <= ?3 ORDER BY due_at, id LIMIT ?4"
            ))?
            .query_map(
                params![endpoint_no(lane.endpoint), share as i64, self.now.as_millis(), limit],
                DeliveryRow::read,
            )?
            .collect::<Result<_, _>>()?;
        for mut row in rows {
            let weight = weight(tx.connection, row.key >> 16)?;
            if !self.budget.allows(lane.held, weight) {
                lane.too_heavy.get_or_insert(weight);
                break;
            }
            if self.weight >= CLAIM_BYTES_MAX {
                break;
            }
            if let Some(leased) = self.lease(tx, lane.endpoint, share, &mut row)? {
                self.budget = self.budget.with(weight);
                self.weight += weight;
                lane.held += weight;
                self.leased.push(leased);
            }
        }
        Ok(())
    }

    /// Leases one that is due; `None`: its endpoint is gone, and the sweep cancels it.
    fn lease(
        &self,
        tx: &mut Tx<'_>,
        endpoint: EndpointId,
        share: Share,
        row: &mut DeliveryRow,
    ) -> Result<Option<LeasedDelivery>, VerbError> {
        let State::Due(due) = row.state else { return Ok(None) };
        let token = tx.next_token();
        if !fault::planted(Plant::DuplicateClaim) {
            match tx.step(row, Input::Claimed { token, until: None }, self.now) {
                Ok(()) => {}
                Err(VerbError::Refused(_)) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        let sequence = row.key >> 16;
        let (body, origin): (Vec<u8>, i64) = tx
            .connection
            .prepare_cached("SELECT body, origin FROM events WHERE seq = ?1")?
            .query_row([sequence], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let headers = match code::read_origin(origin)? {
            Origin::Received => receipt::headers(tx.connection, sequence)?,
            Origin::Published | Origin::System => None,
        };
        Ok(Some(LeasedDelivery {
            id: row.id(tx.tag()),
            endpoint,
            token,
            until: None,
            number: row.progress.next_number(),
            due_at: due.at,
            cause: due.cause,
            share,
            body: Bytes::from(body),
            headers,
        }))
    }
}

/// How long the body of an event is, without reading it.
fn weight(connection: &Connection, sequence: i64) -> rusqlite::Result<usize> {
    let length: i64 = connection
        .prepare_cached("SELECT length(body) FROM events WHERE seq = ?1")?
        .query_row([sequence], |row| row.get(0))?;
    Ok(usize::try_from(length).unwrap_or(0))
}

/// The earliest due times of one lane.
pub(super) fn lane_due(connection: &Connection, endpoint: EndpointId) -> rusqlite::Result<LaneDue> {
    let earliest = |share: Share| -> rusqlite::Result<Option<Timestamp>> {
        connection
            .prepare_cached(
                "SELECT due_at FROM deliveries WHERE status = 0 AND endpoint = ?1 AND share = ?2 \
                 ORDER BY due_at LIMIT 1",
            )?
            .query_row(params![endpoint_no(endpoint), share as i64], |row| row.get(0))
            .optional()
            .map(|due| due.map(Timestamp::from_millis))
    };
    Ok(LaneDue {
        endpoint,
        fresh: earliest(Share::Fresh)?,
        retry: earliest(Share::Retry)?,
        suspect: earliest(Share::Suspect)?,
        too_heavy: None,
    })
}

/// `settle`.
pub(super) struct SettleVerb {
    pub(super) settlements: Vec<Settlement>,
    pub(super) now: Timestamp,
}

impl Verb for SettleVerb {
    type Output = Vec<Settled>;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        self.settlements.iter().map(|settlement| settle(tx, settlement, self.now)).collect()
    }

    fn may_linger(&self) -> bool {
        true
    }
}

fn settle(tx: &mut Tx<'_>, settlement: &Settlement, now: Timestamp) -> Result<Settled, VerbError> {
    let key = key_of(settlement.delivery);
    let token = settlement.token;
    let Some(mut row) = DeliveryRow::find(tx.connection, key)? else {
        return Ok(Settled::Stale);
    };
    if row.id(tx.tag()) != settlement.delivery {
        return Ok(Settled::Stale);
    }
    let input = match &settlement.result {
        SettlementResult::Finished(report) => Input::Finished { token, report: report.clone() },
        SettlementResult::Released => Input::Released { token },
    };
    match tx.step(&mut row, input, now) {
        Ok(()) => Ok(Settled::Recorded),
        Err(VerbError::Refused(Refusal::Step(_))) => {
            if let SettlementResult::Finished(report) = &settlement.result {
                record::note_late_outcome(tx.connection, key, token, &report.outcome)?;
            }
            Ok(Settled::Stale)
        }
        Err(error) => Err(error),
    }
}

/// One transaction of `lapse`; returns how many leases it ended.
pub(super) struct LapseVerb {
    pub(super) now: Timestamp,
}

impl Verb for LapseVerb {
    type Output = u64;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let mut rows =
            leased(tx, "status = 1 AND id >= ?1 ORDER BY id", first_key(tx.lease_floor()))?;
        if rows.is_empty() {
            // The index holds them by endpoint; -1 is below every one.
            rows = leased(tx, "status = 2 AND endpoint > ?1 ORDER BY endpoint", -1)?;
        }
        let mut ended = 0;
        for mut row in rows {
            if let State::Leased(lease) = row.state {
                tx.step(&mut row, Input::Interrupted { token: lease.token }, self.now)?;
                ended += 1;
            }
        }
        if ended == 0 {
            tx.lapsed();
        }
        Ok(ended)
    }
}

/// Rows whose lease belongs to an earlier process.
fn leased(tx: &Tx<'_>, condition: &str, from: i64) -> Result<Vec<DeliveryRow>, VerbError> {
    let mut statement = tx
        .connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM deliveries WHERE {condition}"))?;
    let mut rows = statement.query([from])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let row = DeliveryRow::read(row)?;
        let void = matches!(row.state, State::Leased(lease) if tx.is_void(lease.token));
        if void {
            found.push(row);
        }
        if found.len() == LAPSE_ROWS {
            break;
        }
    }
    Ok(found)
}

/// One transaction of pulling back, at start, what the clock of an earlier process has put further
/// off than any schedule would; returns how many. Without it, a wall clock that was a day ahead and
/// is set right would hold up retries for a day.
///
/// A retry whose last attempt lies in our past was put off by a right clock, however far: after a
/// replay that came before its time, the next offset may be the whole schedule away.
pub(super) struct PullBackVerb {
    pub(super) now: Timestamp,
}

impl Verb for PullBackVerb {
    type Output = u64;

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError> {
        let gap = tx.policy.schedule.longest_gap();
        let furthest = self.now + gap + RETRY_AFTER_MAX;
        let rows: Vec<DeliveryRow> = tx
            .connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM deliveries WHERE status = 0 AND due_at > ?1 \
                 AND (last_start IS NULL OR last_start > ?2) LIMIT ?3"
            ))?
            .query_map(
                params![furthest.as_millis(), self.now.as_millis(), LAPSE_ROWS as i64],
                DeliveryRow::read,
            )?
            .collect::<Result<_, _>>()?;
        let pulled = rows.len();
        for mut row in rows {
            if let State::Due(due) = &mut row.state {
                due.at = self.now + gap;
            }
            row.update(tx.connection)?;
            tx.hint(&row);
        }
        Ok(pulled as u64)
    }
}

/// The earliest due times of every lane in which something waits.
pub(super) fn due(
    connection: &Connection,
    endpoint_id: impl Fn(i64) -> Option<EndpointId>,
) -> rusqlite::Result<Vec<LaneDue>> {
    let mut lanes = Vec::new();
    let mut after = -1;
    // One seek a lane, however many deliveries wait in it.
    while let Some(endpoint) = connection
        .prepare_cached(
            "SELECT endpoint FROM deliveries WHERE status = 0 AND endpoint > ?1 \
             ORDER BY endpoint LIMIT 1",
        )?
        .query_row([after], |row| row.get::<_, i64>(0))
        .optional()?
    {
        after = endpoint;
        if let Some(id) = endpoint_id(endpoint) {
            lanes.push(lane_due(connection, id)?);
        }
    }
    Ok(lanes)
}
