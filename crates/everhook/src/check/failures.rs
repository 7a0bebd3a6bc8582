//! Rows about handlers that fail, and are tried again as a sender does.

use super::effects::When;
use super::receiver::Signed;
use super::report::{CRASH, FAILURE, RowKind};
use super::{Found, Trial, fail, pass};

/// How often an event is sent before it counts as one that is never accepted.
const TRIES: u32 = 5;

impl Trial {
    pub(super) async fn failure(&self) -> Found {
        self.failing(&FAILURE, When::Before).await
    }

    pub(super) async fn crash(&self) -> Found {
        self.failing(&CRASH, When::After).await
    }

    async fn failing(&self, row: &RowKind, when: When) -> Found {
        let event = self.receiver.event(row.name, 1);
        let effects = self.effects()?;
        effects.fail(&event.id, when).await?;
        let made = self.receiver.make(&event, Signed::Now)?;
        for _ in 0..TRIES {
            if self.receiver.send(&made).await?.is_success() {
                effects.must_be_once(&event.id).await?;
                return pass("applied once in the end");
            }
        }
        fail(format!("not accepted in {TRIES} tries"))
    }
}
