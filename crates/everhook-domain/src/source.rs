//! A source: where webhooks come in, with what verifies them and what identifies them.
//!
//! [`SourceSettings`] that exist are legal for their kind; [`SourceSettings::parse`] says of others
//! all that is wrong at once. Secrets are never part of a message or of debug output; only
//! [`SourceSecret::expose`] and [`SourceSettings::secrets_to_stored`] give one out.

mod dedupe;
mod options;
mod public_url;
mod stored;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use subtle::ConstantTimeEq;

pub use dedupe::{DedupeRule, POINTERS_MAX};
pub use options::{
    AnswerOption, BODY_MAX, COMMON_OPTIONS, ContentEncoding, EmptyBody, Forward, ReplayGuard,
    SourceOptions,
};
pub use public_url::{InvalidPublicUrl, PublicUrl, URL_BYTES_MAX};
pub use stored::{SourceInput, UnreadableSource};

use crate::id::SourceId;
use crate::inbound::SourceKind;
use crate::tenant::TenantId;
use crate::time::Timestamp;

/// Longest name, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// The most secrets of one source that verify at the same time.
pub const SECRETS_MAX: usize = 8;
/// Longest secret, in bytes: room for a PEM file with a chain.
pub const SECRET_BYTES_MAX: usize = 16_384;
/// How far a signed timestamp may be from the time of arrival, both ways, if nothing else is set.
pub const TOLERANCE: Duration = Duration::from_secs(300);
/// The longest window that may be set.
pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 86_400);
/// The longest tolerance that may be set.
pub const TOLERANCE_MAX: Duration = Duration::from_secs(7 * 86_400);

/// A source's name: 1 to 64 characters of `a-z`, `0-9` and `-`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceName(Arc<str>);

/// Why a text is not a source's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSourceName {
    /// A character or the length is wrong.
    #[error("the name of a source has 1 to {NAME_CHARS_MAX} characters of a-z, 0-9 and '-'")]
    Form,
    /// The types of received events begin with the name of their source, and those that begin with
    /// `everhook.` are Everhook's own.
    #[error("'everhook' cannot be the name of a source: it begins the types of Everhook's events")]
    Reserved,
}

impl SourceName {
    /// In place of a stored name that cannot be used: nobody else's.
    pub fn unreadable(source: SourceId) -> Self {
        let digits = source.digits();
        let digits = String::from_utf8_lossy(&digits);
        Self(Arc::from(format!("unreadable-{digits}")))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SourceName {
    type Err = InvalidSourceName;

    fn from_str(text: &str) -> Result<Self, InvalidSourceName> {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        if !(1..=NAME_CHARS_MAX).contains(&text.len()) || !text.bytes().all(legal) {
            return Err(InvalidSourceName::Form);
        }
        if text == "everhook" {
            return Err(InvalidSourceName::Reserved);
        }
        Ok(Self(Arc::from(text)))
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for SourceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// What verifies the requests of a source: a shared secret, a public key or credentials, as the
/// provider shows it. Its kind says how it becomes a key.
#[derive(Clone)]
pub struct SourceSecret(Box<str>);

impl SourceSecret {
    /// Any text; whether it is one for a kind, the kind says.
    pub fn new(text: &str) -> Self {
        Self(Box::from(text))
    }

    /// The text. To be stored or turned into a key; nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is white space at its ends, which is nearly always a mistake of copying.
    pub fn has_white_space_at_its_ends(&self) -> bool {
        self.0.trim() != &*self.0
    }
}

/// In constant time.
impl PartialEq for SourceSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}
impl Eq for SourceSecret {}

impl fmt::Debug for SourceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SourceSecret(redacted)")
    }
}

/// One thing that is wrong with a source's settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct InvalidSource {
    /// Where: a JSON pointer into the settings.
    pub pointer: String,
    /// What is wrong, and what to do. Never holds a secret.
    pub detail: String,
}

impl InvalidSource {
    /// Something that is wrong at this place.
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// What its owner has set.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSettings {
    /// Its name, unique in the tenant.
    pub name: SourceName,
    /// Who sends, and so what is signed and what identifies an event.
    pub kind: SourceKind,
    /// What verifies; any one is enough.
    pub secrets: Vec<SourceSecret>,
    /// How long a dedupe key is remembered, from the first receipt; `None`: as the kind has it.
    pub window: Option<Duration>,
    /// How far a signed timestamp may be from the time of arrival; `None`: [`TOLERANCE`].
    pub tolerance: Option<Duration>,
    /// The URL that the provider calls, where it signs it.
    pub public_url: Option<PublicUrl>,
    /// What identifies an event, in place of the kind's rule.
    pub dedupe: Option<DedupeRule>,
    /// The rest.
    pub options: SourceOptions,
}

impl SourceSettings {
    /// How long a dedupe key is remembered, from the first receipt.
    pub fn window(&self) -> Duration {
        self.window.unwrap_or_else(|| self.kind.window(&self.options))
    }

    /// How far a signed timestamp may be from the time of arrival, both ways, inclusive.
    pub fn tolerance(&self) -> Duration {
        self.tolerance.unwrap_or(TOLERANCE)
    }

    /// The URL that was called for a request with this path and query as received, to be shown and
    /// passed on: whole where there is a `public_url`, spelled as it came, without what is a
    /// credential for us as `Authorization` is: user and password, and where the URL is not signed
    /// a token in the query (RFC 6750 §2.3).
    pub fn called(&self, target: &str) -> String {
        let url = match &self.public_url {
            Some(url) => url.without_credentials().called(target),
            None => target.to_owned(),
        };
        if self.kind.signs_url() { url } else { without_token(&url) }
    }

    /// What the owner should look at, though it is legal.
    pub fn warnings(&self) -> Vec<InvalidSource> {
        let spaced = |(index, secret): (usize, &SourceSecret)| {
            let detail = "the secret has white space or a line break at its ends; it is used as it \
                          is: if the provider shows none, set it anew without";
            let pointer = format!("/secrets/{index}");
            secret.has_white_space_at_its_ends().then(|| InvalidSource::new(pointer, detail))
        };
        self.secrets.iter().enumerate().filter_map(spaced).collect()
    }
}

/// The URL without the parameters of its query that are a token.
fn without_token(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let is_token = |part: &&str| part.split('=').next() == Some("access_token");
    if !query.split('&').any(|part| is_token(&part)) {
        return url.to_owned();
    }
    let rest: Vec<_> = query.split('&').filter(|part| !is_token(part)).collect();
    let mark = if rest.is_empty() { "" } else { "?" };
    format!("{path}{mark}{}", rest.join("&"))
}

/// A source.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its id.
    pub id: SourceId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Counts its changes, from 1.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// What its owner has set.
    pub settings: SourceSettings,
    /// Why what is stored cannot be used, for a person, if so; `settings` then hold what could be
    /// read, and every request is answered as our own misconfiguration.
    pub unusable: Option<String>,
}
