//! `Idempotency-Key`: how it is read, what it is compared by, and what a second use of it means.
//!
//! Source: the IETF draft "The Idempotency-Key HTTP Header Field" (a structured-field string, in
//! double quotes) and common practice (the bare key). Both spellings name the same record.
//!
//! A verb whose effect and key commit together is remembered when it has ended, and [`verdict`]
//! says what a second use means. A handler whose effects are its own claims its key first, and
//! [`claim::decide`] says it.

pub mod answer;
pub mod claim;
pub mod fingerprint;
mod multipart;
pub mod scope;

use std::fmt;

pub use answer::Answer;
pub use fingerprint::Fingerprint;
pub use scope::{ClaimScope, Scope};

use crate::time::Timestamp;

/// Longest key, in characters.
pub const KEY_CHARS_MAX: usize = 255;

/// A key: 1 to 255 visible ASCII characters without `"`, `\` and `,`. Case matters.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Box<str>);

/// Why a header is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdempotencyKey {
    /// Two header lines: proxies would join them, so "the first wins" has no meaning.
    #[error("more than one Idempotency-Key header was sent; send exactly one")]
    Several,
    /// Nothing, or only white space, or empty quotes.
    #[error("the Idempotency-Key is empty")]
    Empty,
    /// Too long.
    #[error("the Idempotency-Key is longer than {KEY_CHARS_MAX} characters")]
    Long,
    /// A character that a key cannot have.
    #[error(
        "the Idempotency-Key may only hold visible ASCII characters without '\"', '\\' and ',', \
         bare or between one pair of double quotes"
    )]
    Character,
}

impl IdempotencyKey {
    /// Reads the values of all `Idempotency-Key` header lines of a request; `None` without one.
    ///
    /// # Errors
    /// [`InvalidIdempotencyKey`] names the rule that is broken.
    pub fn from_headers<'a>(
        mut values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Self>, InvalidIdempotencyKey> {
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(InvalidIdempotencyKey::Several);
        }
        Self::parse(value).map(Some)
    }

    /// Reads one header value, bare or quoted.
    ///
    /// # Errors
    /// [`InvalidIdempotencyKey`] names the rule that is broken.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidIdempotencyKey> {
        let text = std::str::from_utf8(value).map_err(|_| InvalidIdempotencyKey::Character)?;
        let text = text.trim_matches([' ', '\t']);
        let key = match text.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"').ok_or(InvalidIdempotencyKey::Character)?,
            None => text,
        };
        if key.is_empty() {
            return Err(InvalidIdempotencyKey::Empty);
        }
        if !key.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\' | b',')) {
            return Err(InvalidIdempotencyKey::Character);
        }
        if key.len() > KEY_CHARS_MAX {
            return Err(InvalidIdempotencyKey::Long);
        }
        Ok(Self(Box::from(key)))
    }

    /// The key without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for IdempotencyKey {
    /// Redacted: with the key, a stored answer that holds a secret can be opened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdempotencyKey(…)")
    }
}

/// A finished request as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// What the first request was compared by.
    pub fingerprint: Fingerprint,
    /// When the record ends; at exactly this instant it is over.
    pub expires_at: Timestamp,
    /// What was answered.
    pub answer: Answer,
}

/// What a key means for the request that carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing live under this key: run.
    New,
    /// The same request ran: give its answer again.
    Replay(Answer),
    /// Another request used this key.
    Mismatch,
}

/// What a request with this fingerprint gets, given what is remembered under its key.
pub fn verdict(
    record: Option<IdempotencyRecord>,
    fingerprint: Fingerprint,
    now: Timestamp,
) -> Verdict {
    let Some(record) = record.filter(|record| record.expires_at > now) else {
        return Verdict::New;
    };
    if record.fingerprint == fingerprint {
        Verdict::Replay(record.answer)
    } else {
        Verdict::Mismatch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[&[u8]]) -> Result<Option<String>, InvalidIdempotencyKey> {
        IdempotencyKey::from_headers(values.iter().copied())
            .map(|key| key.map(|key| key.as_str().to_owned()))
    }

    #[test]
    fn keys() {
        use InvalidIdempotencyKey::{Character, Empty, Long, Several};
        let long = "x".repeat(255);
        let longer = "x".repeat(256);
        let some = |text: &str| Ok(Some(text.to_owned()));
        for (values, expected) in [
            (vec![], Ok(None)),
            (vec!["k"], some("k")),
            (vec!["\"k\""], some("k")),
            (vec![" \"k\"\t"], some("k")),
            (vec!["K!#$%&'()*+-./:;<=>?@[]^_`{|}~"], some("K!#$%&'()*+-./:;<=>?@[]^_`{|}~")),
            (vec![long.as_str()], some(&long)),
            (vec![longer.as_str()], Err(Long)),
            (vec![""], Err(Empty)),
            (vec!["  "], Err(Empty)),
            (vec!["\"\""], Err(Empty)),
            (vec!["\""], Err(Character)),
            (vec!["\"k"], Err(Character)),
            (vec!["k\""], Err(Character)),
            (vec!["\"a\\\"b\""], Err(Character)),
            (vec!["a,b"], Err(Character)),
            (vec!["a b"], Err(Character)),
            (vec!["\" a\""], Err(Character)),
            (vec!["ä"], Err(Character)),
            (vec!["a\x01"], Err(Character)),
            (vec!["k", "k"], Err(Several)),
        ] {
            let bytes: Vec<&[u8]> = values.iter().map(|v| v.as_bytes()).collect();
            assert_eq!(read(&bytes), expected, "{values:?}");
        }
        assert_eq!(read(&[b"\xff"]), Err(Character));
    }

    #[test]
    fn verdicts() {
        let answer = Answer { status: 202, headers: vec![], body: b"{}".to_vec() };
        let now = Timestamp::from_millis(1_000);
        let one = Fingerprint::new(b"application/json", b"{}");
        let record = |expires| IdempotencyRecord {
            fingerprint: one,
            expires_at: Timestamp::from_millis(expires),
            answer: answer.clone(),
        };
        let other = Fingerprint::new(b"application/json", b"{} ");
        assert_ne!(one, Fingerprint::new(b"application/jso", b"n{}"));
        for (stored, fingerprint, expected) in [
            (None, one, Verdict::New),
            (Some(record(1_001)), one, Verdict::Replay(answer.clone())),
            (Some(record(1_001)), other, Verdict::Mismatch),
            (Some(record(1_000)), one, Verdict::New),
            (Some(record(1_000)), other, Verdict::New),
        ] {
            assert_eq!(verdict(stored, fingerprint, now), expected);
        }
    }
}
