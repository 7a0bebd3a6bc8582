//! A setting's value as it was written, before anything knows what it means.

use std::fmt;

/// Longest value that is repeated in a message, in characters.
const SHOWN_CHARS_MAX: usize = 80;

/// A value as it was written: text from variables and flags, any of these from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Raw {
    /// `"10s"`, and whatever a variable or a flag holds.
    Text(String),
    /// `64`.
    Integer(i64),
    /// `true`.
    Switch(bool),
    /// `["0s", "1m"]`.
    List(Vec<Raw>),
    /// Something that no setting takes; holds its TOML name.
    Other(&'static str),
}

impl fmt::Display for Raw {
    /// As TOML, cut when it is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) if text.chars().count() > SHOWN_CHARS_MAX => {
                let head: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                write!(f, "{head:?}…")
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Switch(on) => write!(f, "{on}"),
            Self::List(items) => {
                let items: Vec<_> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
            Self::Other(kind) => write!(f, "a TOML {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_toml() {
        let text = |text: &str| Raw::Text(text.to_owned());
        for (raw, expected) in [
            (text("10s"), "\"10s\""),
            (text("a\"b\n"), "\"a\\\"b\\n\""),
            (Raw::Integer(-3), "-3"),
            (Raw::Switch(true), "true"),
            (Raw::List(vec![text("0s"), Raw::Integer(1)]), "[\"0s\", 1]"),
            (Raw::Other("table"), "a TOML table"),
        ] {
            assert_eq!(raw.to_string(), expected);
        }
        assert_eq!(text(&"x".repeat(200)).to_string().chars().count(), SHOWN_CHARS_MAX + 3);
    }
}
