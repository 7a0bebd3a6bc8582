//! Checkpoints: what the log holds goes into the database file, beside the writer.
//!
//! A checkpoint copies pages and syncs the file: some milliseconds in which nobody could be
//! answered if the writer did it. So a thread with a connection of its own does it, while the
//! writer goes on appending. What came to the log meanwhile is little; the writer folds that in
//! itself, once it is told, and with nothing left in it the log begins anew at its start. A second
//! connection alone never gets there while there is work: the log would only grow.
//!
//! A checkpoint whose sync fails leaves unknown what the file holds, and the next one would take it
//! for done. So the writer stops for good, as after a commit that fails; the log still has it all.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use super::schema;

/// The thread begins when the log holds this many pages (8 MiB).
const BEGIN_PAGES: u32 = 1_024;

/// How many pages the log holds, as of the last commit.
#[derive(Clone, Debug, Default)]
pub(super) struct LogLength(Arc<AtomicU32>);

impl LogLength {
    /// Learns it from every commit of this connection, which no longer makes checkpoints by itself.
    pub(super) fn of(connection: &mut Connection) -> rusqlite::Result<Self> {
        let length = Self::default();
        let told = length.clone();
        connection.wal_hook(Some(move |_: &mut _, pages| {
            told.0.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(length)
    }

    fn pages(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The thread, and what is known of it.
pub(super) struct Checkpoints {
    length: LogLength,
    ask: Option<SyncSender<()>>,
    done: Receiver<rusqlite::Result<()>>,
    at_work: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Starts the thread.
    pub(super) fn start(path: &Path, length: LogLength) -> Result<Self, std::io::Error> {
        let path = path.to_owned();
        let (ask, asked) = sync_channel::<()>(1);
        let (tell, done) = sync_channel::<rusqlite::Result<()>>(1);
        let thread =
            std::thread::Builder::new().name("store-checkpoint".into()).spawn(move || {
                let mut connection = None;
                while asked.recv().is_ok() && tell.send(copy(&path, &mut connection)).is_ok() {}
            })?;
        Ok(Self { length, ask: Some(ask), done, at_work: false, thread: Some(thread) })
    }

    /// To be called after each commit, when its callers have been answered.
    ///
    /// # Errors
    /// What the file holds is unknown.
    pub(super) fn after_commit(&mut self, writer: &Connection) -> rusqlite::Result<()> {
        if self.at_work {
            match self.done.try_recv() {
                Err(TryRecvError::Empty) => return Ok(()),
                Ok(copied) => copied?,
                // Without the thread the writer does it.
                Err(TryRecvError::Disconnected) => {}
            }
            self.at_work = false;
            return checkpoint(writer);
        }
        if self.length.pages() < BEGIN_PAGES {
            return Ok(());
        }
        self.at_work = self.begin();
        if self.at_work { Ok(()) } else { checkpoint(writer) }
    }

    fn begin(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.try_send(()).is_ok())
    }
}

impl Drop for Checkpoints {
    /// Before the writer's connection, whose end empties the log.
    fn drop(&mut self) {
        drop(self.ask.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the panic hook already.
            let _panicked = thread.join();
        }
    }
}

fn copy(path: &Path, connection: &mut Option<Connection>) -> rusqlite::Result<()> {
    if connection.is_none() {
        let opened = Connection::open(path)?;
        schema::set_syncs(&opened)?;
        *connection = Some(opened);
    }
    connection.as_ref().map_or(Ok(()), checkpoint)
}

/// As much as can be done without waiting for anybody. A disk that is full, or a lock that another
/// connection has, is a matter of trying again: whatever is not copied is still in the log.
fn checkpoint(connection: &Connection) -> rusqlite::Result<()> {
    match connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
        Ok(_) => Ok(()),
        Err(error) if is_passing(&error) => {
            tracing::warn!(%error, "the log could not be folded into the database; it grows");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn is_passing(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    use ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull};
    matches!(code, Some(DatabaseBusy | DatabaseLocked | DiskFull))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight hundred transactions of many pages each: far more than the log may hold. It begins
    /// anew again and again, and everything is in the file in the end.
    #[test]
    fn the_log_begins_anew_while_the_writer_goes_on() {
        let folder = std::env::temp_dir().join(format!("everhook-log-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("checkpoint.db");
        let mut writer = Connection::open(&path).expect("opened");
        schema::prepare_writer(&writer).expect("prepared");
        writer.execute_batch("CREATE TABLE filler (bytes BLOB)").expect("made");
        let length = LogLength::of(&mut writer).expect("told");
        let mut checkpoints = Checkpoints::start(&path, length.clone()).expect("started");
        let (mut longest, mut anew) = (0, 0);
        for _ in 0..800 {
            let before = length.pages();
            writer.execute("INSERT INTO filler VALUES (zeroblob(200000))", []).expect("written");
            anew += u32::from(length.pages() < before);
            longest = longest.max(length.pages());
            checkpoints.after_commit(&writer).expect("the disk is well");
            // The thread is not waited for, but for once the writer does not outrun it.
            if length.pages() >= 2 * BEGIN_PAGES {
                while checkpoints.at_work {
                    std::thread::yield_now();
                    checkpoints.after_commit(&writer).expect("the disk is well");
                }
            }
        }
        assert!(anew >= 5, "the log began anew {anew} times");
        assert!(longest < 3 * BEGIN_PAGES, "{longest} pages");
        drop(checkpoints);
        drop(writer);
        let log = std::fs::metadata(path.with_extension("db-wal"));
        assert!(log.is_err(), "the log is folded in at the end");
        let reader = Connection::open(&path).expect("opened");
        let rows: i64 =
            reader.query_row("SELECT count(*) FROM filler", [], |row| row.get(0)).expect("read");
        assert_eq!(rows, 800);
        drop(reader);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let error = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        for (code, passing) in [
            (rusqlite::ffi::SQLITE_BUSY, true),
            (rusqlite::ffi::SQLITE_LOCKED, true),
            (rusqlite::ffi::SQLITE_FULL, true),
            (rusqlite::ffi::SQLITE_IOERR, false),
            (rusqlite::ffi::SQLITE_IOERR_FSYNC, false),
            (rusqlite::ffi::SQLITE_CORRUPT, false),
        ] {
            assert_eq!(is_passing(&error(code)), passing, "{code}");
        }
    }
}
