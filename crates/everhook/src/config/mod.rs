//! The configuration: the built-in default file, a TOML file, variables and flags, in this order.
//!
//! [`load`] is the only way in: it reads every layer, refuses what it does not know, checks every
//! value, and tells everything that is wrong at once. Nothing is read again later, so what
//! `everhook config check` prints is what `everhook serve` runs with.

mod auth;
mod idempotency;
mod layers;
mod problem;
mod proxy;
mod raw;
mod reader;
mod receive;
mod rule;
mod secrets;
mod security;
mod settings;
mod show;

use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) use auth::Auth;
pub(crate) use layers::{DEFAULT_FILE, VARIABLE_PREFIX};
pub(crate) use problem::{Problem, Problems};
pub(crate) use proxy::UpstreamUrl;
pub(crate) use reader::Effective;
pub(crate) use secrets::Secrets;
pub(crate) use settings::{Config, Log, LogFormat};
pub(crate) use show::{as_json, as_text, problems_as_json};

use layers::Layers;
use reader::Reader;

/// Where every setting is described; ends every list of problems.
pub(crate) const KEYS_HINT: &str =
    "Every setting with its meaning and range: everhook config default";

/// What a configuration is made of, besides the built-in default file.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// The configuration file, with its text.
    pub(crate) file: Option<(PathBuf, String)>,
    /// The variables that begin with `EVERHOOK_`.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Options of the command line.
    pub(crate) flags: Vec<Flag>,
}

/// An option of the command line: the option, the key it sets, its value.
pub(crate) type Flag = (&'static str, &'static str, String);

/// A configuration that can be run with.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub(crate) config: Config,
    /// The same for a person, in the order of the default file.
    pub(crate) effective: Vec<Effective>,
}

/// Variables that begin with `EVERHOOK_` and are no settings.
pub(crate) const OTHER_VARIABLES: &[&str] = &[
    "EVERHOOK_ADMIN_TOKEN",
    "EVERHOOK_CONFIG",
    "EVERHOOK_SERVER",
    "EVERHOOK_TOKEN",
    #[cfg(feature = "faults")]
    "EVERHOOK_CRASH_AT",
    #[cfg(feature = "faults")]
    "EVERHOOK_PLANT",
];

/// Loads the configuration.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn load(sources: &Sources) -> Result<Loaded, Problems> {
    let mut layers = Layers::with_defaults();
    if let Some((path, text)) = &sources.file {
        layers.add_file(path, text);
    }
    layers.add_variables(&sources.variables, OTHER_VARIABLES);
    for (flag, key, value) in &sources.flags {
        layers.add_flag(flag, key, value);
    }
    let mut problems = layers.take_problems();
    let mut reader = Reader::new(&layers);
    let config = settings::read(&mut reader);
    problems.append(&mut reader.problems);
    match config {
        Some(config) if problems.is_empty() => Ok(Loaded { config, effective: reader.effective }),
        Some(_) | None => Err(Problems(problems)),
    }
}

/// Checks the names of variables only: for commands that use no other setting.
///
/// # Errors
/// The variables that there are not.
pub(crate) fn check_names(variables: &[(OsString, OsString)]) -> Result<(), Problems> {
    let mut layers = Layers::with_defaults();
    layers.add_variables(variables, OTHER_VARIABLES);
    let problems = layers.take_problems();
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems)) }
}

#[cfg(test)]
mod tests;
