//! One request on one connection, whichever protocol it speaks.

use bytes::Bytes;
use http::{Request, Response};

use super::body::Body;
use super::connection::Connection;
use super::failure::Failure;
use super::pool::Seat;

/// What came of one exchange.
pub(super) enum Exchange {
    /// The head of an answer.
    Answered(Box<Response<Body>>),
    /// The connection had ended before anything was written.
    Unsent,
    /// The other side says that it has not begun with the request.
    Unprocessed(Failure),
    /// The connection ended under the request, before any byte of an answer to it.
    ClosedUnheard(Failure),
    /// Anything else.
    Failed(Failure),
}

/// What carries a request and its answer.
pub(super) enum Carrier {
    /// An HTTP/1.1 connection: it carries one request at a time, and whoever has it drives it.
    Own(Connection),
    /// A place on an HTTP/2 connection.
    Shared(Seat),
}

impl Carrier {
    /// Whether a request can be sent, as far as is known here.
    pub(super) fn is_ready(&mut self) -> bool {
        match self {
            Self::Own(connection) => connection.is_ready(),
            // Its driver tells the pool.
            Self::Shared(_) => true,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(&mut self, request: Request<Bytes>) -> Exchange {
        match self {
            Self::Own(connection) => connection.exchange(request).await,
            Self::Shared(seat) => seat.exchange(request).await,
        }
    }

    /// Runs `work`, which waits for something to come in.
    pub(super) async fn drive<W: Future>(&mut self, work: W) -> W::Output {
        match self {
            Self::Own(connection) => connection.drive(work).await,
            Self::Shared(_) => work.await,
        }
    }
}
