//! The data directory: made with owner-only rights, and held by one process at a time.
//!
//! The lock is the operating system's, on the file `everhook.lock`: it goes with the process,
//! however that ends, so a crash never leaves a stale one. What is written into the file is for
//! people only. The file is never removed, because two processes could then lock two files of the
//! same name.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};

const LOCK_FILE: &str = "everhook.lock";
const DATABASE_FILE: &str = "everhook.db";
/// SQLite's write-ahead log.
const LOG_FILE: &str = "everhook.db-wal";
/// Owner only.
const DIR_MODE: u32 = 0o700;
/// Owner only.
const FILE_MODE: u32 = 0o600;
/// The rights of group and others.
const OTHERS: u32 = 0o077;
/// What a lock file says of its holder is cut to this many bytes.
const HOLDER_BYTES_MAX: u64 = 512;

/// A data directory that this process holds.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    lock: File,
}

impl DataDir {
    /// Creates the directory if it is missing, and takes it.
    ///
    /// # Errors
    /// [`Exit::Held`] when another process has it, with who that is; [`Exit::Failed`] when it
    /// cannot be made or used, or when the database is gone from beside its log.
    pub(crate) fn take(path: &Path) -> Result<Self, Failure> {
        let unusable = |error: io::Error| {
            let path = path.display();
            Failure::failed(format!(
                "the data directory {path} cannot be used: {error}; see to its rights, or choose \
                 another with --data-dir"
            ))
        };
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(path).map_err(unusable)?;
        let path = path.canonicalize().map_err(unusable)?;
        path.parent().map_or(Ok(()), sync_readable_dir).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path.join(LOCK_FILE))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&path, &mut lock)),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let mut data_dir = Self { path, lock };
        data_dir.write_holder("not yet listening").map_err(unusable)?;
        data_dir.refuse_lost_database()?;
        data_dir.make_database().map_err(unusable)?;
        sync_dir(&data_dir.path).map_err(unusable)?;
        Ok(data_dir)
    }

    /// Tells those who find the directory held where this process listens.
    ///
    /// # Errors
    /// The lock file cannot be written.
    pub(crate) fn announce(&mut self, listen: &str) -> Result<(), Failure> {
        self.write_holder(&format!("listening on {listen}")).map_err(|error| {
            let path = self.path.join(LOCK_FILE);
            Failure::failed(format!("{} cannot be written: {error}", path.display()))
        })
    }

    /// Refuses a log without its database, because SQLite would begin with nothing and remove it.
    /// SQLite makes the log only once the database is no longer empty.
    fn refuse_lost_database(&self) -> Result<(), Failure> {
        let len = |name: &str| self.path.join(name).metadata().map_or(0, |file| file.len());
        if len(DATABASE_FILE) > 0 || len(LOG_FILE) == 0 {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "{DATABASE_FILE} is missing or empty in {dir}, while its log {LOG_FILE} is there with \
             what was stored last: put {DATABASE_FILE} back beside it, or move {LOG_FILE} away to \
             begin with nothing",
            dir = self.path.display()
        )))
    }

    /// Makes the empty file that SQLite fills, because SQLite itself would let everyone read it;
    /// the files beside it get the rights of this one.
    fn make_database(&self) -> io::Result<()> {
        let made =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(self.database());
        match made {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn write_holder(&mut self, what: &str) -> io::Result<()> {
        let holder = format!("process {}, {what}\n", std::process::id());
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(holder.as_bytes())
    }

    /// The directory, absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The database. Never to be opened with `std::fs`: closing it would drop SQLite's locks.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE_FILE)
    }

    /// Whether others than the owner can look into it.
    pub(crate) fn is_open_to_others(&self) -> bool {
        let mode = self.path.metadata().map(|metadata| metadata.permissions().mode());
        mode.is_ok_and(|mode| mode & OTHERS != 0)
    }

    /// Reads a small file; `None` if there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.path.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a small file: after a crash it is either the old or the new one, whole. It has
    /// reached the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written; the old one is untouched.
    pub(crate) fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let unfinished = self.path.join(format!("{name}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(FILE_MODE)
            .open(&unfinished)?;
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, self.path.join(name))?;
        sync_dir(&self.path)
    }
}

/// Makes a directory's entries survive a power cut.
fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// As [`sync_dir`]; a directory that we may not read is left alone, since others made our entry.
fn sync_readable_dir(path: &Path) -> io::Result<()> {
    match sync_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

fn held(path: &Path, lock: &mut File) -> Failure {
    let mut holder = String::new();
    let read = lock.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
    let holder = match (read, holder.trim()) {
        (Ok(_), known) if !known.is_empty() => known,
        _ => "a process that has not said which",
    };
    let path = path.display();
    Failure::new(
        Exit::Held,
        format!(
            "the data directory {path} is in use by another everhook ({holder}). One process has \
             it at a time: stop that one first, or choose another directory with --data-dir"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temp(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("everhook-{name}-{}", std::process::id()));
        let _may_be_missing = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn one_holder_at_a_time() {
        let path = temp("holder");
        let mut first = DataDir::take(&path).expect("free");
        first.announce("127.0.0.1:1").expect("writable");
        let mode = path.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, DIR_MODE);
        assert!(!first.is_open_to_others());
        let database = first.database().metadata().expect("made");
        assert_eq!((database.permissions().mode() & 0o777, database.len()), (FILE_MODE, 0));

        let refused = DataDir::take(&path).expect_err("held");
        assert_eq!(refused.exit, Exit::Held);
        let holder = format!("(process {}, listening on 127.0.0.1:1)", std::process::id());
        assert!(refused.message.contains(&holder), "{refused}");

        drop(first);
        drop(DataDir::take(&path).expect("free again"));
        std::fs::remove_dir_all(&path).expect("ours");
    }

    #[test]
    fn a_log_without_its_database_is_not_thrown_away() {
        let path = temp("lost");
        let database = DataDir::take(&path).expect("free").database();
        let log = path.join(LOG_FILE);
        std::fs::write(&log, "what was stored last").expect("writable");
        for lost in ["empty", "missing"] {
            let refused = DataDir::take(&path).expect_err(lost);
            assert_eq!(refused.exit, Exit::Failed);
            assert!(refused.message.contains("put everhook.db back"), "{refused}");
            assert_eq!(log.metadata().expect("there").len(), 20);
            let _may_be_missing = std::fs::remove_file(&database);
        }
        std::fs::write(&database, "SQLite format 3").expect("writable");
        drop(DataDir::take(&path).expect("both are there"));
        std::fs::remove_file(&database).expect("ours");
        std::fs::remove_file(&log).expect("ours");
        drop(DataDir::take(&path).expect("both are new"));
        std::fs::remove_dir_all(&path).expect("ours");
    }

    #[test]
    fn files_are_replaced_whole() {
        let path = temp("files");
        let data_dir = DataDir::take(&path).expect("free");
        assert_eq!(data_dir.read("x").expect("readable"), None);
        for text in ["first\n", "second\n"] {
            data_dir.replace("x", text).expect("writable");
            assert_eq!(data_dir.read("x").expect("readable").as_deref(), Some(text));
        }
        let mode = path.join("x").metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
        assert!(!path.join("x.new").exists());
        std::fs::remove_dir_all(&path).expect("ours");
    }

    #[test]
    fn a_file_is_no_directory() {
        let path = temp("plain");
        std::fs::write(&path, "").expect("writable");
        let refused = DataDir::take(&path).expect_err("no directory");
        assert_eq!(refused.exit, Exit::Failed);
        assert!(refused.message.contains("cannot be used"), "{refused}");
        std::fs::remove_file(&path).expect("ours");
    }
}
