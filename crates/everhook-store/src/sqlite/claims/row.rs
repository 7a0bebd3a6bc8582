//! A claim as a row, and back.

use everhook_domain::id::RecordId;
use everhook_domain::idempotency::Fingerprint;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Terms, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};

use super::super::accounts::Place;
use super::super::row::{signed, unsigned};
use crate::keys::{
    Completed, KeyRecord, RecordName, RecordOrigin, RecordState, StoredClaim, Taking,
};

/// What [`ClaimRow::read`] reads, in its order.
pub(super) const COLUMNS: &str = "seq, created_at, tenant, account, origin, account_name, subject, \
     token, lease_until, expires_at, status, replayable";

/// A claim without what may be large.
#[derive(Clone, Debug)]
pub(super) struct ClaimRow {
    pub(super) seq: i64,
    pub(super) created_at: i64,
    pub(super) tenant: i64,
    pub(super) account: KeyHash,
    pub(super) name: RecordName,
    pub(super) token: Token,
    pub(super) lease_until: Timestamp,
    pub(super) expires_at: Timestamp,
    /// `None` while it is open.
    pub(super) completed: Option<Completed>,
}

/// The public id of a record with this sequence.
pub(super) fn record_id(seq: i64, created_at: i64, tag: u16) -> RecordId {
    RecordId::from_parts(unsigned(created_at), unsigned(seq), tag, 0)
}

impl ClaimRow {
    /// What is claimed under a key.
    pub(super) fn of_key(connection: &Connection, key: KeyHash) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM claims WHERE key = ?1"))?
            .query_row([key.0], Self::read)
            .optional()
    }

    /// A tenant's claim by its id.
    pub(super) fn find(
        connection: &Connection,
        tenant: i64,
        id: RecordId,
        tag: u16,
    ) -> rusqlite::Result<Option<Self>> {
        let found = connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM claims WHERE seq = ?1"))?
            .query_row([signed(id.sequence())], Self::read)
            .optional()?;
        Ok(found.filter(|row| row.tenant == tenant && row.id(tag) == id))
    }

    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let origin: String = row.get(4)?;
        let completed = match (row.get(10)?, row.get(11)?) {
            (Some(status), Some(replayable)) => Some(Completed { status, replayable }),
            _ => None,
        };
        Ok(Self {
            seq: row.get(0)?,
            created_at: row.get(1)?,
            tenant: row.get(2)?,
            account: KeyHash(row.get(3)?),
            name: RecordName {
                origin: RecordOrigin::from_word(&origin)
                    .ok_or_else(|| damaged(4, format!("unknown origin {origin}")))?,
                account: row.get(5)?,
                subject: row.get(6)?,
            },
            token: Token(row.get(7)?),
            lease_until: Timestamp::from_millis(row.get(8)?),
            expires_at: Timestamp::from_millis(row.get(9)?),
            completed,
        })
    }

    /// The public id.
    pub(super) fn id(&self, tag: u16) -> RecordId {
        record_id(self.seq, self.created_at, tag)
    }

    /// Where it stands in its account.
    pub(super) fn place(&self) -> Place {
        (self.expires_at, self.seq)
    }

    /// Whether it still means something.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }

    /// How far it has come.
    pub(super) fn state(&self, now: Timestamp) -> RecordState {
        RecordState::of(self.completed, self.lease_until, now)
    }

    /// What is shown of it.
    pub(super) fn shown(&self, tag: u16, now: Timestamp) -> KeyRecord {
        KeyRecord {
            id: self.id(tag),
            name: self.name.clone(),
            state: self.state(now),
            expires_at: self.expires_at,
        }
    }

    /// Adds a claim that is taken now.
    pub(super) fn insert(
        connection: &Connection,
        (seq, created_at, tenant): (i64, Timestamp, i64),
        taking: &Taking,
        (lease_until, expires_at): (Timestamp, Timestamp),
    ) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "INSERT INTO claims (seq, created_at, tenant, key, account, origin, \
                 account_name, subject, rule, fingerprint, token, lease_until, expires_at, \
                 checkpoint) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?
            .execute(params![
                seq,
                created_at.as_millis(),
                tenant,
                taking.key.0,
                taking.account.0,
                taking.name.origin.as_str(),
                taking.name.account,
                taking.name.subject,
                taking.rule,
                taking.fingerprint.0,
                taking.token.0,
                lease_until.as_millis(),
                expires_at.as_millis(),
                taking.checkpoint,
            ])?;
        Ok(())
    }

    /// Gives an open claim a new lease.
    pub(super) fn renew(
        &mut self,
        connection: &Connection,
        terms: Terms,
        checkpoint: Option<&[u8]>,
        now: Timestamp,
    ) -> rusqlite::Result<()> {
        self.lease_until = now + terms.lease;
        self.expires_at = self.lease_until + terms.ttl;
        connection
            .prepare_cached(
                "UPDATE claims SET lease_until = ?2, expires_at = ?3, \
                 checkpoint = ifnull(?4, checkpoint) WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                self.lease_until.as_millis(),
                self.expires_at.as_millis(),
                checkpoint
            ])?;
        Ok(())
    }

    /// Keeps what is remembered of a claim that is finished.
    pub(super) fn finish(
        &mut self,
        connection: &Connection,
        completed: Completed,
        remembered: &[u8],
        expires_at: Timestamp,
    ) -> rusqlite::Result<()> {
        self.completed = Some(completed);
        self.expires_at = expires_at;
        connection
            .prepare_cached(
                "UPDATE claims SET token = ?2, expires_at = ?3, status = ?4, replayable = ?5, \
                 checkpoint = NULL, remembered = ?6 WHERE seq = ?1",
            )?
            .execute(params![
                self.seq,
                self.token.0,
                expires_at.as_millis(),
                completed.status,
                completed.replayable,
                remembered,
            ])?;
        Ok(())
    }
}

/// What is stored of a tenant's claim; `condition` names it by `?2`.
pub(super) fn stored(
    connection: &Connection,
    tenant: &(TenantId, i64),
    tag: u16,
    (condition, value): (&str, impl ToSql),
) -> rusqlite::Result<Option<StoredClaim>> {
    let (tenant, number) = tenant;
    connection
        .prepare_cached(&format!(
            "SELECT seq, created_at, key, account, rule, fingerprint, token, lease_until, \
             expires_at, checkpoint, remembered FROM claims WHERE tenant = ?1 AND {condition}"
        ))?
        .query_row(params![number, value], |row| {
            let remembered: Option<Vec<u8>> = row.get(10)?;
            let state = match remembered {
                Some(bytes) => ClaimState::Finished(
                    Remembered::decode(&bytes).map_err(|why| damaged(10, why.to_string()))?,
                ),
                None => ClaimState::Open {
                    lease_until: Timestamp::from_millis(row.get(7)?),
                    checkpoint: row.get(9)?,
                },
            };
            Ok(StoredClaim {
                id: record_id(row.get(0)?, row.get(1)?, tag),
                tenant: tenant.clone(),
                key: KeyHash(row.get(2)?),
                record: ClaimRecord {
                    account: KeyHash(row.get(3)?),
                    rule: row.get(4)?,
                    fingerprint: Fingerprint(row.get(5)?),
                    token: Token(row.get(6)?),
                    expires_at: Timestamp::from_millis(row.get(8)?),
                    state,
                },
            })
        })
        .optional()
}

fn damaged(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Blob, why.into())
}
