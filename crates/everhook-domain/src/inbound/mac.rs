//! MACs, their spellings, and their comparison in constant time.

use base64::Engine;
use hmac::digest::block_api::EagerHash;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq};

use super::Rejection;
use crate::secret::BASE64;

/// The most entries of one header that are looked at.
pub(super) const SIGNATURES_MAX: usize = 32;

/// How a MAC is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// Hexadecimal, in either case.
    Hex,
    /// Standard base64, with or without padding.
    Base64,
}

impl Spelling {
    /// The bytes of a text.
    pub(super) fn read(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Hex => from_hex(text),
            Self::Base64 => from_base64(text),
        }
    }

    /// What people call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }
}

/// HMAC-SHA1 (RFC 2104) of the parts, one after the other.
pub(super) fn sha1(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    of::<Sha1>(key, parts).finalize().into_bytes().into()
}

/// HMAC-SHA256 (RFC 2104, RFC 6234) of the parts, one after the other.
pub(super) fn sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    of::<Sha256>(key, parts).finalize().into_bytes().into()
}

/// HMAC-SHA512 (RFC 2104, RFC 6234) of the parts, one after the other.
pub(super) fn sha512(key: &[u8], parts: &[&[u8]]) -> [u8; 64] {
    of::<Sha512>(key, parts).finalize().into_bytes().into()
}

fn of<D: Digest + EagerHash>(key: &[u8], parts: &[&[u8]]) -> Hmac<D> {
    // A key as long as a block or shorter, padded with zeros, is the same key; of a longer one the
    // hash is the key (RFC 2104 §2).
    let mut block = hmac::digest::Key::<Hmac<D>>::default();
    let put = |block: &mut [u8], key: &[u8]| {
        block.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
    };
    if key.len() > block.len() {
        put(&mut block, &D::digest(key));
    } else {
        put(&mut block, key);
    }
    let mut mac = Hmac::<D>::new(&block);
    parts.iter().for_each(|part| mac.update(part));
    mac
}

/// Verifies that one of the signatures is one of the expected MACs. The time taken does not depend
/// on how close a wrong one is to a right one.
///
/// # Errors
/// [`Rejection::Signature`].
pub(super) fn verify<M: AsRef<[u8]>>(
    signatures: &[Vec<u8>],
    expected: impl Iterator<Item = M>,
) -> Result<(), Rejection> {
    let mut fits = Choice::from(0);
    for mac in expected {
        for signature in signatures {
            fits |= signature.ct_eq(mac.as_ref());
        }
    }
    if fits.into() { Ok(()) } else { Err(Rejection::mismatch()) }
}

/// The entries of a header that may have several signatures: the first [`SIGNATURES_MAX`].
pub(super) fn entries<'a>(
    header: &'a str,
    between: &'static [char],
) -> impl Iterator<Item = &'a str> + use<'a> {
    let entries = header.split(between).map(str::trim_ascii);
    entries.filter(|entry| !entry.is_empty()).take(SIGNATURES_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const N: usize>(mac: [u8; N], hex: &str) {
        assert_eq!(from_hex(hex).as_deref(), Some(&mac[..]), "{hex}");
    }

    #[test]
    fn published_macs() {
        // RFC 2202 §3, test case 2, and RFC 4231 §4.3.
        let (key, parts): (&[u8], [&[u8]; 2]) = (b"Jefe", [b"what do ya want ", b"for nothing?"]);
        check(sha1(key, &parts), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        check(
            sha256(key, &parts),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
        check(
            sha512(key, &parts),
            "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554\
             9758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b636e070a38bce737",
        );
        // RFC 2202 §3, test case 6, and RFC 4231 §4.7: keys longer than a block.
        let parts: [&[u8]; 1] = [b"Test Using Larger Than Block-Size Key - Hash Key First"];
        check(sha1(&[0xaa; 80], &parts), "aa4ae5e15272d00e95705637ce8a3b55ed402112");
        check(
            sha256(&[0xaa; 131], &parts),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
        check(
            sha512(&[0xaa; 131], &parts),
            "80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352\
             6b56d037e05f2598bd0fd2215d6a1e5295e64f73f63f0aec8b915a985d786598",
        );
    }

    #[test]
    fn only_a_whole_mac_fits() {
        let mac = sha256(b"key", &[b"body"]);
        let check = |signatures: &[&[u8]], fits: bool| {
            let signatures: Vec<_> = signatures.iter().map(|bytes| bytes.to_vec()).collect();
            assert_eq!(verify(&signatures, [mac].into_iter()).is_ok(), fits, "{signatures:?}");
        };
        check(&[&mac], true);
        check(&[b"", &mac[..31], &mac], true);
        check(&[&mac[..31]], false);
        check(&[&[&mac[..], &[0]].concat()], false);
        check(&[b""], false);
        check(&[], false);
        assert!(verify(&[mac.to_vec()], std::iter::empty::<[u8; 32]>()).is_err());
    }

    #[test]
    fn case_090_spellings() {
        assert_eq!(from_hex("00fFa0"), Some(vec![0, 255, 160]));
        assert_eq!(from_base64("AP+g"), Some(vec![0, 255, 160]));
        assert_eq!(from_base64("AP8"), Some(vec![0, 255]));
        assert_eq!(from_base64("AP8="), Some(vec![0, 255]));
        for odd in ["0", "0g", "+1", " 0", "ä", "sha256=00"] {
            assert_eq!(from_hex(odd), None, "{odd}");
        }
        for odd in ["A", "A P8", "AP8==", "AP9", "AP-_", "ä", "=", "AP8=AP8="] {
            assert_eq!(from_base64(odd), None, "{odd}");
        }
        assert_eq!(from_hex(&"00".repeat(513)), None);
    }
}
