//! One process: a store on the connection that outlives it, an engine, and how both end.

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock};

use everhook_domain::time::{Clock, Timestamp};
use everhook_engine::{Engine, Intake, Sender};
use everhook_store::sqlite::{GroupCommit, SqliteOptions, SqliteStore};
use everhook_store::{Handoff, Sealer, Store};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::front::Front;
use crate::network::Wire;
use crate::world::{World, lock};

/// The steady time of a process: its engine's, which everything in it goes by.
pub(crate) type Steady = Arc<OnceLock<Box<dyn Fn() -> Timestamp + Send + Sync>>>;

/// Whether a process may still act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It runs.
    Alive,
    /// Another one has taken its place, and it does not know: it goes on.
    Zombie,
    /// Nothing that it does has an effect.
    Dead,
}

/// A process's phase, for everybody who must know it. Those who wait for its end are woken in the
/// order in which they came; the library's watch channel would wake them in a random one.
#[derive(Debug)]
pub(crate) struct Life {
    phase: Mutex<Phase>,
    changed: Notify,
}

impl Life {
    fn new() -> Arc<Self> {
        Arc::new(Self { phase: Mutex::new(Phase::Alive), changed: Notify::new() })
    }

    /// The phase.
    pub(crate) fn phase(&self) -> Phase {
        *lock(&self.phase)
    }

    /// From now on nothing that it does has an effect.
    pub(crate) fn die(&self) {
        self.set(Phase::Dead);
    }

    fn become_zombie(&self) {
        self.set(Phase::Zombie);
    }

    fn set(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.changed.notify_waiters();
    }

    /// Returns when it is not alive any more: its callers lose their connections.
    pub(crate) async fn ended(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.phase() != Phase::Alive {
                return;
            }
            changed.await;
        }
    }

    /// Goes on unless the process is dead, and then never.
    pub(crate) async fn unless_dead(&self) {
        if self.phase() == Phase::Dead {
            std::future::pending().await
        }
    }
}

/// A process.
pub(crate) struct Process {
    /// Counts from 1.
    pub(crate) generation: u32,
    steady: Steady,
    /// What its engine and its callers see of the store.
    pub(crate) front: Arc<Front>,
    /// Whether it may act.
    pub(crate) life: Arc<Life>,
    store: Arc<SqliteStore>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    engine: AbortHandle,
    gone: watch::Receiver<()>,
}

impl Process {
    /// Starts a process on a database: that of the process before, or a new one.
    pub(crate) fn start(
        world: &Arc<World>,
        database: Option<Database>,
        generation: u32,
        tasks: &mut JoinSet<()>,
    ) -> Result<Arc<Self>, String> {
        let profile = &world.profile;
        let life = Life::new();
        let steady = Steady::default();
        let clock = Arc::clone(&world.time) as Arc<dyn Clock>;
        let intake = Intake::new(&profile.settings);
        let options = SqliteOptions {
            policy: profile.policy.clone(),
            handoff: Arc::clone(&intake) as Arc<dyn Handoff>,
            clock: Arc::clone(&clock),
            new_tag: u16::try_from(world.seed % 60_000).unwrap_or(0),
            group_commit: GroupCommit::default(),
            sealer: Sealer::default(),
        };
        let store = match database {
            Some(Database(old)) => {
                let connection = old.into_connection().ok_or("the database is lost")?;
                SqliteStore::on_connection(connection, options)
            }
            None => SqliteStore::open_in_memory(options),
        };
        let store = Arc::new(store.map_err(|error| format!("the store does not open: {error}"))?);
        world.set_store(Arc::clone(&store));
        let front = Arc::new(Front::new(Arc::clone(world), Arc::clone(&life), generation));
        let wire = Wire::new(Arc::clone(world), Arc::clone(&life), Arc::clone(&steady), generation);
        let engine = Engine::new(
            Arc::clone(&front) as Arc<dyn Store>,
            intake,
            Arc::new(wire) as Arc<dyn Sender>,
            clock,
            profile.settings.clone(),
        );
        let _first = steady.set(Box::new(engine.steady_now()));
        let (stop, stopped) = oneshot::channel::<()>();
        let (running, gone) = watch::channel(());
        let engine = tasks.spawn(async move {
            let _until_dropped = running;
            engine.run(async { drop(stopped.await) }).await;
        });
        let stop = Mutex::new(Some(stop));
        Ok(Arc::new(Self { generation, steady, front, life, store, stop, engine, gone }))
    }

    /// Its steady time.
    pub(crate) fn now(&self) -> Timestamp {
        now(&self.steady)
    }

    /// What outlives the process.
    pub(crate) fn database(&self) -> Database {
        Database(Arc::clone(&self.store))
    }

    /// Kills the process: its engine is gone when this returns.
    pub(crate) async fn kill(&self) {
        self.life.die();
        self.engine.abort();
        self.wait_gone().await;
    }

    /// Lets the process go on although its database is taken away.
    pub(crate) fn orphan(&self) {
        self.life.become_zombie();
    }

    /// Asks the engine to stop.
    pub(crate) fn ask_to_stop(&self) {
        if let Some(stop) = lock(&self.stop).take() {
            let _gone = stop.send(());
        }
    }

    /// Returns when the engine has ended.
    pub(crate) async fn wait_gone(&self) {
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

/// The steady time, once there is an engine.
pub(crate) fn now(steady: &Steady) -> Timestamp {
    steady.get().map_or(Timestamp::default(), |now| now())
}

/// What outlives a process: the connection in its store.
pub(crate) struct Database(Arc<SqliteStore>);
