//! An idempotency claim: how a verb runs once for a key.

use std::fmt;
use std::sync::Arc;

use everhook_domain::idempotency::{Answer, Fingerprint};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;

/// Turns a verb's result into the answer that is remembered. Pure: a store may call it twice.
pub type Render<T> = Arc<dyn Fn(&T) -> Answer + Send + Sync>;

/// A key that the verb's effect is to be remembered under.
///
/// The record commits in the same transaction as the effect: either both are there or neither. A
/// refused or failed verb leaves no record, so the key is free again. The record's lifetime is the
/// store's [`StorePolicy::idempotency_ttl`](crate::StorePolicy).
pub struct Claim<T> {
    /// Whose the record is: it goes with the tenant. One that does not exist is refused.
    pub tenant: TenantId,
    /// The hashed key, with tenant, account, method and path in it.
    pub key: KeyHash,
    /// The account that the record is counted with; of one key always the same.
    pub account: KeyHash,
    /// The account's name, as it is shown.
    pub account_name: Arc<str>,
    /// What the verb is, as it is shown: method and path without its query.
    pub subject: String,
    /// What a second use of the key is compared by.
    pub fingerprint: Fingerprint,
    /// Makes the answer: only the caller knows status codes, yet the bytes commit with the effect.
    pub render: Render<T>,
}

impl<T> Clone for Claim<T> {
    fn clone(&self) -> Self {
        Self {
            tenant: self.tenant.clone(),
            key: self.key,
            account: self.account,
            account_name: Arc::clone(&self.account_name),
            subject: self.subject.clone(),
            fingerprint: self.fingerprint,
            render: Arc::clone(&self.render),
        }
    }
}

impl<T> fmt::Debug for Claim<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What a verb under a claim came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed<T> {
    /// The verb ran now.
    Done(T),
    /// It ran before under this key: this was answered.
    Replayed(Answer),
    /// The key was used for another request: nothing was done.
    Mismatch,
    /// The account has as many keys, or as many bytes of answers, as it may have
    /// ([`StorePolicy::idempotency_quota`](crate::StorePolicy)): nothing was done.
    OverQuota,
}

impl<T> Claimed<T> {
    /// The result, where no claim was made or the verb ran now.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Replayed(_) | Self::Mismatch | Self::OverQuota => None,
        }
    }
}
