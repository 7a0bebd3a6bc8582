//! Who may do what: scopes, and what a request's credentials let it do.
//!
//! Every credential comes down to a [`Grant`]: an account, its scopes and its tenant. What lets a
//! grant in is decided here alone; the web names the scope of each route, and finds the grant.

pub mod jwt;

use std::fmt;
use std::sync::Arc;

use crate::tenant::TenantId;

/// The account of the admin token, which stays the same when the token changes. Nobody else's may
/// have this name.
pub const ADMIN_ACCOUNT: &str = "admin";
/// Longest name of an account, in bytes.
pub const ACCOUNT_BYTES_MAX: usize = 255;

/// What a credential may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// To do a service's daily work: publish events, change conversations, claim keys.
    EventsWrite,
    /// To see everything of its tenant.
    Read,
    /// To see and to decide: endpoints, sources, replays.
    Manage,
    /// Everything, in every tenant.
    Admin,
}

impl Scope {
    /// Every scope, the least first.
    pub const ALL: [Self; 4] = [Self::EventsWrite, Self::Read, Self::Manage, Self::Admin];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EventsWrite => "events:write",
            Self::Read => "read",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }

    /// The scope of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The scopes any of which is enough where this one is needed.
    const fn enough(self) -> u8 {
        match self {
            Self::EventsWrite => Self::EventsWrite.bit() | Self::Admin.bit(),
            Self::Read => Self::Read.bit() | Self::Manage.bit() | Self::Admin.bit(),
            Self::Manage => Self::Manage.bit() | Self::Admin.bit(),
            Self::Admin => Self::Admin.bit(),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Several scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether these let a request in where this scope is needed: `admin` is enough everywhere, and
    /// who may `manage` may `read`.
    pub const fn allow(self, needed: Scope) -> bool {
        self.0 & needed.enough() != 0
    }

    /// Whether this very scope is one of them.
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes, the least first.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.has(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | scope.bit()))
    }
}

/// The words, with a space between two.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(Scope::as_str).collect();
        f.write_str(&words.join(" "))
    }
}

/// What credentials come down to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What idempotency keys are scoped by; survives the rotation of credentials.
    pub account: Arc<str>,
    /// What it may do.
    pub scopes: Scopes,
    /// The tenant that it is bound to; none for one that reaches all.
    pub tenant: Option<TenantId>,
}

/// The request is about another tenant than the one that its credentials are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("these credentials are for another tenant than the one in the header Everhook-Tenant")]
pub struct ForeignTenant;

impl Grant {
    /// The tenant that a request with this grant is about, where it names that one, or none.
    ///
    /// # Errors
    /// It names another one than the grant's own.
    pub fn tenant_of(&self, named: Option<TenantId>) -> Result<TenantId, ForeignTenant> {
        match (&self.tenant, named) {
            (None, named) => Ok(named.unwrap_or_else(TenantId::default_tenant)),
            (Some(own), None) => Ok(own.clone()),
            (Some(own), Some(named)) if *own == named => Ok(named),
            (Some(_), Some(_)) => Err(ForeignTenant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_for_what() {
        use Scope::{Admin, EventsWrite, Manage, Read};
        for (has, lets_in) in [
            (EventsWrite, &[EventsWrite][..]),
            (Read, &[Read]),
            (Manage, &[Read, Manage]),
            (Admin, &[EventsWrite, Read, Manage, Admin]),
        ] {
            let scopes: Scopes = [has].into_iter().collect();
            let found: Vec<_> = Scope::ALL.into_iter().filter(|need| scopes.allow(*need)).collect();
            assert_eq!(found, lets_in, "{has}");
            assert_eq!(Scope::from_word(has.as_str()), Some(has));
            assert_eq!(scopes.to_string(), has.as_str());
        }
        let both: Scopes = [Manage, EventsWrite].into_iter().collect();
        assert_eq!(both.to_string(), "events:write manage");
        assert!(both.allow(Read) && !both.has(Read));
        assert!(!Scopes::default().allow(Read) && Scopes::default().is_empty());
    }

    #[test]
    fn a_grant_reaches_its_own_tenant_only() {
        let id = |text: &str| text.parse::<TenantId>().expect("legal");
        let mut grant =
            Grant { account: Arc::from("a"), scopes: Scopes::default(), tenant: Some(id("own")) };
        assert_eq!(grant.tenant_of(None), Ok(id("own")));
        assert_eq!(grant.tenant_of(Some(id("own"))), Ok(id("own")));
        assert_eq!(grant.tenant_of(Some(id("other"))), Err(ForeignTenant));
        assert_eq!(grant.tenant_of(Some(id("default"))), Err(ForeignTenant));
        grant.tenant = None;
        assert_eq!(grant.tenant_of(None), Ok(id("default")));
        assert_eq!(grant.tenant_of(Some(id("other"))), Ok(id("other")));
    }
}
