//! The admin token: given by `EVERHOOK_ADMIN_TOKEN` at each start, or made at the first one.
//!
//! Only its SHA-256 is stored, in `admin-token.sha256`. A made token is shown once and cannot be
//! shown again; a lost one is replaced by setting the variable, or by removing the file.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::data_dir::DataDir;
use crate::entropy;
use crate::exit::Failure;

/// The variable that sets it.
pub(crate) const VARIABLE: &str = "EVERHOOK_ADMIN_TOKEN";
/// Fewest characters of a given token: fewer could be guessed.
pub(crate) const CHARS_MIN: usize = 32;

const FILE: &str = "admin-token.sha256";
/// What a made token begins with.
const PREFIX: &str = "ek_";
/// Random bytes in a made token.
const BYTES: usize = 32;

/// The SHA-256 of a token: all that is kept of it.
pub(crate) type TokenHash = [u8; 32];

/// Checks a token that was given.
///
/// # Errors
/// It is too short, or cannot stand in a header. The token itself is not repeated.
pub(crate) fn check(given: &str) -> Result<&str, Failure> {
    // What ends a file that a variable was filled from is no part of the token.
    let token = given.trim();
    let chars = token.chars().count();
    if chars < CHARS_MIN {
        return Err(Failure::usage(format!(
            "{VARIABLE} has {chars} characters: it must have at least {CHARS_MIN}, so that nobody \
             can guess it; make one with `openssl rand -base64 32`"
        )));
    }
    if token.chars().any(char::is_control) {
        return Err(Failure::usage(format!(
            "{VARIABLE} has a line break or another control character in it, which no HTTP header \
             can carry; remove it"
        )));
    }
    Ok(token)
}

/// A new token, `ek_` and 43 characters.
///
/// # Errors
/// No random bytes.
pub(crate) fn make() -> Result<String, Failure> {
    Ok(format!("{PREFIX}{}", entropy::text::<BYTES>()?))
}

/// Settles which token the server accepts: the given one, else the one of an earlier start, else a
/// new one, which `show` is handed before anything is stored, so that no token is in force that
/// nobody saw.
///
/// # Errors
/// The given one is refused, the file is damaged or cannot be written, or `show` failed.
pub(crate) fn settle(
    data_dir: &DataDir,
    given: Option<&str>,
    show: impl FnOnce(&str) -> Result<(), Failure>,
) -> Result<TokenHash, Failure> {
    if let Some(given) = given {
        let hash = hash_of(check(given)?);
        // The same one again needs no room on a disk that is full.
        let kept = data_dir.read(FILE).ok().flatten();
        if kept.and_then(|text| from_hex(text.trim())) != Some(hash) {
            store(data_dir, &hash)?;
        }
        return Ok(hash);
    }
    let path = data_dir.path().join(FILE);
    let kept = data_dir
        .read(FILE)
        .map_err(|error| Failure::failed(format!("{} cannot be read: {error}", path.display())))?;
    match kept {
        Some(text) => from_hex(text.trim()).ok_or_else(|| {
            Failure::failed(format!(
                "{} is damaged: set {VARIABLE}, or remove the file to get a new admin token",
                path.display()
            ))
        }),
        None => {
            let made = make()?;
            show(&made)?;
            let hash = hash_of(&made);
            store(data_dir, &hash)?;
            Ok(hash)
        }
    }
}

fn store(data_dir: &DataDir, hash: &TokenHash) -> Result<(), Failure> {
    data_dir.replace(FILE, &format!("{}\n", to_hex(hash))).map_err(|error| {
        let path = data_dir.path().join(FILE);
        Failure::failed(format!("{} cannot be written: {error}", path.display()))
    })
}

fn hash_of(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

fn to_hex(hash: &TokenHash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Option<TokenHash> {
    let mut hash = TokenHash::default();
    if text.len() != 2 * hash.len() || !text.is_ascii() {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn given_tokens() {
        let long = "x".repeat(32);
        let umlauts = "ä".repeat(32);
        for (given, expected) in [
            (long.as_str(), Ok(long.as_str())),
            (&format!(" {long}\r\n"), Ok(long.as_str())),
            (&umlauts, Ok(umlauts.as_str())),
            (
                "correct horse battery staple and one more",
                Ok("correct horse battery staple and one more"),
            ),
            (&"x".repeat(31), Err("has 31 characters")),
            ("", Err("has 0 characters")),
            (&format!("{long}\n{long}"), Err("control character")),
        ] {
            match (check(given), expected) {
                (Ok(token), Ok(expected)) => assert_eq!(token, expected),
                (Err(failure), Err(part)) => {
                    assert_eq!(failure.exit, Exit::Usage);
                    assert!(failure.message.contains(part), "{failure}");
                    assert!(!failure.message.contains("xxxx"), "the token is not repeated");
                }
                (found, _) => panic!("{given}: {found:?}"),
            }
        }
    }

    #[test]
    fn hex_both_ways() {
        let hash = hash_of("token");
        assert_eq!(from_hex(&to_hex(&hash)), Some(hash));
        for damaged in ["", "00", &"g0".repeat(32), &"ä".repeat(32), &"0".repeat(63)] {
            assert_eq!(from_hex(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn a_made_token_is_shown_once_and_stays() {
        let path = std::env::temp_dir().join(format!("everhook-token-{}", std::process::id()));
        let _may_be_missing = std::fs::remove_dir_all(&path);
        let data_dir = DataDir::take(&path).expect("free");

        let unseen = settle(&data_dir, None, |_| Err(Failure::failed("nobody reads")));
        assert!(unseen.is_err(), "a token that nobody saw is not stored");

        let mut shown = String::new();
        let show = |token: &str| {
            shown = token.to_owned();
            Ok(())
        };
        let hash = settle(&data_dir, None, show).expect("made");
        assert!(shown.starts_with(PREFIX) && shown.len() == PREFIX.len() + 43, "{shown}");
        assert_eq!(hash, hash_of(&shown));

        let never = |_: &str| panic!("it was shown before");
        assert_eq!(settle(&data_dir, None, never).expect("kept"), hash);

        let given = "another token of thirty-two characters";
        let set = settle(&data_dir, Some(given), never).expect("long enough");
        assert_eq!(set, hash_of(given));
        assert_eq!(settle(&data_dir, None, never).expect("kept"), set);

        // As somebody has left it: the same token again writes nothing.
        let untidy = format!("{}\n\n", to_hex(&set));
        data_dir.replace(FILE, &untidy).expect("writable");
        assert_eq!(settle(&data_dir, Some(given), never).expect("the same"), set);
        assert_eq!(data_dir.read(FILE).expect("readable"), Some(untidy));

        data_dir.replace(FILE, "damaged").expect("writable");
        assert!(settle(&data_dir, None, never).is_err());
        std::fs::remove_dir_all(&path).expect("ours");
    }
}
