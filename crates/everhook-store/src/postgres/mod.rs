//! The store on PostgreSQL: any number of equal nodes on one database.
//!
//! | file | concept |
//! | --- | --- |
//! | `schema` | opening, identity, migrations |
//! | `pool` | connections with their prepared statements |
//! | `tx` | one transaction a verb; what it writes, and whom it tells |
//! | `catalog` | tenants, endpoints and sources |
//! | `sealing` | sealing anew what an older master key sealed, or none |
//! | `ids` | ids that rise on one node |
//! | `keys` | the exact tables of source event IDs and of receipts' keys |
//! | `accounts` | what accounts have of idempotency keys |
//! | `row`, `record`, `receipt`, `number` | how things are written |
//! | `health` | endpoints' failures, and what a transaction tells of itself |
//! | `failure` | what PostgreSQL's errors mean |
//! | `claimed`, `publish`, `receive`, `lease`, `act`, `decide`, `change`, `source` | the verbs |
//! | `claims` | idempotency records, and claims that are finished later |
//! | `converse` | conversations: the verb, and their lists |
//! | `outgoing` | new events and their deliveries, published or received |
//! | `jobs`, `sweep`, `bulk`, `erase` | long work |
//! | `reading` | single things and lists |
//!
//! A lease lasts for a time and ends by `settle` or, after it, by `lapse`, on whichever node. A
//! node that dies leaves its leases to the others; a connection that breaks rolls back.

mod accounts;
mod act;
mod bulk;
mod catalog;
mod change;
mod claimed;
mod claims;
mod converse;
mod decide;
mod erase;
mod failure;
mod health;
mod ids;
mod jobs;
mod keys;
mod lease;
mod number;
mod outgoing;
mod pool;
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
mod tx;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::budget::Budget;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use tokio_postgres::Config;

use crate::claim::{Claim, Claimed};
use crate::directory::{Change, Changed, Directory, DirectoryStore};
use crate::error::StoreError;
use crate::handoff::Handoff;
use crate::jobs::{JobStep, Jobs};
use crate::reading::DeliveryRecord;
use crate::route::{self, Brings};
use crate::seal::Sealer;
use crate::sending::{
    Act, LaneDue, LeasedDelivery, Publish, Published, Sending, SentAgain, Settled, Settlement,
    StorePolicy, Wanted,
};
use failure::VerbError;
use ids::Ids;
use outgoing::Routed;
use pool::Pool;
use tx::{Access, Rules, Tx};

/// After this many new keys, expired ones are looked for.
const KEYS_BETWEEN_PRUNES: usize = 1_024;

/// How to open the store.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the database is: a URL or `key=value` pairs as libpq takes them. Holds a password.
    pub url: String,
    /// The rules that the store applies.
    pub policy: StorePolicy,
    /// How long a lease lasts.
    pub lease: Duration,
    /// Whom to tell of work.
    pub handoff: Arc<dyn Handoff>,
    /// Goes into the ids of a database that is new: drawn at random, so that an id from elsewhere
    /// is not found here.
    pub new_tag: u16,
    /// The most connections of this node.
    pub connections_max: usize,
    /// Seals what is secret in the database. Every node needs the keys that any node seals under:
    /// a new key is given to all of them as an old one before one seals under it.
    pub sealer: Sealer,
}

/// One node's store on PostgreSQL.
pub struct PostgresStore {
    pool: Pool,
    rules: Arc<Rules>,
    ids: Arc<Ids>,
    directory: RwLock<Arc<Directory>>,
    handoff: Arc<dyn Handoff>,
    keys_taken: AtomicUsize,
    /// Whose turn it is among the kinds of long work.
    turn: AtomicUsize,
}

impl PostgresStore {
    /// Connects, migrates the schema at the head of the search path if it is new or older, and
    /// reads the directory. Must run on the runtime that the store will be used on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the database cannot be reached. [`StoreError::Failed`]: the
    /// address cannot be read, or the database holds what this version cannot use.
    pub async fn open(options: PostgresOptions, now: Timestamp) -> Result<Self, StoreError> {
        // The reason may quote the address, which may hold a password.
        let config: Config = options.url.parse().map_err(|_| {
            StoreError::Failed("the address of PostgreSQL cannot be read: see libpq's form".into())
        })?;
        let pool = Pool::new(config, options.connections_max);
        let mut connection = pool.take().await?;
        let identity = schema::prepare(&mut connection, options.new_tag, now).await?;
        connection.give_back();
        let ids = Arc::new(Ids::new(identity.tag, identity.newest, identity.seed));
        let store = Self {
            pool,
            rules: Arc::new(Rules {
                policy: options.policy,
                lease: options.lease,
                sealer: options.sealer,
                ids: Arc::clone(&ids),
            }),
            ids,
            directory: RwLock::default(),
            handoff: options.handoff,
            keys_taken: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
        };
        store.begin(Access::Read, now).await?.roll_back().await;
        store.cached().warn_of_unusable();
        store.seal_anew(now).await?;
        Ok(store)
    }

    fn cached(&self) -> Arc<Directory> {
        Arc::clone(&self.directory.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the events of a call go. A refusal is given in the transaction, which routes again.
    async fn routed(&self, call: &(impl Brings + Sync)) -> Routed {
        let directory = self.cached();
        match route::routes(&*self.handoff, &directory, call).await {
            Ok(routes) => (routes, Some(directory.version())),
            Err(_) => (Vec::new(), None),
        }
    }

    /// Takes over a committed directory, unless a newer one is known.
    fn take_over(&self, directory: &Arc<Directory>) {
        let mut known = self.directory.write().unwrap_or_else(PoisonError::into_inner);
        if directory.version() > known.version() {
            *known = Arc::clone(directory);
        }
    }

    /// Begins a transaction with the directory as it sees it.
    async fn begin(&self, access: Access, now: Timestamp) -> Result<Tx, VerbError> {
        let connection = self.pool.take().await?;
        let rules = Arc::clone(&self.rules);
        let (mut tx, version) = Tx::begin(connection, access, rules, self.cached(), now).await?;
        if tx.directory.version() != version {
            let directory = catalog::load(&mut tx.connection, version, &tx.rules.sealer).await?;
            let opening = tx.directory.version() == 0;
            tx.directory = Arc::new(directory);
            self.take_over(&tx.directory);
            if !opening {
                // Another node's change.
                self.handoff.directory_changed();
            }
        }
        Ok(tx)
    }

    /// Commits what was done, or undoes it.
    async fn end<T>(&self, tx: Tx, done: Result<T, VerbError>) -> Result<T, StoreError> {
        Ok(self.conclude(tx, done).await?)
    }

    /// As [`Self::end`]; tells whether the same is to be done with the directory for itself.
    async fn conclude<T>(&self, mut tx: Tx, done: Result<T, VerbError>) -> Result<T, VerbError> {
        let done = match done {
            Ok(done) => match health::conclude(&mut tx, &self.ids).await {
                Ok(()) => accounts::write(&mut tx).await.map(|()| done),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match done {
            Ok(done) => {
                let changed = tx.directory_changed.then(|| Arc::clone(&tx.directory));
                tx.commit(&*self.handoff).await?;
                if let Some(directory) = changed {
                    self.take_over(&directory);
                    self.handoff.directory_changed();
                }
                Ok(done)
            }
            Err(error) => {
                tx.roll_back().await;
                Err(error)
            }
        }
    }

    /// Begins a read of one tenant.
    async fn read(&self, tenant: &TenantId) -> Result<Tx, StoreError> {
        // Reads decide nothing by the time.
        let tx = self.begin(Access::Read, Timestamp::default()).await?;
        match tx.tenant(tenant) {
            Ok(()) => Ok(tx),
            Err(refusal) => {
                tx.roll_back().await;
                Err(refusal.into())
            }
        }
    }

    /// Now and then, so that what has expired is forgotten.
    fn count_keys(&self, keys: usize) {
        let before = self.keys_taken.fetch_add(keys, Ordering::Relaxed);
        if before % KEYS_BETWEEN_PRUNES + keys >= KEYS_BETWEEN_PRUNES {
            self.handoff.jobs_pending();
        }
    }

    /// Seals under the current key what an older one sealed, or none; a bounded number of endpoints
    /// a transaction.
    async fn seal_anew(&self, now: Timestamp) -> Result<(), StoreError> {
        let mut progress = sealing::Progress::default();
        while !progress.done {
            let mut tx = self.begin(Access::Change, now).await?;
            let done = sealing::renew(&mut tx, &mut progress).await;
            self.end(tx, done).await?;
        }
        self.rules.sealer.report_renewal(progress.renewed, progress.left);
        Ok(())
    }

    /// One transaction of `lapse`.
    async fn lapse_step(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = lease::lapse(&mut tx).await;
        self.end(tx, done).await
    }

    /// `settle`, with the directory for itself.
    async fn settle_and_disable(
        &self,
        settlements: &[Settlement],
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut tx = self.begin(Access::Change, now).await?;
        let done = lease::settle(&mut tx, settlements).await;
        self.end(tx, done).await
    }

    async fn pull_back_step(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = lease::pull_back(&mut tx).await;
        self.end(tx, done).await
    }
}

#[async_trait]
impl Sending for PostgresStore {
    async fn publish(
        &self,
        publish: Publish,
        claim: Option<Claim<Published>>,
        now: Timestamp,
    ) -> Result<Claimed<Published>, StoreError> {
        let routed = self.routed(&publish).await;
        let mut tx = self.begin(Access::Write, now).await?;
        let done = publish::publish(&mut tx, &self.ids, &publish, claim.as_ref(), routed).await;
        let (published, handed) = self.end(tx, done).await?;
        if !handed.is_empty() {
            self.handoff.hand_over(handed);
        }
        let keyed = publish.events.iter().filter(|event| event.source_event_id.is_some());
        self.count_keys(keyed.count() + usize::from(claim.is_some()));
        Ok(published)
    }

    async fn claim(
        &self,
        wanted: Vec<Wanted>,
        budget: Budget,
        now: Timestamp,
    ) -> Result<(Vec<LeasedDelivery>, Vec<LaneDue>), StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = lease::claim(&mut tx, &wanted, budget).await;
        self.end(tx, done).await
    }

    async fn settle(
        &self,
        settlements: Vec<Settlement>,
        now: Timestamp,
    ) -> Result<Vec<Settled>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = lease::settle(&mut tx, &settlements).await;
        match self.conclude(tx, done).await {
            Err(VerbError::NeedsDirectory) => self.settle_and_disable(&settlements, now).await,
            done => Ok(done?),
        }
    }

    async fn lapse(&self, now: Timestamp) -> Result<u64, StoreError> {
        let mut ended = 0;
        loop {
            match self.lapse_step(now).await? {
                0 => break,
                some => ended += some,
            }
        }
        while self.pull_back_step(now).await? > 0 {}
        Ok(ended)
    }

    async fn due(&self) -> Result<Vec<LaneDue>, StoreError> {
        let mut tx = self.begin(Access::Read, Timestamp::default()).await?;
        let done = lease::due(&mut tx.connection).await;
        self.end(tx, done).await
    }

    async fn act(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        act: Act,
        claim: Option<Claim<DeliveryRecord>>,
        now: Timestamp,
    ) -> Result<Claimed<DeliveryRecord>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = act::acted(&mut tx, &tenant, delivery, act, claim.as_ref()).await;
        self.end(tx, done).await
    }

    async fn send_again(
        &self,
        tenant: TenantId,
        event: EventId,
        endpoint: Option<EndpointId>,
        claim: Option<Claim<SentAgain>>,
        now: Timestamp,
    ) -> Result<Claimed<SentAgain>, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let done = act::sent_again(&mut tx, &tenant, event, endpoint, claim.as_ref()).await;
        self.end(tx, done).await
    }
}

#[async_trait]
impl DirectoryStore for PostgresStore {
    fn directory(&self) -> Result<Arc<Directory>, StoreError> {
        Ok(self.cached())
    }

    async fn change(
        &self,
        change: Change,
        claim: Option<Claim<Changed>>,
        now: Timestamp,
    ) -> Result<Claimed<Changed>, StoreError> {
        let mut tx = self.begin(Access::Change, now).await?;
        let done = changed(&mut tx, &self.ids, change, claim.as_ref()).await;
        self.end(tx, done).await
    }
}

/// `change` under its claim.
async fn changed(
    tx: &mut Tx,
    ids: &Ids,
    change: Change,
    claim: Option<&Claim<Changed>>,
) -> Result<Claimed<Changed>, VerbError> {
    if let Some(answered) = claimed::earlier(tx, claim).await? {
        return Ok(answered);
    }
    let changed = change::change(tx, ids, change).await?;
    claimed::done(tx, claim, changed).await
}

#[async_trait]
impl Jobs for PostgresStore {
    async fn step(&self, now: Timestamp) -> Result<JobStep, StoreError> {
        let mut tx = self.begin(Access::Write, now).await?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let done = jobs::step(&mut tx, turn).await;
        self.end(tx, done).await
    }
}
