//! Secrets at rest: what a store keeps of the settings and secrets of endpoints and sources is
//! sealed under a master key, where one is given.
//!
//! The form is `sealed:1:<key id>:` and base64 of a random salt and ChaCha20-Poly1305 (RFC 8439)
//! under HKDF-SHA256 (RFC 5869) of the master key with that salt; every value has a key of its own,
//! so the nonce can be constant. What it belongs to is authenticated with it: a value that is
//! copied to another owner or column does not open there. Values without that beginning are from
//! before a key was set, and are read as they are.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use everhook_domain::id::{EndpointId, SourceId};
use everhook_domain::tenant::TenantId;
use ring::{aead, hkdf};

const MARK: &str = "sealed:1:";
const KEY_BYTES: usize = 32;
const KEY_ID_BYTES: usize = 8;
const SALT_BYTES: usize = 32;
const KEY_ID_INFO: &[u8] = b"everhook master key id";
const VALUE_INFO: &[u8] = b"everhook sealed value";
/// The column of an owner's settings, in what is authenticated.
const SETTINGS: &str = "settings";
/// The column of an owner's secrets.
const SECRETS: &str = "secrets";

/// Fills bytes that nobody can guess.
pub type Entropy = Arc<dyn Fn(&mut [u8]) + Send + Sync>;

/// A key that seals what is secret in the store.
#[derive(Clone)]
pub struct MasterKey {
    id: String,
    secret: hkdf::Prk,
}

/// Why a text is no master key. Never holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMasterKey {
    /// Nothing in it.
    #[error("it is empty")]
    Empty,
    /// More than one line, or white space.
    #[error("it has white space or a second line in it: only one line break at its end may stand")]
    WhiteSpace,
    /// Neither base64 nor hex.
    #[error("it is neither base64 nor hex")]
    Encoding,
    /// Too short or too long; holds the length found.
    #[error("it holds {0} bytes: {KEY_BYTES} are needed")]
    Length(usize),
}

impl MasterKey {
    /// Reads what a key's file holds: 32 bytes as base64 (with or without padding) or hex, and at
    /// most one line break after them. They must be random.
    ///
    /// # Errors
    /// [`InvalidMasterKey`] says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidMasterKey> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Err(InvalidMasterKey::Empty);
        }
        if line.contains(char::is_whitespace) {
            return Err(InvalidMasterKey::WhiteSpace);
        }
        let bytes = match from_hex(line) {
            Some(bytes) => bytes,
            None => STANDARD_NO_PAD
                .decode(line.trim_end_matches('='))
                .map_err(|_| InvalidMasterKey::Encoding)?,
        };
        let key: [u8; KEY_BYTES] =
            bytes.try_into().map_err(|bytes: Vec<u8>| InvalidMasterKey::Length(bytes.len()))?;
        Self::derive(&key).ok_or(InvalidMasterKey::Encoding)
    }

    fn derive(key: &[u8; KEY_BYTES]) -> Option<Self> {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(key);
        let mut id = [0; KEY_ID_BYTES];
        secret.expand(&[KEY_ID_INFO], Length(KEY_ID_BYTES)).ok()?.fill(&mut id).ok()?;
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(Self { id, secret })
    }

    /// Names the key in what it sealed, in messages and in the log; tells nothing of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn value_key(&self, salt: &[u8]) -> Option<aead::LessSafeKey> {
        let info = [VALUE_INFO, salt];
        let bytes = self.secret.expand(&info, &aead::CHACHA20_POLY1305).ok()?;
        Some(aead::LessSafeKey::new(aead::UnboundKey::from(bytes)))
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id)
    }
}

/// Only text as long as a key in hex is taken for hex: a key in base64 is shorter.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

/// How many bytes to derive.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Seals and opens what a store keeps; without a key it stores things as they are.
#[derive(Clone, Default)]
pub struct Sealer(Option<Arc<Keys>>);

struct Keys {
    current: MasterKey,
    old: Vec<MasterKey>,
    entropy: Entropy,
}

/// Something is sealed under a key that was not given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{owner} is sealed under the master key with the id {needed}, and {given}; name the file of \
     that key in secrets.master_key_file, or in secrets.master_key_files_old beside a newer one. \
     Without it no request can be signed or verified"
)]
pub struct MissingKey {
    owner: Owned,
    needed: String,
    given: String,
}

/// Sealing failed, which does not happen with keys of the right length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret could not be sealed")]
pub(crate) struct CannotSeal;

/// What has settings and secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owned {
    Endpoint(EndpointId),
    Source(SourceId),
}

impl Owned {
    const fn word(self) -> &'static str {
        match self {
            Self::Endpoint(_) => "endpoint",
            Self::Source(_) => "source",
        }
    }

    fn id(self) -> String {
        match self {
            Self::Endpoint(id) => id.to_string(),
            Self::Source(id) => id.to_string(),
        }
    }
}

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word(), self.id())
    }
}

/// Whose value it is.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) owned: Owned,
}

/// Settings and secrets, each in its stored form.
pub(crate) type Texts = [String; 2];

/// What [`Sealer::open`] finds.
enum Opened {
    Text(String),
    /// It was damaged, or sealed for something else.
    Damaged,
}

impl Sealer {
    /// Seals under `current`, and opens what that key or one of the `old` ones sealed.
    pub fn new(current: MasterKey, old: Vec<MasterKey>, entropy: Entropy) -> Self {
        Self(Some(Arc::new(Keys { current, old, entropy })))
    }

    /// Settings and secrets as they are to be stored.
    pub(crate) fn write(
        &self,
        owner: Owner<'_>,
        [settings, secrets]: Texts,
    ) -> Result<Texts, CannotSeal> {
        let settings = self.seal(owner, SETTINGS, settings)?;
        Ok([settings, self.seal(owner, SECRETS, secrets)?])
    }

    /// Settings and secrets from what is stored. What was damaged is empty: that is for their owner
    /// to tell.
    pub(crate) fn read(
        &self,
        owner: Owner<'_>,
        [settings, secrets]: [&str; 2],
    ) -> Result<Texts, MissingKey> {
        let text = |opened| match opened {
            Opened::Text(text) => text,
            Opened::Damaged => String::new(),
        };
        let settings = text(self.open(owner, SETTINGS, settings)?);
        Ok([settings, text(self.open(owner, SECRETS, secrets)?)])
    }

    /// What every value begins with that is sealed under the current key; `None` without a key.
    pub(crate) fn current_mark(&self) -> Option<String> {
        self.0.as_ref().map(|keys| format!("{MARK}{}:", keys.current.id))
    }

    /// Settings and secrets sealed under the current key, whatever they were before; `None` where
    /// one of them does not open.
    pub(crate) fn renew(
        &self,
        owner: Owner<'_>,
        [settings, secrets]: [&str; 2],
    ) -> Result<Option<Texts>, CannotSeal> {
        let open = |column, stored| match self.open(owner, column, stored) {
            Ok(Opened::Text(text)) => Some(text),
            Ok(Opened::Damaged) | Err(MissingKey { .. }) => None,
        };
        let opened = open(SETTINGS, settings).zip(open(SECRETS, secrets));
        opened.map(|(settings, secrets)| self.write(owner, [settings, secrets])).transpose()
    }

    /// Tells the operator what sealing anew has come to.
    pub(crate) fn report_renewal(&self, renewed: usize, left: usize) {
        let Some(keys) = &self.0 else { return };
        let key = &keys.current.id;
        if renewed > 0 {
            tracing::info!(key, owners = renewed, "secrets were sealed under this master key");
        }
        if left > 0 {
            let why = "what is stored of endpoints or sources was damaged and does not open";
            tracing::warn!(owners = left, "{why}");
        } else if !keys.old.is_empty() {
            let what = "nothing is sealed under an older master key any more: empty \
                        secrets.master_key_files_old, and keep the old files only for old backups";
            tracing::info!(key, "{what}");
        }
    }

    fn seal(&self, owner: Owner<'_>, column: &str, text: String) -> Result<String, CannotSeal> {
        let Some(keys) = &self.0 else { return Ok(text) };
        let mut salt = [0; SALT_BYTES];
        (keys.entropy)(&mut salt);
        let mut sealed = text.into_bytes();
        let key = keys.current.value_key(&salt).ok_or(CannotSeal)?;
        key.seal_in_place_append_tag(nonce(), associated(owner, column), &mut sealed)
            .map_err(|_| CannotSeal)?;
        let encoded = STANDARD.encode([&salt[..], &sealed].concat());
        Ok(format!("{MARK}{}:{encoded}", keys.current.id))
    }

    fn open(&self, owner: Owner<'_>, column: &str, stored: &str) -> Result<Opened, MissingKey> {
        let Some(rest) = stored.strip_prefix(MARK) else {
            return Ok(Opened::Text(stored.to_owned()));
        };
        let (needed, encoded) = rest.split_once(':').unwrap_or((rest, ""));
        if needed.len() != 2 * KEY_ID_BYTES || !needed.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Opened::Damaged);
        }
        let known = self.keys().find(|key| key.id == needed).ok_or_else(|| MissingKey {
            owner: owner.owned,
            needed: needed.to_owned(),
            given: self.given(),
        })?;
        let text = unsealed(known, associated(owner, column), encoded);
        Ok(text.map_or(Opened::Damaged, Opened::Text))
    }

    fn keys(&self) -> impl Iterator<Item = &MasterKey> {
        self.0.iter().flat_map(|keys| std::iter::once(&keys.current).chain(&keys.old))
    }

    fn given(&self) -> String {
        let ids: Vec<_> = self.keys().map(MasterKey::id).collect();
        match ids.as_slice() {
            [] => "no master key is given".to_owned(),
            ids => format!("those given have the ids {}", ids.join(", ")),
        }
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sealer").field(&self.keys().collect::<Vec<_>>()).finish()
    }
}

fn unsealed(key: &MasterKey, associated: aead::Aad<String>, encoded: &str) -> Option<String> {
    let mut bytes = STANDARD.decode(encoded).ok()?;
    let (salt, sealed) = bytes.split_at_mut_checked(SALT_BYTES)?;
    let text = key.value_key(salt)?.open_in_place(nonce(), associated, sealed).ok()?;
    String::from_utf8(text.to_vec()).ok()
}

/// Constant: a key seals one value.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; aead::NONCE_LEN])
}

/// None of the parts has a space in it.
fn associated(owner: Owner<'_>, column: &str) -> aead::Aad<String> {
    let Owner { tenant, owned } = owner;
    aead::Aad::from(format!("{} {column} {tenant} {}", owned.word(), owned.id()))
}

#[cfg(test)]
mod tests;
