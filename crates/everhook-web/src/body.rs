//! Reading request bodies: never more than allowed, never more at once than there is room for,
//! never longer than a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::problem::{Problem, ProblemKind};

/// How much of a refused body is read and thrown away, so that its sender gets to read the answer
/// instead of a broken connection.
const LINGER_BYTES_MAX: usize = 32 * 1_024 * 1_024;
/// For how long that is done.
const LINGER_TIME_MAX: Duration = Duration::from_secs(5);

/// Reads bodies; all that are held at the same time share one budget.
#[derive(Debug)]
pub(crate) struct Bodies {
    available: AtomicUsize,
    timeout: Duration,
}

/// A body that was read whole. Its room is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'b> {
    bodies: &'b Bodies,
    room: usize,
    bytes: Bytes,
}

impl Held<'_> {
    /// The body's bytes.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.bodies.available.fetch_add(self.room, Ordering::Relaxed);
    }
}

impl Bodies {
    /// Holds at most `bytes_max` at once; a body must be there after `timeout`.
    pub(crate) const fn new(bytes_max: usize, timeout: Duration) -> Self {
        Self { available: AtomicUsize::new(bytes_max), timeout }
    }

    /// Reads a body of at most `limit` bytes.
    ///
    /// # Errors
    /// `body-too-large`, at once where the length was announced; `overloaded`, `request-timeout`,
    /// `unreadable-body`.
    pub(crate) async fn read(&self, body: &mut Body, limit: usize) -> Result<Held<'_>, Problem> {
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        match tokio::time::timeout(self.timeout, self.collect(body, limit)).await {
            Ok(read) => read,
            Err(_) => {
                let seconds = self.timeout.as_secs();
                let detail = format!("the body was not complete after {seconds} s");
                Err(Problem::new(ProblemKind::RequestTimeout, detail))
            }
        }
    }

    async fn collect(&self, body: &mut Body, limit: usize) -> Result<Held<'_>, Problem> {
        // All of it, where that was announced.
        let whole = body.size_hint().exact().and_then(|exact| usize::try_from(exact).ok());
        let most = whole.unwrap_or(limit);
        let mut held = Held { bodies: self, room: 0, bytes: Bytes::new() };
        let mut joined = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let detail = "the body ended too early or was not sent as its headers say";
                Problem::new(ProblemKind::UnreadableBody, detail)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let so_far = held.bytes.len() + joined.len();
            if so_far + data.len() > limit {
                return Err(too_large(limit));
            }
            // Small bodies come in one piece, which needs no copy.
            if so_far == 0 {
                held.take_room(data.len())?;
                held.bytes = data;
                continue;
            }
            held.make_room(&mut joined, so_far + data.len(), most)?;
            joined.extend_from_slice(&std::mem::take(&mut held.bytes));
            joined.extend_from_slice(&data);
        }
        if !joined.is_empty() {
            held.bytes = Bytes::from(joined);
        }
        Ok(held)
    }
}

impl Held<'_> {
    /// Makes room for `needed` bytes: twice as much as there is, so that each byte is moved a few
    /// times at most, but never beyond `most`. What is set aside is what is counted.
    fn make_room(
        &mut self,
        joined: &mut Vec<u8>,
        needed: usize,
        most: usize,
    ) -> Result<(), Problem> {
        if joined.capacity() >= needed {
            return Ok(());
        }
        let capacity = needed.max(joined.capacity().saturating_mul(2).min(most));
        self.take_room(capacity.saturating_sub(self.room))?;
        joined.reserve_exact(capacity - joined.len());
        Ok(())
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), Problem> {
        let taken =
            self.bodies.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |available| {
                available.checked_sub(bytes)
            });
        match taken {
            Ok(_) => {
                self.room += bytes;
                Ok(())
            }
            Err(_) => Err(Problem::new(
                ProblemKind::Overloaded,
                "too many bytes of requests are being read at the moment; nothing was stored",
            )),
        }
    }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("the body may have at most {limit} bytes; nothing was stored");
    Problem::new(ProblemKind::BodyTooLarge, detail)
}

/// Reads on after a refusal, within bounds. A client that waits for leave to send its body is not
/// given it.
pub(crate) async fn linger(headers: &HeaderMap, body: &mut Body) {
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let read_on = async {
        let mut thrown_away = 0;
        while let Some(Ok(frame)) = body.frame().await {
            thrown_away += frame.data_ref().map_or(0, Bytes::len);
            if thrown_away > LINGER_BYTES_MAX {
                break;
            }
        }
    };
    // Past the time, the connection is closed under the sender.
    let _elapsed = tokio::time::timeout(LINGER_TIME_MAX, read_on).await;
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::{Frame, SizeHint};

    use super::*;

    const ROOM: usize = 1_000;

    /// A body in pieces, whose length may have been announced.
    struct Pieces(VecDeque<Bytes>, Option<u64>);

    impl hyper::body::Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn size_hint(&self) -> SizeHint {
            self.1.map(SizeHint::with_exact).unwrap_or_default()
        }
    }

    /// Reads a body that comes in pieces of these lengths; the room that it takes, or the slug.
    async fn check(pieces: &[usize], announced: bool, limit: usize, expected: Result<usize, &str>) {
        let bodies = Bodies::new(ROOM, Duration::from_secs(1));
        let whole: Vec<u8> = (0..=250).cycle().take(pieces.iter().sum()).collect();
        let mut rest = Bytes::from(whole.clone());
        let frames = pieces.iter().map(|length| rest.split_to(*length)).collect();
        let length = announced.then_some(whole.len() as u64);
        let read = bodies.read(&mut Body::new(Pieces(frames, length)), limit).await;
        if let Ok(held) = &read {
            assert_eq!(held.bytes(), &whole, "{pieces:?}");
        }
        let room = read.as_ref().map(|held| held.room).map_err(|problem| problem.kind().slug());
        assert_eq!(room, expected, "{pieces:?} {announced} {limit}");
        drop(read);
        assert_eq!(bodies.available.load(Ordering::Relaxed), ROOM, "all of it is given back");
    }

    #[tokio::test]
    async fn room_is_what_is_set_aside() {
        check(&[], false, 100, Ok(0)).await;
        check(&[100], false, 100, Ok(100)).await;
        check(&[101], false, 100, Err("body-too-large")).await;
        check(&[50, 1], false, 100, Ok(51)).await;
        check(&[50, 1, 1], false, 1_000, Ok(102)).await;
        check(&[50, 1, 1], false, 80, Ok(80)).await;
        check(&[50, 1, 1], true, 1_000, Ok(52)).await;
        check(&[1; 100], false, 100, Ok(100)).await;
        check(&[1; 101], false, 100, Err("body-too-large")).await;
        check(&[600, 400], true, 2_000, Ok(1_000)).await;
        check(&[600, 401], true, 2_000, Err("overloaded")).await;
        check(&[600, 1, 1], false, 2_000, Err("overloaded")).await;
    }
}
