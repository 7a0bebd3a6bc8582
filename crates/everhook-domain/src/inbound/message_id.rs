//! The Message-ID of a mail (RFC 5322 §3.6.4), in the one form that is compared: whichever path the
//! mail comes by, pushed or read again by whoever reconciles.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::digest;

/// A longer one is compared by its hash: a line of a mail has at most as many bytes (§2.1.1).
const BYTES_MAX: usize = 998;

/// A Message-ID without what may stand around it: angle brackets, comments, folding and other white
/// space. Its case is kept, since the left side belongs to whoever made it (§3.6.4).
///
/// One that is too long, or is no UTF-8, is the hash of itself, so that it still tells apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MessageId(String);

/// What was opened and not closed, so that it opens nothing.
enum Unclosed {
    Comment,
    Quote,
}

impl MessageId {
    /// Reads the value of a header, folded or not. `None` if there is nothing in it: mails without
    /// an id have nothing in common.
    ///
    /// Senders that break the rules are borne with: brackets or the `@` may be missing, and what is
    /// opened and never closed is text.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (mut comments, mut quotes) = (true, true);
        // At most three turns.
        let bytes = loop {
            match bare(value, comments, quotes) {
                Ok(bytes) => break bytes,
                Err(Unclosed::Comment) => comments = false,
                Err(Unclosed::Quote) => quotes = false,
            }
        };
        if bytes.is_empty() || bytes == b"@" {
            return None;
        }
        match String::from_utf8(bytes) {
            Ok(text) if text.len() <= BYTES_MAX => Some(Self(text)),
            Ok(text) => Some(Self::hashed(text.as_bytes())),
            Err(error) => Some(Self::hashed(error.as_bytes())),
        }
    }

    /// Reads the values of all headers of the name, of which there should be one: the first that
    /// has an id in it counts.
    pub fn first<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<Self> {
        values.into_iter().find_map(Self::parse)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn hashed(bytes: &[u8]) -> Self {
        Self(format!("sha256={}", digest::hex(&Sha256::digest(bytes))))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is between the first `<` and the last `>`, or all of it without those, without comments and
/// white space. Inside quotes (of the obsolete syntax, §4.5.4) only line breaks are taken out.
fn bare(value: &[u8], comments: bool, quotes: bool) -> Result<Vec<u8>, Unclosed> {
    let mut kept = Vec::with_capacity(value.len().min(4 * BYTES_MAX));
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    // Where the id begins and ends in `kept`.
    let (mut begin, mut end) = (None, None);
    for &byte in value {
        let was_escaped = std::mem::take(&mut escaped);
        if depth > 0 {
            match byte {
                _ if was_escaped => {}
                b'\\' => escaped = true,
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            continue;
        }
        match byte {
            b'\r' | b'\n' => continue,
            b'\\' if quoted => escaped = !was_escaped,
            b'"' if quotes && !was_escaped => quoted = !quoted,
            _ if quoted => {}
            b' ' | b'\t' => continue,
            b'(' if comments => {
                depth = 1;
                continue;
            }
            b'<' if begin.is_none() => begin = Some(kept.len() + 1),
            b'>' => end = Some(kept.len()),
            _ => {}
        }
        kept.push(byte);
    }
    if depth > 0 {
        return Err(Unclosed::Comment);
    }
    if quoted {
        return Err(Unclosed::Quote);
    }
    let begin = begin.unwrap_or(0);
    let end = end.filter(|&end| end >= begin).unwrap_or(kept.len());
    kept.truncate(end);
    kept.drain(..begin);
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check(value: &[u8], expected: Option<&str>) {
        let found = MessageId::parse(value);
        let shown = String::from_utf8_lossy(value);
        assert_eq!(found.as_ref().map(MessageId::as_str), expected, "{shown:?}");
    }

    #[test]
    fn the_vectors() {
        let file = include_str!("../../tests/vectors/rfc5322_message_id.json");
        let cases: Vec<Value> = serde_json::from_str(file).unwrap();
        assert!(cases.len() >= 10);
        for case in cases {
            let value = case["headers"]["Message-ID"].as_str().unwrap();
            let expected = case["dedupe_keys"].as_array().unwrap().first();
            check(value.as_bytes(), expected.map(|key| key.as_str().unwrap()));
        }
    }

    #[test]
    fn what_stands_around_is_left_out() {
        for value in [
            "<A.1@b.test>",
            "(a comment) <A.1@b.test>",
            "<A.1@b.test> (by (nested (thrice)) mailer)",
            "(a \\) quoted pair <x@y>) <A.1@b.test>",
            "(\"not a quote) <A.1@b.test>",
            "<A.1(inside)@b.test>",
            "<A.1@\r\n\tb.test>",
            "<A.1\n @b.test>",
            "A.1@b.test>",
            "<A.1@b.test",
            "Message: <A.1@b.test> trailing",
        ] {
            check(value.as_bytes(), Some("A.1@b.test"));
        }
    }

    #[test]
    fn what_belongs_to_it_is_kept() {
        for (value, expected) in [
            ("<a.1@b.test>", "a.1@b.test"),
            ("<\"a (b) > c\"@d.test>", "\"a (b) > c\"@d.test"),
            ("<\"a\\\" b\"@d.test>", "\"a\\\" b\"@d.test"),
            ("<\"a\r\n b\"@d.test>", "\"a b\"@d.test"),
            ("<a@[IPv6:2001:db8::1]>", "a@[IPv6:2001:db8::1]"),
            // What is never closed opens nothing.
            ("<(a@b.test>", "(a@b.test"),
            ("<a\"b@c.test>", "a\"b@c.test"),
            ("(<\"a@b.test>", "\"a@b.test"),
            ("<)a@b.test>", ")a@b.test"),
            ("><a@b.test>", "a@b.test"),
            ("<a@b><c@d>", "a@b><c@d"),
            ("<\u{e4}@b.test>", "\u{e4}@b.test"),
            ("<@b.test>", "@b.test"),
        ] {
            check(value.as_bytes(), Some(expected));
        }
    }

    #[test]
    fn case_043_nothing_is_no_id() {
        for value in ["", " ", "\r\n ", "<>", "< >", "()", "(only a comment)", "<(a)>", "<@>", "><"]
        {
            check(value.as_bytes(), None);
        }
        assert_eq!(MessageId::first([]), None);
        assert_eq!(MessageId::first([&b" "[..], b"<>"]), None);
        let first = MessageId::first([&b" "[..], b"<a@b>", b"<c@d>"]);
        assert_eq!(first.unwrap().to_string(), "a@b");
    }

    #[test]
    fn long_and_odd_ones_are_told_apart_by_their_hash() {
        let long = |c: &str| format!("<{}@b.test>", c.repeat(2_000));
        let ids = [
            MessageId::parse(long("a").as_bytes()),
            MessageId::parse(long("b").as_bytes()),
            MessageId::parse(b"<\xff@b.test>"),
            MessageId::parse(b"<\xfe@b.test>"),
        ];
        for (index, id) in ids.iter().enumerate() {
            assert_eq!(id.as_ref().unwrap().as_str().len(), 71);
            assert!(ids[index + 1..].iter().all(|other| other != id));
        }
        assert_eq!(ids[0], MessageId::parse(format!(" (x)\r\n {}", long("a")).as_bytes()));
        let longest = format!("<{}>", "a".repeat(BYTES_MAX));
        check(longest.as_bytes(), Some(&"a".repeat(BYTES_MAX)));
    }

    #[test]
    fn a_million_brackets_take_no_longer_than_as_many_letters() {
        for odd in ["(", "<", "\"", "(\"", "\\", "()"] {
            MessageId::parse(odd.repeat(1_000_000).as_bytes());
        }
    }
}
