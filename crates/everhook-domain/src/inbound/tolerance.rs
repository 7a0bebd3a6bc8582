//! How old a signed timestamp may be.

use super::{Context, Rejection};
use crate::time::Timestamp;

/// Checks that `at` is no further from the time of arrival than the source tolerates, both ways,
/// inclusive, in whole seconds.
///
/// # Errors
/// [`Rejection::Stale`].
pub(super) fn check(at: Timestamp, context: &Context<'_>) -> Result<(), Rejection> {
    let (now, at) = (context.now.as_secs(), at.as_secs());
    let seconds = now.abs_diff(at);
    if seconds > context.source.tolerance().as_secs() {
        let side = if at < now { "old" } else { "ahead" };
        return Err(Rejection::Stale { seconds, side });
    }
    Ok(())
}

/// A header of whole seconds since 1970: digits only.
pub(super) fn seconds(text: &str) -> Option<Timestamp> {
    digits(text)?.checked_mul(1_000).map(Timestamp::from_millis)
}

/// A header of whole milliseconds since 1970: digits only.
pub(super) fn milliseconds(text: &str) -> Option<Timestamp> {
    digits(text).map(Timestamp::from_millis)
}

fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}
