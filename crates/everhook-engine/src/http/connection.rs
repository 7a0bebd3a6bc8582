//! One HTTP/1.1 connection, driven by whoever uses it.
//!
//! No task of its own: the attempt that holds the connection polls it, which saves a wake-up a
//! request, and an idle one is polled by nobody until it is taken up again or thrown away. Dropping
//! it closes it.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::failure::{self, Failure};

/// The largest head of an answer, in bytes; also bounds what is buffered of its body.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1_024;
/// The most header lines of an answer.
pub(super) const HEADER_LINES_MAX: usize = 256;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An open connection.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once the connection has ended.
    driver: Option<Driver>,
    /// Whether a byte came in since the last request.
    heard: Arc<AtomicBool>,
    born: Duration,
}

/// What came of one exchange.
pub(super) enum Exchange {
    /// The head of an answer.
    Answered(Box<Response<Incoming>>),
    /// The connection had ended before anything was written: the request comes back.
    Unsent(Box<Request<Full<Bytes>>>),
    /// It ended after that, before any byte of an answer.
    ClosedUnheard(Failure),
    /// Anything else.
    Failed(Failure),
}

impl Connection {
    /// Speaks HTTP/1.1 on this stream; `born` is the monotonic time.
    pub(super) async fn open<S>(stream: S, born: Duration) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::new(AtomicBool::new(false));
        let stream = TokioIo::new(Overheard { stream, heard: Arc::clone(&heard) });
        // An answer with a header line that is not quite right is an answer all the same.
        let opened = Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADER_LINES_MAX)
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .handshake(stream)
            .await;
        let (requests, driver) = opened.map_err(|error| Failure::exchanging(&error, false))?;
        Ok(Self { requests, driver: Some(Box::pin(driver)), heard, born })
    }

    /// The monotonic time at which it was opened.
    pub(super) const fn born(&self) -> Duration {
        self.born
    }

    /// Whether another request can be sent, as far as is known here. Looks at what the other side
    /// has done since the connection was last used.
    pub(super) fn is_ready(&mut self) -> bool {
        if let Some(driver) = &mut self.driver
            && driver.as_mut().now_or_never().is_some()
        {
            self.driver = None;
        }
        self.driver.is_some() && self.requests.is_ready()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Exchange {
        self.heard.store(false, Relaxed);
        let answer = self.requests.try_send_request(request);
        match self.drive(answer).await {
            Ok(response) => Exchange::Answered(Box::new(response)),
            Err(mut error) => {
                if let Some(request) = error.take_message() {
                    return Exchange::Unsent(Box::new(request));
                }
                let heard = self.heard.load(Relaxed);
                let failure = Failure::exchanging(error.error(), heard);
                if !heard && failure::is_closed(error.error()) {
                    Exchange::ClosedUnheard(failure)
                } else {
                    Exchange::Failed(failure)
                }
            }
        }
    }

    /// Runs `work`, which waits for something to come in, and the connection that brings it.
    pub(super) async fn drive<W: Future>(&mut self, work: W) -> W::Output {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            if let Some(driver) = &mut self.driver
                && driver.as_mut().poll(cx).is_ready()
            {
                self.driver = None;
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// A stream that notes whether anything was read from it.
struct Overheard<S> {
    stream: S,
    heard: Arc<AtomicBool>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Overheard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.heard.store(true, Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Overheard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
