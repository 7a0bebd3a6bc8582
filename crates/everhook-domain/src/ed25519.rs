//! Ed25519 signatures (RFC 8032).

use ring::signature::{ED25519, UnparsedPublicKey};

/// Bytes of a public key.
pub(crate) const KEY_BYTES: usize = 32;

/// Whether the signature over the message was made with the private half of this key. One of
/// another length fits nothing.
pub(crate) fn fits(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}
