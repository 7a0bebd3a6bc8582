//! The bytes that a signature is over, where a sender signs before it compresses.

use std::borrow::Cow;
use std::io::Read;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::header;

use super::{InboundRequest, Rejection};
use crate::source::ContentEncoding;

/// The most codings that are undone, one after the other.
const CODINGS_MAX: usize = 4;

/// The body that is verified: as on the wire, or decoded as `Content-Encoding` says
/// (RFC 9110 §8.4), never to more than `limit` bytes.
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
    for coding in codings(request)?.iter().rev() {
        body = Cow::Owned(match coding.as_str() {
            "gzip" | "x-gzip" => decoded(MultiGzDecoder::new(&*body), limit)?,
            "deflate" => decoded(ZlibDecoder::new(&*body), limit)?,
            _ => return Err(Rejection::UnknownCoding),
        });
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

fn decoded(decoder: impl Read, limit: usize) -> Result<Vec<u8>, Rejection> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(most).read_to_end(&mut bytes).map_err(|_| Rejection::BrokenCoding)?;
    if bytes.len() > limit { Err(Rejection::TooLarge { limit }) } else { Ok(bytes) }
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
        for codings in [&["br"][..], &["gzip;q=1"], &["zstd, gzip"], &["\u{e4}"], &["gzip"; 5]] {
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
        check(&["gzip, gzip"], &gzip(&bomb), Err(Rejection::TooLarge { limit: LIMIT }));
    }
}
