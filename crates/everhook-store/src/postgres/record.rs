//! What is only ever added: attempts, interruptions, idempotency records.

use std::time::Duration;

use everhook_domain::attempt::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, KeptResponse,
};
use everhook_domain::delivery::Token;
use everhook_domain::id::DeliveryId;
use everhook_domain::idempotency::{Answer, Fingerprint, IdempotencyRecord};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{Timestamp, millis};
use tokio_postgres::Row;

use super::claims::holdable;
use super::failure::VerbError;
use super::number::{Bits, count, int, signed, size, small, unsigned};
use super::pool::Connection;
use super::tx::Tx;
use crate::claim::Claim;
use crate::code;

/// Adds numbered attempts.
pub(super) async fn insert_attempts(
    connection: &mut Connection,
    attempts: &[(DeliveryId, Attempt)],
) -> Result<(), VerbError> {
    let mut bytes = Vec::with_capacity(attempts.len());
    for (_, attempt) in attempts {
        let outcome = &attempt.report.outcome;
        // As JSON, also because text of PostgreSQL cannot hold every character.
        let error = outcome.error.as_ref().map(serde_json::to_string).transpose()?;
        let response = outcome.response.as_ref().map(serde_json::to_string).transpose()?;
        bytes.push((error, response));
    }
    let reports = || attempts.iter().map(|(_, attempt)| &attempt.report);
    let deliveries: Vec<Bits> = attempts.iter().map(|(id, _)| (*id).into()).collect();
    let numbers: Vec<i32> = attempts.iter().map(|(_, attempt)| int(attempt.number)).collect();
    let rounds: Vec<i32> = attempts.iter().map(|(_, attempt)| int(attempt.round)).collect();
    let causes: Vec<i16> =
        attempts.iter().map(|(_, attempt)| small(code::trigger(attempt.trigger))).collect();
    let starts: Vec<i64> = reports().map(|report| report.started_at.as_millis()).collect();
    let durations: Vec<i64> = reports().map(|report| millis(report.duration)).collect();
    let urls: Vec<&str> = reports().map(|report| report.url.as_str()).collect();
    let errors: Vec<Option<&str>> = bytes.iter().map(|(error, _)| error.as_deref()).collect();
    let responses: Vec<Option<&str>> =
        bytes.iter().map(|(_, response)| response.as_deref()).collect();
    let waits: Vec<Option<i64>> =
        reports().map(|report| report.outcome.retry_after.map(millis)).collect();
    let resent: Vec<bool> = reports().map(|report| report.outcome.resent).collect();
    connection
        .execute(
            "INSERT INTO attempts (delivery, number, round, cause, started_at, duration_ms, url, \
             error, response, retry_after, resent) SELECT * FROM unnest($1::uuid[], $2::integer[], \
             $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], \
             $9::text[], $10::bigint[], $11::boolean[])",
            &[
                &deliveries,
                &numbers,
                &rounds,
                &causes,
                &starts,
                &durations,
                &urls,
                &errors,
                &responses,
                &waits,
                &resent,
            ],
        )
        .await?;
    Ok(())
}

/// A delivery's attempts, oldest first.
pub(super) async fn attempts(
    connection: &mut Connection,
    delivery: DeliveryId,
) -> Result<Vec<Attempt>, VerbError> {
    let rows = connection
        .query(
            "SELECT number, round, cause, started_at, duration_ms, url, error, response, \
             retry_after, resent FROM attempts WHERE delivery = $1 ORDER BY number",
            &[&Bits::from(delivery)],
        )
        .await?;
    rows.iter().map(read_attempt).collect()
}

fn read_attempt(row: &Row) -> Result<Attempt, VerbError> {
    let cause: i16 = row.try_get(2)?;
    let error: Option<&str> = row.try_get(6)?;
    let error: Option<AttemptError> = error.map(serde_json::from_str).transpose()?;
    let response: Option<&str> = row.try_get(7)?;
    let response: Option<KeptResponse> = response.map(serde_json::from_str).transpose()?;
    let retry_after: Option<i64> = row.try_get(8)?;
    Ok(Attempt {
        number: count(row.try_get(0)?),
        round: count(row.try_get(1)?),
        trigger: code::read_trigger(i64::from(cause))?,
        report: AttemptReport {
            started_at: Timestamp::from_millis(row.try_get(3)?),
            duration: Duration::from_millis(unsigned(row.try_get(4)?)),
            url: row.try_get(5)?,
            outcome: AttemptOutcome {
                response,
                error,
                retry_after: retry_after.map(|ms| Duration::from_millis(unsigned(ms))),
                resent: row.try_get(9)?,
            },
        },
    })
}

/// Adds leases that ended without a result.
pub(super) async fn insert_interruptions(
    connection: &mut Connection,
    interruptions: &[(DeliveryId, Token)],
    now: Timestamp,
) -> Result<(), VerbError> {
    let deliveries: Vec<Bits> = interruptions.iter().map(|(id, _)| (*id).into()).collect();
    let tokens: Vec<i64> = interruptions.iter().map(|(_, token)| signed(token.0)).collect();
    connection
        .execute(
            "INSERT INTO interruptions (delivery, token, ended_at) \
             SELECT v.*, $3::bigint FROM unnest($1::uuid[], $2::bigint[]) AS v \
             ON CONFLICT DO NOTHING",
            &[&deliveries, &tokens, &now.as_millis()],
        )
        .await?;
    Ok(())
}

/// Keeps results that came in after their leases had ended.
pub(super) async fn note_late_outcomes(
    connection: &mut Connection,
    outcomes: &[(DeliveryId, Token, String)],
) -> Result<(), VerbError> {
    for (delivery, token, outcome) in outcomes {
        connection
            .execute(
                "UPDATE interruptions SET outcome = $3 WHERE delivery = $1 AND token = $2",
                &[&Bits::from(*delivery), &signed(token.0), outcome],
            )
            .await?;
    }
    Ok(())
}

/// An outcome in a few words.
pub(super) fn summary(outcome: &AttemptOutcome) -> String {
    match (&outcome.error, &outcome.response) {
        (Some(error), _) => {
            format!("{}: {}", error.class.as_str(), error.detail.replace('\0', "\u{fffd}"))
        }
        (None, Some(response)) => format!("status {}", response.status),
        (None, None) => String::new(),
    }
}

/// Takes a tenant's key for this transaction, if nothing live is under it. Waits for a transaction
/// that is about to take it.
pub(super) async fn take_key(
    connection: &mut Connection,
    tenant: &TenantId,
    key: Bits,
    (now, expires_at): (Timestamp, Timestamp),
) -> Result<bool, VerbError> {
    let taken = connection
        .execute(
            "INSERT INTO idempotency_records (key, fingerprint, expires_at, status, headers, \
             body, tenant) VALUES ($1, '', $2, 0, '[]', '', $4) ON CONFLICT (key) DO UPDATE \
             SET expires_at = excluded.expires_at, tenant = excluded.tenant \
             WHERE idempotency_records.expires_at <= $3",
            &[&key, &expires_at.as_millis(), &now.as_millis(), &tenant.as_str()],
        )
        .await?;
    Ok(taken > 0)
}

/// What is remembered under a key.
pub(super) async fn answer(
    connection: &mut Connection,
    key: Bits,
) -> Result<Option<IdempotencyRecord>, VerbError> {
    let row = connection
        .first(
            "SELECT fingerprint, expires_at, status, headers, body FROM idempotency_records \
             WHERE key = $1",
            &[&key],
        )
        .await?;
    let Some(row) = row else { return Ok(None) };
    let unusable = || VerbError::Unusable("an idempotency record cannot be read".into());
    let fingerprint: &[u8] = row.try_get(0)?;
    let headers: &str = row.try_get(3)?;
    Ok(Some(IdempotencyRecord {
        fingerprint: Fingerprint(fingerprint.try_into().map_err(|_| unusable())?),
        expires_at: Timestamp::from_millis(row.try_get(1)?),
        answer: Answer {
            status: u16::try_from(row.try_get::<_, i32>(2)?).map_err(|_| unusable())?,
            headers: serde_json::from_str(headers)?,
            body: row.try_get(4)?,
        },
    }))
}

/// Writes the answer under a key that this transaction has taken.
pub(super) async fn set_answer<T>(
    tx: &mut Tx,
    claim: &Claim<T>,
    answer: &Answer,
) -> Result<(), VerbError> {
    let headers = serde_json::to_string(&answer.headers)?;
    let (account, bytes) = (Bits::from(claim.account), size(headers.len() + answer.body.len()));
    // What was there before is over; it counts until now.
    let statement = "UPDATE idempotency_records AS r SET fingerprint = $2, status = $3, \
                     headers = $4, body = $5, id = $6, account = $7, account_name = $8, \
                     subject = $9, bytes = $10 FROM idempotency_records AS old \
                     WHERE r.key = $1 AND old.key = r.key \
                     RETURNING r.tenant, old.account, old.bytes";
    let before = tx
        .connection
        .query(
            statement,
            &[
                &Bits::from(claim.key),
                &&claim.fingerprint.0[..],
                &i32::from(answer.status),
                &headers,
                &answer.body,
                &Bits::from(tx.rules.ids.record(tx.now)),
                &account,
                &holdable(&claim.account_name),
                &holdable(&claim.subject),
                &bytes,
            ],
        )
        .await?;
    tx.accounts.removed(&before)?;
    tx.accounts.add((claim.tenant.as_str(), account), 1, bytes);
    Ok(())
}
