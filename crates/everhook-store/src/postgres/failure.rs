//! What PostgreSQL's errors mean for the caller of a verb.

use everhook_domain::delivery::IllegalStep;
use everhook_domain::endpoint::IllegalVerb;
use everhook_domain::secret::TooManySecrets;
use tokio_postgres::error::SqlState;

use crate::code::UnknownCode;
use crate::error::{Refusal, StoreError};
use crate::seal::{CannotSeal, MissingKey};

/// Why a verb did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerbError {
    /// As things stand it cannot be done.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// PostgreSQL failed, or cannot be reached.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// What is stored has no meaning for this version.
    #[error("{0}")]
    Unusable(String),
    /// No connection is to be had.
    #[error("{0}")]
    Unavailable(String),
    /// The transaction must have the directory for itself: it is to be run again with that.
    #[error("the directory is to be changed")]
    NeedsDirectory,
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
        Self::Unusable(error.to_string())
    }
}

impl From<MissingKey> for VerbError {
    fn from(error: MissingKey) -> Self {
        Self::Unusable(error.to_string())
    }
}

impl From<UnknownCode> for VerbError {
    fn from(code: UnknownCode) -> Self {
        Self::Unusable(code.to_string())
    }
}

impl From<serde_json::Error> for VerbError {
    fn from(error: serde_json::Error) -> Self {
        Self::Unusable(format!("stored JSON cannot be read: {error}"))
    }
}

impl From<VerbError> for StoreError {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Refused(refusal) => Self::Refused(refusal),
            VerbError::Postgres(error) if is_away(&error) => {
                Self::Unavailable(format!("PostgreSQL cannot be used: {}", plain(&error)))
            }
            VerbError::Postgres(error) => Self::Failed(format!("PostgreSQL: {}", plain(&error))),
            VerbError::Unusable(why) => Self::Failed(why),
            VerbError::Unavailable(why) => Self::Unavailable(why),
            VerbError::NeedsDirectory => Self::Unavailable(error.to_string()),
        }
    }
}

/// Whether trying again later is right: the connection is gone, the server is starting, stopping,
/// full or read-only.
fn is_away(error: &tokio_postgres::Error) -> bool {
    const FULL_OR_BUSY: &str = "53";
    const CONNECTION: &str = "08";
    match error.code() {
        // Without an answer of the server: the connection has broken, or something cannot be read.
        None => {
            let source = std::error::Error::source(error);
            error.is_closed() || source.is_some_and(|source| source.is::<std::io::Error>())
        }
        Some(state) => {
            state.code().starts_with(FULL_OR_BUSY)
                || state.code().starts_with(CONNECTION)
                || [
                    &SqlState::ADMIN_SHUTDOWN,
                    &SqlState::CRASH_SHUTDOWN,
                    &SqlState::CANNOT_CONNECT_NOW,
                    &SqlState::READ_ONLY_SQL_TRANSACTION,
                ]
                .contains(&state)
        }
    }
}

/// The server's message without its detail, which may quote values.
pub(super) fn plain(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
