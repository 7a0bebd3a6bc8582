//! The writer: one connection, one transaction a batch, everything in memory after the commit.
//!
//! A [`Verb`](super::command::Verb) decides by reading before it writes, so a refused one has
//! written nothing and needs no savepoint. An unexpected error rolls the whole batch back, and each
//! command then runs in a transaction of its own. What a transaction changes in memory is collected
//! in [`Tx`] and taken over only after the commit; a crash at any instant leaves the file as the
//! last commit left it.
//!
//! A commit that fails for another reason than a full disk leaves unknown what the disk holds: the
//! writer stops for good, and so should the process. It never tries a sync again.

use std::sync::Arc;

use everhook_domain::fault::{self, Fate, Plant, Step};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::command::{Command, VerbError};
use super::memory::Memory;
use super::tx::Tx;
use crate::error::StoreError;
use crate::handoff::Handoff;
use crate::sending::StorePolicy;

/// The writing connection and its mirror in memory.
pub(super) struct WriterCore {
    connection: Connection,
    policy: StorePolicy,
    handoff: Arc<dyn Handoff>,
    memory: Memory,
    /// Why the writer has stopped for good.
    fatal: Option<String>,
}

impl WriterCore {
    /// A writer on a prepared connection.
    pub(super) fn new(
        connection: Connection,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        memory: Memory,
    ) -> Self {
        Self { connection, policy, handoff, memory, fatal: None }
    }

    /// Why the writer has stopped for good, if it has.
    pub(super) fn fatal(&self) -> Option<&str> {
        self.fatal.as_deref()
    }

    /// The connection, for reading what is committed; used where there is only one.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Ends the writer and gives its connection back, for a store in memory that is to outlive it.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Runs a batch in one transaction and answers every command.
    pub(super) fn run(&mut self, mut batch: Vec<Box<dyn Command>>) {
        if let Err(failure) = self.attempt(&mut batch) {
            let alone = batch.len() == 1 || matches!(failure, Failure::Final(_));
            if alone {
                let error = failure.into_error();
                batch.iter_mut().for_each(|command| command.answer(Some(error.clone())));
                return;
            }
            // One of them broke the transaction: let each stand for itself.
            for command in batch {
                self.run(vec![command]);
            }
        }
    }

    fn attempt(&mut self, batch: &mut [Box<dyn Command>]) -> Result<(), Failure> {
        if let Some(why) = &self.fatal {
            return Err(Failure::Final(StoreError::Unavailable(why.clone())));
        }
        if fault::reach(Step::CommitBegin) == Fate::Fail {
            return Err(Failure::Final(StoreError::Unavailable("injected before begin".into())));
        }
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(Failure::of)?;
        let mut tx = Tx::new(&self.connection, &self.policy, &self.memory);
        let done = tx.raise_floor().and_then(|()| {
            batch.iter_mut().try_for_each(|command| {
                command.run(&mut tx)?;
                // Some errors end the whole transaction behind our back.
                if tx.connection.is_autocommit() {
                    Err(rusqlite::Error::InvalidQuery)
                } else {
                    Ok(())
                }
            })
        });
        let done = done.and_then(|()| match tx.conclude() {
            Ok(()) => Ok(()),
            Err(VerbError::Sqlite(error)) => Err(error),
            // What Everhook tells of itself is never refused; if it were, nothing may be half done.
            Err(VerbError::Refused(_)) => Err(rusqlite::Error::InvalidQuery),
        });
        let mut after = tx.into_after();
        if let Err(error) = done {
            self.roll_back()?;
            return Err(Failure::of(error));
        }
        if fault::planted(Plant::AnswerBeforeCommit) {
            batch.iter_mut().for_each(|command| command.answer(None));
        }
        self.commit()?;
        self.memory.take_over(&mut after);
        if fault::reach(Step::CommitAfter) == Fate::Fail {
            // As if the process had died here: nobody learns of the commit.
            return Err(Failure::Final(StoreError::Failed("injected after commit".into())));
        }
        after.tell(&*self.handoff);
        for command in batch {
            command.committed(&*self.handoff);
            command.answer(None);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if fault::reach(Step::CommitBefore) == Fate::Fail {
            self.roll_back()?;
            return Err(Failure::Final(StoreError::Unavailable("injected before commit".into())));
        }
        let Err(error) = self.connection.execute_batch("COMMIT") else { return Ok(()) };
        if is_full(&error) {
            self.roll_back()?;
            return Err(Failure::Final(full(&error)));
        }
        // Closing must not write what memory holds over what the disk holds.
        let _refused =
            self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        let why = format!("a commit failed ({error}); what the disk holds is unknown");
        self.fatal = Some(why.clone());
        Err(Failure::Final(StoreError::Unavailable(why)))
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        if self.connection.is_autocommit() {
            return Ok(());
        }
        self.connection.execute_batch("ROLLBACK").map_err(|error| {
            let why = format!("a rollback failed ({error})");
            self.fatal = Some(why.clone());
            Failure::Final(StoreError::Unavailable(why))
        })
    }
}

/// Why a transaction did not happen.
enum Failure {
    /// Trying the commands one by one may help.
    Retry(StoreError),
    /// It would not.
    Final(StoreError),
}

impl Failure {
    fn of(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Final(full(&error)),
            // It was waited for already; each command alone would wait as long again.
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                let why = format!("another process holds the database ({error})");
                Self::Final(StoreError::Unavailable(why))
            }
            _ => Self::Retry(StoreError::Failed(error.to_string())),
        }
    }

    fn into_error(self) -> StoreError {
        match self {
            Self::Retry(error) | Self::Final(error) => error,
        }
    }
}

fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

fn full(error: &rusqlite::Error) -> StoreError {
    StoreError::Unavailable(format!("the disk is full ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> Failure {
        let error = rusqlite::ffi::Error::new(code);
        Failure::of(rusqlite::Error::SqliteFailure(error, None))
    }

    #[test]
    fn case_003_a_locked_or_full_database_refuses_the_batch_as_unavailable() {
        for code in [rusqlite::ffi::SQLITE_BUSY, rusqlite::ffi::SQLITE_FULL] {
            let refused = failure(code);
            assert!(matches!(refused, Failure::Final(StoreError::Unavailable(_))), "{code}");
        }
        let other = failure(rusqlite::ffi::SQLITE_CONSTRAINT);
        assert!(matches!(other, Failure::Retry(StoreError::Failed(_))));
    }
}
