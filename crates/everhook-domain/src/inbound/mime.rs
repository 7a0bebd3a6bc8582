//! Entities of headers and a body, and bodies of several parts (RFC 2045, 2046): of mails and of
//! forms with files.
//!
//! Nothing is refused here: what breaks the rules is read as far as it keeps to them. The time
//! taken grows with the size, times [`DEPTH_MAX`] at most, whatever is in it.

use base64::Engine;

use crate::secret::BASE64;

/// The most parts of one body; one with more is read as having none.
pub(super) const PARTS_MAX: usize = 1_000;
/// The most headers of one entity that are looked at.
const HEADERS_MAX: usize = 1_000;
/// How deep parts in parts are looked into.
const DEPTH_MAX: usize = 8;
/// The longest boundary, in bytes. The standard has 70.
const BOUNDARY_BYTES_MAX: usize = 256;

/// Headers and a body, borrowed.
#[derive(Debug)]
pub(super) struct Entity<'a> {
    headers: Vec<(&'a [u8], &'a [u8])>,
    body: &'a [u8],
}

impl<'a> Entity<'a> {
    /// Reads an entity: headers up to the first empty line, then the body.
    pub(super) fn parse(bytes: &'a [u8]) -> Self {
        let mut headers: Vec<(&[u8], &[u8])> = Vec::new();
        let mut at = 0;
        for line in bytes.split_inclusive(|&byte| byte == b'\n') {
            let start = at;
            at += line.len();
            match line.first() {
                Some(b' ' | b'\t') if !headers.is_empty() => {
                    if let Some((_, value)) = headers.last_mut() {
                        // The lines of a folded value follow one another.
                        let begin = start - value.len();
                        *value = &bytes[begin..at];
                    }
                    continue;
                }
                _ if without_break(line).is_empty() => {
                    return Self { headers, body: &bytes[at..] };
                }
                _ => {}
            }
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
            let name = line[..colon].trim_ascii_end();
            let value = line.get(colon + 1..).unwrap_or_default();
            if headers.len() < HEADERS_MAX {
                headers.push((name, value));
            } else {
                // Not looked at; its continuation belongs to it.
                headers.truncate(HEADERS_MAX);
                headers.push((b"", value));
            }
        }
        Self { headers, body: b"" }
    }

    /// The values of the headers of this name, in their order, folded as they are.
    pub(super) fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'a [u8]> + 's {
        let fits = move |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
        self.headers.iter().filter(move |(found, _)| fits(found)).map(|(_, value)| *value)
    }

    /// The first value of a header, on one line, without white space that means nothing.
    pub(super) fn first(&self, name: &str) -> Option<Vec<u8>> {
        self.all(name).next().map(one_line)
    }

    /// The body as it came.
    pub(super) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The media type in lower case, without parameters.
    pub(super) fn media_type(&self) -> String {
        let value = self.first("content-type").unwrap_or_default();
        let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
        String::from_utf8_lossy(value[..end].trim_ascii()).to_ascii_lowercase()
    }

    /// The parts that have none themselves, decoded: media type and bytes.
    pub(super) fn leaves(&self) -> Vec<(String, Vec<u8>)> {
        let mut leaves = Vec::new();
        self.collect(DEPTH_MAX, &mut leaves);
        leaves
    }

    fn collect(&self, depth: usize, leaves: &mut Vec<(String, Vec<u8>)>) {
        let media_type = self.media_type();
        if depth > 0 && media_type.starts_with("multipart/") {
            let value = self.first("content-type").unwrap_or_default();
            let parts = parameter(&value, "boundary").and_then(|it| parts(self.body, &it));
            let parts = parts.filter(|parts| leaves.len() + parts.len() <= PARTS_MAX);
            if let Some(parts) = parts {
                parts.into_iter().for_each(|part| Self::parse(part).collect(depth - 1, leaves));
                return;
            }
        }
        let encoding = self.first("content-transfer-encoding").unwrap_or_default();
        let bytes = match &*encoding.to_ascii_lowercase() {
            b"base64" => from_base64(self.body),
            b"quoted-printable" => from_quoted_printable(self.body),
            _ => self.body.to_vec(),
        };
        leaves.push((media_type, bytes));
    }
}

/// A header's value on one line; runs of white space are one space, as folding may change them.
pub(super) fn one_line(value: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(value.len());
    for word in value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(b' ');
        }
        line.extend_from_slice(word);
    }
    line
}

/// A parameter of a header like `Content-Type` (RFC 2045 §5.1): `name=token` or `name="quoted"`.
pub(super) fn parameter(value: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut rest = value;
    while let Some(at) = rest.iter().position(|&byte| byte == b';') {
        rest = rest[at + 1..].trim_ascii_start();
        let end = rest.iter().position(|&byte| matches!(byte, b'=' | b';')).unwrap_or(rest.len());
        let found = rest[..end].trim_ascii_end();
        rest = &rest[end..];
        let Some(text) = rest.strip_prefix(b"=") else { continue };
        let (text, after) = token_or_quoted(text.trim_ascii_start());
        if found.eq_ignore_ascii_case(name.as_bytes()) {
            return Some(text);
        }
        rest = after;
    }
    None
}

/// The text at the beginning, and what follows it.
fn token_or_quoted(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|&byte| byte == b';').unwrap_or(text.len());
        return (text[..end].trim_ascii_end().to_vec(), &text[end..]);
    };
    let (mut value, mut escaped) = (Vec::new(), false);
    for (at, &byte) in quoted.iter().enumerate() {
        match byte {
            b'"' if !escaped => return (value, &quoted[at + 1..]),
            b'\\' if !escaped => escaped = true,
            _ => {
                escaped = false;
                value.push(byte);
            }
        }
    }
    (value, b"")
}

/// The parts between the lines that are the boundary (RFC 2046 §5.1.1); the last one may lack its
/// end. `None` without any, with too many, or with an impossible boundary.
pub(super) fn parts<'a>(body: &'a [u8], boundary: &[u8]) -> Option<Vec<&'a [u8]>> {
    if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX {
        return None;
    }
    let (mut parts, mut begin, mut at) = (Vec::new(), None, 0);
    let mut closed = false;
    for line in body.split_inclusive(|&byte| byte == b'\n') {
        let start = at;
        at += line.len();
        let rest = line.strip_prefix(b"--").and_then(|line| line.strip_prefix(boundary));
        let Some(rest) = rest.map(<[u8]>::trim_ascii_end) else { continue };
        if !rest.is_empty() && rest != b"--" {
            continue;
        }
        if let Some(begin) = begin.replace(at) {
            parts.push(without_break(&body[begin..start.max(begin)]));
        }
        if parts.len() > PARTS_MAX {
            return None;
        }
        if rest == b"--" {
            closed = true;
            break;
        }
    }
    if let Some(begin) = begin.filter(|_| !closed) {
        parts.push(&body[begin..]);
    }
    (!parts.is_empty()).then_some(parts)
}

/// Without the line break at the end.
fn without_break(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// RFC 2045 §6.8: what is not of the alphabet means nothing. What is broken stays as it is.
fn from_base64(text: &[u8]) -> Vec<u8> {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let digits: Vec<u8> = text.iter().copied().filter(digit).collect();
    BASE64.decode(&digits).unwrap_or_else(|_| text.to_vec())
}

/// RFC 2045 §6.7. What is broken stays as it is.
fn from_quoted_printable(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let content = without_break(line);
        let end = &line[content.len()..];
        // White space at the end of a line was added on the way.
        let mut rest = content.trim_ascii_end();
        let soft = rest.last() == Some(&b'=');
        rest = if soft { &rest[..rest.len() - 1] } else { rest };
        while let Some((&first, after)) = rest.split_first() {
            let byte = (first == b'=').then(|| escaped(after)).flatten();
            bytes.push(byte.unwrap_or(first));
            rest = if byte.is_some() { &after[2..] } else { after };
        }
        if !soft {
            bytes.extend_from_slice(end);
        }
    }
    bytes
}

/// The byte that two hexadecimal digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn headers_are_read_folded_or_not() {
        let entity = Entity::parse(
            b"From mbox line\r\nA: 1\r\nb : 2\r\n folded\r\n\tagain\r\nA:3\nbroken\n\r\n\
            body\r\n\r\n",
        );
        assert_eq!(entity.first("a").as_deref(), Some(&b"1"[..]));
        assert_eq!(entity.all("A").map(one_line).collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(entity.first("B").as_deref(), Some(&b"2 folded again"[..]));
        assert_eq!(entity.first("c"), None);
        assert_eq!(entity.body(), b"body\r\n\r\n");
        assert_eq!(Entity::parse(b"\r\nbody").body(), b"body");
        assert_eq!(Entity::parse(b" \nA: 1").first("a").as_deref(), Some(&b"1"[..]));
        let many = "x: 1\n".repeat(HEADERS_MAX + 10) + "y: 2\n\nbody";
        let entity = Entity::parse(many.as_bytes());
        assert_eq!((entity.first("y"), entity.body()), (None, &b"body"[..]));
    }

    #[test]
    fn parameters() {
        for (value, expected) in [
            ("text/plain", None),
            ("multipart/mixed; boundary=abc", Some("abc")),
            ("multipart/mixed;charset=x;  Boundary = \"a;b\\\"c\" ; x", Some("a;b\"c")),
            ("multipart/mixed; x=\"; boundary=no\"; boundary=yes", Some("yes")),
            ("multipart/mixed; x; boundary=yes;", Some("yes")),
            ("multipart/mixed; boundary=\"open", Some("open")),
            ("multipart/mixed; boundary", None),
            ("multipart/mixed;;;=;boundary=", Some("")),
        ] {
            let found = parameter(value.as_bytes(), "boundary");
            assert_eq!(found.as_deref().map(text), expected, "{value}");
        }
    }

    #[test]
    fn parts_of_a_body() {
        let body = b"preamble\r\n--b\r\none\r\n\r\n--b \t\r\n--b\r\ntwo--b\n--bx\n--b--\r\n\
            after\r\n--b\r\nx";
        let found = parts(body, b"b").unwrap();
        let found: Vec<_> = found.into_iter().map(text).collect();
        assert_eq!(found, ["one\r\n", "", "two--b\n--bx"]);
        assert_eq!(parts(b"--b\nopen\n", b"b").unwrap(), [b"open\n"]);
        for (body, boundary) in [(&b"none"[..], &b"b"[..]), (b"--\n--", b""), (b"", b"b")] {
            assert_eq!(parts(body, boundary), None);
        }
        assert_eq!(parts("--b\n".repeat(PARTS_MAX).as_bytes(), b"b").unwrap().len(), PARTS_MAX);
        assert_eq!(parts("--b\n".repeat(PARTS_MAX + 2).as_bytes(), b"b"), None);
    }

    #[test]
    fn leaves_are_decoded() {
        let mail = b"Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n\
            Content-Type: multipart/alternative;\r\n boundary=\"i\"\r\n\r\n\
            --i\r\n\r\nplain\r\n--i\r\nContent-Type: Text/HTML; charset=utf-8\r\n\
            Content-Transfer-Encoding: Quoted-Printable\r\n\r\n\
            =C3=A4 =\r\nb=3d=zz \r\nc=\r\n--i--\r\n--o\r\n\
            Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\n\
            AP\r\n8 =\r\n--o--\r\n";
        let leaves = Entity::parse(mail).leaves();
        let expected = [
            (String::new(), b"plain".to_vec()),
            ("text/html".to_owned(), "ä b==zz\r\nc".as_bytes().to_vec()),
            ("image/png".to_owned(), vec![0, 255]),
        ];
        assert_eq!(leaves, expected);
    }

    #[test]
    fn parts_in_parts_end_somewhere() {
        let open = |n| format!("Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n");
        let deep: String = (0..100_000).map(open).collect();
        let leaves = Entity::parse(deep.as_bytes()).leaves();
        assert_eq!((leaves.len(), &*leaves[0].0), (1, "multipart/mixed"));
        let wide = format!("{}{}", open(1), "\nx\n--b1\n".repeat(PARTS_MAX + 2));
        let leaves = Entity::parse(wide.as_bytes()).leaves();
        assert_eq!(leaves.len(), 1, "too many parts are none");
    }
}
