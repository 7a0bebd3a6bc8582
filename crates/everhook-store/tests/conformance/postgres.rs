//! PostgreSQL: each database is a schema of its own on the server that the test command names.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::id::DeliveryId;
use everhook_domain::time::Timestamp;
use everhook_store::postgres::{PostgresOptions, PostgresStore};
use everhook_store::{Handoff, Store, StorePolicy};
use tokio::runtime::Handle;
use tokio_postgres::{NoTls, Row};

use crate::backend::{Backend, Kind};

/// The variable that names the server, as libpq takes it.
const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";

/// One node.
pub(crate) const KIND: Kind = Kind {
    name: "postgres",
    lease: Duration::from_secs(15),
    has_nodes: true,
    interleavings: 12,
    create: |number, runtime| {
        let schema = format!("conformance_{}_{number}", std::process::id());
        let database = Postgres { url: url(&schema), schema, runtime: runtime.handle().clone() };
        database.run(&format!("CREATE SCHEMA {}", database.schema));
        Box::new(database)
    },
};

struct Postgres {
    schema: String,
    /// With the schema as its search path.
    url: String,
    runtime: Handle,
}

/// Without a server there is no result, and that is a failure.
#[expect(clippy::disallowed_methods, reason = "the test command hands the server over")]
fn url(schema: &str) -> String {
    let Ok(url) = std::env::var(URL_VARIABLE) else {
        panic!("{URL_VARIABLE} is not set: it must be the URL of a PostgreSQL for tests");
    };
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}options=-csearch_path%3D{schema}")
}

impl Postgres {
    fn run(&self, statement: &str) -> Vec<Row> {
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
            let driven = async { connection.await.unwrap() };
            let asked = async move { client.query(statement, &[]).await.unwrap() };
            // The connection ends when the client is dropped.
            tokio::join!(driven, asked).1
        })
    }
}

impl Backend for Postgres {
    fn open(
        &mut self,
        policy: StorePolicy,
        handoff: Arc<dyn Handoff>,
        now: Timestamp,
    ) -> Arc<dyn Store> {
        let options = PostgresOptions {
            url: self.url.clone(),
            policy,
            lease: KIND.lease,
            handoff,
            new_tag: 7,
            connections_max: 8,
        };
        Arc::new(self.runtime.block_on(PostgresStore::open(options, now)).unwrap())
    }

    /// Its connections end with the store, which the caller replaces.
    fn crash(&mut self) {}

    fn multiply_endpoint(&self, count: usize) {
        self.run(&format!(
            "INSERT INTO endpoints SELECT tenant, gen_random_uuid(), state, version, created_at, \
             updated_at, settings, secrets FROM endpoints, generate_series(2, {count})"
        ));
    }

    fn late_outcomes(&self, delivery: DeliveryId) -> Vec<String> {
        let rows = self.run(&format!(
            "SELECT outcome FROM interruptions WHERE outcome IS NOT NULL \
             AND replace(delivery::text, '-', '') = '{:032x}' ORDER BY token",
            delivery.bits()
        ));
        rows.iter().map(|row| row.get(0)).collect()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.run(&format!("DROP SCHEMA {} CASCADE", self.schema));
    }
}
