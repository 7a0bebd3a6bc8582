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
