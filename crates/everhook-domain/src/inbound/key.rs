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
    /// Whether no other key is shown as this one is.
    is_exact: bool,
}

impl DedupeKey {
    /// A key of these parts, in this order.
    pub fn new<P: AsRef<[u8]>>(parts: &[P]) -> Self {
        let mut shown = String::new();
        let mut is_exact = true;
        for (index, part) in parts.iter().enumerate() {
            let bytes = part.as_ref();
            // The first stands between parts, the second before a hash, the third is no text.
            let odd = |b: &u8| matches!(b, b':' | b'#' | 0);
            is_exact &= !bytes.iter().any(odd) && std::str::from_utf8(bytes).is_ok();
            if index > 0 {
                shown.push(':');
            }
            // Not every database takes a NUL in a text.
            shown.push_str(&String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}"));
        }
        if let Some((at, _)) = shown.char_indices().nth(SHOWN_CHARS_MAX) {
            shown.truncate(at);
            shown.push('…');
            is_exact = false;
        }
        Self { hash: digest::of_parts(parts), shown, is_exact }
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
        Self { hash: digest.finish(), shown: Self::new(&plain).shown, is_exact: false }
    }

    /// What is compared: the SHA-256 of the parts, each with its length.
    pub const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// A text for those who compare texts: no two keys have one. It is what is shown, and where
    /// another key could be shown so, `#` and the hash in hexadecimal digits after it.
    pub fn text(&self) -> String {
        match self.is_exact {
            true => self.shown.clone(),
            false => format!("{}#{}", self.shown, digest::hex(&self.hash)),
        }
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

    #[test]
    fn a_text_is_of_one_key_only() {
        let longer = |more: &str| DedupeKey::new(&[format!("{}{more}", "x".repeat(600))]);
        let forged = format!("b#{}", digest::hex(DedupeKey::new(&["a:b"]).hash()));
        let keys = [
            DedupeKey::new(&["a", "b"]),
            DedupeKey::new(&["a:b"]),
            DedupeKey::new(&["a", &*forged]),
            DedupeKey::new(&["a", "b", ""]),
            DedupeKey::by_own_rule(&[("text", "a"), ("text", "b")]),
            DedupeKey::new(&["a\0b"]),
            DedupeKey::new(&["a\u{fffd}b"]),
            DedupeKey::new(&[b"a\xffb"]),
            longer("1"),
            longer("2"),
        ];
        for (index, one) in keys.iter().enumerate() {
            let others = keys[index + 1..].iter();
            assert!(others.map(DedupeKey::text).all(|text| text != one.text()), "{one:?}");
        }
        // Texts that are stored must never change.
        assert_eq!(keys[0].text(), "a:b");
        assert_eq!(DedupeKey::new(&["evt_1"]).text(), "evt_1");
        let hash = digest::hex(keys[1].hash());
        assert_eq!(keys[1].text(), format!("a:b#{hash}"));
    }
}
