//! The keys that JWTs are verified with: read from their files at start.

use everhook_domain::access::jwt::JwtKeys;

use crate::config::Auth;
use crate::exit::Failure;
use crate::key_file::{self, Kept};

/// The keys of this configuration.
///
/// # Errors
/// A file cannot be read, a secret one can be read by others, or it holds no key. What it holds is
/// not repeated.
pub(crate) fn load(auth: &Auth) -> Result<JwtKeys, Failure> {
    let mut keys = JwtKeys::default();
    if let Some(path) = &auth.jwt_hs256_secret_file {
        let bytes = key_file::read(path, "the secret for JWTs", Kept::Secret)?;
        // What ends a line is no part of what was written into it.
        keys = keys.with_secret(bytes.trim_ascii_end()).map_err(|error| {
            let shown = path.display();
            Failure::usage(format!(
                "{shown} does not hold a secret for JWTs: {error}. Make one with `openssl rand \
                 -base64 48`; its characters are the secret, as they stand there"
            ))
        })?;
    }
    if let Some(path) = &auth.jwt_ed25519_public_key_file {
        let bytes = key_file::read(path, "the public key for JWTs", Kept::Public)?;
        let pem = String::from_utf8_lossy(&bytes);
        keys = keys.with_public_key(&pem).map_err(|error| {
            let shown = path.display();
            Failure::usage(format!(
                "{shown} does not hold a public key for JWTs: {error}. `openssl pkey -in \
                 private.pem -pubout` writes the public half of a key for Ed25519"
            ))
        })?;
    }
    Ok(keys)
}
