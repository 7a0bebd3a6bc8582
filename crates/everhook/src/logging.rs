//! Log lines, to standard error. Secrets, credentials and payloads never get here: the types that
//! hold them do not show them.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Log, LogFormat};
use crate::exit::Failure;

/// Starts logging; to be called once.
///
/// # Errors
/// Logging was started before.
pub(crate) fn start(log: &Log, colour: bool) -> Result<(), Failure> {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Human => lines.with_ansi(colour && io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_ansi(false).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(log.level.targets.clone()))
        .try_init()
        .map_err(|error| Failure::failed(format!("logging does not start: {error}")))
}
