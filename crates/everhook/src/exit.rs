//! How the process ends: one code per kind of end, the same for every command.

use std::fmt;
use std::process::ExitCode;

/// The exit codes; they are documented in `everhook --help` and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// It failed while running; starting it again may help.
    Failed = 1,
    /// The command line, the configuration or the input is wrong; starting it again does not help.
    Usage = 2,
    /// Another process has the data directory.
    Held = 3,
    /// The server cannot be reached, or its answer was lost.
    Unreachable = 4,
    /// The server refused the request.
    Refused = 5,
}

/// Why a command did not do what it was asked: the code for scripts and the text for a person. The
/// text never holds a secret.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The kind of end.
    pub(crate) exit: Exit,
    /// What was wrong, where, and what to do.
    pub(crate) message: String,
    /// Whether the log has it already, so that it is not said again.
    pub(crate) logged: bool,
}

impl Failure {
    /// A failure of this kind.
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string(), logged: false }
    }

    /// A failure while running.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// A wrong command line, configuration or input.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The code that the process ends with.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
