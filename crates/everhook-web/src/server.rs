//! Connections: HTTP/1.1 directly on hyper, every task owned, every wait bounded.
//!
//! The listener and the stop signal are handed in. On stop nothing new is accepted, requests under
//! way are answered, idle connections are closed; what is left after a while is cut off. A cut-off
//! request is no half-done one: its effect is one transaction of the store. A client that ends its
//! side after its request, as some simple ones do, is answered like any other. A refusal does not
//! wait for the rest of the body: see `linger`.

mod head;
mod linger;
mod stall;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Request, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};
use tower_service::Service;

use linger::{Left, Watched, linger};
use stall::NoStall;

/// How long accepting rests after it failed, as when file descriptors have run out.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// The least that hyper can work with.
const HEAD_BYTES_MIN: usize = 8_192;

/// A body up to this that was not read is likely here in whole, so that its connection can go on.
const SMALL_BODY_BYTES: u64 = 8_192;

/// Bounds of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections at the same time; more wait in the listener's queue.
    pub connections_max: usize,
    /// The longest time from the end of one request to the complete head of the next: bounds idle
    /// connections and slowly sent heads alike.
    pub idle_timeout: Duration,
    /// The longest time that a client may take nothing of an answer.
    pub stall_timeout: Duration,
    /// The largest request line and headers together, in bytes; at least 8,192.
    pub head_bytes_max: usize,
    /// How long requests under way may go on after the stop signal.
    pub drain_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 4_096,
            idle_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            head_bytes_max: 65_536,
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// Where a request came from, in its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What answers requests; a clone for each.
pub trait Answers:
    Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Unpin
    + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Unpin
        + 'static
{
}

/// Serves until `stop` is ready, and returns when every connection has ended.
pub async fn serve(
    listener: TcpListener,
    service: impl Answers,
    stop: impl Future<Output = ()> + Send,
    limits: ServerLimits,
) {
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = connections.join_next() => note_panic(ended),
            (slot, accepted) = accept(&listener, &slots) => {
                let (service, stopped) = (service.clone(), stopped.clone());
                connections.spawn(connection(slot, accepted, service, stopped, limits));
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            note_panic(ended);
        }
    };
    if tokio::time::timeout(limits.drain_timeout, drained).await.is_err() {
        tracing::warn!(
            left = connections.len(),
            "connections did not end in time and were cut off"
        );
        connections.shutdown().await;
    }
}

/// Tells a request that the server stops, in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(Option<watch::Receiver<bool>>);

impl Stopping {
    /// What a request's server tells. One without a server never stops.
    pub(crate) fn of<B>(request: &http::Request<B>) -> Self {
        request.extensions().get().cloned().unwrap_or(Self(None))
    }

    /// Waits until the server stops.
    pub(crate) async fn wait(self) {
        match self.0 {
            Some(mut stopped) => drop(stopped.wait_for(|stopped| *stopped).await),
            None => std::future::pending().await,
        }
    }
}

type Accepted = (TcpStream, Peer);

/// The next connection, once there is room for one.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (Option<OwnedSemaphorePermit>, Accepted) {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (slot, (stream, Peer(peer.ip().to_canonical()))),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

async fn connection(
    slot: Option<OwnedSemaphorePermit>,
    (stream, peer): Accepted,
    service: impl Answers,
    mut stopped: watch::Receiver<bool>,
    limits: ServerLimits,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection ended before it began");
        return;
    }
    let io = NoStall::new(TokioIo::new(stream), limits.stall_timeout);
    let left = Left::default();
    let noted = left.clone();
    let stopping = Stopping(Some(stopped.clone()));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(stopping.clone());
        Box::pin(answer(service.clone(), request, noted.clone()))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .half_close(true)
        .max_buf_size(limits.head_bytes_max.max(HEAD_BYTES_MIN))
        .serve_connection(io, service);
    let stop = async { stopped.wait_for(|stopped| *stopped).await.is_ok() };
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        _ = stop => {
            std::pin::Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    let mut stream = connection.into_parts().io.into_inner().into_inner();
    match ended {
        Ok(()) if left.is_so() => linger(stream).await,
        // Whoever is gone needs no end of ours.
        Ok(()) => drop(stream.shutdown().await),
        Err(error) => tracing::debug!(%error, "a connection ended early"),
    }
    drop(slot);
}

async fn answer(
    mut service: impl Answers,
    request: Request<Incoming>,
    left: Left,
) -> Result<Response, Infallible> {
    let upper = request.body().size_hint().upper();
    let is_small = upper.is_some_and(|bytes| bytes <= SMALL_BODY_BYTES);
    let legal = head::check(request.version(), request.headers());
    let watched = request.map(|body| Body::new(Watched::new(body, left.clone())));
    let mut response = match legal {
        Ok(()) => service.call(watched).await?,
        Err(problem) => {
            drop(watched);
            problem.into_response()
        }
    };
    if left.is_so() && !is_small {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

fn note_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("a request ended in a panic and its connection was closed");
    }
}
