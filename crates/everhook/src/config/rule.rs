//! What a setting may be: one [`Rule`] per kind of value.
//!
//! A rule reads a value, says what it would take instead, and writes a value back as TOML. The
//! sentence of what is taken stands in the default file above each key as well; a test compares.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::raw::Raw;

/// Why a value is not taken: the end of a sentence that begins with the value.
pub(crate) type Wrong = String;

type Read<T> = Box<dyn Fn(&Raw) -> Result<T, Wrong>>;

/// What a setting may be.
pub(crate) struct Rule<T> {
    /// What is taken: `100ms to 5m`.
    pub(crate) allowed: String,
    read: Read<T>,
    show: Box<dyn Fn(&T) -> String>,
}

impl<T: 'static> Rule<T> {
    fn new(
        allowed: impl Into<String>,
        read: impl Fn(&Raw) -> Result<T, Wrong> + 'static,
        show: impl Fn(&T) -> String + 'static,
    ) -> Self {
        Self { allowed: allowed.into(), read: Box::new(read), show: Box::new(show) }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(&self, raw: &Raw) -> Result<T, Wrong> {
        (self.read)(raw)
    }

    /// A value as TOML.
    pub(crate) fn show(&self, value: &T) -> String {
        (self.show)(value)
    }
}

/// One day is written in hours, as everybody says it.
const DAY_MS: u64 = 86_400_000;
/// The units of durations, longest first, in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] =
    [("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// The units of sizes, largest first, in bytes.
const SIZE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a whole number followed by one of the units.
fn with_unit(text: &str, units: &[(&str, u64)], example: &str) -> Result<u64, Wrong> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("does not begin with a whole number, as in {example}"));
    }
    if unit.is_empty() {
        return Err(format!("has no unit, as in {example}"));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let names: Vec<_> = units.iter().rev().map(|(name, _)| *name).collect();
        return Err(format!("has the unit {unit:?}; the units are {}", names.join(", ")));
    };
    let number: Option<u64> = number.parse().ok();
    number.and_then(|n| n.checked_mul(*factor)).ok_or_else(|| "is too large".to_owned())
}

/// Writes a number with the largest unit that divides it.
fn in_units(value: u64, units: &[(&str, u64)]) -> String {
    let fitting = units.iter().find(|(_, factor)| value.is_multiple_of(*factor) && value != 0);
    match fitting.or_else(|| units.last()) {
        Some((name, factor)) => format!("{}{name}", value / factor),
        None => value.to_string(),
    }
}

/// A duration as settings write it: `10s`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0 => "0s".to_owned(),
        DAY_MS => "24h".to_owned(),
        _ => in_units(millis, &DURATION_UNITS),
    }
}

/// A size as settings write it: `1MiB`.
pub(crate) fn size_text(bytes: u64) -> String {
    in_units(bytes, &SIZE_UNITS)
}

/// Text as TOML, which a JSON string is too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn within<T: PartialOrd>(value: T, range: &RangeInclusive<T>) -> Result<T, Wrong> {
    if value < *range.start() {
        Err("is below what is allowed".to_owned())
    } else if value > *range.end() {
        Err("is above what is allowed".to_owned())
    } else {
        Ok(value)
    }
}

fn text_of(raw: &Raw, example: &str) -> Result<String, Wrong> {
    match raw {
        Raw::Text(text) if text.trim().is_empty() => Err("is empty".to_owned()),
        Raw::Text(text) => Ok(text.trim().to_owned()),
        Raw::Integer(_) | Raw::Switch(_) | Raw::List(_) | Raw::Other(_) => {
            Err(format!("must be text in quotes, as in {example:?}"))
        }
    }
}

/// A duration: `250ms 10s 5m 24h 90d`.
pub(crate) fn duration(range: RangeInclusive<Duration>) -> Rule<Duration> {
    let allowed = format!("{} to {}", duration_text(*range.start()), duration_text(*range.end()));
    let read = move |raw: &Raw| {
        if matches!(raw, Raw::Integer(_)) {
            return Err("has no unit, as in \"10s\"".to_owned());
        }
        let millis = with_unit(&text_of(raw, "10s")?, &DURATION_UNITS, "\"10s\"")?;
        within(Duration::from_millis(millis), &range)
    };
    Rule::new(allowed, read, |value| format!("{:?}", duration_text(*value)))
}

/// A size in bytes: `1MiB`.
pub(crate) fn size(range: RangeInclusive<u64>) -> Rule<usize> {
    let allowed = format!("{} to {}", size_text(*range.start()), size_text(*range.end()));
    let read = move |raw: &Raw| {
        if matches!(raw, Raw::Integer(_)) {
            return Err("has no unit, as in \"1MiB\"".to_owned());
        }
        let bytes = with_unit(&text_of(raw, "1MiB")?, &SIZE_UNITS, "\"1MiB\"")?;
        usize::try_from(within(bytes, &range)?).map_err(|_| "is too large".to_owned())
    };
    Rule::new(allowed, read, |value| format!("{:?}", size_text(*value as u64)))
}

/// A whole number.
pub(crate) fn count<T>(range: RangeInclusive<u32>) -> Rule<T>
where
    T: TryFrom<u32> + Display + 'static,
{
    let allowed = format!("{} to {}", range.start(), range.end());
    let read = move |raw: &Raw| {
        let number = match raw {
            Raw::Integer(number) => i128::from(*number),
            Raw::Text(text) => {
                text.trim().parse().map_err(|_| "is not a whole number".to_owned())?
            }
            Raw::Switch(_) | Raw::List(_) | Raw::Other(_) => {
                return Err("is not a whole number".to_owned());
            }
        };
        let limits = i128::from(*range.start())..=i128::from(*range.end());
        let number = u32::try_from(within(number, &limits)?).ok();
        number.and_then(|n| T::try_from(n).ok()).ok_or_else(|| "is too large".to_owned())
    };
    Rule::new(allowed, read, ToString::to_string)
}

/// `true` or `false`.
pub(crate) fn switch() -> Rule<bool> {
    let read = |raw: &Raw| match raw {
        Raw::Switch(on) => Ok(*on),
        Raw::Text(text) => text.trim().parse().map_err(|_| "is neither".to_owned()),
        Raw::Integer(_) | Raw::List(_) | Raw::Other(_) => Err("is neither".to_owned()),
    };
    Rule::new("true or false", read, ToString::to_string)
}

/// One of some words.
pub(crate) fn word<T>(words: &'static [(&'static str, T)]) -> Rule<T>
where
    T: Copy + PartialEq + 'static,
{
    let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
    let read = move |raw: &Raw| {
        let text = text_of(raw, words.first().map_or("", |(name, _)| name))?;
        let found = words.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| "is not one of them".to_owned())
    };
    let show = move |value: &T| {
        let found = words.iter().find(|(_, word)| word == value);
        format!("{:?}", found.map_or("", |(name, _)| name))
    };
    Rule::new(names.join(" or "), read, show)
}

/// Text that a type of the domain reads.
pub(crate) fn text<T>(allowed: &'static str, example: &'static str) -> Rule<T>
where
    T: FromStr<Err: Display> + Display + 'static,
{
    let read = move |raw: &Raw| {
        let text = text_of(raw, example)?;
        text.parse().map_err(|error: T::Err| format!("is refused: {error}"))
    };
    Rule::new(allowed, read, |value: &T| quoted(&value.to_string()))
}

/// Nothing, written `none`, or what the inner rule takes.
pub(crate) fn optional<T: 'static>(inner: Rule<T>) -> Rule<Option<T>> {
    let Rule { allowed, read, show } = inner;
    let read = move |raw: &Raw| match raw {
        Raw::Text(text) if text.trim() == "none" => Ok(None),
        Raw::Text(_) | Raw::Integer(_) | Raw::Switch(_) | Raw::List(_) | Raw::Other(_) => {
            read(raw).map(Some)
        }
    };
    let show = move |value: &Option<T>| match value {
        Some(value) => show(value),
        None => "\"none\"".to_owned(),
    };
    Rule::new(format!("none, or {allowed}"), read, show)
}

/// A list, as TOML or with commas; the elements by the inner rule.
pub(crate) fn list<T: 'static>(allowed: &'static str, inner: Rule<T>) -> Rule<Vec<T>> {
    let Rule { allowed: _, read, show } = inner;
    let read = move |raw: &Raw| {
        let split: Vec<Raw>;
        let items: &[Raw] = match raw {
            Raw::List(items) => items,
            Raw::Text(text) if text.trim().is_empty() => &[],
            Raw::Text(text) => {
                split = text.split(',').map(|item| Raw::Text(item.trim().to_owned())).collect();
                &split
            }
            Raw::Integer(_) | Raw::Switch(_) | Raw::Other(_) => {
                return Err("is not a list".to_owned());
            }
        };
        let element =
            |item: &Raw| read(item).map_err(|wrong| format!("holds {item}, which {wrong}"));
        items.iter().map(element).collect()
    };
    let show = move |values: &Vec<T>| {
        let items: Vec<_> = values.iter().map(&show).collect();
        format!("[{}]", items.join(", "))
    };
    Rule::new(allowed, read, show)
}

impl<T: 'static> Rule<T> {
    /// The same values, made into a type of the domain, which may refuse them.
    pub(crate) fn into<U: 'static, E: Display>(
        self,
        make: impl Fn(T) -> Result<U, E> + 'static,
        back: impl Fn(&U) -> T + 'static,
    ) -> Rule<U> {
        let Self { allowed, read, show } = self;
        let read =
            move |raw: &Raw| make(read(raw)?).map_err(|error| format!("is refused: {error}"));
        Rule::new(allowed, read, move |value: &U| show(&back(value)))
    }
}

#[cfg(test)]
mod tests;
