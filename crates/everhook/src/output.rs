//! What commands print to standard output: results, never log lines.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use crate::exit::Failure;

/// Prints a line and makes sure that it is out.
///
/// # Errors
/// It cannot be written. A reader that has gone away (`everhook … | head`) is no error.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    match write(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(cannot_write(&error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a line that must be read by somebody.
///
/// # Errors
/// It cannot be written, for whatever reason.
pub(crate) fn important_line(text: impl Display) -> Result<(), Failure> {
    write(text).map_err(|error| cannot_write(&error))
}

fn write(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

fn cannot_write(error: &io::Error) -> Failure {
    Failure::failed(format!("standard output cannot be written: {error}"))
}
