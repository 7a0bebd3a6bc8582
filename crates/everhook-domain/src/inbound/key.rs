//! What identifies a received event within its source.

use std::fmt;

use crate::digest;

/// As much of a key as is shown, in characters.
const SHOWN_CHARS_MAX: usize = 512;

/// A dedupe key: one or more parts, told apart by their lengths, so that no two different lists of
/// parts are one key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DedupeKey {
    hash: [u8; 32],
    shown: String,
}

impl DedupeKey {
    /// A key of these parts, in this order.
    pub fn new<P: AsRef<[u8]>>(parts: &[P]) -> Self {
        let mut shown = String::new();
        for (index, part) in parts.iter().enumerate() {
            let bytes = part.as_ref();
            if index > 0 {
                shown.push(':');
            }
            // Not every database takes a NUL in a text.
            shown.push_str(&String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}"));
        }
        if let Some((at, _)) = shown.char_indices().nth(SHOWN_CHARS_MAX) {
            shown.truncate(at);
            shown.push('…');
        }
        Self { hash: digest::of_parts(parts), shown }
    }

    /// A key by a source's own rule, of parts with a word for what each is: never the one that a
    /// kind's rule makes of the same parts, so that neither takes an event for the other's.
    pub(crate) fn by_own_rule<P: AsRef<[u8]>>(parts: &[(&str, P)]) -> Self {
        let mut digest = digest::Parts::default();
        digest.part(b"own rule");
        for (word, part) in parts {
            digest.part(word.as_bytes());
            digest.part(part.as_ref());
        }
        let plain: Vec<&[u8]> = parts.iter().map(|(_, part)| part.as_ref()).collect();
        Self { hash: digest.finish(), shown: Self::new(&plain).shown }
    }

    /// What is compared: the SHA-256 of the parts, each with its length.
    pub const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// What is shown: the parts, joined by colons; a very long one is cut.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for DedupeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DedupeKey({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart() {
        let keys = [
            DedupeKey::new(&["a", "b"]),
            DedupeKey::new(&["a:b"]),
            DedupeKey::new(&["a", "b", ""]),
            DedupeKey::new(&["", "a", "b"]),
            DedupeKey::new(&["b", "a"]),
        ];
        for (index, one) in keys.iter().enumerate() {
            assert!(keys[index + 1..].iter().all(|other| other.hash() != one.hash()), "{one:?}");
        }
        assert_eq!(keys[0].shown(), "a:b");
        let own = DedupeKey::by_own_rule(&[("text", "a"), ("text", "b")]);
        assert_eq!(own.shown(), "a:b");
        for other in keys.iter().chain([
            &DedupeKey::by_own_rule(&[("text", "a"), ("value", "b")]),
            &DedupeKey::by_own_rule(&[("text", "a:b")]),
        ]) {
            assert_ne!(own.hash(), other.hash(), "{other:?}");
        }
        // What is stored must never change: the SHA-256 of each length in eight bytes and the part.
        let hex: String = keys[0].hash().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "3c9d591045bc8876f9d0399bbfb05c6a412096e906f73278f98406cd5dca86df");
        // What is shown may be alike; what is compared is not.
        assert_eq!(keys[0].shown(), keys[1].shown());
        assert_eq!(DedupeKey::new(&[b"\xff"]).shown(), "\u{fffd}");
        let long = DedupeKey::new(&["ä".repeat(SHOWN_CHARS_MAX + 1)]);
        assert_eq!(DedupeKey::new(&["a\0b"]).shown(), "a\u{fffd}b");
        assert_eq!(long.shown().chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
