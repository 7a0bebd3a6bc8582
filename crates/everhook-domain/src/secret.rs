//! Signing secrets and their rotation.
//!
//! A [`Secret`] is the symmetric kind of the Standard Webhooks specification 1.0.0: `whsec_` and
//! the base64 of 24 to 64 bytes. A [`SecretSet`] is what an endpoint signs with: the newest one,
//! and older ones until they expire, so that receivers can change over without a gap.
//!
//! No message and no debug output of this module holds a secret; only [`Secret::expose`] and
//! [`SecretSet::to_stored`] give one out.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::time::Timestamp;

/// What the text form begins with.
pub const PREFIX: &str = "whsec_";
/// The fewest bytes a secret may have (Standard Webhooks 1.0.0).
pub const BYTES_MIN: usize = 24;
/// The most bytes a secret may have (Standard Webhooks 1.0.0).
pub const BYTES_MAX: usize = 64;
/// The most secrets of one endpoint that sign at the same time.
pub const LIVE_MAX: usize = 4;

/// Standard base64; what we write has padding, what we read may lack it.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// HMAC-SHA256 (RFC 2104, RFC 6234), ready to be fed.
pub(crate) type Mac = Hmac<Sha256>;

/// A signing secret, with its key schedule already computed.
#[derive(Clone)]
pub struct Secret {
    bytes: Box<[u8]>,
    mac: Mac,
}

/// Why a text is not a signing secret. Never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// No text, or nothing after the prefix.
    #[error("the secret is empty: expected {PREFIX} and base64")]
    Empty,
    /// White space before or after it.
    #[error("the secret has white space or a line break at its ends: remove it")]
    WhiteSpace,
    /// `v1,whsec_…`, as some products show it.
    #[error("the secret must not begin with the signature version 'v1,': leave that out")]
    Version,
    /// `whsk_…` or `whpk_…`.
    #[error(
        "this is an Ed25519 key (whsk_ or whpk_): a shared secret that begins with {PREFIX} is \
         needed"
    )]
    Asymmetric,
    /// Not base64 after the prefix.
    #[error(
        "the secret is not {PREFIX} and standard base64 (A-Z, a-z, 0-9, '+' and '/', with or \
         without '=' at the end)"
    )]
    Base64,
    /// Too short or too long; holds the length found.
    #[error("the secret holds {0} bytes: expected {BYTES_MIN} to {BYTES_MAX}")]
    Length(usize),
}

impl Secret {
    /// A secret of 32 bytes, which must be random.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self::from_key(Box::new(bytes))
    }

    /// Reads the text form, with or without the prefix.
    ///
    /// # Errors
    /// [`InvalidSecret`] says what is wrong with the text; nothing is trimmed or guessed.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        if text.trim() != text {
            return Err(InvalidSecret::WhiteSpace);
        }
        if text.starts_with("v1,") {
            return Err(InvalidSecret::Version);
        }
        if text.starts_with("whsk_") || text.starts_with("whpk_") {
            return Err(InvalidSecret::Asymmetric);
        }
        let digits = text.strip_prefix(PREFIX).unwrap_or(text);
        if digits.is_empty() {
            return Err(InvalidSecret::Empty);
        }
        let bytes = BASE64.decode(digits).map_err(|_| InvalidSecret::Base64)?;
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes.len()) {
            return Err(InvalidSecret::Length(bytes.len()));
        }
        Ok(Self::from_key(bytes.into()))
    }

    fn from_key(bytes: Box<[u8]>) -> Self {
        // A key as long as a block or shorter, padded with zeros, is the same key (RFC 2104 §2).
        let mut block = [0; BYTES_MAX];
        for (place, byte) in block.iter_mut().zip(&bytes) {
            *place = *byte;
        }
        Self { bytes, mac: Mac::new(&block.into()) }
    }

    /// The text form: `whsec_` and base64. To be shown once, and to be stored; nothing else.
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", BASE64.encode(&self.bytes))
    }

    /// A MAC under this secret that has been fed nothing yet.
    pub(crate) fn mac(&self) -> Mac {
        self.mac.clone()
    }
}

/// In constant time.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.bytes.ct_eq(&other.bytes).into()
    }
}
impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// The secrets of an endpoint, newest first: one without expiry, then older ones with theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSet {
    newest: Newest,
    older: Vec<Older>,
}

#[derive(Clone, PartialEq, Eq)]
enum Newest {
    Known(Secret),
    /// What is stored cannot be read; kept as it is.
    Unreadable(String),
}

impl fmt::Debug for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(secret) => secret.fmt(f),
            Self::Unreadable(_) => f.write_str("Unreadable"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Older {
    secret: Secret,
    /// It signs before this instant, not at it.
    until: Timestamp,
}

/// A rotation was refused: too many secrets would sign at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LIVE_MAX} secrets are still in use: the next rotation is possible when one has expired")]
pub struct TooManySecrets;

/// The stored form cannot be read. Does not say more, because its text holds secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored secrets cannot be read")]
pub struct UnreadableSecrets;

/// One entry of the stored form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    secret: String,
    until: Option<Timestamp>,
}

impl SecretSet {
    /// A set of one secret.
    pub const fn new(secret: Secret) -> Self {
        Self { newest: Newest::Known(secret), older: Vec::new() }
    }

    /// In place of a stored set that cannot be read: no secret signs, and it is stored again as it
    /// was found. The next rotation replaces it.
    pub fn unreadable(stored: &str) -> Self {
        Self { newest: Newest::Unreadable(stored.to_owned()), older: Vec::new() }
    }

    /// Whether there is a secret to sign with.
    pub const fn are_readable(&self) -> bool {
        matches!(self.newest, Newest::Known(_))
    }

    const fn newest(&self) -> Option<&Secret> {
        match &self.newest {
            Newest::Known(secret) => Some(secret),
            Newest::Unreadable(_) => None,
        }
    }

    /// The set with `new` in front. The secret that was newest signs on for `overlap`; older ones
    /// keep the expiry they had, and those that have expired are forgotten.
    ///
    /// # Errors
    /// [`TooManySecrets`] when more than [`LIVE_MAX`] would sign at `now`.
    pub fn rotate(
        &self,
        new: Secret,
        now: Timestamp,
        overlap: Duration,
    ) -> Result<Self, TooManySecrets> {
        let until = now + overlap;
        let before = self.newest().map(|secret| Older { secret: secret.clone(), until });
        let older: Vec<_> = before
            .into_iter()
            .chain(self.older.iter().cloned())
            .filter(|older| now < older.until && older.secret != new)
            .collect();
        if older.len() >= LIVE_MAX {
            return Err(TooManySecrets);
        }
        Ok(Self { newest: Newest::Known(new), older })
    }

    /// The secrets that sign at `now`, newest first; at least one if they can be read.
    pub fn live(&self, now: Timestamp) -> impl Iterator<Item = &Secret> {
        let older = self.older.iter().filter(move |older| now < older.until);
        self.newest().into_iter().chain(older.map(|older| &older.secret))
    }

    /// When the older secrets that still sign at `now` will stop, in the order of [`Self::live`].
    pub fn expiries(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.older.iter().map(|older| older.until).filter(move |until| now < *until)
    }

    /// The stored form, JSON: `[{"secret": "whsec_…", "until": null | time}]`, newest first.
    pub fn to_stored(&self) -> String {
        let newest = match &self.newest {
            Newest::Known(secret) => Stored { secret: secret.expose(), until: None },
            Newest::Unreadable(stored) => return stored.clone(),
        };
        let older = self
            .older
            .iter()
            .map(|older| Stored { secret: older.secret.expose(), until: Some(older.until) });
        let entries: Vec<_> = std::iter::once(newest).chain(older).collect();
        serde_json::to_string(&entries).unwrap_or_default()
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`UnreadableSecrets`] when the text is not what [`Self::to_stored`] writes.
    pub fn from_stored(text: &str) -> Result<Self, UnreadableSecrets> {
        let entries: Vec<Stored> = serde_json::from_str(text).map_err(|_| UnreadableSecrets)?;
        let mut entries = entries.into_iter().map(|entry| {
            let secret = Secret::parse(&entry.secret).map_err(|_| UnreadableSecrets)?;
            Ok((secret, entry.until))
        });
        let Some((newest, None)) = entries.next().transpose()? else {
            return Err(UnreadableSecrets);
        };
        let older = entries.map(|entry| {
            let (secret, until) = entry?;
            Ok(Older { secret, until: until.ok_or(UnreadableSecrets)? })
        });
        Ok(Self { newest: Newest::Known(newest), older: older.collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const DAY: Duration = Duration::from_secs(86_400);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn numbered(number: u8) -> Secret {
        Secret::from_bytes([number; 32])
    }

    /// The first bytes of the secrets that sign at this second.
    fn live(set: &SecretSet, seconds: i64) -> Vec<u8> {
        set.live(at(seconds)).map(|secret| secret.bytes[0]).collect()
    }

    #[test]
    fn unreadable_secrets_sign_nothing_and_are_kept_until_a_rotation() {
        let unreadable = SecretSet::unreadable("[\"hunter2\"]");
        assert_eq!((live(&unreadable, 0), unreadable.are_readable()), (vec![], false));
        assert_eq!(unreadable.to_stored(), "[\"hunter2\"]");
        assert!(!format!("{unreadable:?}").contains("hunter2"));
        let rotated = unreadable.rotate(numbered(3), at(0), DAY).expect("room");
        assert_eq!((live(&rotated, 0), rotated.are_readable()), (vec![3], true));
    }

    fn check(text: &str, expected: Result<&str, InvalidSecret>) {
        let parsed = Secret::parse(text).map(|secret| secret.expose());
        assert_eq!(parsed, expected.map(str::to_owned), "{text:?}");
    }

    #[test]
    fn case_030_with_and_without_the_prefix() {
        use InvalidSecret::{Asymmetric, Base64, Empty, Length, Version};
        check(TEXT, Ok(TEXT));
        check(&TEXT[6..], Ok(TEXT));
        check("", Err(Empty));
        check("whsec_", Err(Empty));
        check(&format!("whsec_{TEXT}"), Err(Base64));
        check(&TEXT.to_uppercase(), Err(Base64));
        check(&format!("v1,{TEXT}"), Err(Version));
        check(&format!("'{TEXT}'"), Err(Base64));
        check(&TEXT.replace("2L", "-_"), Err(Base64));
        check(&TEXT.replace("2L", "2 L"), Err(Base64));
        check("whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbf=", Err(Asymmetric));
        check("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=", Err(Asymmetric));
        check("whsec_AAAA", Err(Length(3)));
        let of = |bytes: usize| format!("whsec_{}", BASE64.encode(vec![7; bytes]));
        for (bytes, legal) in [(23, false), (24, true), (32, true), (64, true), (65, false)] {
            let text = of(bytes);
            check(&text, if legal { Ok(&text) } else { Err(Length(bytes)) });
            check(text.trim_end_matches('='), if legal { Ok(&text) } else { Err(Length(bytes)) });
        }
        // Stray bits at the end: two texts would be one secret.
        check(&of(32).replace("Bwc=", "Bwd="), Err(Base64));
    }

    #[test]
    fn case_089_white_space_at_the_ends() {
        for text in [
            format!("{TEXT}\n"),
            format!("{TEXT}\r\n"),
            format!("{TEXT} "),
            format!("\t{TEXT}"),
            " ".to_owned(),
        ] {
            check(&text, Err(InvalidSecret::WhiteSpace));
        }
    }

    #[test]
    fn nothing_prints_a_secret() {
        let secret = Secret::parse(TEXT).expect("legal");
        let set = SecretSet::new(secret.clone());
        assert_eq!(format!("{secret:?}"), "Secret(redacted)");
        assert!(!format!("{set:?}").contains("MfKQ"), "{set:?}");
        let stored = r#"[{"secret":"MfKQ","until":null}]"#;
        let error = SecretSet::from_stored(stored).expect_err("too short");
        assert!(!format!("{error:?} {error}").contains("MfKQ"));
    }

    #[test]
    fn case_025_both_sign_during_the_overlap_and_the_old_one_never_after() {
        let set = SecretSet::new(numbered(1)).rotate(numbered(2), at(0), DAY).expect("room");
        assert_eq!(live(&set, 0), [2, 1]);
        assert_eq!(live(&set, 86_399), [2, 1]);
        assert_eq!(set.live(Timestamp::from_millis(86_399_999)).count(), 2);
        assert_eq!(live(&set, 86_400), [2]);
        assert_eq!(set.expiries(at(0)).collect::<Vec<_>>(), [at(86_400)]);
        assert_eq!(set.expiries(at(86_400)).count(), 0);
    }

    #[test]
    fn older_ones_keep_their_own_expiry() {
        let set = SecretSet::new(numbered(1)).rotate(numbered(2), at(0), DAY).expect("room");
        let set = set.rotate(numbered(3), at(10), Duration::from_secs(20)).expect("room");
        assert_eq!(live(&set, 29), [3, 2, 1]);
        assert_eq!(live(&set, 30), [3, 1]);
        assert_eq!(live(&set, 86_400), [3]);
        let set = set.rotate(numbered(4), at(86_400), Duration::ZERO).expect("room");
        assert_eq!(set, SecretSet::new(numbered(4)), "no overlap: the old one is gone at once");
    }

    #[test]
    fn a_fifth_live_secret_is_refused_until_one_has_expired() {
        let mut set = SecretSet::new(numbered(1));
        for number in 2..=4 {
            set = set.rotate(numbered(number), at(i64::from(number)), DAY).expect("room");
        }
        assert_eq!(live(&set, 4), [4, 3, 2, 1]);
        assert_eq!(set.rotate(numbered(5), at(5), DAY), Err(TooManySecrets));
        let set = set.rotate(numbered(5), at(86_402), DAY).expect("the first has expired");
        assert_eq!(live(&set, 86_402), [5, 4, 3, 2]);
    }

    #[test]
    fn a_secret_that_comes_back_signs_once() {
        let set = SecretSet::new(numbered(1)).rotate(numbered(2), at(0), DAY).expect("room");
        let set = set.rotate(numbered(1), at(1), DAY).expect("room");
        assert_eq!(live(&set, 1), [1, 2]);
    }

    #[test]
    fn stored_form() {
        let set = SecretSet::new(numbered(0)).rotate(numbered(1), at(0), DAY).expect("room");
        let one = "whsec_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
        let zero = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        let until = "1970-01-02T00:00:00.000Z";
        let text = format!(
            r#"[{{"secret":"{one}","until":null}},{{"secret":"{zero}","until":"{until}"}}]"#
        );
        assert_eq!(set.to_stored(), text);
        assert_eq!(SecretSet::from_stored(&text), Ok(set));
        for bad in [
            "",
            "[]",
            "{}",
            r#"[{"secret":"whsec_AAAA","until":null}]"#,
            &format!(r#"[{{"secret":"{one}","until":"1970-01-02T00:00:00.000Z"}}]"#),
            &format!(r#"[{{"secret":"{one}","until":null}},{{"secret":"{one}","until":null}}]"#),
            &format!(r#"[{{"secret":"{one}","until":null,"more":1}}]"#),
        ] {
            assert_eq!(SecretSet::from_stored(bad), Err(UnreadableSecrets), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(bytes in prop::collection::vec(any::<u8>(), BYTES_MIN..=BYTES_MAX)) {
            let text = format!("whsec_{}", BASE64.encode(&bytes));
            let secret = Secret::parse(&text).expect("legal");
            prop_assert_eq!(&*secret.bytes, &bytes[..]);
            prop_assert_eq!(secret.expose(), text);
        }

        #[test]
        fn there_is_always_a_newest_and_never_too_many(
            turns in prop::collection::vec((0..100_i64, 0..300_u64), 0..12)
        ) {
            let (mut set, mut now) = (SecretSet::new(numbered(0)), 0);
            for (number, (wait, overlap)) in (1..).zip(turns) {
                now += wait;
                let overlap = Duration::from_secs(overlap);
                if let Ok(next) = set.rotate(numbered(number), at(now), overlap) {
                    set = next;
                    prop_assert_eq!(live(&set, now)[0], number);
                }
                prop_assert!((1..=LIVE_MAX).contains(&live(&set, now).len()));
                prop_assert_eq!(SecretSet::from_stored(&set.to_stored()), Ok(set.clone()));
            }
        }
    }
}
