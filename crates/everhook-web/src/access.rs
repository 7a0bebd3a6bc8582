//! Who asks: credentials, which are the admin token or a JWT, to [`Caller`].

use std::sync::Arc;

use everhook_domain::access::jwt::JwtKeys;
use everhook_domain::access::{ADMIN_ACCOUNT, Grant, Scope, Scopes};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use http::{HeaderMap, HeaderName, header};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::problem::{Problem, ProblemKind};

/// Chooses the tenant of a request whose credentials are bound to none.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("everhook-tenant");

/// Who asks, and for which tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What idempotency keys are scoped by; survives the rotation of credentials.
    pub account: Arc<str>,
    /// Whose things the request sees. Not yet known to exist.
    pub tenant: TenantId,
    /// What it may do.
    pub scopes: Scopes,
}

/// What is accepted as credentials.
#[derive(Clone)]
pub struct Access {
    admin_token_sha256: [u8; 32],
    admin: Grant,
    jwt: JwtKeys,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Accepts the admin token whose SHA-256 this is.
    pub fn new(admin_token_sha256: [u8; 32]) -> Self {
        let admin = Grant {
            account: Arc::from(ADMIN_ACCOUNT),
            scopes: [Scope::Admin].into_iter().collect(),
            tenant: None,
        };
        Self { admin_token_sha256, admin, jwt: JwtKeys::default() }
    }

    /// Accepts JWTs too that fit these keys.
    #[must_use]
    pub fn with_jwt(self, jwt: JwtKeys) -> Self {
        Self { jwt, ..self }
    }

    /// Reads the credentials of a request that comes at this time, by the clock on the wall. Tokens
    /// are compared by their hashes, in constant time.
    ///
    /// # Errors
    /// `unauthorized`; `invalid-header` for a tenant header that is no tenant's id; `forbidden` for
    /// one that names another tenant than the credentials do.
    pub fn authenticate(&self, headers: &HeaderMap, now: Timestamp) -> Result<Caller, Problem> {
        let grant = self.grant(bearer(headers)?, now)?;
        let tenant = grant
            .tenant_of(named_tenant(headers)?)
            .map_err(|foreign| Problem::new(ProblemKind::Forbidden, foreign.to_string()))?;
        Ok(Caller { account: grant.account, tenant, scopes: grant.scopes })
    }

    fn grant(&self, token: &[u8], now: Timestamp) -> Result<Grant, Problem> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if hash.ct_eq(&self.admin_token_sha256).into() {
            return Ok(self.admin.clone());
        }
        // Two dots make a JWT, which no token of ours has.
        match std::str::from_utf8(token) {
            Ok(token) if !self.jwt.is_empty() && token.split('.').count() == 3 => {
                self.jwt.verify(token, now).map_err(|error| {
                    let detail = format!("the JWT is not accepted: {error}");
                    Problem::new(ProblemKind::Unauthorized, detail)
                })
            }
            _ => Err(unauthorized("the token is not known")),
        }
    }
}

/// The tenant that the request names, if it names one.
fn named_tenant(headers: &HeaderMap) -> Result<Option<TenantId>, Problem> {
    let mut named = headers.get_all(TENANT_HEADER).iter();
    match (named.next(), named.next()) {
        (None, _) => Ok(None),
        (Some(name), None) => {
            let tenant = name.to_str().ok().and_then(|name| name.parse().ok());
            tenant.map(Some).ok_or_else(|| {
                let detail = "Everhook-Tenant must be 1 to 64 characters of a-z, 0-9, _ and -";
                Problem::new(ProblemKind::InvalidHeader, detail)
            })
        }
        (Some(_), Some(_)) => {
            let detail = "more than one Everhook-Tenant header was sent; send at most one";
            Err(Problem::new(ProblemKind::InvalidHeader, detail))
        }
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
        let found = access.authenticate(&map, Timestamp::default());
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
