//! The embedded store: one SQLite file, one process, one writing connection.
//!
//! | file | concept |
//! | --- | --- |
//! | `schema` | opening, settings, migrations |
//! | `writer`, `tx`, `memory` | one transaction a batch; what is in memory beside the file |
//! | `command` | a verb, and its way back to the caller |
//! | `thread` | gathers commands into batches |
//! | `catalog` | tenants, endpoints and sources with their numbers |
//! | `meta` | single numbers |
//! | `sealing` | sealing anew what an older master key sealed, or none |
//! | `keys`, `accounts` | the exact map of all deduplication keys; what accounts have of them |
//! | `row`, `record`, `receipt` | how things are written |
//! | `health` | endpoints' failures |
//! | `claimed`, `publish`, `receive`, `lease`, `act`, `decide`, `change`, `source` | the verbs |
//! | `claims` | idempotency records, and claims that are finished later |
//! | `converse` | conversations: the verb, and their lists |
//! | `outgoing` | new events and their deliveries, published or received |
//! | `jobs`, `sweep`, `bulk`, `erase` | long work |
//! | `reading`, `probe` | single things, lists, and whether writes succeed |
//!
//! The caller guarantees that no other process has the file open: the data directory's lock. On
//! that rests the rule that a lease of an earlier process is void.

mod accounts;
mod act;
mod bulk;
mod catalog;
mod change;
mod claimed;
mod claims;
mod command;
mod converse;
mod decide;
mod erase;
mod health;
mod jobs;
mod keys;
mod lease;
mod memory;
mod meta;
mod outgoing;
mod probe;
mod publish;
mod reading;
mod receipt;
mod receive;
mod record;
mod row;
mod schema;
mod sealing;
mod source;
mod sweep;
mod thread;
mod tx;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use everhook_domain::budget::Budget;
use everhook_domain::fault::{self, Fate, Step};
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::{Clock, Timestamp};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

pub use schema::OpenError;
pub use thread::GroupCommit;

use crate::claim::{Claim, Claimed};
use crate::directory::{Change, Changed, Directory, DirectoryStore};
use crate::error::{Refusal, StoreError};
use crate::handoff::Handoff;
use crate::jobs::{JobStep, Jobs};
use crate::reading::DeliveryRecord;
use crate::route::{self, Brings};
use crate::seal::Sealer;
use crate::sending::{
    Act, LaneDue, LeasedDelivery, Publish, Published, Sending, SentAgain, Settled, Settlement,
    StorePolicy, Wanted,
};
use catalog::Catalog;
use command::{Call, Command, Verb};
use memory::Memory;
use outgoing::Outgoing;
use probe::Probes;
use reading::Reader;
use thread::WriterThread;
use writer::WriterCore;

/// Reading connections.
const READERS_MAX: usize = 4;

/// How to open the store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// The rules that the store applies.
    pub policy: StorePolicy,
    /// Whom to tell of work.
    pub handoff: Arc<dyn Handoff>,
    /// Times the gathering of commits.
    pub clock: Arc<dyn Clock>,
    /// Goes into the ids of a database that is new: drawn at random, so that an id from elsewhere
    /// is not found here.
    pub new_tag: u16,
    /// How commands are gathered into one commit.
    pub group_commit: GroupCommit,
    /// Seals what is secret in the file.
    pub sealer: Sealer,
}

/// The embedded store.
pub struct SqliteStore {
    writer: Writer,
    readers: Option<Arc<Readers>>,
    catalog: Arc<RwLock<Arc<Catalog>>>,
    handoff: Arc<dyn Handoff>,
    probes: Probes,
    /// Whose turn it is among the kinds of long work.
    turn: AtomicUsize,
}

/// Where commands run.
enum Writer {
    /// On a thread of their own, in batches.
    Thread(WriterThread),
    /// Inside the call, one by one: for stores in memory, deterministic.
    Inline(Arc<Mutex<Option<WriterCore>>>),
}

/// Reading connections to one file.
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl SqliteStore {
    /// Opens or creates the database file, with a writer thread and reading connections. The caller
    /// must be the only process that uses it.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let connection = Connection::open(path)?;
        let (clock, group) = (Arc::clone(&options.clock), options.group_commit);
        let probes = Probes::new(Arc::clone(&clock));
        let (core, catalog, handoff) = prepare(connection, options)?;
        let thread = WriterThread::start(core, group, clock)
            .map_err(|error| OpenError::Unusable(format!("no writer thread: {error}")))?;
        let readers = Readers {
            path: path.to_owned(),
            idle: Mutex::new(Vec::new()),
            permits: Semaphore::new(READERS_MAX),
        };
        let writer = Writer::Thread(thread);
        let readers = Some(Arc::new(readers));
        Ok(Self { writer, readers, catalog, handoff, probes, turn: AtomicUsize::new(0) })
    }

    /// A new database in memory, whose commands run inside the call: for tests.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_in_memory(options: SqliteOptions) -> Result<Self, OpenError> {
        Self::on_connection(Connection::open_in_memory()?, options)
    }

    /// A store on an open connection, whose commands run inside the call: for tests, which take
    /// the connection of a store that has "crashed" with [`SqliteStore::into_connection`].
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn on_connection(
        connection: Connection,
        options: SqliteOptions,
    ) -> Result<Self, OpenError> {
        let probes = Probes::new(Arc::clone(&options.clock));
        let (core, catalog, handoff) = prepare(connection, options)?;
        let writer = Writer::Inline(Arc::new(Mutex::new(Some(core))));
        Ok(Self { writer, readers: None, catalog, handoff, probes, turn: AtomicUsize::new(0) })
    }

    /// Takes the connection out of a store whose commands run inside the call; the store then
    /// answers that it is closed. `None` for other stores, and the second time.
    pub fn into_connection(&self) -> Option<Connection> {
        match &self.writer {
            Writer::Thread(_) => None,
            Writer::Inline(core) => lock(core).take().map(WriterCore::into_connection),
        }
    }

    /// Finishes what is queued and closes the database, its log folded into the one file. Later
    /// calls answer that the store is closed. Reads that are under way may leave the log to the
    /// next start.
    pub fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.permits.close();
            lock(&readers.idle).clear();
        }
        match &self.writer {
            // The last connection to be closed is the writer's: SQLite then empties the log.
            Writer::Thread(thread) => thread.close(),
            Writer::Inline(core) => drop(lock(core).take()),
        }
    }

    /// Returns when the writer has stopped for good, with the reason: what the disk holds is then
    /// unknown, and the process must end and start anew.
    pub async fn failed(&self) -> String {
        match &self.writer {
            Writer::Thread(thread) => thread.failed().await,
            Writer::Inline(_) => std::future::pending().await,
        }
    }

    async fn run<V: Verb + 'static>(&self, verb: V) -> Result<V::Output, StoreError> {
        let (call, outcome) = Call::new(verb);
        match &self.writer {
            Writer::Thread(thread) => thread.submit(Box::new(call))?,
            Writer::Inline(core) => run_inline(core, Box::new(call))?,
        }
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a read on a reading connection, off the async threads.
    async fn read<T, F>(&self, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Reader<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let catalog = self.catalog();
        let Some(readers) = &self.readers else { return self.read_inline(&catalog, read) };
        let readers = Arc::clone(readers);
        let _permit = readers.permits.acquire().await.map_err(|_| closed())?;
        let pool = Arc::clone(&readers);
        let task = tokio::task::spawn_blocking(move || {
            let connection = pool.take()?;
            // One snapshot, so that what is read together belongs together.
            let snapshot = connection.unchecked_transaction()?;
            let result = read(Reader { connection: &snapshot, catalog: &catalog });
            drop(snapshot);
            lock(&pool.idle).push(connection);
            result
        });
        task.await.unwrap_or_else(|error| Err(StoreError::Failed(error.to_string())))
    }

    fn read_inline<T>(
        &self,
        catalog: &Catalog,
        read: impl FnOnce(Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.writer {
            Writer::Thread(_) => Err(closed()),
            Writer::Inline(core) => {
                let core = lock(core);
                let connection = core.as_ref().ok_or_else(closed)?.connection();
                read(Reader { connection, catalog })
            }
        }
    }

    /// Where the events of a call go. A refusal is the writer's to give: it routes again.
    async fn outgoing(&self, call: &(impl Brings + Sync)) -> Outgoing {
        let directory = Arc::clone(&self.catalog().directory);
        match route::routes(&*self.handoff, &directory, call).await {
            Ok(routes) => Outgoing::routed(routes, directory.version()),
            Err(_) => Outgoing::default(),
        }
    }

    fn tenant_no(&self, tenant: &TenantId) -> Result<i64, StoreError> {
        Ok(self.catalog().tenant_no(tenant).ok_or(Refusal::NotFound)?)
    }
}

impl Readers {
    fn take(&self) -> Result<Connection, StoreError> {
        if let Some(connection) = lock(&self.idle).pop() {
            return Ok(connection);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        schema::prepare_reader(&connection)
            .map_err(|error| StoreError::Failed(error.to_string()))?;
        Ok(connection)
    }
}

type Prepared = (WriterCore, Arc<RwLock<Arc<Catalog>>>, Arc<dyn Handoff>);

fn prepare(connection: Connection, options: SqliteOptions) -> Result<Prepared, OpenError> {
    schema::prepare_writer(&connection)?;
    let tag = match meta::meta(&connection, "tag")? {
        Some(tag) => u16::try_from(tag).map_err(|_| OpenError::Unusable(format!("tag {tag}")))?,
        None => {
            let transaction = connection.unchecked_transaction()?;
            meta::set_meta(&transaction, "tag", i64::from(options.new_tag))?;
            transaction.execute(
                "INSERT INTO tenants (id, name, created_at) VALUES (?1, ?1, ?2)",
                (TenantId::default_tenant().as_str(), options.clock.wall().as_millis()),
            )?;
            transaction.commit()?;
            options.new_tag
        }
    };
    let catalog = Catalog::load(&connection, tag, options.sealer)?;
    sealing::renew(&connection, &catalog)?;
    catalog.directory.warn_of_unusable();
    let catalog = Arc::new(RwLock::new(Arc::new(catalog)));
    let handoff = options.handoff;
    let memory = Memory::load(&connection, Arc::clone(&catalog))?;
    let core = WriterCore::new(connection, options.policy, Arc::clone(&handoff), memory);
    Ok((core, catalog, handoff))
}

fn run_inline(
    core: &Mutex<Option<WriterCore>>,
    command: Box<dyn Command>,
) -> Result<(), StoreError> {
    let mut core = lock(core);
    let core = core.as_mut().ok_or_else(closed)?;
    core.run(vec![command]);
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

#[async_trait]
impl Sending for SqliteStore {
    async fn publish(
        &self,
        publish: Publish,
        claim: Option<Claim<Published>>,
        now: Timestamp,
    ) -> Result<Claimed<Published>, StoreError> {
        let outgoing = self.outgoing(&publish).await;
        self.run(publish::PublishVerb { publish, claim, now, outgoing }).await
    }

    async fn claim(
        &self,
        wanted: Vec<Wanted>,
        budget: Budget,
        now: Timestamp,
    ) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError> {
        self.run(lease::ClaimVerb { wanted, budget, now }).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError> {
        self.run(lease::SettleVerb { settlements, now }).await
    }

    async fn lapse(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut ended = 0;
        loop {
            match self.run(lease::LapseVerb { now }).await? {
                0 => break,
                some => ended += some,
            }
            if fault::reach(Step::Lapsed) == Fate::Fail {
                return Err(StoreError::Unavailable("injected after a lapse".into()));
            }
        }
        while self.run(lease::PullBackVerb { now }).await? > 0 {}
        Ok(ended)
    }

    async fn due(&self) -> Result<Vec<LaneDue>, StoreError> {
        self.read(|reader| {
            let id = |number| reader.catalog.endpoint(number).map(|endpoint| endpoint.id);
            Ok(lease::due(reader.connection, id)?)
        })
        .await
    }

    async fn act(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        act: Act,
        claim: Option<Claim<DeliveryRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<DeliveryRecord>, StoreError> {
        self.run(act::ActVerb { tenant, delivery, act, claim, now }).await
    }

    async fn send_again(
        &self,
        tenant: TenantId,
        event: EventId,
        endpoint: Option<EndpointId>,
        claim: Option<Claim<SentAgain>>,
        now: Timestamp,
    ) -> Result<Claimed<SentAgain>, StoreError> {
        self.run(act::SendAgainVerb { tenant, event, endpoint, claim, now }).await
    }
}

#[async_trait]
impl DirectoryStore for SqliteStore {
    fn directory(&self) -> Result<Arc<Directory>, StoreError> {
        Ok(Arc::clone(&self.catalog().directory))
    }

    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Changed>>,
        now: Timestamp,
    ) -> Result<Claimed<Changed>, StoreError> {
        self.run(change::ChangeVerb { change, claim, now }).await
    }
}

#[async_trait]
impl Jobs for SqliteStore {
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.run(jobs::StepVerb { turn, now }).await
    }
}
