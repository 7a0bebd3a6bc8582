//! Versions in the memory of one process: for what is held there too, and gone with it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use everhook_domain::time::{Clock, SystemClock};

use super::{Content, ObjectKey, State, TOMBSTONES_KEPT, Verdict, decide};

/// The version gate of what is held in memory.
#[derive(Clone)]
pub struct VersionGate {
    tombstones: Duration,
    clock: Arc<dyn Clock>,
    held: Arc<Mutex<HashMap<ObjectKey, Held>>>,
}

struct Held {
    state: State,
    /// On the steady clock; of an object that is deleted.
    expires_at: Option<Duration>,
}

impl Default for VersionGate {
    fn default() -> Self {
        Self::new(TOMBSTONES_KEPT, Arc::new(SystemClock::start()))
    }
}

impl fmt::Debug for VersionGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionGate").field("tombstones", &self.tombstones).finish_non_exhaustive()
    }
}

impl VersionGate {
    /// A gate that holds the states of deleted objects for this long, on the clock's steady time.
    pub fn new(tombstones: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { tombstones, clock, held: Arc::default() }
    }

    /// Calls `write` if the state is fresh, and holds it if that succeeds. No other state of any
    /// object is looked at meanwhile, so `write` should be short; it must not call this gate.
    ///
    /// # Errors
    /// That of `write`: nothing has changed.
    pub fn advance<E>(
        &self,
        object: &ObjectKey,
        state: &State,
        write: impl FnOnce() -> Result<(), E>,
    ) -> Result<Verdict, E> {
        self.step(object, state, None, write)
    }

    /// As [`Self::advance`], for the state that was fetched from the publisher because of a
    /// conflict with `held`.
    ///
    /// # Errors
    /// That of `write`: nothing has changed.
    pub fn settle<E>(
        &self,
        object: &ObjectKey,
        held: &State,
        fetched: &State,
        write: impl FnOnce() -> Result<(), E>,
    ) -> Result<Verdict, E> {
        self.step(object, fetched, Some(held), write)
    }

    /// Forgets the states of deleted objects whose time is over; returns how many. Never needed
    /// for a right answer: what is over counts as absent.
    pub fn clean(&self) -> usize {
        let now = self.clock.monotonic();
        let mut objects = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = objects.len();
        objects.retain(|_, held| !held.is_over(now));
        before - objects.len()
    }

    fn step<E>(
        &self,
        object: &ObjectKey,
        state: &State,
        settles: Option<&State>,
        write: impl FnOnce() -> Result<(), E>,
    ) -> Result<Verdict, E> {
        let mut objects = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        let held = objects.get(object).filter(|held| !held.is_over(now)).map(|held| &held.state);
        let verdict = decide(held, state, settles);
        if verdict == Verdict::Fresh {
            write()?;
            let deleted = state.content == Content::Deleted;
            let expires_at = deleted.then(|| now.saturating_add(self.tombstones));
            objects.insert(*object, Held { state: *state, expires_at });
        }
        Ok(verdict)
    }
}

impl Held {
    fn is_over(&self, now: Duration) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}
