//! One HTTP/1.1 connection, driven by whoever uses it.
//!
//! No task of its own: the attempt that holds the connection polls it, which saves a wake-up a
//! request, and an idle one is polled by nobody until it is taken up again or thrown away. Dropping
//! it closes it.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::Body;
use super::exchange::Exchange;
use super::failure::{self, Failure};
use super::overheard::Overheard;

/// The largest head of an answer, in bytes; also bounds what is buffered of its body.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1_024;
/// The most header lines of an answer.
pub(super) const HEADER_LINES_MAX: usize = 256;

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// How HTTP/1.1 is spoken to others. An answer with a header line that is not quite right is an
/// answer all the same.
pub(super) fn speaking() -> Builder {
    let mut builder = Builder::new();
    builder
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADER_LINES_MAX)
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_responses(true);
    builder
}

/// An open connection.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once the connection has ended.
    driver: Option<Driver>,
    /// Whether a byte came in since the last request.
    heard: Arc<AtomicBool>,
    born: Duration,
}

impl Connection {
    /// Speaks HTTP/1.1 on this stream; `born` is the monotonic time.
    pub(super) async fn open<S>(stream: S, born: Duration) -> Result<Self, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let heard = Arc::new(AtomicBool::new(false));
        let ear = Arc::clone(&heard);
        let stream = TokioIo::new(Overheard::new(stream, move || ear.store(true, Relaxed)));
        let opened = speaking().handshake(stream).await;
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
    pub(super) async fn exchange(&mut self, request: Request<Bytes>) -> Exchange {
        self.heard.store(false, Relaxed);
        let answer = self.requests.try_send_request(request.map(Full::new));
        match self.drive(answer).await {
            Ok(answer) => Exchange::Answered(Box::new(answer.map(Body::Own))),
            Err(mut error) => {
                if error.take_message().is_some() {
                    return Exchange::Unsent;
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
