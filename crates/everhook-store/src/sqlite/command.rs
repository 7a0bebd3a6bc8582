//! What the writer runs: a verb, with its way back to the caller.

use everhook_domain::delivery::IllegalStep;
use everhook_domain::endpoint::IllegalVerb;
use everhook_domain::secret::TooManySecrets;
use tokio::sync::oneshot;

use super::row;
use super::tx::Tx;
use crate::code::UnknownCode;
use crate::error::{Refusal, StoreError};
use crate::handoff::Handoff;
use crate::seal::CannotSeal;

/// Why a verb did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerbError {
    /// As things stand it cannot be done; nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// SQLite failed: the batch is rolled back.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl From<IllegalStep> for VerbError {
    fn from(illegal: IllegalStep) -> Self {
        Self::Refused(Refusal::Step(illegal))
    }
}

impl From<IllegalVerb> for VerbError {
    fn from(illegal: IllegalVerb) -> Self {
        Self::Refused(Refusal::Endpoint(illegal))
    }
}

impl From<TooManySecrets> for VerbError {
    fn from(too_many: TooManySecrets) -> Self {
        Self::Refused(Refusal::Secrets(too_many))
    }
}

impl From<CannotSeal> for VerbError {
    fn from(error: CannotSeal) -> Self {
        Self::Sqlite(rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
    }
}

impl From<UnknownCode> for VerbError {
    fn from(code: UnknownCode) -> Self {
        Self::Sqlite(row::bad(code))
    }
}

/// One transaction's worth of work. `run` may be called again after a rollback.
pub(super) trait Verb: Send {
    type Output: Send;

    /// Reads, decides, writes.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<Self::Output, VerbError>;

    /// Called once, after the commit and before the caller is answered.
    fn committed(&mut self, _handoff: &dyn Handoff) {}

    /// Whether it may wait a little for company: nobody outside is waiting for it.
    fn may_linger(&self) -> bool {
        false
    }

    /// About how many bytes it writes.
    fn weight(&self) -> usize {
        0
    }
}

/// A verb with its way back.
pub(super) trait Command: Send {
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), rusqlite::Error>;
    fn committed(&mut self, handoff: &dyn Handoff);
    /// Answers with what `run` came to, or with `failure`.
    fn answer(&mut self, failure: Option<StoreError>);
    fn may_linger(&self) -> bool;
    fn weight(&self) -> usize;
}

/// A verb, what it came to, and whom to tell.
pub(super) struct Call<V: Verb> {
    verb: V,
    outcome: Option<Result<V::Output, StoreError>>,
    /// Whether `run` came to an output. The outcome itself does not tell: a planted bug takes it
    /// away to the caller before the commit.
    succeeded: bool,
    reply: Option<oneshot::Sender<Result<V::Output, StoreError>>>,
}

impl<V: Verb> Call<V> {
    /// The command, and where its outcome arrives.
    pub(super) fn new(verb: V) -> (Self, oneshot::Receiver<Result<V::Output, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        (Self { verb, outcome: None, succeeded: false, reply: Some(reply) }, outcome)
    }
}

impl<V: Verb> Command for Call<V> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), rusqlite::Error> {
        self.outcome = Some(match self.verb.run(tx) {
            Ok(output) => Ok(output),
            Err(VerbError::Refused(refusal)) => Err(refusal.into()),
            Err(VerbError::Sqlite(error)) => return Err(error),
        });
        self.succeeded = matches!(self.outcome, Some(Ok(_)));
        Ok(())
    }

    fn committed(&mut self, handoff: &dyn Handoff) {
        if self.succeeded {
            self.verb.committed(handoff);
        }
    }

    fn answer(&mut self, failure: Option<StoreError>) {
        let outcome = match failure {
            Some(failure) => Some(Err(failure)),
            None => self.outcome.take(),
        };
        if let (Some(reply), Some(outcome)) = (self.reply.take(), outcome) {
            // A caller that has gone away does not undo what is committed.
            let _gone = reply.send(outcome);
        }
    }

    fn may_linger(&self) -> bool {
        self.verb.may_linger()
    }

    fn weight(&self) -> usize {
        self.verb.weight()
    }
}
