//! Objects in a map, under the gate of memory.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use everhook_domain::time::SystemClock;
use everhook_receiver::version::memory::VersionGate;
use everhook_receiver::version::{ObjectKey, State, Verdict};

use crate::{Kind, Objects};

pub(crate) const KIND: Kind = Kind {
    name: "memory",
    can_fail: true,
    create: |_, tombstones, _| {
        let gate = VersionGate::new(tombstones, Arc::new(SystemClock::start()));
        let things = Arc::new(Memory { gate, things: Mutex::default() });
        [Arc::<Memory>::clone(&things), things]
    },
};

struct Memory {
    gate: VersionGate,
    things: Mutex<HashMap<ObjectKey, State>>,
}

#[async_trait]
impl Objects for Memory {
    async fn apply(&self, object: &ObjectKey, state: &State, settles: Option<&State>) -> Verdict {
        let write = || -> Result<(), Infallible> {
            self.things.lock().unwrap().insert(*object, *state);
            Ok(())
        };
        let done = match settles {
            None => self.gate.advance(object, state, write),
            Some(held) => self.gate.settle(object, held, state, write),
        };
        done.unwrap()
    }

    async fn fail(&self, object: &ObjectKey, state: &State) {
        assert_eq!(self.gate.advance(object, state, || Err("full")), Err("full"));
    }

    async fn written(&self, object: &ObjectKey) -> Option<State> {
        self.things.lock().unwrap().get(object).copied()
    }

    async fn forgotten(&self, _: &ObjectKey) {
        assert_eq!(self.gate.clean(), 1);
    }
}
