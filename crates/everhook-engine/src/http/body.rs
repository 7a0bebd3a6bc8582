//! The body of an answer, whichever protocol it comes by.

use bytes::Bytes;
use h2::RecvStream;
use http_body_util::BodyExt;
use hyper::body::Body as _;
use hyper::body::Incoming;

/// What follows an answer's head. Dropping it early ends the connection that is its own, or resets
/// the stream of a shared one.
pub(super) enum Body {
    /// HTTP/1.1.
    Own(Incoming),
    /// HTTP/2.
    Shared(RecvStream),
}

/// The body was cut off.
#[derive(Debug)]
pub(super) struct CutOff;

impl Body {
    /// Whether nothing more will come.
    pub(super) fn is_ended(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Shared(body) => body.is_end_stream(),
        }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn piece(&mut self) -> Option<Result<Bytes, CutOff>> {
        match self {
            Self::Own(body) => {
                let frame = body.frame().await?;
                Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(|_| CutOff))
            }
            Self::Shared(body) => {
                let piece = body.data().await?;
                if let Ok(piece) = &piece {
                    // What was taken out makes room for more.
                    body.flow_control().release_capacity(piece.len()).ok();
                }
                Some(piece.map_err(|_| CutOff))
            }
        }
    }
}
