//! A record as the databases hold it: columns of bytes and numbers.

use everhook_domain::idempotency::Fingerprint;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{ClaimRecord, ClaimState, Token};
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;

use super::StoreError;

/// The columns of one key.
pub(super) struct Row {
    pub(super) account: Vec<u8>,
    pub(super) rule: i64,
    pub(super) fingerprint: Vec<u8>,
    pub(super) token: i64,
    pub(super) lease_until: i64,
    pub(super) expires_at: i64,
    pub(super) checkpoint: Option<Vec<u8>>,
    /// Missing while the claim is open.
    pub(super) remembered: Option<Vec<u8>>,
}

impl Row {
    pub(super) fn record(self) -> Result<ClaimRecord, StoreError> {
        let broken = |what| StoreError(format!("a stored {what} cannot be read"));
        let state = match self.remembered {
            Some(bytes) => {
                ClaimState::Finished(Remembered::decode(&bytes).map_err(StoreError::new)?)
            }
            None => ClaimState::Open {
                lease_until: Timestamp::from_millis(self.lease_until),
                checkpoint: self.checkpoint,
            },
        };
        let fingerprint = self.fingerprint.try_into().map_err(|_| broken("fingerprint"))?;
        Ok(ClaimRecord {
            account: key(self.account)?,
            rule: u8::try_from(self.rule).map_err(|_| broken("rule"))?,
            fingerprint: Fingerprint(fingerprint),
            token: Token(self.token),
            expires_at: Timestamp::from_millis(self.expires_at),
            state,
        })
    }
}

/// Reads a stored key.
pub(super) fn key(bytes: Vec<u8>) -> Result<KeyHash, StoreError> {
    let bytes = bytes.try_into();
    bytes.map(KeyHash).map_err(|_| StoreError("a stored key cannot be read".to_owned()))
}
