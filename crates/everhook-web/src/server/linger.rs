//! Refusing early: the answer goes out at once, and what its sender still sends is read on for a
//! while after it, so that it gets to read the answer instead of a broken connection
//! (RFC 9112 §9.6).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How much is read and thrown away after an answer.
const BYTES_MAX: usize = 32 * 1_024 * 1_024;
/// For how long that is done.
const TIME_MAX: Duration = Duration::from_secs(5);
const PIECE_BYTES: usize = 16 * 1_024;

/// Whether the body of the last request on a connection was left before its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Left(Arc<AtomicBool>);

impl Left {
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body that notes when it is left before its end.
#[derive(Debug)]
pub(super) struct Watched {
    body: Incoming,
    has_ended: bool,
    left: Left,
}

impl Watched {
    pub(super) fn new(body: Incoming, left: Left) -> Self {
        left.0.store(false, Ordering::Relaxed);
        Self { body, has_ended: false, left }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let left = !self.has_ended && !self.body.is_end_stream();
        self.left.0.store(left, Ordering::Relaxed);
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.has_ended |= matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Ends our side, and reads on within bounds. Past them the connection is closed under the sender.
pub(super) async fn linger(mut stream: TcpStream) {
    let read_on = async {
        stream.shutdown().await?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut thrown_away = 0;
        while thrown_away <= BYTES_MAX {
            match stream.read(&mut piece).await? {
                0 => break,
                read => thrown_away += read,
            }
        }
        std::io::Result::Ok(())
    };
    // Whoever breaks off has read enough.
    let _ended = tokio::time::timeout(TIME_MAX, read_on).await;
}
