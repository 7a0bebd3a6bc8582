//! A client's body that may not be silent for long, so that whoever stops in the middle does not
//! hold its place for ever; and what is known of it, to tell a client's fault from the service's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;

/// How a client's body is coming in.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming(Arc<AtomicU8>);

const COMES: u8 = 0;
const AWAITED: u8 = 1;
const BROKEN: u8 = 2;

impl Incoming {
    /// Whether it broke off, or was not HTTP.
    pub(super) fn is_broken(&self) -> bool {
        self.0.load(Ordering::Relaxed) == BROKEN
    }

    /// Whether the next piece of it is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        self.0.load(Ordering::Relaxed) == AWAITED
    }

    fn note(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }
}

/// A body that fails after `longest` without a piece of it, while somebody waits for one.
pub(super) struct Patient {
    body: Body,
    longest: Duration,
    wait: Option<Pin<Box<Sleep>>>,
    incoming: Incoming,
}

impl Patient {
    pub(super) const fn new(body: Body, longest: Duration, incoming: Incoming) -> Self {
        Self { body, longest, wait: None, incoming }
    }
}

impl hyper::body::Body for Patient {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.wait = None;
            this.incoming.note(if matches!(frame, Some(Err(_))) { BROKEN } else { COMES });
            return Poll::Ready(frame);
        }
        let longest = this.longest;
        let wait = this.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        let silent = || axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let silence = wait.as_mut().poll(context);
        this.incoming.note(if silence.is_ready() { BROKEN } else { AWAITED });
        silence.map(|()| Some(Err(silent())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
