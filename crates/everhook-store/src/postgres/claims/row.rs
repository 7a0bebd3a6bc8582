//! A claim as a row, and back.

use everhook_domain::id::RecordId;
use everhook_domain::idempotency::Fingerprint;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Terms, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::super::failure::VerbError;
use super::super::number::{Bits, size};
use super::super::pool::Connection;
use crate::keys::{Completed, RecordName, RecordOrigin, StoredClaim, Taking};

/// A claim without what may be large, locked by whoever looked.
#[derive(Clone, Debug)]
pub(super) struct ClaimRow {
    pub(super) id: RecordId,
    key: Bits,
    pub(super) account: Bits,
    pub(super) token: Token,
    pub(super) lease_until: Timestamp,
    pub(super) expires_at: Timestamp,
    /// `None` while it is open.
    pub(super) completed: Option<Completed>,
    /// How many it remembers.
    pub(super) bytes: i64,
}

/// Text as PostgreSQL can hold it.
pub(crate) fn holdable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// How a record is shown, from its words.
pub(super) fn read_name(
    origin: &str,
    account: String,
    subject: String,
) -> Result<RecordName, VerbError> {
    let origin = RecordOrigin::from_word(origin)
        .ok_or_else(|| VerbError::Unusable(format!("a record has the origin {origin}")))?;
    Ok(RecordName { origin, account, subject })
}

/// What is known of a record, from its columns.
pub(super) fn read_completed(
    status: Option<i32>,
    replayable: Option<bool>,
) -> Result<Option<Completed>, VerbError> {
    let (Some(status), Some(replayable)) = (status, replayable) else { return Ok(None) };
    let status = u16::try_from(status)
        .map_err(|_| VerbError::Unusable(format!("a record has the status {status}")))?;
    Ok(Some(Completed { status, replayable }))
}

impl ClaimRow {
    /// What is claimed under a tenant's key, for whoever changes it: others wait.
    pub(super) async fn of_key(
        connection: &mut Connection,
        tenant: &TenantId,
        key: KeyHash,
    ) -> Result<Option<Self>, VerbError> {
        Self::find(connection, tenant, "key", Bits::from(key)).await
    }

    /// A tenant's claim by its id, as [`ClaimRow::of_key`].
    pub(super) async fn of_id(
        connection: &mut Connection,
        tenant: &TenantId,
        id: RecordId,
    ) -> Result<Option<Self>, VerbError> {
        Self::find(connection, tenant, "id", Bits::from(id)).await
    }

    async fn find(
        connection: &mut Connection,
        tenant: &TenantId,
        column: &str,
        value: Bits,
    ) -> Result<Option<Self>, VerbError> {
        let statement = format!(
            "SELECT id, key, account, token, lease_until, expires_at, status, replayable, \
             coalesce(octet_length(remembered), 0)::bigint \
             FROM claims WHERE tenant = $1 AND {column} = $2 FOR UPDATE"
        );
        let row = connection.first(&statement, &[&tenant.as_str(), &value]).await?;
        row.map(|row| Self::read(&row)).transpose()
    }

    fn read(row: &Row) -> Result<Self, VerbError> {
        let Bits(id) = row.try_get(0)?;
        Ok(Self {
            id: RecordId::from_bits(id),
            key: row.try_get(1)?,
            account: row.try_get(2)?,
            token: Token(row.try_get(3)?),
            lease_until: Timestamp::from_millis(row.try_get(4)?),
            expires_at: Timestamp::from_millis(row.try_get(5)?),
            completed: read_completed(row.try_get(6)?, row.try_get(7)?)?,
            bytes: row.try_get(8)?,
        })
    }

    /// Whether it still means something.
    pub(super) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }

    /// Writes a claim that is taken now: in the place of one that was seen and locked, or where
    /// there is none. Whether it was written.
    pub(super) async fn write(
        connection: &mut Connection,
        taking: &Taking,
        id: RecordId,
        (lease_until, expires_at): (Timestamp, Timestamp),
        replaced: bool,
    ) -> Result<bool, VerbError> {
        let statement = if replaced {
            "UPDATE claims SET id = $3, account = $4, origin = $5, account_name = $6, \
             subject = $7, rule = $8, fingerprint = $9, token = $10, lease_until = $11, \
             expires_at = $12, checkpoint = $13, status = NULL, replayable = NULL, \
             remembered = NULL WHERE tenant = $1 AND key = $2"
        } else {
            "INSERT INTO claims (tenant, key, id, account, origin, account_name, subject, rule, \
             fingerprint, token, lease_until, expires_at, checkpoint) VALUES ($1, $2, $3, $4, $5, \
             $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (tenant, key) DO NOTHING"
        };
        let params: [&(dyn ToSql + Sync); 13] = [
            &taking.tenant.as_str(),
            &Bits::from(taking.key),
            &Bits::from(id),
            &Bits::from(taking.account),
            &taking.name.origin.as_str(),
            &holdable(&taking.name.account),
            &holdable(&taking.name.subject),
            &i16::from(taking.rule),
            &&taking.fingerprint.0[..],
            &taking.token.0,
            &lease_until.as_millis(),
            &expires_at.as_millis(),
            &taking.checkpoint,
        ];
        Ok(connection.execute(statement, &params).await? > 0)
    }

    /// Gives an open claim a new lease.
    pub(super) async fn renew(
        &self,
        connection: &mut Connection,
        tenant: &TenantId,
        terms: Terms,
        checkpoint: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<(), VerbError> {
        let lease_until = now + terms.lease;
        let expires_at = lease_until + terms.ttl;
        let statement = "UPDATE claims SET lease_until = $3, expires_at = $4, \
                         checkpoint = coalesce($5, checkpoint) WHERE tenant = $1 AND key = $2";
        let (lease_until, expires_at) = (lease_until.as_millis(), expires_at.as_millis());
        let params: [&(dyn ToSql + Sync); 5] =
            [&tenant.as_str(), &self.key, &lease_until, &expires_at, &checkpoint];
        connection.execute(statement, &params).await?;
        Ok(())
    }

    /// Keeps what is remembered of a claim that is finished; returns how many bytes more than
    /// before.
    pub(super) async fn finish(
        &mut self,
        connection: &mut Connection,
        tenant: &TenantId,
        (completed, remembered): (Completed, &[u8]),
        expires_at: Timestamp,
    ) -> Result<i64, VerbError> {
        self.completed = Some(completed);
        self.expires_at = expires_at;
        let statement = "UPDATE claims SET token = $3, expires_at = $4, status = $5, \
                         replayable = $6, checkpoint = NULL, remembered = $7 \
                         WHERE tenant = $1 AND key = $2";
        let params: [&(dyn ToSql + Sync); 7] = [
            &tenant.as_str(),
            &self.key,
            &self.token.0,
            &expires_at.as_millis(),
            &i32::from(completed.status),
            &completed.replayable,
            &remembered,
        ];
        connection.execute(statement, &params).await?;
        Ok(size(remembered.len()) - self.bytes)
    }

    /// Removes the claim.
    pub(super) async fn remove(
        &self,
        connection: &mut Connection,
        tenant: &TenantId,
    ) -> Result<(), VerbError> {
        let statement = "DELETE FROM claims WHERE tenant = $1 AND key = $2";
        connection.execute(statement, &[&tenant.as_str(), &self.key]).await?;
        Ok(())
    }
}

/// What is stored of a tenant's claim; `column` is what it is found by.
pub(super) async fn stored(
    connection: &mut Connection,
    tenant: &TenantId,
    (column, value): (&str, Bits),
) -> Result<Option<StoredClaim>, VerbError> {
    let statement = format!(
        "SELECT id, key, account, rule, fingerprint, token, lease_until, expires_at, checkpoint, \
         remembered FROM claims WHERE tenant = $1 AND {column} = $2"
    );
    let row = connection.first(&statement, &[&tenant.as_str(), &value]).await?;
    row.map(|row| read_stored(&row, tenant)).transpose()
}

fn read_stored(row: &Row, tenant: &TenantId) -> Result<StoredClaim, VerbError> {
    let (Bits(id), Bits(key), Bits(account)) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let id = RecordId::from_bits(id);
    let damaged = |what: &str| VerbError::Unusable(format!("the {what} of claim {id} is damaged"));
    let fingerprint: &[u8] = row.try_get(4)?;
    let state = match row.try_get::<_, Option<&[u8]>>(9)? {
        Some(bytes) => {
            ClaimState::Finished(Remembered::decode(bytes).map_err(|_| damaged("answer"))?)
        }
        None => ClaimState::Open {
            lease_until: Timestamp::from_millis(row.try_get(6)?),
            checkpoint: row.try_get(8)?,
        },
    };
    Ok(StoredClaim {
        id,
        tenant: tenant.clone(),
        key: KeyHash(key.to_be_bytes()),
        record: ClaimRecord {
            account: KeyHash(account.to_be_bytes()),
            rule: u8::try_from(row.try_get::<_, i16>(3)?).map_err(|_| damaged("rule"))?,
            fingerprint: Fingerprint(fingerprint.try_into().map_err(|_| damaged("fingerprint"))?),
            token: Token(row.try_get(5)?),
            expires_at: Timestamp::from_millis(row.try_get(7)?),
            state,
        },
    })
}
