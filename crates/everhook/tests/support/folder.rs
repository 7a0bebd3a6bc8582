//! A folder for one test, on the disk of the build.

use std::path::{Path, PathBuf};

/// Removed when the test has passed, kept when it has failed.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _may_be_missing = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the target folder can be written");
        Self(path)
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _left_over = std::fs::remove_dir_all(&self.0);
        }
    }
}
