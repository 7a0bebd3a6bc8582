//! What a key is unique within.

use super::IdempotencyKey;
use crate::key::{KeyHash, KeySpace};
use crate::tenant::TenantId;

/// Tenant, account, method, and path with query as they were sent. Another one of these is another
/// key, so nobody meets an answer that was another account's, or another operation's.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The isolation unit.
    pub tenant: &'a TenantId,
    /// Who asks, by a name that stays when a credential is replaced.
    pub account: &'a str,
    /// The method.
    pub method: &'a str,
    /// The path with its query.
    pub target: &'a str,
}

impl Scope<'_> {
    /// What the record of this key is kept under.
    pub fn key(&self, key: &IdempotencyKey) -> KeyHash {
        let scope = [self.account.as_bytes(), self.method.as_bytes(), self.target.as_bytes()];
        KeyHash::new(KeySpace::Idempotency, self.tenant, &scope, key.as_str().as_bytes())
    }

    /// What the keys of this account are counted under.
    pub fn account(&self) -> KeyHash {
        KeyHash::new(KeySpace::IdempotencyAccount, self.tenant, &[], self.account.as_bytes())
    }
}

/// What a key of the claim API is unique within: tenant, account, and a scope of the caller's own.
#[derive(Clone, Copy, Debug)]
pub struct ClaimScope<'a> {
    /// The isolation unit.
    pub tenant: &'a TenantId,
    /// Who asks, by a name that stays when a credential is replaced.
    pub account: &'a str,
    /// What the work is, in the caller's words.
    pub scope: &'a str,
}

impl ClaimScope<'_> {
    /// What the claim of this key is kept under.
    pub fn key(&self, key: &str) -> KeyHash {
        let scope = [self.account.as_bytes(), self.scope.as_bytes()];
        KeyHash::new(KeySpace::Claim, self.tenant, &scope, key.as_bytes())
    }

    /// What the claims of this account are counted under, apart from its other keys; and what tells
    /// its claims from those of others.
    pub fn account(&self) -> KeyHash {
        let account = self.account.as_bytes();
        KeyHash::new(KeySpace::IdempotencyAccount, self.tenant, &[b"claims"], account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_claims_scope_makes_another_key() {
        let (tenant, other) = (TenantId::default_tenant(), "b".parse().expect("legal"));
        let scope = ClaimScope { tenant: &tenant, account: "a", scope: "s" };
        let scopes = [
            scope,
            ClaimScope { tenant: &other, ..scope },
            ClaimScope { account: "b", ..scope },
            ClaimScope { scope: "t", ..scope },
            ClaimScope { account: "as", scope: "", ..scope },
        ];
        for (i, one) in scopes.iter().enumerate() {
            assert_ne!(one.key("k"), one.key("K"));
            for other in &scopes[i + 1..] {
                assert_ne!(one.key("k"), other.key("k"));
            }
        }
        assert_ne!(scopes[0].key("xk"), ClaimScope { scope: "sx", ..scope }.key("k"));
        assert_eq!(scopes[0].account(), scopes[3].account());
        assert_ne!(scopes[0].account(), scopes[1].account());
        assert_ne!(scopes[0].account(), scopes[2].account());
        let keys = Scope { tenant: &tenant, account: "a", method: "POST", target: "/" };
        assert_ne!(scopes[0].account(), keys.account());
    }

    #[test]
    fn every_part_of_the_scope_makes_another_key() {
        let key = IdempotencyKey::parse(b"k").expect("legal");
        let (tenant, other) = (TenantId::default_tenant(), "b".parse().expect("legal"));
        let scope = Scope { tenant: &tenant, account: "a", method: "POST", target: "/x?q=1" };
        let scopes = [
            scope,
            Scope { tenant: &other, ..scope },
            Scope { account: "b", ..scope },
            Scope { method: "PUT", ..scope },
            Scope { target: "/y?q=1", ..scope },
            Scope { target: "/x?q=2", ..scope },
            Scope { account: "aPOST", method: "", ..scope },
        ];
        for (i, one) in scopes.iter().enumerate() {
            for other in &scopes[i + 1..] {
                assert_ne!(one.key(&key), other.key(&key));
            }
        }
        assert_eq!(scopes[0].account(), scopes[3].account());
        assert_ne!(scopes[0].account(), scopes[2].account());
        assert_ne!(scopes[0].account(), scopes[1].account());
    }
}
