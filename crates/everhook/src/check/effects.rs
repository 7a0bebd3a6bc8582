//! What a receiver has done, where it tells: see `docs/checking.md` for what it has to answer.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Place, Trouble};
use crate::client::{self, Answer};

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at work that is not done yet.
const LOOK: Duration = Duration::from_millis(50);
/// How often is looked.
const LOOKS_MAX: u32 = 600;

/// Where effects are told.
#[derive(Clone, Debug)]
pub(crate) struct Effects(pub(crate) Place);

/// What it says.
#[derive(Debug, Deserialize)]
struct Told {
    applied: BTreeMap<String, u64>,
    /// Accepted, and not done yet.
    #[serde(default)]
    pending: u64,
}

/// Where the handling of an event fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Before,
    After,
}

impl Effects {
    /// How often each of these events was applied, once nothing is under way.
    pub(super) async fn applied<const N: usize>(
        &self,
        ids: [&str; N],
    ) -> Result<[u64; N], Trouble> {
        for _ in 0..LOOKS_MAX {
            let answer = self.ask(Method::GET, String::new()).await?;
            let told: Told = serde_json::from_slice(&answer.body).map_err(|error| {
                Trouble::Effects(format!("{} does not tell effects: {error}", self.0))
            })?;
            if told.pending == 0 {
                return Ok(ids.map(|id| told.applied.get(id).copied().unwrap_or_default()));
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Trouble::Effects("work is still pending after half a minute".to_owned()))
    }

    /// Demands that an event was applied once.
    pub(super) async fn must_be_once(&self, id: &str) -> Result<(), Trouble> {
        match self.applied([id]).await? {
            [1] => Ok(()),
            [times] => Err(Trouble::Receiver(format!("it was applied {times} times"))),
        }
    }

    /// Makes the first handling of an event fail.
    pub(super) async fn fail(&self, event: &str, when: When) -> Result<(), Trouble> {
        let when = match when {
            When::Before => "before",
            When::After => "after",
        };
        self.tell(json!({ "do": "fail", "event": event, "when": when })).await
    }

    /// Makes the receiver forget what a restart would.
    pub(super) async fn restart(&self) -> Result<(), Trouble> {
        self.tell(json!({ "do": "restart" })).await
    }

    /// Puts the receiver's clock forward.
    pub(super) async fn later(&self, by: Duration) -> Result<(), Trouble> {
        self.tell(json!({ "do": "later", "seconds": by.as_secs() })).await
    }

    async fn tell(&self, what: Value) -> Result<(), Trouble> {
        self.ask(Method::POST, what.to_string()).await.map(drop)
    }

    async fn ask(&self, method: Method, body: String) -> Result<Answer, Trouble> {
        let request = Request::builder()
            .uri(&self.0.target)
            .header(header::HOST, self.0.server.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .method(&method)
            .body(Full::new(Bytes::from(body)));
        let trouble = |why: String| Trouble::Effects(why);
        let request = request.map_err(|error| trouble(error.to_string()))?;
        let answer = client::ask(&self.0.server, request, PATIENCE).await;
        let answer = answer.map_err(|error| trouble(error.to_string()))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        let status = answer.status;
        Err(trouble(format!("{method} {} was answered {status}", self.0)))
    }
}
