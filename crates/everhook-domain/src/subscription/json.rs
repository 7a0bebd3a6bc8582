//! JSON read for comparison: numbers are kept as written, so that they can be compared exactly.
//!
//! RFC 8259, with three liberties that the sender of an event must not pay for: a lone surrogate
//! escape in a string is kept as one (WTF-8), of members with the same name the last one counts,
//! and what is nested deeper than [`DEPTH_MAX`] is skipped and equals nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Containers inside each other that are looked into.
pub(super) const DEPTH_MAX: usize = 128;

/// Bytes of a string: UTF-8, except for lone surrogates.
pub(super) type Text<'a> = Cow<'a, [u8]>;

/// A JSON value, equal to another if it means the same.
#[derive(Debug, PartialEq)]
pub(super) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number<'a>),
    Text(Text<'a>),
    Array(Vec<Json<'a>>),
    Object(BTreeMap<Text<'a>, Json<'a>>),
    /// Nested too deep to be looked into.
    Deep,
}

impl Json<'_> {
    /// Whether a part of it is nested too deep to be looked into.
    pub(super) fn is_deep(&self) -> bool {
        match self {
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Text(_) => false,
            Json::Array(items) => items.iter().any(Json::is_deep),
            Json::Object(members) => members.values().any(Json::is_deep),
            Json::Deep => true,
        }
    }
}

/// A number as it is written.
#[derive(Debug)]
pub(super) struct Number<'a>(&'a [u8]);

/// By value: `1`, `1.0` and `10e-1` are equal, and no digit is lost.
impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0 || self.decimal().is_some_and(|value| Some(value) == other.decimal())
    }
}

/// `0.digits × 10^exponent`, without zeros at either end of the digits; zero has none.
#[derive(PartialEq)]
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Number<'_> {
    /// The value; `None` where the exponent is beyond all reason.
    fn decimal(&self) -> Option<Decimal> {
        let (negative, text) = match self.0 {
            [b'-', text @ ..] => (true, text),
            text => (false, text),
        };
        let (mantissa, exponent) = match text.iter().position(|b| matches!(b, b'e' | b'E')) {
            Some(at) => (&text[..at], std::str::from_utf8(&text[at + 1..]).ok()?.parse().ok()?),
            None => (text, 0_i64),
        };
        let point = mantissa.iter().position(|b| *b == b'.').unwrap_or(mantissa.len());
        let mut digits: Vec<u8> = mantissa.iter().copied().filter(|b| *b != b'.').collect();
        let leading = digits.iter().take_while(|b| **b == b'0').count();
        digits.drain(..leading);
        while digits.last() == Some(&b'0') {
            digits.pop();
        }
        if digits.is_empty() {
            return Some(Decimal { negative: false, digits, exponent: 0 });
        }
        let exponent = exponent
            .checked_add(i64::try_from(point).ok()?)?
            .checked_sub(i64::try_from(leading).ok()?)?;
        Some(Decimal { negative, digits, exponent })
    }
}

/// Reads one JSON value; `None` if the text is anything else.
pub(super) fn parse(text: &[u8]) -> Option<Json<'_>> {
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    reader.skip_space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Option<Json<'a>> {
        self.skip_space();
        match self.rest.first()? {
            b'n' => self.word(b"null", Json::Null),
            b't' => self.word(b"true", Json::Bool(true)),
            b'f' => self.word(b"false", Json::Bool(false)),
            b'"' => self.string().map(Json::Text),
            b'-' | b'0'..=b'9' => self.number().map(Json::Number),
            b'[' | b'{' if depth == DEPTH_MAX => self.skip_container(),
            b'[' => self.array(depth + 1),
            b'{' => self.object(depth + 1),
            _ => None,
        }
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// Whether the next byte is this one; then it is taken.
    fn take(&mut self, byte: u8) -> bool {
        let taken = self.rest.first() == Some(&byte);
        if taken {
            self.rest = &self.rest[1..];
        }
        taken
    }

    fn word(&mut self, word: &[u8], value: Json<'a>) -> Option<Json<'a>> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(value)
    }

    fn array(&mut self, depth: usize) -> Option<Json<'a>> {
        let mut items = Vec::new();
        self.next()?;
        self.skip_space();
        if self.take(b']') {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_space();
            match self.next()? {
                b',' => {}
                b']' => return Some(Json::Array(items)),
                _ => return None,
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json<'a>> {
        let mut members = BTreeMap::new();
        self.next()?;
        self.skip_space();
        if self.take(b'}') {
            return Some(Json::Object(members));
        }
        loop {
            self.skip_space();
            let name = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return None;
            }
            members.insert(name, self.value(depth)?);
            self.skip_space();
            match self.next()? {
                b',' => {}
                b'}' => return Some(Json::Object(members)),
                _ => return None,
            }
        }
    }

    /// Passes over an array or object without recursion; only its end is looked for.
    fn skip_container(&mut self) -> Option<Json<'a>> {
        let mut open = 0_usize;
        loop {
            match self.rest.first()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => open += 1,
                b']' | b'}' => open -= 1,
                _ => {}
            }
            self.next()?;
            if open == 0 {
                return Some(Json::Deep);
            }
        }
    }

    fn number(&mut self) -> Option<Number<'a>> {
        let start = self.rest;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        Some(Number(&start[..start.len() - self.rest.len()]))
    }

    fn digits(&mut self) -> Option<()> {
        let count = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.rest = &self.rest[count..];
        (count > 0).then_some(())
    }

    fn string(&mut self) -> Option<Text<'a>> {
        self.rest = self.rest.strip_prefix(b"\"")?;
        let plain = |b: &&u8| !matches!(**b, b'"' | b'\\' | 0..=0x1f);
        let mut text = Cow::Borrowed(&[][..]);
        loop {
            let (run, rest) = self.rest.split_at(self.rest.iter().take_while(plain).count());
            self.rest = rest;
            if text.is_empty() {
                text = Cow::Borrowed(run);
            } else {
                text.to_mut().extend_from_slice(run);
            }
            match self.next()? {
                b'"' => return Some(text),
                b'\\' => push(text.to_mut(), self.escape()?),
                _ => return None,
            }
        }
    }

    /// What stands after a backslash, as a code point.
    fn escape(&mut self) -> Option<u32> {
        Some(match self.next()? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => 0x0a,
            b'r' => 0x0d,
            b't' => 0x09,
            byte @ (b'"' | b'\\' | b'/') => byte.into(),
            b'u' => {
                let unit = self.unit()?;
                match (unit, self.rest) {
                    (0xd800..=0xdbff, [b'\\', b'u', after @ ..]) => {
                        let mut ahead = Reader { rest: after };
                        match ahead.unit()? {
                            low @ 0xdc00..=0xdfff => {
                                self.rest = ahead.rest;
                                0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
                            }
                            _ => unit,
                        }
                    }
                    (unit, _) => unit,
                }
            }
            _ => return None,
        })
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | char::from(self.next()?).to_digit(16)?;
        }
        Some(unit)
    }
}

/// Adds a code point; a lone surrogate in the three bytes that UTF-8 would have for it.
fn push(text: &mut Vec<u8>, code: u32) {
    match char::from_u32(code) {
        Some(c) => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        None => text.extend([
            0xe0 | (code >> 12) as u8,
            0x80 | (code >> 6 & 0x3f) as u8,
            0x80 | (code & 0x3f) as u8,
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Json<'_> {
        parse(text.as_bytes()).unwrap_or_else(|| panic!("not JSON: {text}"))
    }

    fn check(left: &str, right: &str, equal: bool) {
        assert_eq!(read(left) == read(right), equal, "{left} = {right}");
        assert_eq!(read(right) == read(left), equal, "{right} = {left}");
    }

    #[test]
    fn numbers_are_equal_by_value() {
        for (left, right) in [
            ("1", "1.0"),
            ("1", "1.000"),
            ("100", "1e2"),
            ("100", "1E+2"),
            ("0.01", "1e-2"),
            ("0", "-0"),
            ("0", "0e99"),
            ("0.0", "0"),
            ("-12.50", "-1.25e1"),
            ("12345678901234567890123", "12345678901234567890123.0"),
            ("1e400", "10e399"),
            ("1e99999999999999999999", "1e99999999999999999999"),
        ] {
            check(left, right, true);
        }
        for (left, right) in [
            ("1", "-1"),
            ("1", "10"),
            ("1", "0.1"),
            ("9007199254740993", "9007199254740992"),
            ("18446744073709551616", "18446744073709551617"),
            ("12345678901234567890123", "12345678901234567890124"),
            ("0.1", "0.10000000000000000001"),
            ("1e400", "1e401"),
            ("1e99999999999999999999", "1e99999999999999999998"),
            ("1", "\"1\""),
            ("1", "true"),
            ("0", "null"),
        ] {
            check(left, right, false);
        }
    }

    #[test]
    fn strings_are_equal_by_characters() {
        for (left, right) in [
            (r#""a""#, r#""\u0061""#),
            (r#""/""#, r#""\/""#),
            (r#""\u00E9""#, r#""é""#),
            (r#""\ud83e\udd80""#, r#""🦀""#),
            (r#""\ud83d""#, r#""\uD83D""#),
            (r#""x\n""#, r#""x\u000a""#),
            (r#""\b\f\r\t\"\\""#, r#""\u0008\u000c\u000d\u0009\u0022\u005c""#),
        ] {
            check(left, right, true);
        }
        for (left, right) in [
            (r#""a""#, r#""A""#),
            (r#""\ud83d""#, r#""\ud83e""#),
            (r#""\ud83d\ud83d""#, r#""\ud83d""#),
            (r#""\\u0061""#, r#""a""#),
            (r#""\ud83dx""#, r#""x""#),
            // Composed and decomposed: other characters.
            (r#""é""#, r#""e\u0301""#),
        ] {
            check(left, right, false);
        }
    }

    #[test]
    fn containers() {
        check("[1,2]", "[ 1.0 ,\n2 ]", true);
        check("[1,2]", "[2,1]", false);
        check("[]", "{}", false);
        check(r#"{"a":1,"b":[]}"#, r#"{"b":[],"a":1}"#, true);
        check(r#"{"a":1}"#, r#"{"a":1,"b":null}"#, false);
        check(r#"{"a":1,"\u0061":2}"#, r#"{"a":2}"#, true);
    }

    #[test]
    fn what_is_not_json() {
        for text in [
            "",
            " ",
            "nul",
            "True",
            "01",
            "-",
            "1.",
            ".1",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "NaN",
            "'a'",
            "\"a",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\ud83d\\u12\"",
            "[",
            "[1",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{1:2}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "1 2",
            "[]]",
            "\u{feff}1",
            "/**/1",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn depth_is_bounded_and_costs_no_stack() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(!read(&nested(DEPTH_MAX)).is_deep());
        assert!(read(&nested(DEPTH_MAX + 1)).is_deep());
        let wide = format!(r#"{{"deep":{},"a":1}}"#, nested(500_000));
        let Json::Object(members) = read(&wide) else { panic!("an object") };
        assert_eq!(members.get(&b"a"[..]), Some(&Json::Number(Number(b"1"))));
        assert_eq!(parse("[".repeat(500_000).as_bytes()), None);
        let quoted = format!(r#"{}"]"{}"#, "[".repeat(200), "]".repeat(200));
        assert!(read(&quoted).is_deep());
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn spelling_does_not_matter(value in values()) {
            let (plain, pretty) = (value.to_string(), format!("{value:#}"));
            prop_assert_eq!(read(&plain), read(&pretty));
        }

        #[test]
        fn differs_where_serde_sees_a_difference(a in values(), b in values()) {
            let (left, right) = (a.to_string(), b.to_string());
            if a == b {
                prop_assert_eq!(read(&left), read(&right));
            } else if !left.contains('.') && !right.contains('.') {
                prop_assert_ne!(read(&left), read(&right));
            }
        }

        #[test]
        fn accepts_what_serde_accepts(text in r#"[\[\]{}",:\\ua0-1.e tnrl-]{0,12}"#) {
            // serde_json refuses lone surrogates in strings that it has to decode; it only skips
            // them here.
            let known = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            prop_assert_eq!(parse(text.as_bytes()).is_some(), known, "{}", text);
        }
    }
}
