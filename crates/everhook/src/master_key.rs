//! The master keys: read from their files at start, and nowhere kept but in memory.

use std::path::Path;
use std::sync::Arc;

use everhook_store::{MasterKey, Sealer};

use crate::config::Secrets;
use crate::entropy;
use crate::exit::Failure;
use crate::key_file::{self, Kept};

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
    let bytes = key_file::read(path, "the master key", Kept::Secret)?;
    // What is not text is no key; how it is spelled is not repeated.
    let text = String::from_utf8_lossy(&bytes);
    MasterKey::parse(&text).map_err(|error| {
        let shown = path.display();
        Failure::usage(format!(
            "{shown} does not hold a master key: {error}. It must hold 32 random bytes as base64 \
             or hex, as `openssl rand -base64 32` writes them"
        ))
    })
}
