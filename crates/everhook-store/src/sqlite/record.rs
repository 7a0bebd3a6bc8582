//! What is only ever added: attempts, interruptions, idempotency records.

use std::time::Duration;

use everhook_domain::attempt::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, ErrorClass, KeptResponse,
};
use everhook_domain::delivery::Token;
use everhook_domain::idempotency::{Answer, Fingerprint, IdempotencyRecord};
use everhook_domain::key::KeyHash;
use everhook_domain::time::{Timestamp, millis};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::row::{bad, signed, unsigned};
use crate::code;

/// Adds a numbered attempt.
pub(super) fn insert_attempt(
    connection: &Connection,
    delivery: i64,
    attempt: &Attempt,
) -> rusqlite::Result<()> {
    let report = &attempt.report;
    let outcome = &report.outcome;
    connection
        .prepare_cached(
            "INSERT INTO attempts (delivery, number, round, cause, started_at, duration_ms, url, \
             error_class, error_detail, response, retry_after, resent) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            delivery,
            attempt.number,
            attempt.round,
            code::trigger(attempt.trigger),
            report.started_at.as_millis(),
            millis(report.duration),
            report.url,
            outcome.error.as_ref().map(|error| error.class.as_str()),
            outcome.error.as_ref().map(|error| error.detail.as_str()),
            outcome.response.as_ref().map(to_json).transpose()?,
            outcome.retry_after.map(millis),
            outcome.resent,
        ])?;
    Ok(())
}

/// A delivery's attempts, oldest first.
pub(super) fn attempts(connection: &Connection, delivery: i64) -> rusqlite::Result<Vec<Attempt>> {
    connection
        .prepare_cached(
            "SELECT number, round, cause, started_at, duration_ms, url, error_class, \
             error_detail, response, retry_after, resent FROM attempts WHERE delivery = ?1 \
             ORDER BY number",
        )?
        .query_map([delivery], read_attempt)?
        .collect()
}

fn read_attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    let error = match row.get::<_, Option<String>>(6)? {
        None => None,
        Some(word) => Some(AttemptError {
            class: ErrorClass::from_word(&word)
                .ok_or_else(|| unreadable(6, format!("unknown error class {word}")))?,
            detail: row.get::<_, Option<String>>(7)?.unwrap_or_default(),
        }),
    };
    let response = row.get::<_, Option<String>>(8)?;
    let response: Option<KeptResponse> = response.map(|json| from_json(8, &json)).transpose()?;
    let retry_after = row.get::<_, Option<i64>>(9)?;
    Ok(Attempt {
        number: row.get(0)?,
        round: row.get(1)?,
        trigger: code::read_trigger(row.get(2)?).map_err(bad)?,
        report: AttemptReport {
            started_at: Timestamp::from_millis(row.get(3)?),
            duration: Duration::from_millis(unsigned(row.get(4)?)),
            url: row.get(5)?,
            outcome: AttemptOutcome {
                response,
                error,
                retry_after: retry_after.map(|ms| Duration::from_millis(unsigned(ms))),
                resent: row.get(10)?,
            },
        },
    })
}

/// Adds a lease that ended without a result.
pub(super) fn insert_interruption(
    connection: &Connection,
    delivery: i64,
    token: Token,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO interruptions (delivery, token, ended_at) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![delivery, signed(token.0), now.as_millis()])?;
    Ok(())
}

/// Keeps a result that came in after its lease had ended.
pub(super) fn note_late_outcome(
    connection: &Connection,
    delivery: i64,
    token: Token,
    outcome: &AttemptOutcome,
) -> rusqlite::Result<()> {
    let summary = match (&outcome.error, &outcome.response) {
        (Some(error), _) => format!("{}: {}", error.class.as_str(), error.detail),
        (None, Some(response)) => format!("status {}", response.status),
        (None, None) => String::new(),
    };
    connection
        .prepare_cached("UPDATE interruptions SET outcome = ?3 WHERE delivery = ?1 AND token = ?2")?
        .execute(params![delivery, signed(token.0), summary])?;
    Ok(())
}

/// An idempotency record of our own API, as it is added.
pub(super) struct NewRecord<'a> {
    pub(super) sequence: i64,
    pub(super) created_at: Timestamp,
    pub(super) tenant: i64,
    pub(super) key: KeyHash,
    /// The account's name.
    pub(super) account: &'a str,
    pub(super) subject: &'a str,
    pub(super) record: &'a IdempotencyRecord,
}

/// Adds an idempotency record; returns how many bytes it remembers.
pub(super) fn insert_answer(connection: &Connection, new: &NewRecord<'_>) -> rusqlite::Result<u64> {
    let answer = &new.record.answer;
    let headers = to_json(&answer.headers)?;
    connection
        .prepare_cached(
            "INSERT INTO idempotency_records (seq, created_at, tenant, key, account_name, \
             subject, fingerprint, expires_at, status, headers, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            new.sequence,
            new.created_at.as_millis(),
            new.tenant,
            new.key.0,
            new.account,
            new.subject,
            new.record.fingerprint.0,
            new.record.expires_at.as_millis(),
            answer.status,
            headers,
            answer.body,
        ])?;
    Ok(u64::try_from(headers.len() + answer.body.len()).unwrap_or(u64::MAX))
}

/// An idempotency record by its sequence.
pub(super) fn answer(
    connection: &Connection,
    sequence: i64,
) -> rusqlite::Result<Option<IdempotencyRecord>> {
    connection
        .prepare_cached(
            "SELECT fingerprint, expires_at, status, headers, body FROM idempotency_records \
             WHERE seq = ?1",
        )?
        .query_row([sequence], |row| {
            Ok(IdempotencyRecord {
                fingerprint: Fingerprint(row.get(0)?),
                expires_at: Timestamp::from_millis(row.get(1)?),
                answer: Answer {
                    status: row.get(2)?,
                    headers: from_json(3, &row.get::<_, String>(3)?)?,
                    body: row.get(4)?,
                },
            })
        })
        .optional()
}

/// Removes up to `limit` expired idempotency records; returns how many.
pub(super) fn prune_answers(
    connection: &Connection,
    now: Timestamp,
    limit: u32,
) -> rusqlite::Result<usize> {
    // Records are added in the order in which they expire, unless the lifetime setting changed.
    let last: Option<i64> = connection
        .prepare_cached(
            "SELECT max(seq) FROM (SELECT seq, expires_at FROM idempotency_records ORDER BY seq \
             LIMIT ?2) WHERE expires_at <= ?1",
        )?
        .query_row(params![now.as_millis(), limit], |row| row.get(0))?;
    let Some(last) = last else { return Ok(0) };
    connection
        .prepare_cached("DELETE FROM idempotency_records WHERE seq <= ?1 AND expires_at <= ?2")?
        .execute(params![last, now.as_millis()])
}

fn to_json<T: serde::Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

fn from_json<T: serde::de::DeserializeOwned>(column: usize, json: &str) -> rusqlite::Result<T> {
    serde_json::from_str(json).map_err(|error| unreadable(column, error.to_string()))
}

fn unreadable(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
}
