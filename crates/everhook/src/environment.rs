//! The only place that reads the environment, once, at start.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::config::VARIABLE_PREFIX;
use crate::exit::Failure;

/// What the process was given by its environment.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The variables that begin with `EVERHOOK_`.
    pub(crate) ours: Vec<(OsString, OsString)>,
    /// Where short-lived files go.
    pub(crate) temp_dir: PathBuf,
    /// Whether terminals may be written to in colour (<https://no-color.org>).
    pub(crate) colour: bool,
}

impl Environment {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let ours = |(name, _): &(OsString, OsString)| {
            name.as_encoded_bytes().starts_with(VARIABLE_PREFIX.as_bytes())
        };
        let no_colour =
            |(name, value): (OsString, OsString)| name == "NO_COLOR" && !value.is_empty();
        Self {
            ours: std::env::vars_os().filter(ours).collect(),
            temp_dir: std::env::temp_dir(),
            colour: !std::env::vars_os().any(no_colour),
        }
    }

    /// One of our variables, if it is set.
    ///
    /// # Errors
    /// It is not text.
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, Failure> {
        let found = self.ours.iter().find(|(ours, _)| ours == OsStr::new(name));
        match found.map(|(_, value)| value.to_str()) {
            None => Ok(None),
            Some(Some(text)) => Ok(Some(text)),
            Some(None) => Err(Failure::usage(format!("{name}: its value is not UTF-8 text"))),
        }
    }
}
