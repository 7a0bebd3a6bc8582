//! Leases: taken by `claim`, ended by `settle` or, when their time is over, by `lapse`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::budget::Budget;
use everhook_domain::delivery::{Input, RETRY_AFTER_MAX, State, Token};
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;

use super::failure::VerbError;
use super::number::{Bits, bits, unsigned};
use super::pool::Connection;
use super::receipt;
use super::row::{COLUMNS, DeliveryRow};
use super::tx::Tx;
use crate::error::Refusal;
use crate::sending::{LaneDue, LeasedDelivery, Settled, Settlement, SettlementResult, Wanted};
use crate::share::Share;

/// A claim stops when the bodies it leased weigh this much.
const CLAIM_BYTES_MAX: usize = 8 << 20;
/// Leases ended in one transaction of `lapse`.
const LAPSE_ROWS: i64 = 500;

/// `claim`.
pub(super) async fn claim(
    tx: &mut Tx,
    wanted: &[Wanted],
    budget: Budget,
) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), VerbError> {
    let ready = lock_due(tx, wanted).await?;
    let (ready, too_heavy) = keep_light(tx, ready, wanted, budget).await?;
    let mut taken = Vec::with_capacity(ready.len());
    for (token, mut row) in ready {
        let State::Due(due) = row.record.state else { continue };
        let (share, until) = (Share::of(&row.record.progress), Some(tx.lease_until()));
        match tx.step(&mut row, Input::Claimed { token, until }) {
            Ok(()) => taken.push((token, due, share, row)),
            // Its endpoint is gone: the sweep cancels it.
            Err(VerbError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let mut bodies = bodies(tx, taken.iter().map(|(.., row)| row)).await?;
    let (tenants, events) = events_of(taken.iter().map(|(.., row)| row));
    let headers = receipt::headers(&mut tx.connection, (&tenants, &events)).await?;
    let mut leased = Vec::with_capacity(taken.len());
    for (token, due, share, row) in taken {
        let record = row.record;
        let missing = || VerbError::Unusable(format!("the event of {} is gone", record.id));
        let body = bodies.get_mut(&record.id.event()).ok_or_else(missing)?.clone();
        leased.push(LeasedDelivery {
            id: record.id,
            endpoint: record.endpoint,
            token,
            until: Some(tx.lease_until()),
            number: record.progress.next_number(),
            due_at: due.at,
            cause: due.cause,
            share,
            body,
            headers: headers.get(&record.id.event()).map(Arc::clone),
        });
    }
    tx.flush().await?;
    let endpoints: Vec<EndpointId> = wanted.iter().map(|wanted| wanted.endpoint).collect();
    let mut lanes = lanes_due(&mut tx.connection, &endpoints).await?;
    for lane in &mut lanes {
        lane.too_heavy = too_heavy.get(&lane.endpoint).copied();
    }
    Ok((leased, lanes))
}

/// Locks what is due and nobody else is at, each row with a token of its own.
async fn lock_due(tx: &mut Tx, wanted: &[Wanted]) -> Result<Vec<(Token, DeliveryRow)>, VerbError> {
    let (mut lanes, mut shares, mut most) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in wanted {
        for (share, limit) in [
            (Share::Suspect, wanted.suspect),
            (Share::Retry, wanted.retry),
            (Share::Fresh, wanted.fresh),
        ] {
            if limit > 0 {
                lanes.push(Bits::from(wanted.endpoint));
                shares.push(share as i16);
                most.push(i64::from(limit));
            }
        }
    }
    let statement = format!(
        "SELECT nextval('lease_tokens'), d.* \
         FROM unnest($1::uuid[], $2::smallint[], $3::bigint[]) WITH ORDINALITY \
         AS w (endpoint, share, most, place) CROSS JOIN LATERAL (SELECT {COLUMNS} FROM deliveries \
         WHERE status = 0 AND endpoint = w.endpoint AND share = w.share AND due_at <= $4 \
         ORDER BY due_at, id LIMIT w.most FOR UPDATE SKIP LOCKED) AS d \
         ORDER BY w.place, d.due_at, d.id"
    );
    let now = tx.now.as_millis();
    let rows = tx.connection.query(&statement, &[&lanes, &shares, &most, &now]).await?;
    let read = |row: &Row| Ok((Token(unsigned(row.try_get(0)?)), DeliveryRow::read(row, 1)?));
    rows.iter().map(read).collect()
}

/// Keeps what the budget allows, and tells what the first one weighs that it does not allow in each
/// lane; the rest stays due.
async fn keep_light(
    tx: &mut Tx,
    ready: Vec<(Token, DeliveryRow)>,
    wanted: &[Wanted],
    mut budget: Budget,
) -> Result<(Vec<(Token, DeliveryRow)>, HashMap<EndpointId, usize>), VerbError> {
    let sizes = sizes(tx, ready.iter().map(|(_, row)| row)).await?;
    let mut held: HashMap<_, _> = wanted.iter().map(|lane| (lane.endpoint, lane.held)).collect();
    let (mut light, mut too_heavy) = (Vec::with_capacity(ready.len()), HashMap::new());
    let (mut weight, mut stopped) = (0, None);
    for (token, row) in ready {
        let queue = (row.record.endpoint, Share::of(&row.record.progress));
        if weight >= CLAIM_BYTES_MAX {
            break;
        }
        if stopped == Some(queue) {
            continue;
        }
        let bytes = sizes.get(&row.record.id.event()).copied().unwrap_or(0);
        let held = held.entry(queue.0).or_default();
        if !budget.allows(*held, bytes) {
            too_heavy.entry(queue.0).or_insert(bytes);
            stopped = Some(queue);
            continue;
        }
        budget = budget.with(bytes);
        *held += bytes;
        weight += bytes;
        light.push((token, row));
    }
    Ok((light, too_heavy))
}

/// How long the bodies of the deliveries' events are, without reading them.
async fn sizes(
    tx: &mut Tx,
    rows: impl Iterator<Item = &DeliveryRow>,
) -> Result<HashMap<EventId, usize>, VerbError> {
    let (tenants, events) = events_of(rows);
    let mut sizes = HashMap::with_capacity(events.len());
    if events.is_empty() {
        return Ok(sizes);
    }
    let statement = "SELECT id, octet_length(body) FROM events \
                     WHERE tenant = ANY($1) AND id = ANY($2)";
    for row in tx.connection.query(statement, &[&tenants, &bits(&events)]).await? {
        let (Bits(id), size): (Bits, i32) = (row.try_get(0)?, row.try_get(1)?);
        sizes.insert(EventId::from_bits(id), usize::try_from(size).unwrap_or(0));
    }
    Ok(sizes)
}

fn events_of<'a>(rows: impl Iterator<Item = &'a DeliveryRow>) -> (Vec<&'a str>, Vec<EventId>) {
    rows.map(|row| (row.tenant.as_str(), row.record.id.event())).unzip()
}

/// The bytes of the deliveries' events.
async fn bodies(
    tx: &mut Tx,
    rows: impl Iterator<Item = &DeliveryRow>,
) -> Result<HashMap<EventId, Bytes>, VerbError> {
    let (tenants, events) = events_of(rows);
    let mut found = HashMap::with_capacity(events.len());
    if events.is_empty() {
        return Ok(found);
    }
    let statement = "SELECT id, body FROM events WHERE tenant = ANY($1) AND id = ANY($2)";
    for row in tx.connection.query(statement, &[&tenants, &bits(&events)]).await? {
        let Bits(id) = row.try_get(0)?;
        found.insert(EventId::from_bits(id), Bytes::from(row.try_get::<_, Vec<u8>>(1)?));
    }
    Ok(found)
}

/// The earliest due times of these lanes, in their order.
async fn lanes_due(
    connection: &mut Connection,
    endpoints: &[EndpointId],
) -> Result<Vec<LaneDue>, VerbError> {
    let statement = format!(
        "SELECT w.endpoint, {} FROM unnest($1::uuid[]) WITH ORDINALITY AS w (endpoint, place) \
         ORDER BY w.place",
        earliest("w.endpoint")
    );
    let rows = connection.query(&statement, &[&bits(endpoints)]).await?;
    rows.iter().map(read_lane).collect()
}

/// Three columns: the earliest due time of a lane's shares, fresh, retry, suspect.
fn earliest(lane: &str) -> String {
    let share = |share: Share| {
        format!(
            "(SELECT due_at FROM deliveries WHERE status = 0 AND endpoint = {lane} \
             AND share = {} ORDER BY due_at LIMIT 1)",
            share as i16
        )
    };
    [Share::Fresh, Share::Retry, Share::Suspect].map(share).join(", ")
}

fn read_lane(row: &Row) -> Result<LaneDue, VerbError> {
    let Bits(endpoint) = row.try_get(0)?;
    let due = |column: usize| -> Result<Option<Timestamp>, VerbError> {
        Ok(row.try_get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
    };
    let endpoint = EndpointId::from_bits(endpoint);
    Ok(LaneDue { endpoint, fresh: due(1)?, retry: due(2)?, suspect: due(3)?, too_heavy: None })
}

/// Every lane in which something waits: one seek a lane, however many deliveries wait in it.
const LANES: &str = "WITH RECURSIVE lanes (endpoint) AS (\
     (SELECT endpoint FROM deliveries WHERE status = 0 ORDER BY endpoint LIMIT 1) \
     UNION ALL SELECT (SELECT d.endpoint FROM deliveries AS d WHERE d.status = 0 \
     AND d.endpoint > lanes.endpoint ORDER BY d.endpoint LIMIT 1) \
     FROM lanes WHERE lanes.endpoint IS NOT NULL)";

/// The earliest due times of every lane in which something waits.
pub(super) async fn due(connection: &mut Connection) -> Result<Vec<LaneDue>, VerbError> {
    let statement = format!(
        "{LANES} SELECT endpoint, {} FROM lanes WHERE endpoint IS NOT NULL",
        earliest("lanes.endpoint")
    );
    let rows = connection.query(&statement, &[]).await?;
    rows.iter().map(read_lane).collect()
}

/// `settle`.
pub(super) async fn settle(
    tx: &mut Tx,
    settlements: &[Settlement],
) -> Result<Vec<Settled>, VerbError> {
    let ids: Vec<DeliveryId> = settlements.iter().map(|settlement| settlement.delivery).collect();
    let statement =
        format!("SELECT {COLUMNS} FROM deliveries WHERE id = ANY($1) ORDER BY id FOR UPDATE");
    let rows = DeliveryRow::read_all(&tx.connection.query(&statement, &[&bits(&ids)]).await?)?;
    let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.record.id, row)).collect();
    let mut settled = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        let Some(row) = rows.get_mut(&settlement.delivery) else {
            settled.push(Settled::Stale);
            continue;
        };
        let token = settlement.token;
        let (input, outcome) = match &settlement.result {
            SettlementResult::Finished(report) => {
                (Input::Finished { token, report: report.clone() }, Some(&report.outcome))
            }
            SettlementResult::Released => (Input::Released { token }, None),
        };
        match tx.step(row, input) {
            Ok(()) => settled.push(Settled::Recorded),
            Err(VerbError::Refused(Refusal::Step(_))) => {
                if let Some(outcome) = outcome {
                    tx.note_late(settlement.delivery, token, outcome);
                }
                settled.push(Settled::Stale);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(settled)
}

/// One transaction of `lapse`: ends leases whose time is over, and returns how many. Rows that
/// somebody is settling at this moment are left to them.
pub(super) async fn lapse(tx: &mut Tx) -> Result<u64, VerbError> {
    let statement = format!(
        "SELECT {COLUMNS} FROM deliveries WHERE status = 2 AND lease_until <= $1 \
         ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED"
    );
    let now = tx.now.as_millis();
    let rows = tx.connection.query(&statement, &[&now, &LAPSE_ROWS]).await?;
    let mut rows = DeliveryRow::read_all(&rows)?;
    let mut ended = 0;
    for row in &mut rows {
        if let State::Leased(lease) = row.record.state {
            tx.step(row, Input::Interrupted { token: lease.token })?;
            ended += 1;
        }
    }
    Ok(ended)
}

/// One transaction of pulling back what a clock that was ahead has put further off than any
/// schedule would; returns how many. A retry whose last attempt lies in our past was put off by a
/// right clock, however far.
pub(super) async fn pull_back(tx: &mut Tx) -> Result<u64, VerbError> {
    let gap = tx.rules.policy.schedule.longest_gap();
    let furthest = tx.now + gap + RETRY_AFTER_MAX;
    let statement = format!(
        "{LANES} SELECT d.* FROM lanes CROSS JOIN unnest(ARRAY[0, 1, 2]::smallint[]) AS s \
         CROSS JOIN LATERAL (SELECT {COLUMNS} FROM deliveries WHERE status = 0 \
         AND endpoint = lanes.endpoint AND share = s AND due_at > $1 \
         AND (last_start IS NULL OR last_start > $2) LIMIT $3 \
         FOR UPDATE SKIP LOCKED) AS d"
    );
    let (furthest, now) = (furthest.as_millis(), tx.now.as_millis());
    let rows = tx.connection.query(&statement, &[&furthest, &now, &LAPSE_ROWS]).await?;
    let mut rows = DeliveryRow::read_all(&rows)?;
    for row in &mut rows {
        if let State::Due(due) = &mut row.record.state {
            due.at = tx.now + gap;
        }
        tx.write(&row.record);
    }
    Ok(rows.len() as u64)
}
