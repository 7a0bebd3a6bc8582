//! Who asks: credentials to [`Caller`]. What later kinds of credentials (tokens, JWTs) say goes
//! through the same door.

use std::sync::Arc;

use everhook_domain::tenant::TenantId;
use http::{HeaderMap, HeaderName, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::{Problem, ProblemKind};

/// Chooses the tenant of an admin's request.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("everhook-tenant");
/// The account of the admin token: it stays the same when the token changes.
const ADMIN_ACCOUNT: &str = "admin";

/// Who asks, and for which tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What idempotency keys are scoped by; survives the rotation of credentials.
    pub account: Arc<str>,
    /// Whose things the request sees. Not yet known to exist.
    pub tenant: TenantId,
}

/// What is accepted as credentials.
#[derive(Clone)]
pub struct Access {
    admin_token_sha256: [u8; 32],
    admin_account: Arc<str>,
    default_tenant: TenantId,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Accepts the admin token whose SHA-256 this is.
    pub fn new(admin_token_sha256: [u8; 32]) -> Self {
        Self {
            admin_token_sha256,
            admin_account: Arc::from(ADMIN_ACCOUNT),
            default_tenant: TenantId::default_tenant(),
        }
    }

    /// Reads the credentials of a request. Tokens are compared by their hashes, in constant time.
    ///
    /// # Errors
    /// `unauthorized`; `invalid-header` for a tenant header that is no tenant's id.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let token = bearer(headers)?;
        let hash: [u8; 32] = Sha256::digest(token).into();
        if !bool::from(hash.ct_eq(&self.admin_token_sha256)) {
            return Err(unauthorized("the token is not known"));
        }
        let mut named = headers.get_all(TENANT_HEADER).iter();
        let tenant = match (named.next(), named.next()) {
            (None, _) => self.default_tenant.clone(),
            (Some(name), None) => {
                name.to_str().ok().and_then(|name| name.parse().ok()).ok_or_else(|| {
                    let detail = "Everhook-Tenant must be 1 to 64 characters of a-z, 0-9, _ and -";
                    Problem::new(ProblemKind::InvalidHeader, detail)
                })?
            }
            (Some(_), Some(_)) => {
                let detail = "more than one Everhook-Tenant header was sent; send at most one";
                return Err(Problem::new(ProblemKind::InvalidHeader, detail));
            }
        };
        Ok(Caller { account: Arc::clone(&self.admin_account), tenant })
    }
}

/// The token of a bearer authorization (RFC 6750 §2.1); the scheme's case does not matter
/// (RFC 9110 §11.1).
fn bearer(headers: &HeaderMap) -> Result<&[u8], Problem> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.as_bytes(),
        (None, _) => return Err(unauthorized("send the header 'Authorization: Bearer <token>'")),
        (Some(_), Some(_)) => {
            return Err(unauthorized("send one Authorization header, not several"));
        }
    };
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Ok(token.trim_ascii()),
        Some(_) | None => Err(unauthorized("the Authorization header must be 'Bearer <token>'")),
    }
}

fn unauthorized(detail: &'static str) -> Problem {
    Problem::new(ProblemKind::Unauthorized, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(headers: &[(&str, &str)], expected: Result<&str, ProblemKind>) {
        let access = Access::new(Sha256::digest(b"the token").into());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("legal");
            map.append(name, HeaderValue::from_str(value).expect("legal"));
        }
        let found = access.authenticate(&map);
        let found = found.as_ref().map(|caller| caller.tenant.as_str()).map_err(Problem::kind);
        assert_eq!(found, expected, "{headers:?}");
    }

    #[test]
    fn credentials() {
        use ProblemKind::{InvalidHeader, Unauthorized};
        let good = ("authorization", "Bearer the token");
        check(&[good], Ok("default"));
        check(&[("authorization", "bEARER  the token ")], Ok("default"));
        check(&[good, ("everhook-tenant", "acme")], Ok("acme"));
        check(&[good, ("everhook-tenant", "Acme")], Err(InvalidHeader));
        check(&[good, ("everhook-tenant", "")], Err(InvalidHeader));
        check(&[good, ("everhook-tenant", "a"), ("everhook-tenant", "a")], Err(InvalidHeader));
        check(&[], Err(Unauthorized));
        check(&[good, good], Err(Unauthorized));
        check(&[("authorization", "Bearer other")], Err(Unauthorized));
        check(&[("authorization", "Bearer ")], Err(Unauthorized));
        check(&[("authorization", "Bearer")], Err(Unauthorized));
        check(&[("authorization", "Basic the token")], Err(Unauthorized));
        check(&[("authorization", "the token")], Err(Unauthorized));
        check(&[("everhook-tenant", "Acme")], Err(Unauthorized));
    }
}
