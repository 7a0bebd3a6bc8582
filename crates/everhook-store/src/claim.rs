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
}

impl<T> Claimed<T> {
    /// The result, where no claim was made or the verb ran now.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(value) => Some(value),
            Self::Replayed(_) | Self::Mismatch => None,
        }
    }
}
