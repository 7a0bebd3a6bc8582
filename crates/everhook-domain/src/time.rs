//! Instants, and where they come from.
//!
//! An instant is a [`Timestamp`]: whole milliseconds since the Unix epoch, UTC. Text form is RFC
//! 3339 with milliseconds and `Z`, always 24 characters for the years 0000 to 9999.

use std::fmt;
use std::time::Duration;

use ::time::OffsetDateTime;
use ::time::format_description::well_known::Rfc3339;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch, UTC, within the years 0000 to 9999.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The text is not an RFC 3339 date-time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time such as 2026-01-31T12:00:00.000Z")]
pub struct InvalidTimestamp;

/// 0000-01-01T00:00:00.000Z.
const EARLIEST_MS: i64 = -62_167_219_200_000;
/// 9999-12-31T23:59:59.999Z.
const LATEST_MS: i64 = 253_402_300_799_999;

impl Timestamp {
    /// An instant from milliseconds since the Unix epoch; clamped to the years 0000 to 9999.
    pub const fn from_millis(millis: i64) -> Self {
        if millis < EARLIEST_MS {
            Self(EARLIEST_MS)
        } else if millis > LATEST_MS {
            Self(LATEST_MS)
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down: what signatures carry.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant `duration` before; clamped at the earliest instant.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_sub(millis(duration)))
    }

    /// Reads an RFC 3339 date-time with any offset; fractions below a millisecond are cut.
    ///
    /// # Errors
    /// [`InvalidTimestamp`] when the text is no RFC 3339 date-time or lies outside the years 0000
    /// to 9999 in UTC.
    pub fn parse(text: &str) -> Result<Self, InvalidTimestamp> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTimestamp)?;
        let millis = i64::try_from(parsed.unix_timestamp_nanos().div_euclid(1_000_000))
            .map_err(|_| InvalidTimestamp)?;
        if (EARLIEST_MS..=LATEST_MS).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(InvalidTimestamp)
        }
    }
}

/// Saturating: an instant never overflows, it stays at the last one there is.
impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(duration)))
    }
}

/// Whole milliseconds of a duration, saturating.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = i128::from(self.0) * 1_000_000;
        let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).map_err(|_| fmt::Error)?;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.millisecond()
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Where the present comes from. Handed to everything that needs it; never read behind its back.
pub trait Clock: Send + Sync {
    /// The present by the wall clock; may step in either direction.
    fn wall(&self) -> Timestamp;
    /// Time since some fixed start; never steps, never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic reading starts at zero now.
    #[expect(clippy::disallowed_methods, reason = "the one place where the clock is read")]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where the clock is read")]
    fn wall(&self) -> Timestamp {
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => Timestamp::from_millis(millis(since)),
            Err(before) => Timestamp::from_millis(-millis(before.duration())),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Time that never goes back: the wall clock, or, where that stepped back, the last reading plus
/// the monotonic time since.
///
/// Due times, leases and `created_at` use it, so that a clock set back freezes no retry and makes
/// no newer row look older. Signatures use [`Clock::wall`], because a receiver compares them with
/// its own wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SteadyTime {
    last: Option<(Timestamp, Duration)>,
}

impl SteadyTime {
    /// The steady instant for this reading of both clocks.
    pub fn advance(&mut self, wall: Timestamp, monotonic: Duration) -> Timestamp {
        let now = match self.last {
            None => wall,
            Some((last, at)) => wall.max(last + monotonic.saturating_sub(at)),
        };
        self.last = Some((now, monotonic));
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        for (input, expected) in [
            ("2026-01-31T12:00:00Z", Some("2026-01-31T12:00:00.000Z")),
            ("2026-01-31T12:00:00.1239Z", Some("2026-01-31T12:00:00.123Z")),
            ("2026-01-31T14:30:00.5+02:30", Some("2026-01-31T12:00:00.500Z")),
            ("1969-12-31T23:59:59.9999Z", Some("1969-12-31T23:59:59.999Z")),
            ("9999-12-31T23:59:59.999Z", Some("9999-12-31T23:59:59.999Z")),
            ("9999-12-31T23:59:59.999-01:00", None),
            ("2026-01-31", None),
            ("2026-02-30T00:00:00Z", None),
            ("1767225600", None),
            ("", None),
        ] {
            let read = Timestamp::parse(input).ok().map(|t| t.to_string());
            assert_eq!(read.as_deref(), expected, "{input}");
        }
    }

    #[test]
    fn seconds_round_down() {
        assert_eq!(Timestamp::from_millis(1_999).as_secs(), 1);
        assert_eq!(Timestamp::from_millis(-1).as_secs(), -1);
    }

    #[test]
    fn steady_time_never_goes_back_and_never_freezes() {
        let ms = Timestamp::from_millis;
        let d = Duration::from_millis;
        let mut steady = SteadyTime::default();
        assert_eq!(steady.advance(ms(10_000), d(0)), ms(10_000));
        assert_eq!(steady.advance(ms(4_000), d(500)), ms(10_500), "stepped back: goes on");
        assert_eq!(steady.advance(ms(4_500), d(1_000)), ms(11_000));
        assert_eq!(steady.advance(ms(90_000), d(1_001)), ms(90_000), "stepped forward: follows");
    }
}
