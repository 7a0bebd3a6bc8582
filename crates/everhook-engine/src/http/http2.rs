//! One HTTP/2 connection, shared by many requests (RFC 9113).
//!
//! Somebody has to read and write for all of them, so it is driven by a task, which the sender
//! owns. A request that is given up resets its own stream and nothing else.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::attempt::ErrorClass;
use everhook_domain::time::Clock;
use h2::Reason;
use h2::client::{Builder, SendRequest};
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, Version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::body::Body;
use super::exchange::Exchange;
use super::failure::Failure;
use super::overheard::Overheard;

/// The largest header list of an answer, as RFC 9113 §6.5.2 counts it.
const HEADER_LIST_BYTES_MAX: u32 = 64 * 1_024;
/// What the other side may send ahead of our reading: on one stream, and on all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1_024;
const CONNECTION_WINDOW_BYTES: u32 = 1_024 * 1_024;
/// How long the last words of a connection that nobody uses any more may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// An open connection. When the last handle is gone, it is closed.
pub(super) struct Http2 {
    requests: SendRequest<Bytes>,
    life: Arc<Life>,
    born: Duration,
    _goodbye: oneshot::Sender<Infallible>,
}

/// What the driver and the requests know of each other.
struct Life {
    clock: Arc<dyn Clock>,
    /// Whether it can carry no more requests: it has ended, or is not trusted to answer.
    over: AtomicBool,
    /// Nanoseconds of monotonic time when something last came in, or was last waited for anew.
    quiet_since: AtomicU64,
}

impl Http2 {
    /// Speaks HTTP/2 on this stream. Nothing moves unless the second part runs; it ends with the
    /// connection, and soon after the last handle.
    pub(super) async fn open<S>(
        stream: S,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Self>, impl Future<Output = ()> + Send + use<S>), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let born = clock.monotonic();
        let life = Arc::new(Life {
            clock,
            over: AtomicBool::new(false),
            quiet_since: AtomicU64::new(nanos(born)),
        });
        let ear = Arc::clone(&life);
        let stream = Overheard::new(stream, move || ear.hear());
        let opened = Builder::new()
            .enable_push(false)
            .max_header_list_size(HEADER_LIST_BYTES_MAX)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (requests, connection) = opened.map_err(|error| Failure::multiplexing(&error))?;
        let (goodbye, unused) = oneshot::channel();
        let driven = Arc::clone(&life);
        let driver = async move {
            let mut connection = pin!(connection);
            tokio::select! {
                biased;
                // Each request is told by its own stream.
                _ = connection.as_mut() => {}
                _ = unused => {
                    tokio::time::timeout(GOODBYE, connection).await.ok();
                }
            }
            driven.over.store(true, Relaxed);
        };
        Ok((Arc::new(Self { requests, life, born, _goodbye: goodbye }), driver))
    }

    /// The monotonic time at which it was opened.
    pub(super) const fn born(&self) -> Duration {
        self.born
    }

    /// Whether it can carry no more requests.
    pub(super) fn is_over(&self) -> bool {
        self.life.over.load(Relaxed)
    }

    /// The most streams at once that the other side allows, as far as it has said.
    pub(super) fn streams_max(&self) -> usize {
        self.requests.current_max_send_streams()
    }

    /// The monotonic time since which nothing has come in, though something is waited for.
    pub(super) fn quiet_since(&self) -> Duration {
        Duration::from_nanos(self.life.quiet_since.load(Relaxed))
    }

    /// A request begins while no other waits: the silence before it means nothing.
    pub(super) fn wake(&self) {
        self.life.hear();
    }

    /// Takes no more requests. Those under way may go on.
    pub(super) fn retire(&self) {
        self.life.over.store(true, Relaxed);
    }

    /// Sends a request and waits for the head of its answer. Dropping the future resets the stream.
    pub(super) async fn exchange(&self, request: Request<Bytes>) -> Exchange {
        let (head, body) = match multiplexed(request) {
            Ok(request) => request,
            Err(failure) => return Exchange::Failed(failure),
        };
        let mut requests = self.requests.clone();
        let sent = requests.send_request(head, body.is_empty());
        let (answer, mut stream) = match sent {
            Ok(sent) => sent,
            Err(error) if error.is_io() || error.is_go_away() => {
                self.retire();
                return Exchange::Unsent;
            }
            Err(error) => return Exchange::Failed(Failure::multiplexing(&error)),
        };
        if !body.is_empty() {
            // It leaves as the other side's windows allow; a failure shows in the answer's place.
            stream.send_data(body, true).ok();
        }
        match answer.await {
            Ok(answer) => Exchange::Answered(Box::new(answer.map(Body::Shared))),
            Err(error) => classify(&error),
        }
    }
}

impl Life {
    fn hear(&self) {
        self.quiet_since.store(nanos(self.clock.monotonic()), Relaxed);
    }
}

/// What a failed stream means for its request (RFC 9113 §8.7): it was not processed if the other
/// side says so, and otherwise nobody knows.
fn classify(error: &h2::Error) -> Exchange {
    let failure = Failure::multiplexing(error);
    let refused = error.reason() == Some(Reason::REFUSED_STREAM);
    if error.is_remote() && (error.is_go_away() || refused) {
        Exchange::Unprocessed(failure)
    } else if failure.class == ErrorClass::Reset && error.is_io() {
        Exchange::ClosedUnheard(failure)
    } else {
        Exchange::Failed(failure)
    }
}

/// The request in the form of RFC 9113 §8.3.1: the host in the target, and the body apart.
fn multiplexed(request: Request<Bytes>) -> Result<(Request<()>, Bytes), Failure> {
    let (mut parts, body) = request.into_parts();
    let host = parts.headers.remove(HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut target = parts.uri.into_parts();
    target.scheme = Some(Scheme::HTTPS);
    target.authority = authority;
    parts.uri = Uri::from_parts(target).map_err(|_| {
        let detail = "the endpoint's URL cannot be sent: its host is not legal in HTTP/2";
        Failure::new(ErrorClass::Configuration, detail)
    })?;
    parts.version = Version::HTTP_2;
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Ok((Request::from_parts(parts, ()), body))
}

/// Exact: an answer in the same millisecond as a request is an answer after it.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
