//! What is wrong with a configuration: where, what, and what to do.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::KEYS_HINT;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// The built-in default file.
    Default {
        /// Counted from 1.
        line: usize,
    },
    /// The configuration file.
    File {
        /// As it was given.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// An option of the command line.
    Flag(&'static str),
}

impl Origin {
    /// The layer as one word, for `--json`.
    pub(crate) const fn layer(&self) -> &'static str {
        match self {
            Self::Default { .. } => "default",
            Self::File { .. } => "file",
            Self::Variable(_) => "variable",
            Self::Flag(_) => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default { .. } => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// File and line, variable or flag.
    #[serde(rename = "where")]
    pub(crate) place: String,
    /// What is wrong there.
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) todo: String,
}

impl Problem {
    /// A problem at a place.
    pub(crate) fn new(
        place: impl fmt::Display,
        what: impl Into<String>,
        todo: impl Into<String>,
    ) -> Self {
        Self { place: place.to_string(), what: what.into(), todo: todo.into() }
    }
}

/// Everything that is wrong with a configuration; at least one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => writeln!(f, "the configuration has a problem:")?,
            many => writeln!(f, "the configuration has {many} problems:")?,
        }
        for Problem { place, what, todo } in &self.0 {
            writeln!(f, "  {place}: {what}\n      {todo}")?;
        }
        write!(f, "{KEYS_HINT}")
    }
}

/// The name that was probably meant, if one is near.
pub(crate) fn nearest<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = written.to_ascii_lowercase();
    let near = |name: &&str| {
        let distance = strsim::damerau_levenshtein(&written, &name.to_ascii_lowercase());
        (distance, distance <= (name.len() / 4).max(2))
    };
    known
        .into_iter()
        .map(|name| (near(&name), name))
        .filter(|((_, close), _)| *close)
        .min_by_key(|((distance, _), _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses() {
        let known = ["delivery.timeout", "delivery.lease", "events.dedupe_window", "log.level"];
        for (written, expected) in [
            ("delivery.timout", Some("delivery.timeout")),
            ("delivery.tiemout", Some("delivery.timeout")),
            ("Delivery.Lease", Some("delivery.lease")),
            ("event.dedup_window", Some("events.dedupe_window")),
            ("log.levels", Some("log.level")),
            ("database.url", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), expected, "{written}");
        }
    }

    #[test]
    fn all_problems_in_one_text() {
        let line = Origin::File { path: "a.toml".into(), line: 3 };
        let one = Problem::new(line, "what", "todo");
        let text = Problems(vec![one.clone()]).to_string();
        assert_eq!(
            text,
            format!("the configuration has a problem:\n  a.toml:3: what\n      todo\n{KEYS_HINT}")
        );
        assert!(Problems(vec![one.clone(), one]).to_string().contains("has 2 problems:\n"));
    }
}
