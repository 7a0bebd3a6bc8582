//! One connection to the service, and those that nobody uses.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::time::Clock;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::NotForwarded;
use crate::http::connection::speaking;
use crate::http::failure::Failure;
use crate::lock::lock;

/// The body of a request on its way.
pub(super) type Outgoing = UnsyncBoxBody<Bytes, Box<dyn Error + Send + Sync>>;

/// What came of one exchange.
pub(super) enum Exchange {
    /// The head of an answer.
    Answered(Box<Response<Incoming>>),
    /// The connection took no request; here it is again.
    Unsent(Box<Request<Outgoing>>),
    /// There is no answer.
    Failed(NotForwarded),
}

/// An open connection; dropping it while its answer is not whole closes it.
pub(super) struct Line {
    requests: SendRequest<Outgoing>,
    movement: Arc<Movement>,
}

/// What moves on a connection.
struct Movement {
    clock: Arc<dyn Clock>,
    /// When a byte moved last, in milliseconds of the monotonic time.
    last_ms: AtomicU64,
    /// Whether a byte was written since the exchange began.
    written: AtomicBool,
}

impl Movement {
    fn note(&self) {
        self.last_ms.store(millis(self.clock.monotonic()), Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Speaks HTTP/1.1 on this stream; the future drives the connection and must be run.
pub(super) async fn open<S>(
    stream: S,
    clock: Arc<dyn Clock>,
) -> Result<(Line, BoxFuture<'static, ()>), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let movement =
        Movement { clock, last_ms: AtomicU64::default(), written: AtomicBool::default() };
    movement.note();
    let movement = Arc::new(movement);
    let stream = TokioIo::new(Watched { stream, movement: Arc::clone(&movement) });
    let opened = speaking().handshake(stream).await;
    let (requests, driver) = opened.map_err(|error| Failure::exchanging(&error, false))?;
    let driver = async move {
        // Whoever waits for an answer is told what went wrong.
        let _told = driver.await;
    };
    Ok((Line { requests, movement }, Box::pin(driver)))
}

impl Line {
    /// From now on what is written belongs to a new exchange.
    pub(super) fn begin(&self) {
        self.movement.note();
        self.movement.written.store(false, Relaxed);
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Outgoing>) -> Exchange {
        let mut error = match self.requests.try_send_request(request).await {
            Ok(head) => return Exchange::Answered(Box::new(head)),
            Err(error) => error,
        };
        if let Some(request) = error.take_message() {
            return Exchange::Unsent(Box::new(request));
        }
        let why = Failure::exchanging(error.error(), false).detail;
        let written = self.movement.written.load(Relaxed);
        Exchange::Failed(if written { NotForwarded::Lost(why) } else { NotForwarded::Unsent(why) })
    }

    /// Waits until nothing has moved here for so long.
    pub(super) fn silence(&self, longest: Duration) -> Silence {
        Silence { movement: Arc::clone(&self.movement), longest, wait: None }
    }
}

/// Ends when nothing has moved on a connection for too long.
pub(super) struct Silence {
    movement: Arc<Movement>,
    longest: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// Is ready when it has been silent for too long, counted from the last movement or, if that
    /// is later, from when it was begun to wait.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let longest = self.longest;
        let wait = self.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        loop {
            ready!(wait.as_mut().poll(context));
            let movement = &self.movement;
            let last = Duration::from_millis(movement.last_ms.load(Relaxed));
            let silent = movement.clock.monotonic().saturating_sub(last);
            let Some(left) = longest.checked_sub(silent).filter(|left| !left.is_zero()) else {
                return Poll::Ready(());
            };
            // Never so short that it is no wait at all, as times are counted in milliseconds.
            *wait = Box::pin(tokio::time::sleep(left.max(Duration::from_millis(1))));
        }
    }

    /// What was waited for has come.
    pub(super) fn end(&mut self) {
        self.wait = None;
    }
}

/// A stream that notes what moves.
struct Watched<S> {
    stream: S,
    movement: Arc<Movement>,
}

impl<S> Watched<S> {
    fn note_written(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.movement.written.store(true, Relaxed);
            self.movement.note();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.movement.note();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Connections that nobody uses, and since when (monotonic time). The one used last is taken first.
pub(super) struct Idle {
    longest: Duration,
    most: usize,
    clock: Arc<dyn Clock>,
    lines: Mutex<Vec<(Line, Duration)>>,
}

impl Idle {
    pub(super) fn new(longest: Duration, most: usize, clock: Arc<dyn Clock>) -> Self {
        Self { longest, most, clock, lines: Mutex::default() }
    }

    /// One that can take a request, as far as is known here.
    pub(super) fn take(&self) -> Option<Line> {
        let now = self.clock.monotonic();
        let mut lines = lock(&self.lines);
        lines.retain(|(line, since)| {
            !line.requests.is_closed() && now.saturating_sub(*since) < self.longest
        });
        // One may still have something of its last request to send.
        let at = lines.iter().rposition(|(line, _)| line.requests.is_ready())?;
        Some(lines.remove(at).0)
    }

    /// Keeps one whose answer is whole.
    pub(super) fn keep(&self, line: Line) {
        let now = self.clock.monotonic();
        let mut lines = lock(&self.lines);
        lines.retain(|(line, since)| {
            !line.requests.is_closed() && now.saturating_sub(*since) < self.longest
        });
        if lines.len() < self.most {
            lines.push((line, now));
        }
    }
}
