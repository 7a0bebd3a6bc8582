//! A client's body that may not be silent for long, so that whoever stops in the middle does not
//! hold its place for ever.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Sleep;

/// A body that fails after `longest` without a piece of it, while somebody waits for one.
pub(super) struct Patient {
    body: Body,
    longest: Duration,
    wait: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    pub(super) const fn new(body: Body, longest: Duration) -> Self {
        Self { body, longest, wait: None }
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
            return Poll::Ready(frame);
        }
        let longest = this.longest;
        let wait = this.wait.get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        let silent = || axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
        wait.as_mut().poll(context).map(|()| Some(Err(silent())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
