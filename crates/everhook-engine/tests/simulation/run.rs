//! The life of one world, from its seed to its verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::endpoint::{EndpointState, EndpointVerb};
use everhook_domain::fault::{self, Plant};
use everhook_store::{DeliveryQuery, PageRequest, Reading, Sending, StatusFilter};
use tokio::task::JoinSet;

use crate::book::ProcessEnd;
use crate::client::{Client, tenant};
use crate::network::cut;
use crate::process::{Database, Phase, Process};
use crate::profile::{Blow, Call};
use crate::rng::Rng;
use crate::world::{Keep, World};
use crate::{check, endpoints, receive};

const HOUR_MS: i64 = 3_600_000;
/// Longer than any round takes, with every shift that a world can cause.
const QUIET_MAX_MS: i64 = 20 * 24 * HOUR_MS;
/// How late the store's faults still make an attempt: the longest pause, and a little.
const PAUSE_MS: i64 = 5_250;
/// Further off than anything can be due, with every shift that a world can cause.
const EXPECTATION_MAX_MS: i64 = 3 * 24 * HOUR_MS;
/// Longer than an engine may take to stop.
const STOP_MAX: Duration = Duration::from_secs(60);

/// What became of a world.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// The hash of everything that happened.
    pub(crate) hash: u64,
    /// The promise that was broken.
    pub(crate) violation: Option<String>,
    /// What happened last, if it was kept.
    pub(crate) tail: String,
}

/// A promise was broken; the world says which.
struct Broken;

/// Lets the world of a seed happen.
pub(crate) fn run(seed: u64, plant: Option<Plant>, keep: Keep) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("no runtime: {error}"));
    let verdict = runtime.block_on(async {
        let world = World::new(seed, keep);
        let faults = Arc::clone(&world.faults);
        fault::install_for_thread(Some((plant, Box::new(move |step| faults.reach(step)))));
        let mut run = Run::new(Arc::clone(&world));
        let ended = run.live().await;
        let mut violation = world.violation();
        if ended.is_err() && violation.is_none() {
            violation = Some("the world ended without a reason".to_owned());
        }
        // The parts of a world know each other: this lets go of them.
        world.set_process(None);
        Verdict { hash: world.hash(), violation, tail: world.tail() }
    });
    fault::install_for_thread(None);
    verdict
}

/// What is still to happen.
#[derive(Clone, Debug)]
enum Next {
    Call(Call),
    Blow(Blow),
    Boot,
    EndZombie,
}

struct Run {
    world: Arc<World>,
    agenda: BTreeMap<(i64, u64), Next>,
    entries: u64,
    generation: u32,
    database: Option<Database>,
    /// Since when no process has run.
    down_since: Option<i64>,
    /// How long none runs after the death that is planned.
    death_down_ms: i64,
    zombies: Vec<Arc<Process>>,
    engines: JoinSet<()>,
    clients: JoinSet<()>,
    rng: Rng,
}

impl Run {
    fn new(world: Arc<World>) -> Self {
        let rng = Rng::new(world.seed, "clients");
        let mut run = Self {
            agenda: BTreeMap::new(),
            entries: 0,
            generation: 0,
            database: None,
            down_since: None,
            death_down_ms: 0,
            zombies: Vec::new(),
            engines: JoinSet::new(),
            clients: JoinSet::new(),
            rng,
            world,
        };
        let profile = run.world.profile.clone();
        for (at_ms, call) in profile.calls {
            run.plan(at_ms, Next::Call(call));
        }
        for (at_ms, blow) in profile.blows {
            run.plan(at_ms, Next::Blow(blow));
        }
        run
    }

    fn plan(&mut self, at_ms: i64, next: Next) {
        self.entries += 1;
        self.agenda.insert((at_ms, self.entries), next);
    }

    async fn live(&mut self) -> Result<(), Broken> {
        self.boot()?;
        for receiver in 0..self.world.profile.receivers.len() {
            let mut client = self.client();
            endpoints::create(&mut client, receiver).await;
        }
        for source in 0..self.world.profile.inbox.sources.len() {
            let mut client = self.client();
            receive::create(&mut client, source).await;
        }
        self.unbroken()?;
        let heal_ms = self.world.profile.heal_ms;
        while let Some((&(at_ms, entry), _)) = self.agenda.first_key_value() {
            if at_ms >= heal_ms {
                break;
            }
            self.wait_until(at_ms).await?;
            // A death on the way may have planned something that comes first.
            if let Some(next) = self.agenda.remove(&(at_ms, entry)) {
                self.happen(next).await?;
            }
        }
        self.wait_until(heal_ms).await?;
        self.heal().await?;
        self.settle_down().await?;
        self.check().await?;
        self.idle().await?;
        self.end().await?;
        self.check().await
    }

    fn unbroken(&self) -> Result<(), Broken> {
        if self.world.violation().is_some() { Err(Broken) } else { Ok(()) }
    }

    fn broken<T>(&self, what: String) -> Result<T, Broken> {
        self.world.violate(what);
        Err(Broken)
    }

    fn client(&mut self) -> Client {
        Client { world: Arc::clone(&self.world), rng: self.rng.fork() }
    }

    /// Lets time pass; a process that dies meanwhile is buried.
    async fn wait_until(&mut self, at_ms: i64) -> Result<(), Broken> {
        let world = Arc::clone(&self.world);
        loop {
            let left = u64::try_from(at_ms - world.time.now_ms()).unwrap_or(0);
            tokio::select! {
                biased;
                () = world.alarm.notified() => return Err(Broken),
                () = world.faults.died.notified() => self.bury().await,
                () = tokio::time::sleep(Duration::from_millis(left)) => return self.unbroken(),
            }
        }
    }

    async fn happen(&mut self, next: Next) -> Result<(), Broken> {
        match next {
            Next::Call(call) => {
                let client = self.client();
                self.clients.spawn(client.make(call));
            }
            Next::Boot => self.boot()?,
            Next::EndZombie => self.end_zombies().await,
            Next::Blow(blow) => self.strike(blow).await?,
        }
        Ok(())
    }

    async fn strike(&mut self, blow: Blow) -> Result<(), Broken> {
        let now_ms = self.world.time.now_ms();
        self.world.note(format_args!("blow {blow:?}"));
        match blow {
            Blow::Crash { down_ms, zombie_ms: None } => {
                self.world.faults.spare();
                if let Some(process) = self.world.process() {
                    process.life.die();
                    self.death_down_ms = down_ms;
                    self.bury().await;
                }
            }
            Blow::Crash { zombie_ms: Some(zombie_ms), .. } => {
                if let Some(process) = self.world.process() {
                    process.orphan();
                    self.part_with(&process, false);
                    self.zombies.push(process);
                    self.plan(now_ms + zombie_ms, Next::EndZombie);
                    self.boot()?;
                }
            }
            Blow::CrashAt { step, nth, down_ms } => {
                self.death_down_ms = down_ms;
                self.world.faults.die_at(step, nth);
            }
            Blow::Stop { down_ms } => self.stop(down_ms).await?,
            Blow::Fail { percent, for_ms } => self.world.faults.fail(percent, now_ms + for_ms),
            Blow::Step { by_ms } => {
                self.world.time.step(by_ms);
            }
        }
        Ok(())
    }

    /// Starts a process unless one runs.
    fn boot(&mut self) -> Result<(), Broken> {
        if self.world.process().is_some() {
            return Ok(());
        }
        self.generation += 1;
        let now_ms = self.world.time.now_ms();
        let database = self.database.take();
        let world = Arc::clone(&self.world);
        match Process::start(&world, database, self.generation, &mut self.engines) {
            Ok(process) => {
                world.note(format_args!("g{} runs", self.generation));
                world.faults.watch(Arc::clone(&process.life));
                world.set_process(Some(process));
            }
            Err(why) => return self.broken(why),
        }
        if let Some(since) = self.down_since.take() {
            world.book().disturbances.push((since, now_ms));
        }
        world.book().ends.push(None);
        world.look_at_endpoints();
        self.unbroken()
    }

    /// Takes what outlives a process from it.
    fn part_with(&mut self, process: &Arc<Process>, clean: bool) {
        let order = self.world.note(format_args!("g{} ends, clean {clean}", process.generation));
        self.world.set_process(None);
        self.database = Some(process.database());
        self.down_since.get_or_insert(self.world.time.now_ms());
        let mut book = self.world.book();
        book.leased.clear();
        book.lapsed = false;
        if let Some(end) = book.ends.last_mut() {
            *end = Some(ProcessEnd { order, clean });
        }
    }

    /// The process is dead: nothing of it is left but the database.
    async fn bury(&mut self) {
        let Some(process) = self.world.process() else { return };
        if process.life.phase() != Phase::Dead {
            return;
        }
        cut(&self.world, process.generation, process.now());
        self.part_with(&process, false);
        process.kill().await;
        let boot_ms = self.world.time.now_ms() + self.death_down_ms;
        self.plan(boot_ms, Next::Boot);
    }

    async fn end_zombies(&mut self) {
        for zombie in std::mem::take(&mut self.zombies) {
            cut(&self.world, zombie.generation, zombie.now());
            zombie.kill().await;
        }
    }

    /// Stops the process in good order.
    async fn stop(&mut self, down_ms: i64) -> Result<(), Broken> {
        let world = Arc::clone(&self.world);
        let Some(process) = world.process() else { return Ok(()) };
        let began_ms = world.time.now_ms();
        self.down_since = Some(began_ms);
        process.ask_to_stop();
        tokio::select! {
            biased;
            () = world.alarm.notified() => return Err(Broken),
            () = world.faults.died.notified() => {
                self.death_down_ms = down_ms;
                self.bury().await;
                return Ok(());
            }
            () = process.wait_gone() => {}
            () = tokio::time::sleep(STOP_MAX) => {
                return self.broken("the engine does not stop".to_owned());
            }
        }
        let clean = world.faults.failures().iter().all(|at_ms| *at_ms < began_ms - PAUSE_MS);
        // What an engine finds that has not begun is still the one before's.
        let lapsed = world.book().lapsed;
        if clean && lapsed && self.is_leased().await? {
            return self.broken("a lease was kept by an engine that has stopped".to_owned());
        }
        process.life.die();
        cut(&world, process.generation, process.now());
        self.part_with(&process, clean);
        process.kill().await;
        self.plan(world.time.now_ms() + down_ms, Next::Boot);
        Ok(())
    }

    async fn is_leased(&self) -> Result<bool, Broken> {
        let Some(store) = self.world.store() else { return self.broken("no store".to_owned()) };
        let status = Some(StatusFilter::Leased);
        let query = DeliveryQuery { status, ..DeliveryQuery::default() };
        let page = PageRequest { limit: 1, after: None, scan_limit: 100_000 };
        match store.deliveries(tenant(), query, page).await {
            Ok(page) => Ok(!page.items.is_empty()),
            Err(error) => self.broken(format!("what is leased cannot be read: {error}")),
        }
    }

    /// From here on everything is well: callers get their answers, paused endpoints are resumed.
    async fn heal(&mut self) -> Result<(), Broken> {
        let world = Arc::clone(&self.world);
        world.note(format_args!("heal"));
        world.faults.heal();
        self.end_zombies().await;
        self.agenda.clear();
        // Whether it was buried a moment ago or long before.
        self.bury().await;
        self.boot()?;
        loop {
            tokio::select! {
                biased;
                () = world.alarm.notified() => return Err(Broken),
                ended = self.clients.join_next() => match ended {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(error)) => return self.broken(format!("a caller died: {error}")),
                },
            }
        }
        for receiver in 0..world.profile.receivers.len() {
            if world.book().endpoints[receiver].state() == Some(EndpointState::Paused) {
                let mut client = self.client();
                endpoints::act(&mut client, receiver, EndpointVerb::Resume).await;
            }
        }
        for at_ms in world.faults.failures() {
            world.book().disturbances.push((at_ms, at_ms + PAUSE_MS));
        }
        self.unbroken()
    }

    /// Lets time pass until every delivery has ended.
    async fn settle_down(&mut self) -> Result<(), Broken> {
        let until_ms = self.world.time.now_ms() + QUIET_MAX_MS;
        while self.is_leased().await? || self.is_due().await? {
            if self.world.time.now_ms() >= until_ms {
                return self.broken("a delivery does not end".to_owned());
            }
            self.wait_until(self.world.time.now_ms() + HOUR_MS).await?;
        }
        Ok(())
    }

    async fn is_due(&self) -> Result<bool, Broken> {
        let Some(store) = self.world.store() else { return self.broken("no store".to_owned()) };
        match store.due().await {
            Ok(lanes) => Ok(!lanes.is_empty()),
            Err(error) => self.broken(format!("what is due cannot be read: {error}")),
        }
    }

    async fn check(&self) -> Result<(), Broken> {
        let Some(store) = self.world.store() else { return self.broken("no store".to_owned()) };
        if let Err(violation) = check::check(&self.world, &store).await {
            self.world.violate(violation);
        }
        self.unbroken()
    }

    /// Without work the process sleeps: nobody asks the store anything, nobody looks at the time.
    async fn idle(&mut self) -> Result<(), Broken> {
        let Some(process) = self.world.process() else { return self.broken("down".to_owned()) };
        // A lane may still expect what was cancelled, and look for it when it would be due.
        self.wait_until(self.world.time.now_ms() + EXPECTATION_MAX_MS).await?;
        let before = (process.front.calls(), self.world.time.readings());
        self.wait_until(self.world.time.now_ms() + 24 * HOUR_MS).await?;
        let after = (process.front.calls(), self.world.time.readings());
        if before != after {
            let (calls, readings) = (after.0 - before.0, after.1 - before.1);
            return self
                .broken(format!("an idle day: {calls} calls, {readings} looks at the time"));
        }
        Ok(())
    }

    /// Stops the last process, and looks at what another one finds.
    async fn end(&mut self) -> Result<(), Broken> {
        self.stop(0).await?;
        self.boot()
    }
}
