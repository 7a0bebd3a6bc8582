//! Claims of keys: how they are asked for, and what they are shown as.
//!
//! Who claims a key does the work elsewhere, and tells us how it ended. We keep the key, a lease
//! and the result, and decide with [`decide`](everhook_domain::idempotency::claim::decide); a lease
//! that is over means that the work runs again.

mod waiters;

use std::borrow::Cow;
use std::time::Duration;

use everhook_domain::id::RecordId;
use everhook_domain::idempotency::answer::Remembered;
use everhook_domain::idempotency::claim::{ClaimState, Terms, Token};
use everhook_domain::idempotency::{Answer, Fingerprint};
use everhook_domain::time::Timestamp;
use everhook_store::{RecordStateWord, StoredClaim};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::json::{self, Members};
use crate::problem::{FieldErrors, Problem};
use crate::settings::Entropy;

pub(crate) use waiters::Waiters;

/// The longest scope, key and fingerprint, in bytes.
const TEXT_BYTES_MAX: usize = 255;
/// The shortest and the longest lease, in milliseconds.
const LEASE_MS: std::ops::RangeInclusive<u32> = 50..=3_600_000;
/// The shortest and the longest life of a result, in seconds: up to 366 days.
const TTL_S: std::ops::RangeInclusive<u32> = 1..=31_622_400;

/// A key that somebody wants to claim.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) scope: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) terms: Terms,
}

impl Wanted {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// `malformed-json`, `duplicate-member`, `invalid`.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Problem> {
        const KNOWN: &[&str] = &["scope", "key", "fingerprint", "lease_ms", "ttl_s"];
        let members = Members::of_body(body, KNOWN)?;
        let mut errors = FieldErrors::default();
        members.refuse_unknown(&mut errors);
        let scope = members.read("scope", &mut errors, text);
        let key = members.read("key", &mut errors, text);
        let fingerprint = members.read_optional("fingerprint", &mut errors, text);
        let lease = members.read("lease_ms", &mut errors, lease);
        let ttl = members.read("ttl_s", &mut errors, |value| json::whole_number(value, TTL_S));
        errors.check()?;
        let (Some(scope), Some(key), Some(lease), Some(ttl)) = (scope, key, lease, ttl) else {
            return Err(Problem::internal());
        };
        let ttl = Duration::from_secs(u64::from(ttl));
        // One that is not sent is as good as an empty one, which cannot be sent.
        let fingerprint = Fingerprint::new(b"", fingerprint.unwrap_or_default().as_bytes());
        Ok(Self { scope, key, fingerprint, terms: Terms { lease, ttl } })
    }
}

/// What the owner of a claim says about it.
#[derive(Debug)]
pub(crate) struct Owned<'a> {
    /// `None` is no token that was ever given.
    pub(crate) token: Option<Token>,
    pub(crate) lease: Option<Duration>,
    pub(crate) result: Option<&'a RawValue>,
}

impl<'a> Owned<'a> {
    /// Reads a body with a token and these further members, which must be there.
    ///
    /// # Errors
    /// As [`Wanted::parse`].
    pub(crate) fn parse(
        body: &'a [u8],
        known: &'static [&'static str],
        result_bytes_max: usize,
    ) -> Result<Self, Problem> {
        let members = Members::of_body(body, known)?;
        let mut errors = FieldErrors::default();
        members.refuse_unknown(&mut errors);
        let token = members.read("token", &mut errors, json::text);
        let lease =
            known.contains(&"lease_ms").then(|| members.read("lease_ms", &mut errors, lease));
        let result = known
            .contains(&"result")
            .then(|| members.read("result", &mut errors, |value| short(value, result_bytes_max)));
        errors.check()?;
        let token = token.as_deref().and_then(read_token);
        Ok(Self { token, lease: lease.flatten(), result: result.flatten() })
    }
}

fn text(value: &RawValue) -> Result<String, Cow<'static, str>> {
    let text = json::text(value)?;
    let fits = (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    if fits {
        return Ok(text.into_owned());
    }
    Err(Cow::from(format!(
        "must be 1 to {TEXT_BYTES_MAX} bytes of text without control characters"
    )))
}

fn lease(value: &RawValue) -> Result<Duration, Cow<'static, str>> {
    let lease = json::whole_number(value, LEASE_MS)?;
    Ok(Duration::from_millis(u64::from(lease)))
}

fn short(value: &RawValue, bytes_max: usize) -> Result<&RawValue, Cow<'static, str>> {
    match value.get().len() {
        length if length <= bytes_max => Ok(value),
        length => Err(Cow::from(format!(
            "has {length} bytes, at most {bytes_max} are kept; store it elsewhere and complete \
             with where it is"
        ))),
    }
}

/// A token that nobody can guess.
pub(crate) fn draw_token(entropy: &Entropy) -> Token {
    let mut bytes = [0; 8];
    entropy(&mut bytes);
    Token(i64::from_be_bytes(bytes))
}

/// A token as it is given out.
pub(crate) fn show_token(token: Token) -> String {
    format!("{:016x}", token.0.cast_unsigned())
}

fn read_token(text: &str) -> Option<Token> {
    let number = u64::from_str_radix(text, 16).ok()?;
    let token = Token(number.cast_signed());
    (show_token(token) == text).then_some(token)
}

/// The result of a claim as it is remembered.
pub(crate) fn remember(result: &RawValue) -> Remembered {
    let body = result.get().as_bytes().to_vec();
    Remembered::Answer(Answer { status: 200, headers: Vec::new(), body })
}

/// A claim as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownClaim<'a> {
    id: RecordId,
    /// How far it has come.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until: Option<Timestamp>,
    /// The bytes that completed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    /// When its key is forgotten.
    expires_at: Timestamp,
}

impl<'a> ShownClaim<'a> {
    /// What is stored, as of now.
    pub(crate) fn new(claim: &'a StoredClaim, now: Timestamp) -> Self {
        let (state, lease_until, result) = match &claim.record.state {
            ClaimState::Open { lease_until, .. } => {
                let word = match *lease_until > now {
                    true => RecordStateWord::InProgress,
                    false => RecordStateWord::Unknown,
                };
                (word, Some(*lease_until), None)
            }
            ClaimState::Finished(remembered) => {
                (RecordStateWord::Completed, None, result(remembered))
            }
        };
        let (id, expires_at) = (claim.id, claim.record.expires_at);
        Self { id, state: state.as_str(), lease_until, result, expires_at }
    }
}

/// What came of claiming a key.
#[derive(Debug, Serialize)]
pub(crate) struct ShownTaken<'a> {
    pub(crate) id: RecordId,
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<&'a RawValue>,
}

/// The result that completed a claim, byte for byte.
pub(crate) fn result(remembered: &Remembered) -> Option<&RawValue> {
    match remembered {
        Remembered::Answer(answer) => serde_json::from_slice(&answer.body).ok(),
        Remembered::Tombstone { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_shown() {
        for token in [Token(0), Token(-1), Token(i64::MIN), Token(0x0123_4567_89ab_cdef)] {
            let shown = show_token(token);
            assert_eq!((shown.len(), read_token(&shown)), (16, Some(token)));
        }
        for text in ["", "0", "+00000000000000f", "00000000000000FF", "g000000000000000", "ä"] {
            assert_eq!(read_token(text), None, "{text}");
        }
    }
}
