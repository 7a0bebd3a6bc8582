//! The body of an answer: as the handler made it, with what was read of it already; or ours.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// The body of every answer that passes a layer.
#[derive(Debug)]
pub struct AnswerBody<R> {
    data: Option<Bytes>,
    rest: Option<Pin<Box<R>>>,
    trailers: Option<HeaderMap>,
}

impl<R> AnswerBody<R> {
    /// As the handler made it, untouched.
    pub(crate) fn untouched(body: R) -> Self {
        Self { data: None, rest: Some(Box::pin(body)), trailers: None }
    }

    /// Bytes that are there as a whole.
    pub(crate) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), rest: None, trailers }
    }

    /// What was read of a body, and the rest of it.
    pub(crate) fn begun(data: Bytes, rest: Pin<Box<R>>) -> Self {
        Self { data: Some(data).filter(|data| !data.is_empty()), rest: Some(rest), trailers: None }
    }
}

impl<R: Body<Data = Bytes>> Body for AnswerBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let this = self.get_mut();
        if let Some(data) = this.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(rest) = &mut this.rest {
            return rest.as_mut().poll_frame(context);
        }
        Poll::Ready(this.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.data.as_ref().map_or(0, |data| data.len() as u64);
        let Some(rest) = &self.rest else { return SizeHint::with_exact(data) };
        let rest = rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(data.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(data)) {
            hint.set_upper(upper);
        }
        hint
    }
}
