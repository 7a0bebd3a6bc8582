//! MACs, their spellings, and their comparison in constant time.

use base64::Engine;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use crate::secret::BASE64;

/// The most signatures of one header that are looked at.
pub(super) const SIGNATURES_MAX: usize = 32;

/// HMAC-SHA256 (RFC 2104, RFC 6234) of the parts, one after the other.
pub(super) fn sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .unwrap_or_else(|_| Hmac::<Sha256>::new(&[0; 64].into()));
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Whether one of the signatures is one of the expected MACs. The time taken does not depend on how
/// close a wrong one is to a right one.
pub(super) fn any_fits(signatures: &[Vec<u8>], expected: &[impl AsRef<[u8]>]) -> bool {
    let mut fits = Choice::from(0);
    for signature in signatures {
        for mac in expected {
            fits |= signature.ct_eq(mac.as_ref());
        }
    }
    fits.into()
}

/// The bytes of a hexadecimal text, in either case.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 1_024 {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok();
    digits.chunks_exact(2).map(byte).collect()
}

/// The bytes of a text in standard base64, with or without padding.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}
