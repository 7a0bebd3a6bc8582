//! The `Retry-After` header of an answer (RFC 9110 §10.2.3).
//!
//! It comes from outside, so anything that is not exactly one of the forms the RFC allows counts as
//! absent, and no value can make arithmetic overflow.

use std::time::Duration;

use ::time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

use crate::time::Timestamp;

/// Longer waits than this are read as this one.
pub const WAIT_MAX: Duration = Duration::from_secs(366 * 86_400);

const MONTHS: [(&str, Month); 12] = [
    ("Jan", Month::January),
    ("Feb", Month::February),
    ("Mar", Month::March),
    ("Apr", Month::April),
    ("May", Month::May),
    ("Jun", Month::June),
    ("Jul", Month::July),
    ("Aug", Month::August),
    ("Sep", Month::September),
    ("Oct", Month::October),
    ("Nov", Month::November),
    ("Dec", Month::December),
];

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The wait that the value asks for, from `now` on: a number of seconds, or a date in any of the
/// three forms of RFC 9110 §5.6.7. A date in the past asks for no wait; longer ones than
/// [`WAIT_MAX`] are cut. `None` for anything else.
pub fn parse(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for the type are still a number.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(WAIT_MAX));
    }
    Some(date(value, now)?.since(now).min(WAIT_MAX))
}

/// The wait that several values ask for: the longest that can be read, since all of them were asked
/// for. The header should come once (RFC 9110 §5.3), but proxies add one of their own.
pub fn parse_all<'a>(
    values: impl IntoIterator<Item = &'a str>,
    now: Timestamp,
) -> Option<Duration> {
    values.into_iter().filter_map(|value| parse(value, now)).max()
}

/// An HTTP-date (RFC 9110 §5.6.7): the preferred form, then the two obsolete ones, which
/// recipients must read too. The day's name must be one, but is not compared with the date.
fn date(text: &str, now: Timestamp) -> Option<Timestamp> {
    imf_fixdate(text).or_else(|| rfc850_date(text, now)).or_else(|| asctime_date(text))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(text: &str) -> Option<Timestamp> {
    let (day_name, rest) = text.split_once(", ")?;
    DAYS.iter().find(|day| &day[..3] == day_name)?;
    let [day, month, year, clock, "GMT"] = words(rest, ' ')? else { return None };
    instant(number(year, 4)?.try_into().ok()?, month, number(day, 2)?, clock)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`. A year that would lie more than 50 years ahead is one of the
/// century before (RFC 9110 §5.6.7).
fn rfc850_date(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (day_name, rest) = text.split_once(", ")?;
    DAYS.iter().find(|day| **day == day_name)?;
    let [date, clock, "GMT"] = words(rest, ' ')? else { return None };
    let [day, month, year] = words(date, '-')?;
    let short = i32::try_from(number(year, 2)?).ok()?;
    let this_year = OffsetDateTime::from_unix_timestamp(now.as_secs()).ok()?.year();
    let year = this_year - this_year.rem_euclid(100) + short;
    let at = |year| instant(year, month, number(day, 2)?, clock);
    let limit = fifty_years_after(now);
    // The next century first: late in this one, a small number means that.
    [year + 100, year, year - 100].into_iter().filter_map(at).find(|at| *at <= limit)
}

/// `Sun Nov  6 08:49:37 1994`: the day of the month takes two places, the first may be a space.
fn asctime_date(text: &str) -> Option<Timestamp> {
    let (day_name, rest) = text.split_once(' ')?;
    DAYS.iter().find(|day| &day[..3] == day_name)?;
    let (month, rest) = rest.split_once(' ')?;
    let (day, rest) = rest.split_at_checked(2)?;
    let day = match day.strip_prefix(' ') {
        Some(digit) => number(digit, 1)?,
        None => number(day, 2)?,
    };
    let [clock, year] = words(rest.strip_prefix(' ')?, ' ')?;
    instant(number(year, 4)?.try_into().ok()?, month, day, clock)
}

/// Exactly `N` parts.
fn words<const N: usize>(text: &str, separator: char) -> Option<[&str; N]> {
    text.split(separator).collect::<Vec<_>>().try_into().ok()
}

/// A number of exactly so many digits.
fn number(text: &str, digits: usize) -> Option<u32> {
    let plain = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn instant(year: i32, month: &str, day: u32, clock: &str) -> Option<Timestamp> {
    let (_, month) = MONTHS.iter().find(|(name, _)| *name == month)?;
    let date = Date::from_calendar_date(year, *month, u8::try_from(day).ok()?).ok()?;
    let [hour, minute, second] = words(clock, ':')?;
    let [hour, minute, second] = [number(hour, 2)?, number(minute, 2)?, number(second, 2)?];
    // A leap second is legal; it is the first instant of the next minute.
    let leap = second == 60;
    let second = if leap { 59 } else { second };
    let time = Time::from_hms(
        u8::try_from(hour).ok()?,
        u8::try_from(minute).ok()?,
        u8::try_from(second).ok()?,
    );
    let seconds = PrimitiveDateTime::new(date, time.ok()?).assume_utc().unix_timestamp();
    Some(Timestamp::from_millis((seconds + i64::from(leap)) * 1_000))
}

/// The same date and time 50 years later; 29 February becomes 1 March.
fn fifty_years_after(now: Timestamp) -> Timestamp {
    let later = OffsetDateTime::from_unix_timestamp(now.as_secs()).ok().and_then(|at| {
        let year = at.year() + 50;
        let date = Date::from_calendar_date(year, at.month(), at.day())
            .or_else(|_| Date::from_calendar_date(year, Month::March, 1));
        Some(PrimitiveDateTime::new(date.ok()?, at.time()).assume_utc().unix_timestamp())
    });
    later.map_or(now, |seconds| Timestamp::from_millis(seconds.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1994-11-06T08:49:37Z.
    const NOW: i64 = 784_111_777;

    /// The wait in seconds that the value asks for at 1994-11-06T08:49:37Z plus `after` seconds.
    fn check(after: i64, value: &str, expected: Option<u64>) {
        let now = Timestamp::from_millis((NOW + after) * 1_000);
        let wait = parse(value, now);
        assert_eq!(wait, expected.map(Duration::from_secs), "{value:?} at +{after}");
    }

    #[test]
    fn seconds() {
        check(0, "0", Some(0));
        check(0, "120", Some(120));
        check(0, "  7\t", Some(7));
        check(0, "007", Some(7));
        check(0, "99999999999", Some(WAIT_MAX.as_secs()));
        check(0, "999999999999999999999999999999", Some(WAIT_MAX.as_secs()));
    }

    #[test]
    fn dates_in_all_three_forms() {
        for value in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            check(-90, value, Some(90));
            check(0, value, Some(0));
            check(5_000, value, Some(0));
        }
        check(0, "Wed Nov 16 08:49:37 1994", Some(864_000));
        check(0, "Sun, 06 Nov 1994 08:49:60 GMT", Some(23));
        check(0, "Sun, 06 Nov 9999 08:49:37 GMT", Some(WAIT_MAX.as_secs()));
    }

    #[test]
    fn a_wait_until_a_date_counts_milliseconds() {
        let now = Timestamp::from_millis(NOW * 1_000 - 250);
        let wait = parse("Sun, 06 Nov 1994 08:49:37 GMT", now);
        assert_eq!(wait, Some(Duration::from_millis(250)));
    }

    #[test]
    fn of_several_the_longest_counts() {
        for (values, expected) in [
            (&[][..], None),
            (&["soon"], None),
            (&["5"], Some(5)),
            (&["soon", "5"], Some(5)),
            (&["60", "5", "-1"], Some(60)),
            (&["5", "Sun, 06 Nov 1994 08:50:37 GMT"], Some(60)),
        ] {
            let now = Timestamp::from_millis(NOW * 1_000);
            let wait = parse_all(values.iter().copied(), now);
            assert_eq!(wait, expected.map(Duration::from_secs), "{values:?}");
        }
    }

    #[test]
    fn two_digit_years_lie_at_most_fifty_years_ahead() {
        let read = |value: &str, now: &str| {
            let now = Timestamp::parse(now).expect("a time");
            rfc850_date(value, now).map(|at| at.to_string())
        };
        for (value, now, expected) in [
            ("Friday, 01-Jan-99 00:00:00 GMT", "1998-12-31T00:00:00Z", "1999"),
            ("Saturday, 01-Jan-00 00:00:00 GMT", "1999-12-31T00:00:00Z", "2000"),
            ("Friday, 01-Jan-99 00:00:00 GMT", "2026-06-01T00:00:00Z", "1999"),
            ("Monday, 01-Jun-76 00:00:00 GMT", "2026-06-01T00:00:00Z", "2076"),
            ("Monday, 01-Jun-76 00:00:01 GMT", "2026-06-01T00:00:00Z", "1976"),
            ("Saturday, 29-Feb-20 00:00:00 GMT", "2096-02-29T00:00:00Z", "2120"),
        ] {
            let year = read(value, now).map(|text| text[..4].to_owned());
            assert_eq!(year.as_deref(), Some(expected), "{value} at {now}");
        }
    }

    #[test]
    fn anything_else_counts_as_absent() {
        for value in [
            "",
            " ",
            "-1",
            "+1",
            "1.5",
            "1 2",
            "10s",
            "soon",
            "１２",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994  08:49:37 GMT",
            "Sun, 06 Nov 19940 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov é 08:49:37 1994",
            "1994-11-06T08:49:37Z",
        ] {
            check(0, value, None);
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(value in ".{0,40}", millis: i64) {
            let wait = parse(&value, Timestamp::from_millis(millis));
            prop_assert!(wait.is_none_or(|wait| wait <= WAIT_MAX));
        }

        #[test]
        fn every_second_is_read_back(ahead in 0..31_000_000_i64) {
            let now = Timestamp::from_millis(NOW * 1_000);
            let at = OffsetDateTime::from_unix_timestamp(NOW + ahead).expect("a time");
            let day = DAYS[usize::from(at.weekday().number_days_from_monday())];
            let (month, _) = MONTHS[usize::from(u8::from(at.month())) - 1];
            let clock = format!("{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second());
            let expected = Some(Duration::from_secs(ahead.unsigned_abs()));
            for value in [
                format!("{}, {:02} {month} {} {clock} GMT", &day[..3], at.day(), at.year()),
                format!("{day}, {:02}-{month}-{:02} {clock} GMT", at.day(), at.year() % 100),
                format!("{} {month} {:>2} {clock} {}", &day[..3], at.day(), at.year()),
            ] {
                prop_assert_eq!(parse(&value, now), expected, "{}", value);
            }
        }
    }
}
