//! A request that arrived.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// The largest request that is read, head and body each.
pub const REQUEST_BYTES_MAX: usize = 32 << 20;

/// The longest line between chunks.
const LINE_BYTES_MAX: u64 = 1_024;

/// A request, as its bytes came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The connection that it came on, from 0.
    pub connection: usize,
    /// Which request of its connection it is, from 0.
    pub nth: usize,
    /// The monotonic time at which its last byte was read.
    pub at: Duration,
    /// Request line and header lines with all line ends, and the empty line.
    pub head: Bytes,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// The method.
    pub fn method(&self) -> &str {
        self.start(0)
    }

    /// Path and query, as sent.
    pub fn target(&self) -> &str {
        self.start(1)
    }

    /// The value of the first header line of this name, in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    fn start(&self, word: usize) -> &str {
        lines(&self.head).next().and_then(|line| line.split(' ').nth(word)).unwrap_or_default()
    }
}

/// The head of the next request; `None` when there is none, or none that is read here.
pub(crate) async fn read_head<S: AsyncBufRead + Unpin>(stream: &mut S) -> Option<Bytes> {
    let mut head = Vec::new();
    let mut limited = stream.take(REQUEST_BYTES_MAX as u64);
    while !head.ends_with(b"\r\n\r\n") {
        if limited.read_until(b'\n', &mut head).await.ok()? == 0 {
            return None;
        }
    }
    Some(head.into())
}

/// The body that follows this head.
pub(crate) async fn read_body<S: AsyncBufRead + Unpin>(
    stream: &mut S,
    head: &[u8],
) -> Option<Bytes> {
    if header(head, "transfer-encoding").is_some_and(|coding| coding == "chunked") {
        return read_chunks(stream).await;
    }
    let length = header(head, "content-length").map_or(Some(0), |text| text.parse().ok())?;
    if length > REQUEST_BYTES_MAX {
        return None;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(body.into())
}

/// What chunks hold, up to the end of the body; trailers are thrown away.
async fn read_chunks<S: AsyncBufRead + Unpin>(stream: &mut S) -> Option<Bytes> {
    let mut body = Vec::new();
    loop {
        let size = read_line(stream).await?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size > REQUEST_BYTES_MAX - body.len() {
            return None;
        }
        if size == 0 {
            while !read_line(stream).await?.is_empty() {}
            return Some(body.into());
        }
        let begin = body.len();
        body.resize(begin + size, 0);
        stream.read_exact(body.get_mut(begin..)?).await.ok()?;
        if !read_line(stream).await?.is_empty() {
            return None;
        }
    }
}

/// A line of text without its end; `None` where there is none.
async fn read_line<S: AsyncBufRead + Unpin>(stream: &mut S) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = stream.take(LINE_BYTES_MAX);
    limited.read_until(b'\n', &mut line).await.ok()?;
    let line = String::from_utf8(line).ok()?;
    line.strip_suffix('\n').map(|line| line.trim_end_matches('\r').to_owned())
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    lines(head).skip(1).find_map(|line| {
        let (own, value) = line.split_once(':')?;
        own.eq_ignore_ascii_case(name).then(|| value.trim_matches([' ', '\t']))
    })
}

/// The lines that are text.
fn lines(head: &[u8]) -> impl Iterator<Item = &str> {
    let lines = head.split(|byte| *byte == b'\n');
    lines.map(|line| std::str::from_utf8(line).unwrap_or_default().trim_end_matches('\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &mut &[u8]) -> Option<(Bytes, Bytes)> {
        let head = read_head(bytes).await?;
        let body = read_body(bytes, &head).await?;
        Some((head, body))
    }

    #[tokio::test]
    async fn one_request_is_read_and_no_more() {
        let mut bytes =
            &b"POST /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nX-Odd:\ty \r\n\r\nhiGET"[..];
        let (head, body) = read(&mut bytes).await.expect("a request");
        assert_eq!((&*body, bytes), (&b"hi"[..], &b"GET"[..]));
        let request = Request { connection: 0, nth: 0, at: Duration::ZERO, head, body };
        assert_eq!((request.method(), request.target()), ("POST", "/a?b"));
        assert_eq!(request.header("x-odd"), Some("y"));
        assert_eq!(request.header("POST /a?b HTTP/1.1"), None);
    }

    #[tokio::test]
    async fn chunks_are_one_body() {
        let mut bytes = &b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n\
                          5;x=y\r\nthree\r\n0\r\nx-sum: 8\r\n\r\nGET"[..];
        let (_, body) = read(&mut bytes).await.expect("a request");
        assert_eq!((&*body, bytes), (&b"onethree"[..], &b"GET"[..]));
    }

    #[tokio::test]
    async fn what_is_no_request_ends_the_connection() {
        for bytes in [
            &b""[..],
            b"GET / HTTP/1.1\r\nhost: x\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhi",
            b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\nhi",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\non",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n99999999999\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
            b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\nhi",
            b"\x16\x03\x01\x02\x00",
        ] {
            assert_eq!(read(&mut &*bytes).await, None, "{bytes:?}");
        }
    }
}
