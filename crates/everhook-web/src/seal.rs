//! Answers that hold a secret are remembered sealed.
//!
//! The key is derived from the `Idempotency-Key`, of which the store has only a hash: who presents
//! the key again can open the answer, and who reads the database cannot. (A guessable key protects
//! as little as a guessable password; clients are told to send random ones.)
//!
//! The form is a version, a salt, and ChaCha20-Poly1305 (RFC 8439) under HKDF-SHA256 (RFC 5869) of
//! the `Idempotency-Key` with that salt. The salt is an HMAC of the answer under random bytes, so
//! rendering the same answer twice gives the same bytes, and two different answers never share a
//! key; the nonce can therefore be constant.

use everhook_domain::idempotency::IdempotencyKey;
use everhook_domain::key::KeyHash;
use ring::{aead, hkdf, hmac};

use crate::settings::Entropy;

const VERSION: u8 = 1;
const SALT_LEN: usize = 32;
const INFO: &[u8] = b"everhook sealed answer";

/// Seals the answers of one request.
#[derive(Clone)]
pub(crate) struct Seal {
    key: IdempotencyKey,
    hash: KeyHash,
    random: [u8; SALT_LEN],
}

impl Seal {
    /// A seal for a request that carries `key`, whose record is kept under `hash`.
    pub(crate) fn new(key: &IdempotencyKey, hash: KeyHash, entropy: &Entropy) -> Self {
        let mut random = [0; SALT_LEN];
        entropy(&mut random);
        Self { key: key.clone(), hash, random }
    }

    /// The bytes to be remembered. Empty, which nothing opens, if they could not be sealed.
    pub(crate) fn seal(&self, body: Vec<u8>) -> Vec<u8> {
        let random = hmac::Key::new(hmac::HMAC_SHA256, &self.random);
        let salt = hmac::sign(&random, &body);
        let mut sealed = body;
        let appended = derived(&self.key, self.hash, salt.as_ref()).and_then(|key| {
            key.seal_in_place_append_tag(nonce(), aad(self.hash), &mut sealed).ok()
        });
        match appended {
            Some(()) => [&[VERSION], salt.as_ref(), &sealed].concat(),
            None => Vec::new(),
        }
    }
}

/// Opens what [`Seal::seal`] made for the same key; `None` if it is something else.
pub(crate) fn open(key: &IdempotencyKey, hash: KeyHash, sealed: &[u8]) -> Option<Vec<u8>> {
    let (version, rest) = sealed.split_first()?;
    let (salt, ciphertext) = rest.split_at_checked(SALT_LEN)?;
    if *version != VERSION {
        return None;
    }
    let mut body = ciphertext.to_vec();
    let opened = derived(key, hash, salt)?.open_in_place(nonce(), aad(hash), &mut body).ok()?.len();
    body.truncate(opened);
    Some(body)
}

fn derived(key: &IdempotencyKey, hash: KeyHash, salt: &[u8]) -> Option<aead::LessSafeKey> {
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key.as_str().as_bytes());
    let info = [INFO, &hash.0[..]];
    let bytes = secret.expand(&info, &aead::CHACHA20_POLY1305).ok()?;
    Some(aead::LessSafeKey::new(aead::UnboundKey::from(bytes)))
}

/// Constant: a key seals one answer.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

/// Ties the answer to its record.
fn aad(hash: KeyHash) -> aead::Aad<[u8; 16]> {
    aead::Aad::from(hash.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey::parse(text.as_bytes()).expect("legal")
    }

    #[test]
    fn only_the_same_key_and_record_open_it() {
        let entropy: Entropy = Arc::new(|bytes: &mut [u8]| bytes.fill(7));
        let (hash, other_hash) = (KeyHash([1; 16]), KeyHash([2; 16]));
        let seal = Seal::new(&key("k"), hash, &entropy);
        let body = b"{\"secret\":\"whsec_x\"}".to_vec();
        let sealed = seal.seal(body.clone());
        assert_eq!(seal.seal(body.clone()), sealed, "pure");
        assert_ne!(seal.seal(b"other".to_vec())[1..33], sealed[1..33], "another key");
        assert!(!sealed.windows(6).any(|window| window == b"whsec_"));
        assert_eq!(open(&key("k"), hash, &sealed), Some(body));
        assert_eq!(open(&key("K"), hash, &sealed), None);
        assert_eq!(open(&key("k"), other_hash, &sealed), None);
        for place in 0..sealed.len() {
            let mut broken = sealed.clone();
            broken[place] ^= 1;
            assert_eq!(open(&key("k"), hash, &broken), None, "byte {place}");
            assert_eq!(open(&key("k"), hash, &sealed[..place]), None, "cut at {place}");
        }
    }
}
