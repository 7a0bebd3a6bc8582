//! As much HTTP/1.1 as two programs on one machine need: bodies have a length.

use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// No call of the API takes longer, unless the server is dead or broken.
const CALL_LIMIT: Duration = Duration::from_secs(15);

/// A request or an answer.
#[derive(Debug)]
pub(crate) struct Message {
    /// The request line or the status line.
    pub(crate) start: String,
    headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// Reads one; `None` when the other side has closed the connection before it.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(start) = read_line(from)? else { return Ok(None) };
        let mut message = Self { start, headers: Vec::new(), body: Vec::new() };
        loop {
            let line = read_line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let Some((name, value)) = line.split_once(':') else { break };
            message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if message.header("transfer-encoding").is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a body without a length"));
        }
        let length = message.header("content-length").map_or(Ok(0), str::parse);
        let length = length.map_err(|_| io::ErrorKind::InvalidData)?;
        message.body.resize(length, 0);
        from.read_exact(&mut message.body)?;
        Ok(Some(message))
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The path of a request, or the status of an answer.
    pub(crate) fn subject(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    line.truncate(line.trim_end().len());
    Ok(Some(line))
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Opens one.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(CALL_LIMIT))?;
        stream.set_write_timeout(Some(CALL_LIMIT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and reads its answer: status and message.
    pub(crate) fn call(
        &mut self,
        method_and_path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<(u16, Message)> {
        let mut request = format!("{method_and_path} HTTP/1.1\r\nhost: localhost\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            request += &format!("content-length: {}\r\n", body.len());
        }
        let mut request = (request + "\r\n").into_bytes();
        request.extend(body);
        self.0.get_mut().write_all(&request)?;
        let answer = Message::read(&mut self.0)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = answer.subject().parse().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok((status, answer))
    }
}
