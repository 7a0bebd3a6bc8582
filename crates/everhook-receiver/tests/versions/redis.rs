//! Objects in Redis, as the gate's own values.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "reads what the test command hands over, and fails without it"
)]

use std::sync::Arc;

use async_trait::async_trait;
use everhook_receiver::version::redis::redis::aio::MultiplexedConnection;
use everhook_receiver::version::redis::redis::{Client, cmd};
use everhook_receiver::version::redis::{Stored, VersionGate};
use everhook_receiver::version::{Content, ObjectKey, State, Verdict};

use crate::{Kind, Objects};

/// The variable that names the server.
const URL_VARIABLE: &str = "EVERHOOK_TEST_REDIS";

/// Each database is a number of the server, which the test command gives enough of.
pub(crate) const KIND: Kind = Kind {
    name: "redis",
    can_fail: false,
    create: |number, tombstones, runtime| {
        let url = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
            panic!("{URL_VARIABLE} is not set: it must be the URL of a Redis for tests")
        });
        let client = Client::open(format!("{}/{number}", url.trim_end_matches('/'))).unwrap();
        runtime.block_on(async {
            let mut nodes: Vec<Arc<dyn Objects>> = Vec::new();
            for _ in 0..2 {
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                cmd("FLUSHDB").query_async::<()>(&mut connection).await.unwrap();
                nodes.push(Arc::new(Redis { gate: VersionGate::new(tombstones), connection }));
            }
            nodes.try_into().ok().unwrap()
        })
    },
};

struct Redis {
    gate: VersionGate,
    connection: MultiplexedConnection,
}

/// What an object holds, in words.
fn value(state: &State) -> Vec<u8> {
    format!("what {state:?} stands for").into_bytes()
}

#[async_trait]
impl Objects for Redis {
    async fn apply(&self, object: &ObjectKey, state: &State, settles: Option<&State>) -> Verdict {
        let (mut connection, value) = (self.connection.clone(), value(state));
        let verdict = match settles {
            None => self.gate.advance(&mut connection, object, state, &value).await,
            Some(held) => self.gate.settle(&mut connection, object, held, (state, &value)).await,
        };
        verdict.unwrap()
    }

    async fn fail(&self, _: &ObjectKey, _: &State) {
        panic!("in Redis the verdict is the write");
    }

    async fn written(&self, object: &ObjectKey) -> Option<State> {
        let stored = self.gate.stored(&mut self.connection.clone(), object).await.unwrap();
        let Stored { state, value: held } = stored?;
        let expected = if state.content == Content::Deleted { Vec::new() } else { value(&state) };
        assert_eq!(held, expected, "value and version are of one state");
        Some(state)
    }

    async fn forgotten(&self, object: &ObjectKey) {
        while self.written(object).await.is_some() {}
    }
}
