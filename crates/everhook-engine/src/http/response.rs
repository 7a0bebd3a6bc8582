//! The part of an answer that is kept: little, as text, whatever the bytes are.

use std::fmt::Write as _;
use std::future::Future;
use std::pin::Pin;

use everhook_domain::attempt::KeptResponse;
use http::HeaderMap;
use http::response::Parts;

use super::body::Body;
use super::exchange::Carrier;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// Bytes of the body.
    pub(super) body_bytes: usize,
    /// Bytes of header names and values.
    pub(super) headers_bytes: usize,
}

/// The start of a body.
struct Start {
    bytes: Vec<u8>,
    /// Whether it ended within what is kept.
    ended: bool,
}

/// Reads what is kept of the body, until its end or the deadline. The status has decided already,
/// so nothing that happens here is a failure. True when the connection has come to the end of the
/// answer and can be used again.
pub(super) async fn read(
    head: &Parts,
    body: Body,
    carrier: &mut Carrier,
    deadline: Pin<&mut impl Future<Output = ()>>,
    keep: Keep,
) -> (KeptResponse, bool) {
    let mut start = Start { bytes: Vec::new(), ended: false };
    let reading = carrier.drive(start.fill(body, keep.body_bytes));
    tokio::select! {
        biased;
        () = deadline => {}
        () = reading => {}
    }
    let bytes = if start.ended { &start.bytes } else { whole_characters(&start.bytes) };
    let response = KeptResponse {
        status: head.status.as_u16(),
        headers: headers(&head.headers, keep.headers_bytes),
        body: text(bytes),
        truncated: !start.ended,
    };
    (response, start.ended)
}

impl Start {
    async fn fill(&mut self, mut body: Body, most: usize) {
        if body.is_ended() {
            self.ended = true;
            return;
        }
        loop {
            match body.piece().await {
                None => self.ended = true,
                Some(Err(_cut_off)) => {}
                Some(Ok(data)) => {
                    let room = most - self.bytes.len();
                    self.bytes.extend_from_slice(&data[..data.len().min(room)]);
                    if data.len() <= room {
                        continue;
                    }
                }
            }
            return;
        }
    }
}

fn headers(headers: &HeaderMap, most: usize) -> Vec<(String, String)> {
    let mut bytes = 0;
    headers
        .iter()
        .take_while(|(name, value)| {
            bytes += name.as_str().len() + value.len();
            bytes <= most
        })
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}

/// The bytes as text: what is not UTF-8, and control characters other than tab and line ends, as
/// `\x` and two hexadecimal digits.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_ascii_control() && !matches!(character, '\t' | '\n' | '\r') {
                escape(&mut text, character as u8);
            } else {
                text.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut text, *byte));
    }
    text
}

fn escape(text: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    write!(text, "\\x{byte:02x}").ok();
}

/// The bytes without a character at their end that was cut off.
fn whole_characters(bytes: &[u8]) -> &[u8] {
    let Some(last) = bytes.utf8_chunks().last() else { return bytes };
    let cut_off = last.invalid();
    // Incomplete, not wrong: more bytes could make it a character.
    let incomplete = std::str::from_utf8(cut_off).is_err_and(|error| error.error_len().is_none());
    if incomplete { &bytes[..bytes.len() - cut_off.len()] } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    #[test]
    fn what_is_not_text_is_escaped() {
        for (bytes, expected) in [
            (&b""[..], ""),
            (b"plain\r\n\ttext", "plain\r\n\ttext"),
            ("Grüße 🎉".as_bytes(), "Grüße 🎉"),
            (b"\x00\x1b[31m\x7f", "\\x00\\x1b[31m\\x7f"),
            (b"a\xff\xfeb", "a\\xff\\xfeb"),
            (b"\x1f\x8b\x08\x00", "\\x1f\\x8b\\x08\\x00"),
            (b"\xc3", "\\xc3"),
        ] {
            assert_eq!(text(bytes), expected);
        }
    }

    #[test]
    fn case_005_the_cut_falls_between_characters() {
        let full = "aé€😀".as_bytes();
        for (length, kept) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aé"),
            (5, "aé"),
            (6, "aé€"),
            (7, "aé€"),
            (9, "aé€"),
            (10, "aé€😀"),
        ] {
            assert_eq!(text(whole_characters(&full[..length])), kept, "{length} bytes");
        }
        assert_eq!(whole_characters(b"a\xff"), b"a\xff", "wrong, not cut off");
    }

    #[test]
    fn headers_are_kept_up_to_a_limit() {
        let mut map = HeaderMap::new();
        map.append("location", HeaderValue::from_static("http://other.example/"));
        map.append(HeaderName::from_static("x-odd"), HeaderValue::from_bytes(b"\xe4").expect("ok"));
        map.append("x-long", HeaderValue::from_static("0123456789"));
        let kept = headers(&map, 40);
        let expected = [("location", "http://other.example/"), ("x-odd", "\\xe4")];
        assert_eq!(kept, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
