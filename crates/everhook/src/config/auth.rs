//! The section `[auth]`.

use std::path::PathBuf;

use super::reader::Reader;
use super::rule;
use super::settings::path;

/// `[auth]`
#[derive(Clone, Debug)]
pub(crate) struct Auth {
    /// The file with the secret that HS256 tokens are signed with.
    pub(crate) jwt_hs256_secret_file: Option<PathBuf>,
    /// The file with the public half of the key that EdDSA tokens are signed with.
    pub(crate) jwt_ed25519_public_key_file: Option<PathBuf>,
}

/// Reads the section; `None` when a value is wrong.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Auth> {
    let secret = reader.read("auth.jwt_hs256_secret_file", &rule::optional(path()));
    let public = reader.read("auth.jwt_ed25519_public_key_file", &rule::optional(path()));
    Some(Auth { jwt_hs256_secret_file: secret?, jwt_ed25519_public_key_file: public? })
}
