//! JSON Web Tokens (RFC 7519) as credentials, made by somebody who holds a key that we know.
//!
//! A token is a compact JWS (RFC 7515 §7.1) with one signature: HS256 (RFC 7518 §3.2) under a
//! shared secret, or EdDSA with Ed25519 (RFC 8037 §3.1). Which keys there are decides what is
//! accepted, and never the token itself: `none` and every other algorithm is refused (RFC 8725
//! §3.1), and a public key is no secret to sign with. Nothing of a token is believed, or told,
//! before its signature fits.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Number;
use sha2::Sha256;

use super::{ACCOUNT_BYTES_MAX, ADMIN_ACCOUNT, Grant, Scope, Scopes};
use crate::ed25519;
use crate::tenant::TenantId;
use crate::time::Timestamp;

/// Fewest bytes of a shared secret: as many as the hash has (RFC 7518 §3.2).
pub const SECRET_BYTES_MIN: usize = 32;
/// A token that is longer is not looked at.
const TOKEN_BYTES_MAX: usize = 8_192;
/// How far the maker's clock may be ahead of ours, in seconds.
const AHEAD_S_MAX: i64 = 60;
/// What a public key for Ed25519 begins with as DER (RFC 8410 §4).
const SPKI: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PEM_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PEM_END: &str = "-----END PUBLIC KEY-----";

/// The keys that tokens are verified with. Without any, no token is accepted.
#[derive(Clone, Default)]
pub struct JwtKeys {
    secret: Option<Vec<u8>>,
    public: Option<Vec<u8>>,
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtKeys").finish_non_exhaustive()
    }
}

/// What was given is no key. It is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJwtKey {
    /// Fewer bytes could be guessed.
    #[error("it has fewer than {SECRET_BYTES_MIN} bytes")]
    Short,
    /// Whoever has it could sign.
    #[error("it is a private key: the public half belongs here")]
    Private,
    /// Something else.
    #[error("it is no public key for Ed25519 in PEM")]
    NoPublicKey,
}

/// Why a token is not accepted. Nothing of the token is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It has another form.
    #[error("it is not a JWT of three parts in base64url")]
    Malformed,
    /// Signed in another way than a key is set for.
    #[error("its algorithm is not one that a key is set for: HS256 or EdDSA")]
    Algorithm,
    /// It demands something that is not known here (RFC 7515 §4.1.11).
    #[error("it demands an extension in `crit`")]
    Critical,
    /// It was not signed with our key.
    #[error("its signature does not fit")]
    Signature,
    /// A claim is missing, or not what it must be.
    #[error("its {0}")]
    Claim(&'static str),
    /// It is over.
    #[error("it has expired (`exp`)")]
    Expired,
    /// It is not in force yet.
    #[error("it is not valid yet (`nbf`)")]
    Early,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    crit: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    tenant: Option<String>,
    scope: Option<String>,
    exp: Option<Number>,
    nbf: Option<Number>,
}

impl JwtKeys {
    /// With a secret that HS256 tokens are verified with.
    ///
    /// # Errors
    /// It is too short.
    pub fn with_secret(mut self, secret: &[u8]) -> Result<Self, InvalidJwtKey> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(InvalidJwtKey::Short);
        }
        self.secret = Some(secret.to_vec());
        Ok(self)
    }

    /// With a public key that EdDSA tokens are verified with: a `SubjectPublicKeyInfo` (RFC 8410)
    /// in PEM (RFC 7468 §13), as `openssl pkey -pubout` writes it.
    ///
    /// # Errors
    /// It is something else.
    pub fn with_public_key(mut self, pem: &str) -> Result<Self, InvalidJwtKey> {
        if pem.contains("PRIVATE KEY") {
            return Err(InvalidJwtKey::Private);
        }
        let (_, body) = pem.split_once(PEM_BEGIN).ok_or(InvalidJwtKey::NoPublicKey)?;
        let (body, _) = body.split_once(PEM_END).ok_or(InvalidJwtKey::NoPublicKey)?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| InvalidJwtKey::NoPublicKey)?;
        let key = der.strip_prefix(SPKI).filter(|key| key.len() == ed25519::KEY_BYTES);
        self.public = Some(key.ok_or(InvalidJwtKey::NoPublicKey)?.to_vec());
        Ok(self)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.secret.is_none() && self.public.is_none()
    }

    /// What a token grants at this time, by the clock on the wall.
    ///
    /// # Errors
    /// It grants nothing.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<Grant, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let signature = decoded(signature)?;
        let header: Header =
            serde_json::from_slice(&decoded(header)?).map_err(|_| JwtError::Malformed)?;
        let fits = match (header.alg.as_str(), &self.secret, &self.public) {
            ("HS256", Some(secret), _) => hs256_fits(secret, signed.as_bytes(), &signature),
            ("EdDSA", _, Some(key)) => ed25519::fits(key, signed.as_bytes(), &signature),
            _ => return Err(JwtError::Algorithm),
        };
        if !fits {
            return Err(JwtError::Signature);
        }
        if header.crit.is_some() {
            return Err(JwtError::Critical);
        }
        let claims = serde_json::from_slice(&decoded(claims)?)
            .map_err(|_| JwtError::Claim("claims are not those of a token for this API"))?;
        grant(claims, now)
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, JwtError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)
}

/// Compares in constant time.
fn hs256_fits(secret: &[u8], signed: &[u8], signature: &[u8]) -> bool {
    // A key may have any length (RFC 2104 §2), so there is always one.
    Hmac::<Sha256>::new_from_slice(secret)
        .is_ok_and(|mac| mac.chain_update(signed).verify_slice(signature).is_ok())
}

/// What claims grant that were signed.
fn grant(claims: Claims, now: Timestamp) -> Result<Grant, JwtError> {
    let exp = claims.exp.ok_or(JwtError::Claim("`exp` is missing: tokens must end"))?;
    let exp = seconds(&exp, "`exp` is not a whole number of seconds")?;
    if now.as_secs() >= exp {
        return Err(JwtError::Expired);
    }
    let nbf = claims.nbf.map(|nbf| seconds(&nbf, "`nbf` is not a whole number of seconds"));
    if nbf.transpose()?.is_some_and(|nbf| nbf > now.as_secs().saturating_add(AHEAD_S_MAX)) {
        return Err(JwtError::Early);
    }
    let account = claims.sub.ok_or(JwtError::Claim("`sub`, the account, is missing"))?;
    let fits = (1..=ACCOUNT_BYTES_MAX).contains(&account.len());
    if !fits || account.chars().any(char::is_control) {
        return Err(JwtError::Claim("`sub` must have 1 to 255 bytes without control characters"));
    }
    // Words separated by spaces (RFC 8693 §4.2); those of other services grant nothing here.
    let scope = claims.scope.ok_or(JwtError::Claim("`scope` is missing"))?;
    let scopes: Scopes = scope.split(' ').filter_map(Scope::from_word).collect();
    if scopes.is_empty() {
        return Err(JwtError::Claim("`scope` has none of events:write, read, manage and admin"));
    }
    let is_admin = scopes.has(Scope::Admin);
    if account == ADMIN_ACCOUNT && !is_admin {
        return Err(JwtError::Claim("`sub` is the admin's, and its `scope` is not"));
    }
    let tenant = match claims.tenant {
        // Whoever reaches every tenant is bound to none; a token that says both means one of them.
        Some(_) if is_admin => {
            return Err(JwtError::Claim("`tenant` stands beside the scope admin, which has all"));
        }
        None if is_admin => None,
        None => return Err(JwtError::Claim("`tenant` is missing")),
        Some(tenant) => {
            let tenant: Result<TenantId, _> = tenant.parse();
            Some(tenant.map_err(|_| JwtError::Claim("`tenant` is no tenant's id"))?)
        }
    };
    Ok(Grant { account: Arc::from(account), scopes, tenant })
}

/// A `NumericDate` (RFC 7519 §2) without a fraction.
fn seconds(date: &Number, wrong: &'static str) -> Result<i64, JwtError> {
    date.as_i64().ok_or(JwtError::Claim(wrong))
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    const SECRET: &[u8] = b"a secret of thirty-two bytes, at least";
    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn encoded(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    fn hs256(secret: &[u8], header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
        let mac = mac.chain_update(&signed).finalize().into_bytes();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
    }

    fn keys() -> JwtKeys {
        JwtKeys::default().with_secret(SECRET).expect("long enough")
    }

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
    const CLAIMS: &str = r#"{"sub":"shop","tenant":"acme","scope":"read events:write","exp":1001}"#;

    #[test]
    fn a_token_grants_what_it_says() {
        let grant = keys().verify(&hs256(SECRET, HEADER, CLAIMS), NOW).expect("genuine");
        assert_eq!(&*grant.account, "shop");
        assert_eq!(grant.tenant, "acme".parse().ok());
        assert_eq!(grant.scopes.to_string(), "events:write read");
        let admin = r#"{"sub":"admin","scope":"admin openid","exp":1001,"iat":1,"aud":"x"}"#;
        let grant = keys().verify(&hs256(SECRET, HEADER, admin), NOW).expect("genuine");
        assert_eq!((grant.tenant, grant.scopes.to_string()), (None, "admin".to_owned()));
    }

    /// RFC 7515 A.1 and RFC 8037 A.4: signatures made by others.
    #[test]
    fn signatures_of_the_standards_fit() {
        let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAz\
                      Zr1Z9CAow";
        let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4\
                     MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K\
                     27uhbUJU1p1r_wW1gFWFOEjXk";
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let secret = URL_SAFE_NO_PAD.decode(secret).expect("base64url");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
        assert!(hs256_fits(&secret, signed.as_bytes(), &signature));

        let key = URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
        let signature = URL_SAFE_NO_PAD
            .decode(
                "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_Mu\
                 M0KAg",
            )
            .expect("base64url");
        let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        assert!(ed25519::fits(&key.expect("base64url"), signed, &signature));
    }

    #[test]
    fn what_grants_nothing() {
        use JwtError::{Algorithm, Claim, Critical, Early, Expired, Malformed, Signature};
        let with = |claims: &str| hs256(SECRET, HEADER, claims);
        let none = format!("{}.{}.", encoded(r#"{"alg":"none"}"#), encoded(CLAIMS));
        for (token, expected) in [
            (none, Algorithm),
            (hs256(SECRET, r#"{"alg":"HS512"}"#, CLAIMS), Algorithm),
            (hs256(SECRET, r#"{"alg":"hs256"}"#, CLAIMS), Algorithm),
            (hs256(SECRET, r#"{"alg":"EdDSA"}"#, CLAIMS), Algorithm),
            (hs256(b"another secret of thirty-two bytes", HEADER, CLAIMS), Signature),
            (hs256(SECRET, HEADER, CLAIMS) + "A", Signature),
            (hs256(SECRET, HEADER, CLAIMS) + ".AA", Signature),
            (hs256(SECRET, HEADER, CLAIMS).replace('.', ""), Malformed),
            (hs256(SECRET, r#"{"alg":"HS256","alg":"none"}"#, CLAIMS), Malformed),
            (hs256(SECRET, r#"{"alg":"HS256","crit":["b64"],"b64":false}"#, CLAIMS), Critical),
            ("a.b.c".to_owned(), Malformed),
            (String::new(), Malformed),
            (with(r#"{"sub":"a","tenant":"b","scope":"read","exp":1000}"#), Expired),
            (with(r#"{"sub":"a","tenant":"b","scope":"read","exp":2000,"nbf":1061}"#), Early),
            (
                with(r#"{"sub":"a","tenant":"b","scope":"read"}"#),
                Claim("`exp` is missing: tokens must end"),
            ),
            (
                with(r#"{"sub":"a","tenant":"b","scope":"read","exp":1001.5}"#),
                Claim("`exp` is not a whole number of seconds"),
            ),
            (with(r#"{"sub":"a","scope":"read","exp":1001}"#), Claim("`tenant` is missing")),
            (
                with(r#"{"sub":"a","tenant":"B","scope":"read","exp":1001}"#),
                Claim("`tenant` is no tenant's id"),
            ),
            (
                with(r#"{"tenant":"b","scope":"read","exp":1001}"#),
                Claim("`sub`, the account, is missing"),
            ),
            (with(r#"{"sub":"a","tenant":"b","exp":1001}"#), Claim("`scope` is missing")),
            (
                with(r#"{"sub":"a","tenant":"b","scope":"openid","exp":1001}"#),
                Claim("`scope` has none of events:write, read, manage and admin"),
            ),
            (
                with(r#"{"sub":"admin","tenant":"b","scope":"read","exp":1001}"#),
                Claim("`sub` is the admin's, and its `scope` is not"),
            ),
            (
                with(r#"{"sub":"a","tenant":"b","scope":"admin","exp":1001}"#),
                Claim("`tenant` stands beside the scope admin, which has all"),
            ),
            (
                with(r#"{"exp":1001,"exp":9999}"#),
                Claim("claims are not those of a token for this API"),
            ),
        ] {
            assert_eq!(keys().verify(&token, NOW), Err(expected), "{token}");
        }
        assert!(keys().verify(&(".".repeat(TOKEN_BYTES_MAX + 1)), NOW).is_err());
    }

    #[test]
    fn a_public_key_is_no_secret_to_sign_with() {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("random");
        let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).expect("just made");
        let public = pair.public_key().as_ref();
        let pem = STANDARD.encode([SPKI, public].concat());
        let pem = format!("{PEM_BEGIN}\n{pem}\n{PEM_END}\n");
        let keys = JwtKeys::default().with_public_key(&pem).expect("a key");

        let signed = format!("{}.{}", encoded(r#"{"alg":"EdDSA"}"#), encoded(CLAIMS));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        let token = format!("{signed}.{signature}");
        assert!(keys.verify(&token, NOW).is_ok());
        let other = format!("{}.{}", encoded(r#"{"alg":"EdDSA"}"#), encoded(r#"{"exp":9999}"#));
        let other = format!("{other}.{signature}");
        assert_eq!(keys.verify(&other, NOW), Err(JwtError::Signature));
        for secret in [public, pem.as_bytes()] {
            let forged = hs256(secret, HEADER, CLAIMS);
            assert_eq!(keys.verify(&forged, NOW), Err(JwtError::Algorithm));
            let both = keys.clone().with_secret(SECRET).expect("long enough");
            assert_eq!(both.verify(&forged, NOW), Err(JwtError::Signature));
        }
        assert_eq!(JwtKeys::default().verify(&token, NOW), Err(JwtError::Algorithm));
    }

    #[test]
    fn what_is_no_key() {
        let no_public = |pem: &str| JwtKeys::default().with_public_key(pem).expect_err("no key");
        let private = "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----";
        assert_eq!(no_public(private), InvalidJwtKey::Private);
        assert_eq!(no_public(""), InvalidJwtKey::NoPublicKey);
        let short = format!("{PEM_BEGIN}\n{}\n{PEM_END}", STANDARD.encode(SPKI));
        assert_eq!(no_public(&short), InvalidJwtKey::NoPublicKey);
        let weak = JwtKeys::default().with_secret(&[7; SECRET_BYTES_MIN - 1]);
        assert_eq!(weak.expect_err("weak"), InvalidJwtKey::Short);
        assert!(JwtKeys::default().is_empty() && !keys().is_empty());
        assert!(!format!("{:?}", keys()).contains("secret of"));
    }
}
