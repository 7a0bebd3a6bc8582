//! Where things are.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the checkout.
pub fn root() -> &'static Path {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own)
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// A folder of ours below the target folder; it is made if it is not there.
///
/// # Errors
/// The folder cannot be made.
pub fn scratch(name: &str) -> Result<PathBuf> {
    let folder = target().join("xtask").join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(folder)
}

/// An empty folder of ours below the target folder: what a former run left there is removed.
///
/// # Errors
/// The folder cannot be emptied.
pub fn empty_scratch(name: &str) -> Result<PathBuf> {
    let folder = target().join("xtask").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty the folder {}", folder.display()))?;
    }
    scratch(name)
}

/// The `cargo` that started us, so that all parts use one toolchain.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
