//! Files that hold a key: read at start, whole, and never repeated.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::exit::Failure;

/// The permissions of everybody else.
const OTHERS: u32 = 0o007;
/// More than any key needs.
const FILE_BYTES_MAX: u64 = 4_096;

/// Who may know what a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nobody but us.
    Secret,
    /// Everybody.
    Public,
}

/// What the file of `what` holds, such as "the master key".
///
/// # Errors
/// It cannot be read, or is secret and other users can read it. What it holds is not repeated.
pub(crate) fn read(path: &Path, what: &str, kept: Kept) -> Result<Vec<u8>, Failure> {
    let shown = path.display();
    let unreadable = |error| Failure::usage(format!("{what} in {shown} cannot be read: {error}"));
    // Opening a pipe would wait for somebody who writes into it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Failure::usage(format!(
            "{shown} is not a file: put {what} into one, so that every start can read it"
        )));
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if kept == Kept::Secret && metadata.permissions().mode() & OTHERS != 0 {
        return Err(Failure::usage(format!(
            "every user of this machine can use {what} in {shown}: `chmod 600` it, and make a new \
             one if it has been like that for a while"
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}
