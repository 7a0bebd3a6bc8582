//! How a deduplication key of any length becomes 128 bits.
//!
//! All keys live in one space per installation, told apart by what they are for, whose they are and
//! what they are within. The parts are length-prefixed before hashing, so that no two different
//! tuples have the same bytes. 128 bits of SHA-256 make a false match among 10^10 keys a matter of
//! 10^-19.

use crate::digest::Parts;
use crate::tenant::TenantId;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeySpace {
    /// A publisher's source event ID: one outgoing event in the window.
    SourceEventId,
    /// An `Idempotency-Key`: one effect in its lifetime.
    Idempotency,
    /// A key of the claim API: one claim at a time, and one result in its lifetime.
    Claim,
    /// An account whose idempotency keys are counted.
    IdempotencyAccount,
    /// What identifies a received event within its source: one receipt in the window.
    Receipt,
    /// A key and the content that came with it: a conflict's own retries are its duplicates.
    ReceiptContent,
    /// The signed bytes of a received event whose key is not signed.
    SignedBytes,
}

impl KeySpace {
    const fn name(self) -> &'static str {
        match self {
            Self::SourceEventId => "source-event-id",
            Self::Idempotency => "idempotency",
            Self::Claim => "claim",
            Self::IdempotencyAccount => "idempotency-account",
            Self::Receipt => "receipt",
            Self::ReceiptContent => "receipt-content",
            Self::SignedBytes => "signed-bytes",
        }
    }
}

/// A hashed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// Hashes a key. `scope` is what the key is unique within: empty for source event IDs; account,
    /// method and path with query for idempotency keys.
    pub fn new(space: KeySpace, tenant: &TenantId, scope: &[&[u8]], key: &[u8]) -> Self {
        let mut digest = Parts::default();
        let mut part = |bytes: &[u8]| digest.part(bytes);
        part(space.name().as_bytes());
        part(tenant.as_str().as_bytes());
        part(&(scope.len() as u64).to_be_bytes());
        scope.iter().for_each(|bytes| part(bytes));
        part(key);
        let mut head = [0; 16];
        head.copy_from_slice(&digest.finish()[..16]);
        Self(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_tuples_have_different_hashes() {
        let (a, b) = (TenantId::default_tenant(), "b".parse().expect("legal"));
        let id = KeySpace::SourceEventId;
        let hashes = [
            KeyHash::new(id, &a, &[], b"k"),
            KeyHash::new(id, &b, &[], b"k"),
            KeyHash::new(KeySpace::Idempotency, &a, &[], b"k"),
            KeyHash::new(id, &a, &[b"x"], b"k"),
            KeyHash::new(id, &a, &[b"x", b""], b"k"),
            KeyHash::new(id, &a, &[b"", b"x"], b"k"),
            KeyHash::new(id, &a, &[b"xk"], b""),
            KeyHash::new(id, &a, &[], b"xk"),
        ];
        for (i, one) in hashes.iter().enumerate() {
            for other in &hashes[i + 1..] {
                assert_ne!(one, other);
            }
        }
        assert_eq!(hashes[0], KeyHash::new(id, &a, &[], b"k"));
    }
}
