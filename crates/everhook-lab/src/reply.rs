//! What the server does with a connection, step by step.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most bytes that are given to the system at once, so that what was taken can be counted.
const PIECE_BYTES_MAX: usize = 16 * 1_024;

/// One thing that the server does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends these bytes.
    Send(Bytes),
    /// Sends these bytes one by one, with this pause before each.
    Drip(Bytes, Duration),
    /// Sends these bytes again and again, with this pause before each time, until the client has
    /// gone.
    Endlessly(Bytes, Duration),
    /// Does nothing for so long.
    Pause(Duration),
    /// Does nothing until the client has gone.
    Hold,
    /// Ends its side of the connection in order, and waits until the client has gone.
    Close,
    /// Ends the connection without order: the client's system is told that it was reset.
    Reset,
}

/// All that the server does after a request. After its last step the next request on the connection
/// is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply(Vec<Step>);

/// How a reply left the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Open,
    Gone,
    /// To be reset.
    Broken,
}

impl Reply {
    /// Nothing at all, not even an end.
    pub const fn nothing() -> Self {
        Self(Vec::new())
    }

    /// These bytes, whatever they are.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::nothing().then(Step::Send(bytes.into()))
    }

    /// A whole answer in good form, without header lines but its length, and without a body.
    pub fn status(status: u16) -> Self {
        Self::answer(status, &[], "")
    }

    /// A whole answer in good form but for what is in these header lines.
    pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let mut answer = format!("HTTP/1.1 {status} \r\n");
        for (name, value) in headers {
            answer += &format!("{name}: {value}\r\n");
        }
        // These never have a body, nor its length (RFC 9110 §8.6).
        if status >= 200 && status != 204 {
            answer += &format!("content-length: {}\r\n", body.len());
        }
        Self::raw(answer + "\r\n" + body)
    }

    /// The same, and then this.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// The same, and then these bytes.
    #[must_use]
    pub fn send(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    /// Does it; `count` is told of bytes that the system has taken.
    pub(crate) async fn act<S>(&self, stream: &mut S, mut count: impl FnMut(usize)) -> Left
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        for step in &self.0 {
            let done = match step {
                Step::Send(bytes) => send(stream, bytes, &mut count).await,
                Step::Drip(bytes, pause) => drip(stream, bytes, *pause, &mut count).await,
                Step::Endlessly(bytes, pause) => loop {
                    pause_for(*pause).await;
                    if let Err(gone) = send(stream, bytes, &mut count).await {
                        break Err(gone);
                    }
                },
                Step::Pause(pause) => {
                    pause_for(*pause).await;
                    Ok(())
                }
                Step::Hold => {
                    drain(stream).await;
                    return Left::Gone;
                }
                Step::Close => {
                    // A client that has gone already needs no end.
                    let _gone = stream.shutdown().await;
                    drain(stream).await;
                    return Left::Gone;
                }
                Step::Reset => return Left::Broken,
            };
            if done.is_err() {
                return Left::Gone;
            }
        }
        Left::Open
    }
}

async fn pause_for(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

async fn send<S>(stream: &mut S, bytes: &[u8], count: &mut impl FnMut(usize)) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    for piece in bytes.chunks(PIECE_BYTES_MAX) {
        stream.write_all(piece).await?;
        count(piece.len());
    }
    stream.flush().await
}

async fn drip<S>(
    stream: &mut S,
    bytes: &[u8],
    pause: Duration,
    count: &mut impl FnMut(usize),
) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    for byte in bytes.chunks(1) {
        pause_for(pause).await;
        send(stream, byte, count).await?;
    }
    Ok(())
}

/// Reads until the client has gone.
async fn drain<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut unread = [0; 1_024];
    while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_in_good_form() {
        for (reply, expected) in [
            (Reply::status(200), "HTTP/1.1 200 \r\ncontent-length: 0\r\n\r\n"),
            (Reply::status(204), "HTTP/1.1 204 \r\n\r\n"),
            (
                Reply::answer(302, &[("location", "/x")], "é"),
                "HTTP/1.1 302 \r\nlocation: /x\r\ncontent-length: 2\r\n\r\né",
            ),
        ] {
            assert_eq!(reply, Reply::raw(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "tokio's paused time is the time here")]
    async fn steps_follow_one_another_until_one_ends_the_connection() {
        let (mut client, mut server) = tokio::io::duplex(64);
        let second = Duration::from_secs(1);
        let reply = Reply::raw("a").then(Step::Drip("bc".into(), second)).then(Step::Close);
        let began = tokio::time::Instant::now();
        let mut sent = 0;
        let reading = async {
            let mut read = String::new();
            client.read_to_string(&mut read).await.expect("text");
            drop(client);
            read
        };
        let acting = reply.act(&mut server, |bytes| sent += bytes);
        let (read, left) = tokio::join!(reading, acting);
        assert_eq!((read.as_str(), left), ("abc", Left::Gone));
        assert_eq!(began.elapsed(), 2 * second);
        assert_eq!(sent, 3);
    }
}
