//! Rows about webhooks that come again, at once, or out of order.

use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;

use super::receiver::{HOUR, Signed};
use super::report::{DUPLICATE, LATER, ORDER, OVERLAP, RESTART, SAME_CONTENT};
use super::{Found, Trial, fail, pass};

/// Copies that are sent at once.
const COPIES: usize = 50;

impl Trial {
    pub(super) async fn duplicate(&self) -> Found {
        let event = self.receiver.event(DUPLICATE.name, 1);
        let first = self.receiver.make(&event, Signed::Now)?;
        self.receiver.must_accept(&first, "the first one").await?;
        let again = self.receiver.make(&event, Signed::Now)?;
        self.receiver.must_accept(&again, "the same once more").await?;
        if let Some(effects) = &self.effects {
            effects.must_be_once(&event.id).await?;
        }
        pass("answered as a success")
    }

    pub(super) async fn overlap(&self) -> Found {
        let mut event = self.receiver.event(OVERLAP.name, 1);
        event.data["copies"] = json!(COPIES);
        let made = self.receiver.make(&event, Signed::Now)?;
        let mut copies = JoinSet::new();
        for _ in 0..COPIES {
            let (receiver, made) = (self.receiver.clone(), made.clone());
            copies.spawn(async move { receiver.send(&made).await });
        }
        let mut accepted = 0;
        for status in copies.join_all().await {
            match status? {
                status if status.is_success() => accepted += 1,
                // Told to come again, which a sender does.
                StatusCode::CONFLICT
                | StatusCode::TOO_EARLY
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE => {}
                status => return fail(format!("one of {COPIES} was answered {status}")),
            }
        }
        if accepted == 0 {
            return fail(format!("none of {COPIES} was accepted"));
        }
        self.effects()?.must_be_once(&event.id).await?;
        pass(format!("{accepted} of {COPIES} accepted, applied once"))
    }

    pub(super) async fn same_content(&self) -> Found {
        let [one, mut other] = [1, 2].map(|which| self.receiver.event(SAME_CONTENT.name, which));
        other.data = one.data.clone();
        for event in [&one, &other] {
            let made = self.receiver.make(event, Signed::Now)?;
            self.receiver.must_accept(&made, "an event").await?;
        }
        match self.effects()?.applied([&one.id, &other.id]).await? {
            [1, 1] => pass("both were applied"),
            [one, other] => fail(format!("applied {one} and {other} times")),
        }
    }

    pub(super) async fn order(&self) -> Found {
        let [mut new, mut old] = [1, 2].map(|which| self.receiver.event(ORDER.name, which));
        let object = format!("object of {}", new.id);
        new.data = json!({ "row": ORDER.name, "object": object, "version": 2, "status": "closed" });
        old.data = json!({ "row": ORDER.name, "object": object, "version": 1, "status": "open" });
        for (event, what) in [(&new, "version 2"), (&old, "version 1 after it")] {
            let made = self.receiver.make(event, Signed::Now)?;
            self.receiver.must_accept(&made, what).await?;
        }
        match self.effects()?.applied([&new.id, &old.id]).await? {
            [1, 0] => pass("accepted and not applied"),
            [0, _] => fail("the newer version was not applied"),
            [_, times] => fail(format!("the older version was applied {times} times")),
        }
    }

    pub(super) async fn restart(&self) -> Found {
        let event = self.receiver.event(RESTART.name, 1);
        let made = self.receiver.make(&event, Signed::Now)?;
        let effects = self.effects()?;
        self.receiver.must_accept(&made, "the first one").await?;
        effects.must_be_once(&event.id).await?;
        effects.restart().await?;
        self.receiver.send(&self.receiver.make(&event, Signed::Now)?).await?;
        effects.must_be_once(&event.id).await?;
        pass("still known after a restart")
    }

    pub(super) async fn later(&self) -> Found {
        let event = self.receiver.event(LATER.name, 1);
        let made = self.receiver.make(&event, Signed::Now)?;
        let effects = self.effects()?;
        self.receiver.must_accept(&made, "the first one").await?;
        effects.must_be_once(&event.id).await?;
        effects.later(HOUR).await?;
        self.receiver.send(&self.receiver.make(&event, Signed::After(HOUR))?).await?;
        effects.must_be_once(&event.id).await?;
        pass("still known an hour later")
    }
}
