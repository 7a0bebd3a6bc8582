//! A multipart body as its parts (RFC 2046, 5.1), as far as comparing two of them needs it.
//!
//! Anything that is not clearly multipart is `None`: such a body is compared raw, which at worst
//! calls two spellings of one request different.

/// The only header of a part that is looked into.
pub(super) const CONTENT_TYPE: &str = "content-type";
/// RFC 2046, 5.1.1: a boundary has at most 70 characters.
const BOUNDARY_CHARS_MAX: usize = 70;

/// A body in parts.
pub(super) struct Message<'a> {
    /// The content type in lower case, without its boundary.
    pub(super) content_type: Vec<u8>,
    /// The parts, in order.
    pub(super) parts: Vec<Part<'a>>,
}

/// One part.
pub(super) struct Part<'a> {
    /// Names in lower case, values without the white space around them; in order.
    pub(super) headers: Vec<(String, &'a [u8])>,
    /// Its bytes.
    pub(super) body: &'a [u8],
}

impl Part<'_> {
    /// What the part says that it is; empty if it says nothing.
    pub(super) fn content_type(&self) -> &[u8] {
        let found = self.headers.iter().find(|(name, _)| name == CONTENT_TYPE);
        found.map_or(b"", |(_, value)| value)
    }
}

/// The parts of a body that its content type calls multipart.
pub(super) fn parse<'a>(content_type: &[u8], body: &'a [u8]) -> Option<Message<'a>> {
    let (content_type, boundary) = read_content_type(content_type)?;
    let delimiter = [b"--", boundary.as_bytes()].concat();
    // Text before the first delimiter or after the last one belongs to no part, and a comparison
    // by the parts would not see it.
    let mut rest = body.strip_prefix(delimiter.as_slice())?;
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            return end.trim_ascii().is_empty().then_some(Message { content_type, parts });
        }
        let begin = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t'))?;
        rest = rest[begin..].strip_prefix(b"\r\n")?;
        let (part, after) = until(rest, &delimiter)?;
        parts.push(read_part(part)?);
        rest = after;
    }
}

/// The media type with all parameters but the boundary, and the boundary.
fn read_content_type(value: &[u8]) -> Option<(Vec<u8>, String)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut pieces = text.split(';').map(str::trim);
    let media = pieces.next()?.to_ascii_lowercase();
    if !media.starts_with("multipart/") {
        return None;
    }
    let mut kept = media;
    let mut boundary = None;
    for piece in pieces {
        match piece.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("boundary") => {
                // Two of them: nobody knows which one holds.
                if boundary.replace(value.trim_matches('"').to_owned()).is_some() {
                    return None;
                }
            }
            _ => {
                kept.push(';');
                kept.push_str(piece);
            }
        }
    }
    let boundary = boundary.filter(|text| (1..=BOUNDARY_CHARS_MAX).contains(&text.len()))?;
    Some((kept.into_bytes(), boundary))
}

/// What stands before the next line that begins with the delimiter, and what after it.
fn until<'a>(bytes: &'a [u8], delimiter: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    // An empty part without headers: its delimiter follows at once.
    if let Some(rest) = bytes.strip_prefix(delimiter) {
        return Some((b"", rest));
    }
    let mut from = 0;
    while let Some(found) = bytes[from..].windows(2).position(|two| two == b"\r\n") {
        let line = from + found + 2;
        if let Some(rest) = bytes[line..].strip_prefix(delimiter) {
            return Some((&bytes[..line - 2], rest));
        }
        from = line;
    }
    None
}

fn read_part(part: &[u8]) -> Option<Part<'_>> {
    let mut headers = Vec::new();
    let mut rest = part;
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            // A part of headers alone: its blank line was the one before the delimiter.
            return rest.is_empty().then_some(Part { headers, body: b"" });
        };
        let line = &rest[..end];
        rest = &rest[end + 2..];
        if line.is_empty() {
            return Some(Part { headers, body: rest });
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = std::str::from_utf8(&line[..colon]).ok()?.to_ascii_lowercase();
        headers.push((name, line[colon + 1..].trim_ascii()));
    }
}
