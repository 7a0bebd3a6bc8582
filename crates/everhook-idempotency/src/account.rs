//! Who asks: keys of one account mean nothing to another.

use std::fmt;
use std::sync::Arc;

use everhook_domain::tenant::TenantId;
use http::request::Parts;

/// Whose keys they are. It must come from what was *verified* (a token that was checked, a
/// session), never from what a client merely claims, or one client reads another's answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    /// The isolation unit.
    pub tenant: TenantId,
    /// A name that stays when a credential is replaced: a user's id, not a token.
    pub id: String,
}

impl Account {
    /// An account of the one tenant of a service that has no tenants.
    pub fn new(id: impl Into<String>) -> Self {
        Self { tenant: TenantId::default_tenant(), id: id.into() }
    }

    /// The same account name in a tenant.
    #[must_use]
    pub fn in_tenant(self, tenant: TenantId) -> Self {
        Self { tenant, ..self }
    }
}

/// Finds the account of a request.
#[derive(Clone)]
pub struct AccountOf(Arc<Find>);

type Find = dyn Fn(&Parts) -> Option<Account> + Send + Sync;

impl fmt::Debug for AccountOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountOf(…)")
    }
}

impl AccountOf {
    /// By a function of the request's head; `None` refuses a request that carries a key (400).
    pub fn request(find: impl Fn(&Parts) -> Option<Account> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }

    /// By what an authenticating layer outside this one put into the request's extensions.
    pub fn extension<T: Clone + Send + Sync + 'static>(
        account: impl Fn(&T) -> Account + Send + Sync + 'static,
    ) -> Self {
        Self::request(move |parts| parts.extensions.get::<T>().map(&account))
    }

    /// One account for everybody: for a service with one user, or where keys are no secrets of one
    /// user from another. Whoever guesses a key here reads its answer.
    pub fn everybody() -> Self {
        Self::request(|_| Some(Account::new("")))
    }

    pub(crate) fn find(&self, parts: &Parts) -> Option<Account> {
        (self.0)(parts)
    }
}
