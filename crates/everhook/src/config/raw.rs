//! A setting's value as it was written, before anything knows what it means.

use std::borrow::Cow;
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
    /// As TOML, without the credentials of a URL, and cut when it is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => {
                let text = without_credentials(text);
                let head: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                let cut = if head.len() < text.len() { "…" } else { "" };
                write!(f, "{head:?}{cut}")
            }
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

/// The text, with `***` for everything between the scheme and the last `@` of what looks like a
/// URL: rather too little is shown than a password.
fn without_credentials(text: &str) -> Cow<'_, str> {
    match text.split_once("://") {
        Some((scheme, rest)) => match rest.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://***@{host}").into(),
            None => text.into(),
        },
        None => text.into(),
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
            (text("http://u:p@a.test/"), "\"http://***@a.test/\""),
            (text("a://u:p/@b@c"), "\"a://***@c\""),
            (text("http://a.test/"), "\"http://a.test/\""),
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
