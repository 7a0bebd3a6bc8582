//! The bytes that a signature is over, where a sender signs before it compresses.

use std::borrow::Cow;
use std::cell::Cell;
use std::io::{self, BufRead, Read};

use flate2::bufread::{GzDecoder, ZlibDecoder};
use http::header;

use super::{InboundRequest, Rejection};
use crate::source::ContentEncoding;

/// The most codings that are undone, one after the other.
const CODINGS_MAX: usize = 2;
/// The most members of one gzip body (RFC 1952 §2.2): each costs a decoder, even if it is empty.
const MEMBERS_MAX: usize = 100;
/// The most bytes that are read for each byte that comes out. No compressor makes a body that is
/// much longer than what it holds, so one that needs more is made to be work.
const READ_PER_BYTE: usize = 2;
/// What may be read before anything has come out: headers, and what a decoder keeps to look back.
const READ_AHEAD: usize = 64 * 1_024;
/// The most that comes out between two codings, for each byte before the first: what was compressed
/// already is hardly smaller when it is compressed again, so a few bytes cannot cost a whole body.
const BETWEEN_PER_BYTE: usize = 4;

/// The body that is verified: as on the wire, or decoded as `Content-Encoding` says
/// (RFC 9110 §8.4), never to more than `limit` bytes. Whose the bytes are is not known yet, so the
/// work is bounded by what was sent.
///
/// # Errors
/// [`Rejection::TooLarge`], [`Rejection::UnknownCoding`], [`Rejection::BrokenCoding`].
pub(super) fn signed_bytes<'a>(
    request: &InboundRequest<'a>,
    encoding: ContentEncoding,
    limit: usize,
) -> Result<Cow<'a, [u8]>, Rejection> {
    let mut body = Cow::Borrowed(request.body);
    if encoding == ContentEncoding::Wire {
        return Ok(body);
    }
    let codings = codings(request)?;
    let between = READ_AHEAD.max(body.len().saturating_mul(BETWEEN_PER_BYTE)).min(limit);
    for (index, coding) in codings.iter().enumerate().rev() {
        let is_last = index == 0;
        let decoded = decoded(&body, coding, if is_last { limit } else { between });
        body = Cow::Owned(match decoded {
            Err(Rejection::TooLarge { .. }) if !is_last => Err(Rejection::BrokenCoding),
            decoded => decoded,
        }?);
    }
    Ok(body)
}

/// The codings in the order in which they were applied.
fn codings(request: &InboundRequest<'_>) -> Result<Vec<String>, Rejection> {
    let mut codings = Vec::new();
    for line in request.headers.get_all(header::CONTENT_ENCODING) {
        let line = line.to_str().map_err(|_| Rejection::UnknownCoding)?;
        let words = line.split(',').map(|word| word.trim().to_ascii_lowercase());
        codings.extend(words.filter(|word| !word.is_empty() && word != "identity"));
    }
    if codings.len() > CODINGS_MAX { Err(Rejection::UnknownCoding) } else { Ok(codings) }
}

fn decoded(body: &[u8], coding: &str, limit: usize) -> Result<Vec<u8>, Rejection> {
    let ration = Cell::new(READ_AHEAD);
    let mut input = Rationed { rest: body, ration: &ration };
    let mut bytes = Vec::new();
    match coding {
        "gzip" | "x-gzip" => {
            for _ in 0..MEMBERS_MAX {
                let mut member = GzDecoder::new(input);
                read_all(&mut member, &ration, &mut bytes, limit)?;
                input = member.into_inner();
                if input.rest.is_empty() {
                    return Ok(bytes);
                }
            }
            Err(Rejection::BrokenCoding)
        }
        "deflate" => {
            read_all(&mut ZlibDecoder::new(input), &ration, &mut bytes, limit)?;
            Ok(bytes)
        }
        _ => Err(Rejection::UnknownCoding),
    }
}

/// Reads to the end, and lets the decoder have more for what comes out.
fn read_all(
    decoder: &mut impl Read,
    ration: &Cell<usize>,
    bytes: &mut Vec<u8>,
    limit: usize,
) -> Result<(), Rejection> {
    let mut piece = [0; 8_192];
    loop {
        let read = decoder.read(&mut piece).map_err(|_| Rejection::BrokenCoding)?;
        if read == 0 {
            return Ok(());
        }
        if bytes.len() + read > limit {
            return Err(Rejection::TooLarge { limit });
        }
        bytes.extend_from_slice(&piece[..read]);
        ration.set(ration.get().saturating_add(read * READ_PER_BYTE));
    }
}

/// What a decoder reads: only so much of it until something comes out.
struct Rationed<'a> {
    rest: &'a [u8],
    ration: &'a Cell<usize>,
}

impl Read for Rationed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Rationed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let given = self.rest.len().min(self.ration.get());
        if given == 0 && !self.rest.is_empty() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(&self.rest[..given])
    }

    fn consume(&mut self, amount: usize) {
        self.rest = &self.rest[amount..];
        self.ration.set(self.ration.get().saturating_sub(amount));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;

    const LIMIT: usize = 1_000;
    const TEXT: &[u8] = b"{\"id\": 1}";

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn check(codings: &[&str], body: &[u8], expected: Result<&[u8], Rejection>) {
        let mut headers = HeaderMap::new();
        for coding in codings {
            let value = HeaderValue::from_bytes(coding.as_bytes()).expect("a value");
            headers.append(header::CONTENT_ENCODING, value);
        }
        let request =
            InboundRequest { method: &Method::POST, target: "/", headers: &headers, body };
        let wire = signed_bytes(&request, ContentEncoding::Wire, 1).expect("as it came");
        assert_eq!(&*wire, body);
        let decoded = signed_bytes(&request, ContentEncoding::Decoded, LIMIT);
        assert_eq!(decoded, expected.map(Cow::Borrowed), "{codings:?}");
    }

    #[test]
    fn codings_are_undone_in_their_order() {
        check(&[], TEXT, Ok(TEXT));
        check(&["identity"], TEXT, Ok(TEXT));
        check(&["gzip"], &gzip(TEXT), Ok(TEXT));
        check(&["X-GZip"], &gzip(TEXT), Ok(TEXT));
        check(&["deflate"], &deflate(TEXT), Ok(TEXT));
        check(&["gzip, deflate"], &deflate(&gzip(TEXT)), Ok(TEXT));
        check(&["gzip", " , deflate"], &deflate(&gzip(TEXT)), Ok(TEXT));
        check(&["gzip"], &[gzip(b"{\"id\""), gzip(b": 1}")].concat(), Ok(TEXT));
        check(&["gzip"], &gzip(b""), Ok(b""));
    }

    #[test]
    fn unknown_codings_are_refused() {
        for codings in [&["br"][..], &["gzip;q=1"], &["zstd, gzip"], &["\u{e4}"], &["gzip"; 3]] {
            check(codings, &gzip(TEXT), Err(Rejection::UnknownCoding));
        }
    }

    #[test]
    fn broken_codings_are_refused() {
        let whole = gzip(TEXT);
        let mut flipped = whole.clone();
        flipped[12] ^= 1;
        let cut = &whole[..whole.len() - 1];
        for body in [TEXT, b"", cut, &flipped, &whole[1..], &deflate(TEXT)] {
            check(&["gzip"], body, Err(Rejection::BrokenCoding));
        }
        check(&["deflate"], &whole, Err(Rejection::BrokenCoding));
    }

    #[test]
    fn what_expands_is_capped() {
        let full = vec![b'x'; LIMIT];
        check(&["gzip"], &gzip(&full), Ok(&full));
        let more = vec![b'x'; LIMIT + 1];
        check(&["gzip"], &gzip(&more), Err(Rejection::TooLarge { limit: LIMIT }));
        let bomb = gzip(&vec![0; 10_000_000]);
        check(&["gzip"], &bomb, Err(Rejection::TooLarge { limit: LIMIT }));
        // Between two codings too.
        check(&["gzip, gzip"], &gzip(&bomb), Err(Rejection::BrokenCoding));
    }

    /// Decodes with room for what webhooks may have at most.
    fn roomy(codings: &[&str], body: &[u8]) -> Result<usize, Rejection> {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&codings.join(",")).expect("a value");
        headers.insert(header::CONTENT_ENCODING, value);
        let request =
            InboundRequest { method: &Method::POST, target: "/", headers: &headers, body };
        let room = 25 * 1_024 * 1_024;
        signed_bytes(&request, ContentEncoding::Decoded, room).map(|bytes| bytes.len())
    }

    /// Bytes that cannot be compressed.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    #[test]
    fn members_that_cost_more_than_they_hold_are_refused() {
        let empty = gzip(b"");
        assert_eq!(roomy(&["gzip"], &empty.repeat(MEMBERS_MAX)), Ok(0));
        let more = empty.repeat(MEMBERS_MAX + 1);
        assert_eq!(roomy(&["gzip"], &more), Err(Rejection::BrokenCoding));
        // A few hundred bytes that were millions of members between two codings.
        let bomb = gzip(&empty.repeat(50_000));
        for codings in [&["gzip", "gzip"][..], &["deflate", "gzip"]] {
            assert_eq!(roomy(codings, &bomb), Err(Rejection::BrokenCoding));
        }
    }

    #[test]
    fn no_more_is_read_than_what_comes_out_is_worth() {
        // Stored blocks of nothing (RFC 1951 §3.2.4), then one of one byte.
        let nothing = [0, 0, 0, 0xff, 0xff];
        let end = [1, 1, 0, 0xfe, 0xff, b'x'];
        let stream = |blocks: usize| {
            let sum = [0, 0x79, 0, 0x79];
            [&[0x78, 0x01], &*nothing.repeat(blocks), &end, &sum].concat()
        };
        assert_eq!(roomy(&["deflate"], &stream(1_000)), Ok(1));
        assert_eq!(roomy(&["deflate"], &stream(20_000)), Err(Rejection::BrokenCoding));
    }

    #[test]
    fn what_cannot_be_compressed_is_decoded_all_the_same() {
        let bytes = noise(300_000);
        for level in [0, 1, 6, 9] {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
            encoder.write_all(&bytes).expect("memory");
            let once = encoder.finish().expect("memory");
            assert_eq!(roomy(&["gzip"], &once), Ok(bytes.len()), "{level}");
            assert_eq!(roomy(&["gzip", "gzip"], &gzip(&once)), Ok(bytes.len()), "{level}");
        }
    }
}
