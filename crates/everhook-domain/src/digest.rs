//! SHA-256 of several parts, told apart by their lengths, and how digests are written.
//!
//! Each part has its length before it (64 bits, big-endian), so that no two different lists of
//! parts have the same bytes. Stored keys and fingerprints depend on this form.

use sha2::{Digest, Sha256};

/// Parts that come one after the other.
#[derive(Default)]
pub(crate) struct Parts(Sha256);

impl Parts {
    /// One more.
    pub(crate) fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    /// The digest of all of them.
    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// The digest of these parts.
pub(crate) fn of_parts<P: AsRef<[u8]>>(parts: &[P]) -> [u8; 32] {
    let mut digest = Parts::default();
    parts.iter().for_each(|part| digest.part(part.as_ref()));
    digest.finish()
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_lengths_and_bytes() {
        let plain = Sha256::digest(b"\0\0\0\0\0\0\0\x02ab\0\0\0\0\0\0\0\0");
        assert_eq!(of_parts(&[b"ab".as_slice(), b""]), *plain);
        assert_ne!(of_parts(&["a", "b"]), of_parts(&["ab"]));
        assert_eq!(hex(&[0, 15, 255]), "000fff");
    }
}
