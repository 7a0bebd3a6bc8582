//! What goes wrong inside the process: commits that fail, and the step at which it dies.

use std::sync::{Arc, Mutex};

use everhook_domain::fault::{Fate, Step};
use tokio::sync::Notify;

use crate::process::Life;
use crate::rng::Rng;
use crate::time::VirtualTime;
use crate::world::lock;

/// Faults of one world; asked at every step that its thread reaches.
pub(crate) struct Faults {
    time: Arc<VirtualTime>,
    state: Mutex<State>,
    /// The process has died at a step.
    pub(crate) died: Notify,
}

struct State {
    rng: Rng,
    life: Option<Arc<Life>>,
    death: Option<(Step, u32)>,
    /// So often in a hundred times a commit fails, until then.
    failing: Option<(u64, i64)>,
    failures: Vec<i64>,
}

impl Faults {
    /// Nothing goes wrong yet.
    pub(crate) fn new(time: Arc<VirtualTime>, rng: Rng) -> Self {
        let state = State { rng, life: None, death: None, failing: None, failures: Vec::new() };
        Self { time, state: Mutex::new(state), died: Notify::new() }
    }

    /// The process that deaths are meant for.
    pub(crate) fn watch(&self, life: Arc<Life>) {
        lock(&self.state).life = Some(life);
    }

    /// The process dies when this step is reached for the `nth` time from now on.
    pub(crate) fn die_at(&self, step: Step, nth: u32) {
        lock(&self.state).death = Some((step, nth));
    }

    /// No death is planned any more; whether one was.
    pub(crate) fn spare(&self) -> bool {
        lock(&self.state).death.take().is_some()
    }

    /// So often in a hundred times a commit fails, until then.
    pub(crate) fn fail(&self, percent: u64, until_ms: i64) {
        lock(&self.state).failing = Some((percent, until_ms));
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&self) {
        let mut state = lock(&self.state);
        state.failing = None;
        state.death = None;
    }

    /// When commits have failed.
    pub(crate) fn failures(&self) -> Vec<i64> {
        lock(&self.state).failures.clone()
    }

    /// What happens at a step.
    pub(crate) fn reach(&self, step: Step) -> Fate {
        let mut state = lock(&self.state);
        let is_commit = matches!(step, Step::CommitBegin | Step::CommitBefore | Step::CommitAfter);
        if state.comes_death(step) {
            if let Some(life) = &state.life {
                life.die();
                self.died.notify_one();
            }
            // The rest of this poll still runs; nothing of it may reach the disk or the network.
            return if is_commit { Fate::Fail } else { Fate::Go };
        }
        // A commit that has happened and fails is a death: nobody may go on as if it had not.
        let may_fail = matches!(step, Step::CommitBegin | Step::CommitBefore);
        if may_fail && state.fails(self.time.now_ms()) { Fate::Fail } else { Fate::Go }
    }
}

impl State {
    fn comes_death(&mut self, step: Step) -> bool {
        match &mut self.death {
            Some((at, nth)) if *at == step => {
                *nth = nth.saturating_sub(1);
                let comes = *nth == 0;
                if comes {
                    self.death = None;
                }
                comes
            }
            Some(_) | None => false,
        }
    }

    fn fails(&mut self, now_ms: i64) -> bool {
        let Some((percent, _)) = self.failing.filter(|(_, until_ms)| now_ms < *until_ms) else {
            return false;
        };
        let fails = self.rng.percent(percent);
        if fails {
            self.failures.push(now_ms);
        }
        fails
    }
}
