//! The smallest HTTP/1.1 client and server that a load can be made with.
//!
//! A load generator shares the machine with what it measures, so each request must cost it little:
//! bytes in, bytes out, one buffer per connection. Bodies need a `Content-Length`; anything else is
//! an error, never a guess. Not for the internet.

use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The most headers of a message.
const HEADERS_MAX: usize = 64;
/// How much free room a buffer has before each read.
const READ_ROOM: usize = 8 * 1024;

/// An answer, borrowed from its connection's buffer.
#[derive(Debug)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
}

/// A keep-alive connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub async fn open(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)
            .await
            .with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(READ_ROOM) })
    }

    /// Sends a whole request and waits for the whole answer.
    ///
    /// # Errors
    /// The connection ended, or the answer is not one that this client reads.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<Response<'_>> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        let (status, body) = loop {
            if let Some((status, body, length)) = response_head(&self.buffer)?
                && self.buffer.len() >= body + length
            {
                break (status, body..body + length);
            }
            self.buffer.reserve(READ_ROOM);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the connection was closed before the whole answer had come");
            }
        };
        Ok(Response { status, body: &self.buffer[body] })
    }
}

/// The bytes of a request with a JSON body, or with none.
pub fn request(method: &str, path: &str, token: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    if !token.is_empty() {
        bytes.extend_from_slice(format!("authorization: Bearer {token}\r\n").as_bytes());
    }
    if let Some(body) = body {
        bytes.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
        bytes.extend_from_slice(format!("{}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
    } else {
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Status, start of the body and its length, once the whole head is there.
fn response_head(buffer: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(body) = response.parse(buffer)? else { return Ok(None) };
    let status = response.code.context("an answer without a status")?;
    let length = match content_length(response.headers)? {
        Some(length) => length,
        None if status == 204 || status == 304 => 0,
        None => bail!("an answer ({status}) without a Content-Length"),
    };
    Ok(Some((status, body, length)))
}

fn content_length(headers: &[httparse::Header<'_>]) -> Result<Option<usize>> {
    let Some(value) = header(headers, "content-length") else { return Ok(None) };
    let length = std::str::from_utf8(value)?.trim().parse().context("a broken Content-Length")?;
    Ok(Some(length))
}

fn header<'a>(headers: &'a [httparse::Header<'_>], name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

/// A request that came in, borrowed from its connection's buffer.
#[derive(Debug)]
pub struct Request<'a> {
    /// The path with its query.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
    headers: &'a [httparse::Header<'a>],
}

impl Request<'_> {
    /// The first header of this name, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(header(self.headers, name)?).ok()
    }
}

/// What answers: it adds a whole response to the output.
pub type Answer = Rc<dyn Fn(&Request<'_>, &mut Vec<u8>)>;

/// Adds a response to the output.
pub fn respond(out: &mut Vec<u8>, status: &str, body: &[u8]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_bytes());
    out.extend_from_slice(format!("\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes());
    out.extend_from_slice(body);
}

/// Serves for ever, on the current thread, inside a [`tokio::task::LocalSet`].
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, answer: Answer) -> Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let answer = Rc::clone(&answer);
        connections.spawn_local(async move {
            if let Err(error) = serve_connection(stream, &answer).await {
                eprintln!("receiver: {error:#}");
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve_connection(mut stream: TcpStream, answer: &Answer) -> Result<()> {
    let mut input = Vec::with_capacity(READ_ROOM);
    let mut output = Vec::new();
    loop {
        let mut taken = 0;
        while let Some(length) = serve_one(&input[taken..], answer, &mut output)? {
            taken += length;
        }
        input.drain(..taken);
        if !output.is_empty() {
            stream.write_all(&output).await?;
            output.clear();
        }
        input.reserve(READ_ROOM);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Answers the first request of the input, if it is whole. Its length.
fn serve_one(input: &[u8], answer: &Answer, output: &mut Vec<u8>) -> Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(begin) = parsed.parse(input)? else { return Ok(None) };
    if header(parsed.headers, "transfer-encoding").is_some() {
        bail!("a request without a Content-Length");
    }
    let end = begin + content_length(parsed.headers)?.unwrap_or(0);
    if input.len() < end {
        return Ok(None);
    }
    let path = parsed.path.unwrap_or_default();
    answer(&Request { path, body: &input[begin..end], headers: parsed.headers }, output);
    Ok(Some(end))
}

/// A runtime on the current thread.
///
/// # Errors
/// The operating system refuses.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_pass_both_ways_on_one_connection() {
        let runtime = runtime().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let echo: Answer = Rc::new(|request, out| {
                let kind = request.header("Content-Type").unwrap_or("none");
                respond(out, "200 OK", format!("{} {kind} ", request.path).as_bytes());
                let end = out.len();
                assert_eq!(out[end - 1], b' ');
            });
            let mut server = JoinSet::new();
            server.spawn_local(serve(listener, echo));
            let mut connection = Connection::open(address).await.unwrap();
            for (body, said) in
                [(None, "/a none "), (Some(&[b'x'; 20_000][..]), "/a application/json ")]
            {
                let request = request("POST", "/a", "token", body);
                let response = connection.exchange(&request).await.unwrap();
                assert_eq!(response.status, 200);
                assert_eq!(response.body, said.as_bytes());
            }
        });
    }

    #[test]
    fn an_answer_without_a_length_is_refused() {
        assert!(response_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert_eq!(response_head(b"HTTP/1.1 204 No\r\n\r\n").unwrap(), Some((204, 19, 0)));
        assert_eq!(response_head(b"HTTP/1.1 200 OK\r\n").unwrap(), None);
    }
}
