//! `everhook config`: what is in effect and from where, and the built-in default file.

use std::path::Path;

use crate::admin_token;
use crate::cli::{ConfigCheckArgs, ConfigCommand};
use crate::config::{self, DEFAULT_FILE, Loaded, Problem, Problems, Sources};
use crate::environment::Environment;
use crate::exit::Failure;
use crate::jwt_keys;
use crate::master_key;
use crate::output;

/// The variable that names the configuration file.
const VARIABLE: &str = "EVERHOOK_CONFIG";

/// Runs the command.
///
/// # Errors
/// [`Exit::Usage`](crate::exit::Exit::Usage) with everything that is wrong.
pub(crate) fn run(command: &ConfigCommand, environment: &Environment) -> Result<(), Failure> {
    match command {
        ConfigCommand::Default => output::line(DEFAULT_FILE.trim_end()),
        ConfigCommand::Check(args) => check(args, environment),
    }
}

fn check(args: &ConfigCheckArgs, environment: &Environment) -> Result<(), Failure> {
    let checked = load(args.config.as_deref(), Vec::new(), environment);
    match checked {
        Ok(Loaded { effective, .. }) if args.json => output::line(config::as_json(&effective)),
        Ok(Loaded { effective, .. }) => {
            output::line(config::as_text(&effective).trim_end())?;
            let token = environment.get(admin_token::VARIABLE)?.is_some();
            let token = if token { "set, not shown" } else { "not set" };
            output::line(format!("\n# {}: {token}", admin_token::VARIABLE))
        }
        Err(problems) => {
            if args.json {
                output::line(config::problems_as_json(&problems))?;
            }
            Err(Failure::usage(problems))
        }
    }
}

/// Loads the configuration of this process: file, variables, and the given options. The admin
/// token and the master keys are checked with it, so that all problems are told at once, and before
/// anything is begun.
///
/// # Errors
/// Everything that is wrong.
pub(crate) fn load(
    file: Option<&Path>,
    flags: Vec<(&'static str, &'static str, String)>,
    environment: &Environment,
) -> Result<Loaded, Problems> {
    let mut problems = Vec::new();
    let mut sources = Sources { file: None, variables: environment.ours.clone(), flags };
    let mut noted = |place: &str, failure: Failure, todo: &str| {
        problems.push(Problem::new(place, failure.message, todo));
    };
    let named = environment.get(VARIABLE).unwrap_or_else(|failure| {
        noted(VARIABLE, failure, "set it to the path of a file, or unset it");
        None
    });
    let from = if file.is_some() { "--config" } else { VARIABLE };
    if let Some(path) = file.or(named.map(Path::new)) {
        match std::fs::read_to_string(path) {
            Ok(text) => sources.file = Some((path.to_owned(), text)),
            Err(error) => noted(
                from,
                Failure::usage(format!("{} cannot be read: {error}", path.display())),
                "name a TOML file that this user can read",
            ),
        }
    }
    let token = environment.get(admin_token::VARIABLE);
    if let Err(failure) = token.and_then(|given| given.map(admin_token::check).transpose()) {
        noted(admin_token::VARIABLE, failure, "set it to a random text of 32 characters or more");
    }
    let loaded = config::load(&sources);
    if let Ok(loaded) = &loaded
        && let Err(failure) = master_key::sealer(&loaded.config.secrets)
    {
        noted("secrets", failure, "name the files of the keys, one key of 32 bytes in each");
    }
    if let Ok(loaded) = &loaded
        && let Err(failure) = jwt_keys::load(&loaded.config.auth)
    {
        noted("auth", failure, "name files that hold a key, or none");
    }
    match loaded {
        Ok(loaded) if problems.is_empty() => Ok(loaded),
        Ok(_) => Err(Problems(problems)),
        Err(Problems(more)) => {
            problems.extend(more);
            Err(Problems(problems))
        }
    }
}
