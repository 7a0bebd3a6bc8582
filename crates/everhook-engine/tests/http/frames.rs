//! A server of HTTP/2 that is written frame by frame (RFC 9113 §6), so that it can do anything.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::secure::{self, BOTH, localhost};
use crate::secure::{Authority, Server};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;

/// `:status: 200`, by its place in the static table (RFC 7541 appendix A).
pub(crate) const STATUS_200: &[u8] = &[0x88];

/// One frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

/// The server's end of one connection.
pub(crate) struct Frames(pub(crate) TlsStream<TcpStream>);

/// A server of HTTP/2 for `localhost` that runs `script` on each connection, with its number.
pub(crate) async fn run<S, F>(authority: &Authority, settings: Settings, script: S) -> Server
where
    S: Fn(usize, Frames) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let script = std::sync::Arc::new(script);
    secure::run(localhost(authority, BOTH), move |number, mut stream| {
        let script = std::sync::Arc::clone(&script);
        async move {
            let mut preface = [0; 24];
            if stream.read_exact(&mut preface).await.is_err() {
                return;
            }
            assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            let mut frames = Frames(stream);
            let mut payload = Vec::new();
            for (name, value) in settings {
                payload.extend_from_slice(&name.to_be_bytes());
                payload.extend_from_slice(&value.to_be_bytes());
            }
            frames.send(SETTINGS, 0, 0, &payload).await;
            script(number, frames).await;
        }
    })
    .await
}

/// Settings that a server announces.
pub(crate) type Settings = &'static [(u16, u32)];

impl Frames {
    /// The next frame; `None` when the connection has ended. Settings are acknowledged.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, w, x, y, z] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        if kind == SETTINGS && flags & ACK == 0 {
            self.send(SETTINGS, ACK, 0, &[]).await;
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes([w, x, y, z]) })
    }

    /// The stream of the next request that has come in whole.
    pub(crate) async fn request(&mut self) -> Option<u32> {
        loop {
            let frame = self.next().await?;
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                return Some(frame.stream);
            }
        }
    }

    /// Waits for a frame of this kind.
    pub(crate) async fn wait_for(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// Writes one frame; a client that is gone is none of the server's business.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a short payload");
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.0.write_all(&frame).await.ok();
        self.0.flush().await.ok();
    }

    /// Answers with 200 and no body.
    pub(crate) async fn answer(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, STATUS_200).await;
    }

    /// Answers every request until the connection ends.
    pub(crate) async fn answer_all(&mut self) {
        while let Some(stream) = self.request().await {
            self.answer(stream).await;
        }
    }

    /// Says that no stream after `last` was begun, and why.
    pub(crate) async fn go_away(&mut self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    /// Ends one stream.
    pub(crate) async fn reset(&mut self, stream: u32, code: u32) {
        self.send(RST_STREAM, 0, stream, &code.to_be_bytes()).await;
    }

    /// Reads on until the client has ended the connection.
    pub(crate) async fn wait_for_end(&mut self) {
        while self.next().await.is_some() {}
    }
}
