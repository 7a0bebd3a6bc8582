//! The body of an answer on its way back, as it comes.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::line::{Idle, Line, Silence};

/// What follows an answer's head, trailers too. When it has ended its connection can be used again;
/// dropped before, it closes it.
pub struct ForwardedBody {
    body: Incoming,
    /// `None` once it was given back, or is of no more use.
    line: Option<Line>,
    silence: Silence,
    idle: Arc<Idle>,
}

impl std::fmt::Debug for ForwardedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardedBody").field("body", &self.body).finish_non_exhaustive()
    }
}

impl ForwardedBody {
    pub(super) fn new(body: Incoming, line: Line, silence: Silence, idle: Arc<Idle>) -> Self {
        let mut new = Self { body, line: Some(line), silence, idle };
        new.give_back_at_end();
        new
    }

    fn give_back_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(line) = self.line.take()
        {
            self.idle.keep(line);
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) else {
            return this.silence.poll(context).map(|()| {
                this.line = None;
                Some(Err("the service stopped in the middle of its answer".into()))
            });
        };
        this.silence.end();
        match &frame {
            Some(Ok(_)) => this.give_back_at_end(),
            Some(Err(_)) => this.line = None,
            None => {
                if let Some(line) = this.line.take() {
                    this.idle.keep(line);
                }
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
