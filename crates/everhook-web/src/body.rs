//! Reading request bodies: never more than allowed, never more at once than there is room for,
//! never longer than a deadline, never slower than a pace.

mod room;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use everhook_domain::id::SourceId;
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::problem::{Problem, ProblemKind};
use crate::settings::{BodyLimits, ReceiveLimits};
use room::{Pool, Room, SMALL_BYTES};

/// The pace of a body is looked at each time that so much time has gone by.
const PACE_WINDOW: Duration = Duration::from_secs(5);

/// Reads bodies; all that are held at the same time share one budget.
#[derive(Debug)]
pub(crate) struct Bodies {
    room: Room,
    timeout: Duration,
    /// In bytes a second.
    pace_min: usize,
}

/// Whose body it is: a source's, or that of a caller who was let in.
type Owner = Option<SourceId>;

/// A body that was read whole. Its room is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'b> {
    bodies: &'b Bodies,
    owner: Owner,
    is_small: bool,
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
        self.bodies.pool(self.is_small).give_back(self.owner, self.room);
    }
}

impl Bodies {
    /// For the API, whose callers are known.
    pub(crate) fn of_callers(limits: &BodyLimits) -> Self {
        let room = Room::shared(limits.in_flight_bytes_max);
        Self { room, timeout: limits.timeout, pace_min: 0 }
    }

    /// For sources, to which anybody can send.
    pub(crate) fn of_sources(limits: &ReceiveLimits) -> Self {
        Self {
            room: Room::of_sources(limits.in_flight_bytes_max, limits.body_bytes_max),
            timeout: limits.timeout,
            pace_min: limits.body_pace_min,
        }
    }

    const fn pool(&self, is_small: bool) -> &Pool {
        if is_small { &self.room.small } else { &self.room.common }
    }

    /// Reads a body of at most `limit` bytes.
    ///
    /// # Errors
    /// `body-too-large`, at once where the length was announced; `overloaded`, `request-timeout`,
    /// `unreadable-body`.
    pub(crate) async fn read(
        &self,
        owner: Owner,
        body: &mut Body,
        limit: usize,
    ) -> Result<Held<'_>, Problem> {
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large(limit));
        }
        let come = AtomicUsize::new(0);
        let late = |detail: String| Err(Problem::new(ProblemKind::RequestTimeout, detail));
        tokio::select! {
            biased;
            read = self.collect(owner, body, limit, &come) => read,
            () = tokio::time::sleep(self.timeout) => {
                let seconds = self.timeout.as_secs();
                late(format!("the body was not complete after {seconds} s"))
            }
            () = self.falls_behind(&come) => {
                let pace = self.pace_min;
                late(format!("the body came too slowly: fewer than {pace} bytes a second"))
            }
        }
    }

    /// Ends when less has come in a window than the pace asks for.
    async fn falls_behind(&self, come: &AtomicUsize) {
        let seconds = usize::try_from(PACE_WINDOW.as_secs()).unwrap_or(usize::MAX);
        let needed = self.pace_min.saturating_mul(seconds);
        loop {
            let before = come.load(Ordering::Relaxed);
            tokio::time::sleep(PACE_WINDOW).await;
            if come.load(Ordering::Relaxed) - before < needed {
                return;
            }
        }
    }

    async fn collect(
        &self,
        owner: Owner,
        body: &mut Body,
        limit: usize,
        come: &AtomicUsize,
    ) -> Result<Held<'_>, Problem> {
        // All of it, where that was announced.
        let whole = body.size_hint().exact().and_then(|exact| usize::try_from(exact).ok());
        let most = whole.unwrap_or(limit);
        let is_small = whole.is_none_or(|whole| whole <= SMALL_BYTES);
        let mut held = Held { bodies: self, owner, is_small, room: 0, bytes: Bytes::new() };
        let mut joined = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let detail = "the body ended too early or was not sent as its headers say";
                Problem::new(ProblemKind::UnreadableBody, detail)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            come.fetch_add(data.len(), Ordering::Relaxed);
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
        self.take_room(capacity.max(self.room))?;
        joined.reserve_exact(capacity - joined.len());
        Ok(())
    }

    /// Has room for `bytes` in all from now on: a small body where only they have some, else where
    /// all have.
    fn take_room(&mut self, bytes: usize) -> Result<(), Problem> {
        let may_be_small = self.is_small && bytes <= SMALL_BYTES;
        let places: &[bool] = if may_be_small { &[true, false] } else { &[false] };
        for &is_small in places {
            let had = if is_small == self.is_small { self.room } else { 0 };
            if self.bodies.pool(is_small).take(self.owner, bytes - had) {
                if is_small != self.is_small {
                    self.bodies.pool(self.is_small).give_back(self.owner, self.room);
                }
                (self.is_small, self.room) = (is_small, bytes);
                return Ok(());
            }
        }
        Err(Problem::new(
            ProblemKind::Overloaded,
            "too many bytes of requests are being read at the moment; nothing was stored",
        ))
    }
}

fn too_large(limit: usize) -> Problem {
    let detail = format!("the body may have at most {limit} bytes; nothing was stored");
    Problem::new(ProblemKind::BodyTooLarge, detail)
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

    fn bodies(pace_min: usize) -> Bodies {
        Bodies { room: Room::shared(ROOM), timeout: Duration::from_secs(60), pace_min }
    }

    /// Reads a body that comes in pieces of these lengths; the room that it takes, or the slug.
    async fn check(pieces: &[usize], announced: bool, limit: usize, expected: Result<usize, &str>) {
        let bodies = bodies(0);
        let whole: Vec<u8> = (0..=250).cycle().take(pieces.iter().sum()).collect();
        let mut rest = Bytes::from(whole.clone());
        let frames = pieces.iter().map(|length| rest.split_to(*length)).collect();
        let length = announced.then_some(whole.len() as u64);
        let read = bodies.read(None, &mut Body::new(Pieces(frames, length)), limit).await;
        if let Ok(held) = &read {
            assert_eq!(held.bytes(), &whole, "{pieces:?}");
        }
        let room = read.as_ref().map(|held| held.room).map_err(|problem| problem.kind().slug());
        assert_eq!(room, expected, "{pieces:?} {announced} {limit}");
        drop(read);
        assert!(bodies.room.common.is_free(), "all of it is given back");
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

    #[tokio::test]
    async fn small_bodies_have_room_while_large_ones_have_all_of_theirs() {
        const LARGE: usize = 8 * SMALL_BYTES;
        let limits = ReceiveLimits {
            in_flight_bytes_max: 4 * LARGE,
            body_bytes_max: LARGE,
            ..ReceiveLimits::default()
        };
        let bodies = Bodies::of_sources(&limits);
        let read = |number: u128, pieces: Vec<usize>, announced: bool| {
            let sum: usize = pieces.iter().sum();
            let frames = pieces.into_iter().map(|length| Bytes::from(vec![b'x'; length])).collect();
            let mut body = Body::new(Pieces(frames, announced.then_some(sum as u64)));
            let bodies = &bodies;
            async move { bodies.read(Some(SourceId::from_bits(number)), &mut body, LARGE).await }
        };
        // Three fit besides what is for small ones, one of each source.
        let mut held = Vec::new();
        for number in 1..=3 {
            held.push(read(number, vec![LARGE], true).await.unwrap());
            assert!(read(number, vec![LARGE], true).await.is_err(), "{number}");
        }
        for announced in [true, false] {
            let small = read(1, vec![SMALL_BYTES / 2, SMALL_BYTES / 2], announced).await.unwrap();
            assert!(small.is_small && !bodies.room.small.is_free());
        }
        // One that turns out large counts as such.
        assert!(read(4, vec![SMALL_BYTES, SMALL_BYTES, LARGE / 2], false).await.is_err());
        held.pop();
        let grown = read(4, vec![SMALL_BYTES, SMALL_BYTES, LARGE / 2], false).await.unwrap();
        assert!(!grown.is_small && bodies.room.small.is_free());
        drop((grown, held));
        assert!(bodies.room.common.is_free());
    }

    /// A body of so many bytes at first, and then so many each second, for ever.
    struct Dripping(usize, usize, tokio::time::Interval);

    impl hyper::body::Body for Dripping {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let each = self.1;
            self.2.poll_tick(context).map(|_| {
                let length = std::mem::replace(&mut self.0, each);
                Some(Ok(Frame::data(Bytes::from(vec![0; length]))))
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_falls_behind_gives_the_room_back() {
        for (pace_min, first, each, expected) in [
            (10, 0, 10, "not complete after 60 s"),
            (10, 0, 9, "too slowly"),
            (10, 900, 1, "too slowly"),
            (1, 0, 0, "too slowly"),
            (0, 0, 0, "not complete after 60 s"),
        ] {
            let bodies = bodies(pace_min);
            let second = tokio::time::interval(Duration::from_secs(1));
            let mut body = Body::new(Dripping(first, each, second));
            let problem = bodies.read(None, &mut body, ROOM).await.unwrap_err();
            assert_eq!(problem.kind().slug(), "request-timeout");
            assert!(problem.detail().contains(expected), "{pace_min} {}", problem.detail());
            assert!(bodies.room.common.is_free());
        }
    }
}
