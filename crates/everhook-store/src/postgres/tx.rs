//! A running transaction: what a verb sees, what it will write, and whom to tell after the commit.
//!
//! Verbs lock rows, let the state machine decide and note the outcome here; [`Tx::flush`] writes
//! what was noted in a few statements. A transaction that changes anything holds a shared lock on
//! the directory, which a change of the directory holds alone: so a change that was answered holds
//! for every verb that begins afterwards, on every node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::{Attempt, AttemptOutcome};
use everhook_domain::delivery::{
    self, CancelReason, Effect, Input, Policy, Progress, State, Token,
};
use everhook_domain::event::Nature;
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::system_event::{LastAttempt, SystemEvent};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;

use super::accounts::AccountChanges;
use super::failure::VerbError;
use super::ids::Ids;
use super::number::{size, unsigned};
use super::pool::Connection;
use super::row::DeliveryRow;
use super::{record, row};
use crate::directory::Directory;
use crate::error::Refusal;
use crate::handoff::Handoff;
use crate::reading::DeliveryRecord;
use crate::seal::Sealer;
use crate::sending::StorePolicy;
use crate::share::Share;

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reading, from one snapshot.
    Read,
    /// Anything but the directory.
    Write,
    /// The directory.
    Change,
}

impl Access {
    /// Begins the transaction; the last statement's value is the directory's version.
    const fn begin(self) -> &'static str {
        match self {
            Self::Read => {
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
                 SELECT value FROM meta WHERE name = 'directory_version'"
            }
            // A lock before the look: what was changed while waiting for it must be seen.
            Self::Write => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; \
                 SELECT pg_advisory_xact_lock_shared('meta'::regclass::oid::bigint); \
                 SELECT value FROM meta WHERE name = 'directory_version'"
            }
            Self::Change => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; \
                 SELECT pg_advisory_xact_lock('meta'::regclass::oid::bigint); \
                 SELECT value FROM meta WHERE name = 'directory_version'"
            }
        }
    }
}

/// The rules of a store.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) policy: StorePolicy,
    /// How long a lease lasts.
    pub(super) lease: Duration,
    /// How settings and secrets are stored.
    pub(super) sealer: Sealer,
    /// The node's source of ids.
    pub(super) ids: Arc<Ids>,
}

/// What a transaction has come to that concludes it, in the order in which it happened.
#[derive(Debug)]
pub(super) enum Noted {
    /// An attempt that counts in the health of its endpoint.
    Attempt(EndpointId, LastAttempt),
    /// A system event, and whose it is.
    Event(TenantId, SystemEvent),
}

/// A running transaction.
pub(super) struct Tx {
    pub(super) connection: Connection,
    pub(super) access: Access,
    pub(super) rules: Arc<Rules>,
    pub(super) now: Timestamp,
    /// Tenants and endpoints as this transaction sees them.
    pub(super) directory: Arc<Directory>,
    changed: BTreeMap<DeliveryId, (State, Progress)>,
    attempts: Vec<(DeliveryId, Attempt)>,
    interruptions: Vec<(DeliveryId, Token)>,
    late: Vec<(DeliveryId, Token, String)>,
    hints: Vec<(EndpointId, Share, Timestamp)>,
    jobs_pending: bool,
    /// Whether the transaction has changed the directory.
    pub(super) directory_changed: bool,
    /// What concludes it.
    pub(super) noted: Vec<Noted>,
    /// Changes of what accounts have, which are written last.
    pub(super) accounts: AccountChanges,
    /// Endpoints disabled automatically, and since when nothing had succeeded there.
    pub(super) disabled: Vec<(EndpointId, Timestamp)>,
}

impl Tx {
    /// Begins a transaction and returns it with the directory's version in it.
    pub(super) async fn begin(
        connection: Connection,
        access: Access,
        rules: Arc<Rules>,
        directory: Arc<Directory>,
        now: Timestamp,
    ) -> Result<(Self, u64), VerbError> {
        let version = connection.batch(access.begin()).await?;
        let version = version.and_then(|text| text.parse().ok());
        let version =
            version.ok_or_else(|| VerbError::Unusable("the directory has no version".into()))?;
        let tx = Self {
            connection,
            access,
            rules,
            now,
            directory,
            changed: BTreeMap::new(),
            attempts: Vec::new(),
            interruptions: Vec::new(),
            late: Vec::new(),
            hints: Vec::new(),
            jobs_pending: false,
            directory_changed: false,
            noted: Vec::new(),
            accounts: AccountChanges::default(),
            disabled: Vec::new(),
        };
        Ok((tx, unsigned(version)))
    }

    /// Refuses an unknown tenant.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Result<(), Refusal> {
        if self.directory.has_tenant(tenant) { Ok(()) } else { Err(Refusal::NotFound) }
    }

    /// When a lease that begins now lapses.
    pub(super) fn lease_until(&self) -> Timestamp {
        self.now + self.rules.lease
    }

    /// Tokens that no lease of this store has had.
    pub(super) async fn tokens(&mut self, count: usize) -> Result<Vec<Token>, VerbError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let statement = "SELECT nextval('lease_tokens') FROM generate_series(1, $1::bigint)";
        let rows = self.connection.query(statement, &[&size(count)]).await?;
        rows.iter().map(|row| Ok(Token(unsigned(row.try_get(0)?)))).collect()
    }

    /// Says that a job has work.
    pub(super) fn jobs_pending(&mut self) {
        self.jobs_pending = true;
    }

    /// Tells the engine, after the commit, when a delivery is due.
    pub(super) fn hint(&mut self, record: &DeliveryRecord) {
        if let State::Due(due) = record.state {
            self.hints.push((record.endpoint, Share::of(&record.progress), due.at));
        }
    }

    /// Lets the state machine decide, and notes what it decided.
    pub(super) fn step(&mut self, row: &mut DeliveryRow, input: Input) -> Result<(), VerbError> {
        let record = &mut row.record;
        let endpoint = self.directory.endpoint(record.endpoint);
        let policy = Policy {
            schedule: &self.rules.policy.schedule,
            interruptions_max: self.rules.policy.interruptions_max,
            honor_retry_after: self.rules.policy.honor_retry_after,
            endpoint_gone: match endpoint {
                Some(endpoint) => endpoint.state.gone(),
                // Its tenant is deleted.
                None => Some(CancelReason::EndpointDeleted),
            },
            nature: Nature::of(record.event_type.as_str()),
        };
        let is_observed = policy.nature.is_told_of() && policy.endpoint_gone.is_none();
        let (state, progress, effects) =
            delivery::step(record.state, record.progress, input, policy, self.now)?;
        record.state = state;
        record.progress = progress;
        let mut last_attempt = None;
        for effect in effects {
            match effect {
                Effect::Attempt(attempt) => {
                    let last = LastAttempt::from(&*attempt);
                    if is_observed {
                        self.noted.push(Noted::Attempt(record.endpoint, last));
                    }
                    last_attempt = Some(last);
                    self.attempts.push((record.id, *attempt));
                }
                Effect::Interruption { token } => self.interruptions.push((record.id, token)),
                Effect::Dead(reason) => {
                    let event = SystemEvent::DeliveryDead {
                        delivery: record.id,
                        endpoint: record.endpoint,
                        event_type: record.event_type.as_str().to_owned(),
                        reason,
                        progress,
                        last_attempt,
                    };
                    self.noted.push(Noted::Event(row.tenant.clone(), event));
                }
            }
        }
        self.write(&row.record);
        Ok(())
    }

    /// Notes a row's state and progress, to be written.
    pub(super) fn write(&mut self, record: &DeliveryRecord) {
        self.changed.insert(record.id, (record.state, record.progress));
        self.hint(record);
    }

    /// Notes a result that came in after its lease had ended.
    pub(super) fn note_late(&mut self, delivery: DeliveryId, token: Token, late: &AttemptOutcome) {
        self.late.push((delivery, token, record::summary(late)));
    }

    /// Writes what was noted so far.
    pub(super) async fn flush(&mut self) -> Result<(), VerbError> {
        let connection = &mut self.connection;
        if !self.changed.is_empty() {
            row::update(connection, &std::mem::take(&mut self.changed)).await?;
        }
        if !self.attempts.is_empty() {
            record::insert_attempts(connection, &std::mem::take(&mut self.attempts)).await?;
        }
        if !self.interruptions.is_empty() {
            let ended = std::mem::take(&mut self.interruptions);
            record::insert_interruptions(connection, &ended, self.now).await?;
        }
        record::note_late_outcomes(connection, &std::mem::take(&mut self.late)).await
    }

    /// Commits, gives the connection back and tells the engine.
    pub(super) async fn commit(mut self, handoff: &dyn Handoff) -> Result<(), VerbError> {
        self.flush().await?;
        self.connection.batch("COMMIT").await?;
        self.connection.give_back();
        for (endpoint, share, at) in self.hints {
            handoff.due(endpoint, share, at);
        }
        if self.jobs_pending {
            handoff.jobs_pending();
        }
        for (endpoint, since) in self.disabled {
            handoff.disabled(endpoint, since);
        }
        Ok(())
    }

    /// Undoes everything and gives the connection back; a broken one is dropped.
    pub(super) async fn roll_back(self) {
        if self.connection.batch("ROLLBACK").await.is_ok() {
            self.connection.give_back();
        }
    }
}
