//! The master keys: read from their files at start, and nowhere kept but in memory.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use everhook_store::{MasterKey, Sealer};

use crate::config::Secrets;
use crate::entropy;
use crate::exit::Failure;

/// The permissions of everybody else.
const OTHERS: u32 = 0o007;
/// More than any key needs.
const FILE_BYTES_MAX: u64 = 1_024;

/// What seals secrets in the store by this configuration.
///
/// # Errors
/// A file cannot be read, other users can read it, or it holds no key. What it holds is not
/// repeated.
pub(crate) fn sealer(secrets: &Secrets) -> Result<Sealer, Failure> {
    let old: Vec<_> = secrets.master_key_files_old.iter().map(|path| read(path)).collect();
    let old = old.into_iter().collect::<Result<_, _>>()?;
    match &secrets.master_key_file {
        Some(path) => Ok(Sealer::new(read(path)?, old, Arc::new(entropy::fill_or_end))),
        None => Ok(Sealer::default()),
    }
}

fn read(path: &Path) -> Result<MasterKey, Failure> {
    let shown = path.display();
    let unreadable =
        |error| Failure::usage(format!("the master key in {shown} cannot be read: {error}"));
    // Opening a pipe would wait for somebody who writes into it.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(Failure::usage(format!(
            "{shown} is not a file: put the master key into one, so that every start can read it"
        )));
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err(Failure::usage(format!(
            "every user of this machine can use the master key in {shown}: `chmod 600` it, and \
             make a new one if it has been like that for a while"
        )));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    // What is not text is no key; how it is spelled is not repeated.
    let text = String::from_utf8_lossy(&bytes);
    MasterKey::parse(&text).map_err(|error| {
        Failure::usage(format!(
            "{shown} does not hold a master key: {error}. It must hold 32 random bytes as base64 \
             or hex, as `openssl rand -base64 32` writes them"
        ))
    })
}
