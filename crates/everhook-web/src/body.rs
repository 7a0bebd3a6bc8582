//! Reading request bodies: never more than allowed, never more at once than there is room for,
//! never longer than a deadline.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
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
        let mut held = Held { bodies: self, room: 0, bytes: Bytes::new() };
        let mut joined = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let detail = "the body ended too early or was not sent as its headers say";
                Problem::new(ProblemKind::UnreadableBody, detail)
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if held.room + data.len() > limit {
                return Err(too_large(limit));
            }
            held.take_room(data.len())?;
            // Small bodies come in one piece, which needs no copy.
            if held.bytes.is_empty() && joined.is_empty() {
                held.bytes = data;
            } else {
                if joined.is_empty() {
                    joined.extend_from_slice(&std::mem::take(&mut held.bytes));
                }
                joined.extend_from_slice(&data);
            }
        }
        if !joined.is_empty() {
            held.bytes = joined.freeze();
        }
        Ok(held)
    }
}

impl Held<'_> {
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
