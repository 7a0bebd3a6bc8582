//! The writer: one connection, one transaction a batch, everything in memory after the commit.
//!
//! A [`Verb`] decides by reading before it writes, so a refused one has written nothing and needs no
//! savepoint. An unexpected error rolls the whole batch back, and each command then runs in a
//! transaction of its own. What a transaction changes in memory is collected in [`Tx`] and taken
//! over only after the commit; a crash at any instant leaves the file as the last commit left it.
//!
//! A commit that fails for another reason than a full disk leaves unknown what the disk holds: the
//! writer stops for good, and so should the process. It never tries a sync again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use everhook_domain::delivery::{self, Effect, Input, Policy, State, Token};
use everhook_domain::endpoint::Endpoint;
use everhook_domain::fault::{self, Fate, Step};
use everhook_domain::id::EndpointId;
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use tokio::sync::oneshot;

use super::catalog::Catalog;
use super::keys::{self, KeyEntry, Keys};
use super::record;
use super::row::{DeliveryRow, share_of, signed, unsigned};
use crate::error::{Refusal, StoreError};
use crate::handoff::{Handoff, Share};
use crate::sending::StorePolicy;

/// The lease floor is written when it has risen by this many events.
const FLOOR_STEP: i64 = 4_096;
/// After this many new keys, expired ones are looked for.
const KEYS_BETWEEN_PRUNES: i64 = 1_024;
/// Bits of a token below the epoch.
const EPOCH_SHIFT: u32 = 40;

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

impl From<delivery::IllegalStep> for VerbError {
    fn from(illegal: delivery::IllegalStep) -> Self {
        Self::Refused(Refusal::Step(illegal))
    }
}

impl From<super::code::UnknownCode> for VerbError {
    fn from(code: super::code::UnknownCode) -> Self {
        Self::Sqlite(super::row::bad(code))
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
    reply: Option<oneshot::Sender<Result<V::Output, StoreError>>>,
}

impl<V: Verb> Call<V> {
    /// The command, and where its outcome arrives.
    pub(super) fn new(verb: V) -> (Self, oneshot::Receiver<Result<V::Output, StoreError>>) {
        let (reply, outcome) = oneshot::channel();
        (Self { verb, outcome: None, reply: Some(reply) }, outcome)
    }
}

impl<V: Verb> Command for Call<V> {
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), rusqlite::Error> {
        self.outcome = Some(match self.verb.run(tx) {
            Ok(output) => Ok(output),
            Err(VerbError::Refused(refusal)) => Err(refusal.into()),
            Err(VerbError::Sqlite(error)) => return Err(error),
        });
        Ok(())
    }

    fn committed(&mut self, handoff: &dyn Handoff) {
        if matches!(self.outcome, Some(Ok(_))) {
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

/// What the writer holds in memory beside the database.
pub(super) struct WriterCore {
    connection: Connection,
    policy: StorePolicy,
    handoff: Arc<dyn Handoff>,
    catalog: Arc<RwLock<Arc<Catalog>>>,
    keys: Keys,
    counters: Counters,
    /// Event key → endpoint of deliveries leased at birth and not settled yet.
    outstanding: BTreeMap<i64, i64>,
    floor: Floor,
    /// Why the writer has stopped for good.
    fatal: Option<String>,
}

/// Numbers that rise with every transaction.
#[derive(Clone, Copy, Debug)]
struct Counters {
    next_sequence: i64,
    last_created_at: Timestamp,
    next_token: u64,
}

/// Where the search for leases of a dead process begins.
#[derive(Clone, Copy, Debug)]
struct Floor {
    written: i64,
    /// Before the leases of the process before have lapsed, the floor must not rise.
    may_rise: bool,
}

/// What a transaction changes in memory, and whom it tells, once it has committed.
#[derive(Default)]
struct After {
    keys: HashMap<KeyHash, KeyEntry>,
    forgotten: Vec<(KeyHash, i64)>,
    catalog: Option<Arc<Catalog>>,
    leased_at_birth: Vec<(i64, i64)>,
    ended: Vec<i64>,
    due: Vec<(EndpointId, Share, Timestamp)>,
    jobs_pending: bool,
    lapsed: bool,
}

/// A running transaction.
pub(super) struct Tx<'a> {
    pub(super) connection: &'a Connection,
    pub(super) policy: &'a StorePolicy,
    committed_keys: &'a Keys,
    committed_catalog: Arc<Catalog>,
    outstanding: &'a BTreeMap<i64, i64>,
    counters: Counters,
    floor: Floor,
    after: After,
}

impl WriterCore {
    /// A writer on a prepared connection. Begins a new epoch, in which all older leases are void.
    pub(super) fn new(
        connection: Connection,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        catalog: Arc<RwLock<Arc<Catalog>>>,
    ) -> rusqlite::Result<Self> {
        let epoch = meta(&connection, "epoch")?.unwrap_or(0) + 1;
        set_meta(&connection, "epoch", epoch)?;
        let (last_sequence, last_created_at) = connection
            .query_row("SELECT seq, created_at FROM events ORDER BY seq DESC LIMIT 1", [], |row| {
                Ok((row.get::<_, i64>(0)?, Timestamp::from_millis(row.get(1)?)))
            })
            .optional()?
            .unwrap_or_default();
        let keys = Keys::load(&connection)?;
        let written = meta(&connection, "lease_floor")?.unwrap_or(0);
        Ok(Self {
            connection,
            policy,
            handoff,
            catalog,
            keys,
            counters: Counters {
                next_sequence: last_sequence + 1,
                last_created_at,
                next_token: unsigned(epoch) << EPOCH_SHIFT,
            },
            outstanding: BTreeMap::new(),
            floor: Floor { written, may_rise: false },
            fatal: None,
        })
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
        let catalog = self.current_catalog();
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(Failure::of)?;
        let mut tx = Tx {
            connection: &self.connection,
            policy: &self.policy,
            committed_keys: &self.keys,
            committed_catalog: catalog,
            outstanding: &self.outstanding,
            counters: self.counters,
            floor: self.floor,
            after: After::default(),
        };
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
        let Tx { counters, floor, after, .. } = tx;
        if let Err(error) = done {
            self.roll_back()?;
            return Err(Failure::of(error));
        }
        if fault::planted(fault::Plant::AnswerBeforeCommit) {
            batch.iter_mut().for_each(|command| command.answer(None));
        }
        self.commit()?;
        self.counters = counters;
        self.floor = floor;
        if fault::reach(Step::CommitAfter) == Fate::Fail {
            // As if the process had died here: nobody learns of the commit.
            self.take_over(after, false);
            return Err(Failure::Final(StoreError::Failed("injected after commit".into())));
        }
        self.take_over(after, true);
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

    fn take_over(&mut self, after: After, tell: bool) {
        self.keys.extend(after.keys);
        for (key, target) in &after.forgotten {
            self.keys.forget(key, *target);
        }
        self.outstanding.extend(after.leased_at_birth);
        for key in &after.ended {
            self.outstanding.remove(key);
        }
        self.floor.may_rise |= after.lapsed;
        let changed = after.catalog.is_some();
        if let Some(catalog) = after.catalog {
            *self.catalog.write().unwrap_or_else(std::sync::PoisonError::into_inner) = catalog;
        }
        if !tell {
            return;
        }
        if changed {
            self.handoff.directory_changed();
        }
        for (endpoint, share, at) in after.due {
            self.handoff.due(endpoint, share, at);
        }
        if after.jobs_pending {
            self.handoff.jobs_pending();
        }
    }

    fn current_catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(std::sync::PoisonError::into_inner))
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
        if is_full(&error) {
            Self::Final(full(&error))
        } else {
            Self::Retry(StoreError::Failed(error.to_string()))
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

impl Tx<'_> {
    /// Tenants and endpoints as this transaction sees them.
    pub(super) fn catalog(&self) -> &Arc<Catalog> {
        self.after.catalog.as_ref().unwrap_or(&self.committed_catalog)
    }

    /// Replaces the catalog once the transaction has committed.
    pub(super) fn set_catalog(&mut self, catalog: Catalog) {
        self.after.catalog = Some(Arc::new(catalog));
    }

    /// The tag in this database's ids.
    pub(super) fn tag(&self) -> u16 {
        self.committed_catalog.tag
    }

    /// The tenant's number.
    pub(super) fn tenant(&self, tenant: &TenantId) -> Result<i64, Refusal> {
        self.catalog().tenant_no(tenant).ok_or(Refusal::NotFound)
    }

    /// An endpoint by its number.
    pub(super) fn endpoint(&self, number: i64) -> Option<&Arc<Endpoint>> {
        self.catalog().endpoint(number)
    }

    /// The next event's sequence and instant of acceptance, which never falls.
    pub(super) fn next_event(&mut self, now: Timestamp) -> (i64, Timestamp) {
        let sequence = self.counters.next_sequence;
        self.counters.next_sequence += 1;
        self.counters.last_created_at = self.counters.last_created_at.max(now);
        (sequence, self.counters.last_created_at)
    }

    /// A token that no lease of this store has had.
    pub(super) fn next_token(&mut self) -> Token {
        self.counters.next_token += 1;
        Token(self.counters.next_token)
    }

    /// Whether the lease is one of an earlier process.
    pub(super) fn is_void(&self, token: Token) -> bool {
        token.0 >> EPOCH_SHIFT < self.counters.next_token >> EPOCH_SHIFT
    }

    /// The live entry of a key, this transaction's own among them.
    pub(super) fn key(&self, key: &KeyHash, now: Timestamp) -> Option<KeyEntry> {
        match self.after.keys.get(key) {
            Some(entry) if entry.expires_at > now => Some(*entry),
            Some(_) | None => self.committed_keys.live(key, now),
        }
    }

    /// Remembers a key.
    pub(super) fn remember(&mut self, key: KeyHash, entry: KeyEntry) -> rusqlite::Result<()> {
        // Now and then, so that what has expired is forgotten.
        if keys::append(self.connection, &key, entry)? % KEYS_BETWEEN_PRUNES == 0 {
            self.jobs_pending();
        }
        self.after.keys.insert(key, entry);
        Ok(())
    }

    /// Forgets pruned keys.
    pub(super) fn forget(&mut self, pruned: Vec<(KeyHash, i64)>) {
        self.after.forgotten.extend(pruned);
    }

    /// Notes a delivery leased in the transaction that makes it.
    pub(super) fn leased_at_birth(&mut self, row: &DeliveryRow) {
        self.after.leased_at_birth.push((row.key, row.endpoint));
    }

    /// Deliveries leased at birth to this endpoint and not settled yet.
    pub(super) fn outstanding_to(&self, endpoint: i64) -> Vec<i64> {
        self.outstanding.iter().filter(|(_, to)| **to == endpoint).map(|(key, _)| *key).collect()
    }

    /// Where the search for leases of a dead process begins.
    pub(super) fn lease_floor(&self) -> i64 {
        self.floor.written
    }

    /// All leases of the process before have ended.
    pub(super) fn lapsed(&mut self) {
        self.after.lapsed = true;
    }

    /// Says that a job has work.
    pub(super) fn jobs_pending(&mut self) {
        self.after.jobs_pending = true;
    }

    /// Tells the engine, after the commit, when a delivery is due.
    pub(super) fn hint(&mut self, row: &DeliveryRow) {
        if let State::Due(due) = row.state
            && let Some(endpoint) = self.endpoint(row.endpoint)
        {
            let hint = (endpoint.id, share_of(&row.progress), due.at);
            self.after.due.push(hint);
        }
    }

    /// Lets the state machine decide, and writes what it decided.
    pub(super) fn step(
        &mut self,
        row: &mut DeliveryRow,
        input: Input,
        now: Timestamp,
    ) -> Result<(), VerbError> {
        let policy = Policy {
            schedule: &self.policy.schedule,
            interruptions_max: self.policy.interruptions_max,
            honor_retry_after: self.policy.honor_retry_after,
            endpoint_gone: self.endpoint(row.endpoint).and_then(|endpoint| endpoint.state.gone()),
        };
        let (state, progress, effects) =
            delivery::step(row.state, row.progress, input, policy, now)?;
        if row.leased_at_birth && !matches!(state, State::Leased(_)) {
            self.after.ended.push(row.key);
            row.leased_at_birth = false;
        }
        row.state = state;
        row.progress = progress;
        row.update(self.connection)?;
        for effect in effects {
            match effect {
                Effect::Attempt(attempt) => {
                    record::insert_attempt(self.connection, row.key, &attempt)?;
                }
                Effect::Interruption { token } => {
                    record::insert_interruption(self.connection, row.key, token, now)?;
                }
            }
        }
        self.hint(row);
        Ok(())
    }

    /// Writes the lease floor when it has risen far enough. It is that of the last commit, so it
    /// is at most too low.
    fn raise_floor(&mut self) -> rusqlite::Result<()> {
        if !self.floor.may_rise {
            return Ok(());
        }
        let floor = self
            .outstanding
            .first_key_value()
            .map_or(self.counters.next_sequence, |(key, _)| key >> 16);
        if floor >= self.floor.written + FLOOR_STEP {
            set_meta(self.connection, "lease_floor", floor)?;
            self.floor.written = floor;
        }
        Ok(())
    }
}

/// A number kept in the table `meta`.
pub(super) fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

/// Sets a number in the table `meta`.
pub(super) fn set_meta(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO meta (name, value) VALUES (?1, ?2) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )?
        .execute(params![name, value])?;
    Ok(())
}

/// The number of an endpoint in the database.
pub(super) fn endpoint_no(id: EndpointId) -> i64 {
    signed(id.sequence())
}
