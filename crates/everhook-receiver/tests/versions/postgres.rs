//! Objects in a table of PostgreSQL, in one transaction with the gate.

#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "reads what the test command hands over, and fails without it"
)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_receiver::version::postgres::tokio_postgres::{Client, NoTls, Transaction};
use everhook_receiver::version::postgres::{VersionGate, migrate};
use everhook_receiver::version::{Content, ObjectKey, State, Verdict, Version};
use tokio::sync::Mutex;

use crate::{Kind, Objects};

/// The variable that names the server.
const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";
/// More than there are tasks at a time, so that their transactions meet in the database.
const CONNECTIONS: usize = 4;

/// Each database is a schema of its own, which is gone with the server.
pub(crate) const KIND: Kind = Kind {
    name: "postgres",
    can_fail: true,
    create: |number, tombstones, runtime| {
        let url = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
            panic!("{URL_VARIABLE} is not set: it must be the URL of a PostgreSQL for tests")
        });
        let schema = format!("versions_{}_{number}", std::process::id());
        runtime.block_on(async {
            let first = connect(&url).await;
            first.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
            let joint = if url.contains('?') { '&' } else { '?' };
            let url = format!("{url}{joint}options=-csearch_path%3D{schema}");
            let mut nodes: Vec<Arc<dyn Objects>> = Vec::new();
            for _ in 0..2 {
                nodes.push(Arc::new(Postgres::open(&url, tombstones).await));
            }
            nodes.try_into().ok().unwrap()
        })
    },
};

async fn connect(url: &str) -> Client {
    let (client, connection) =
        everhook_receiver::version::postgres::tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

struct Postgres {
    gate: VersionGate,
    clients: Vec<Mutex<Client>>,
    next: std::sync::atomic::AtomicUsize,
}

impl Postgres {
    async fn open(url: &str, tombstones: Duration) -> Self {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = connect(url).await;
            migrate(&mut client).await.unwrap();
            clients.push(Mutex::new(client));
        }
        let things = "CREATE TABLE IF NOT EXISTS things
             (object bytea PRIMARY KEY, version bigint NOT NULL, content bytea)";
        clients[0].lock().await.batch_execute(things).await.unwrap();
        Self { gate: VersionGate { tombstones }, clients, next: 0.into() }
    }

    /// One connection after the other.
    fn client(&self) -> &Mutex<Client> {
        let next = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        &self.clients[next % CONNECTIONS]
    }
}

async fn put(tx: &Transaction<'_>, object: &ObjectKey, state: &State) {
    let content = match &state.content {
        Content::Of(hash) => Some(&hash[..]),
        Content::Deleted => None,
    };
    let put = "INSERT INTO things VALUES ($1, $2, $3)
         ON CONFLICT (object) DO UPDATE SET version = $2, content = $3";
    tx.execute(put, &[&&object.0[..], &state.version.0, &content]).await.unwrap();
}

#[async_trait]
impl Objects for Postgres {
    async fn apply(&self, object: &ObjectKey, state: &State, settles: Option<&State>) -> Verdict {
        let mut client = self.client().lock().await;
        let tx = client.transaction().await.unwrap();
        let verdict = match settles {
            None => self.gate.advance_in(&tx, object, state).await,
            Some(held) => self.gate.settle_in(&tx, object, held, state).await,
        };
        let verdict = verdict.unwrap();
        if verdict == Verdict::Fresh {
            put(&tx, object, state).await;
        }
        tx.commit().await.unwrap();
        verdict
    }

    async fn fail(&self, object: &ObjectKey, state: &State) {
        let mut client = self.client().lock().await;
        let tx = client.transaction().await.unwrap();
        let verdict = self.gate.advance_in(&tx, object, state).await.unwrap();
        assert_eq!(verdict, Verdict::Fresh);
        tx.rollback().await.unwrap();
    }

    async fn written(&self, object: &ObjectKey) -> Option<State> {
        let client = self.client().lock().await;
        let find = "SELECT version, content FROM things WHERE object = $1";
        let row = client.query_opt(find, &[&&object.0[..]]).await.unwrap()?;
        let content: Option<Vec<u8>> = row.get(1);
        let content =
            content.map_or(Content::Deleted, |hash| Content::Of(hash.try_into().ok().unwrap()));
        Some(State { version: Version(row.get(0)), content })
    }

    async fn forgotten(&self, _: &ObjectKey) {
        let client = self.client().lock().await;
        assert_eq!(self.gate.clean(&*client, 10).await.unwrap(), 1);
    }
}
