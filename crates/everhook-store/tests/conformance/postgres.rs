//! PostgreSQL: each database is a schema of its own on the server that the test command names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::conversation::{Command, Conversation, ConversationStatus, NewConversation};
use everhook_domain::id::DeliveryId;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::postgres::{PostgresOptions, PostgresStore};
use everhook_store::{
    Conversations, Converse, ConverseRequest, Handoff, NoHandoff, PageRequest, Sealer, Sending,
    Store, StoreError, StorePolicy,
};
use tokio::runtime::{Handle, Runtime};
use tokio_postgres::{NoTls, Row};

use crate::backend::{Backend, Kind, RowOf};
use crate::sketch::{events, publish_in};
use crate::{Case, case, nodes, sealing};

/// The variable that names the server, as libpq takes it.
const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";

/// Connections of a node: fewer than the tasks of some cases.
const CONNECTIONS_MAX: usize = 8;

/// One node.
pub(crate) const KIND: Kind = Kind {
    name: "postgres",
    lease: Duration::from_secs(15),
    own: || [nodes::cases(), cases(), sealing::lasting_cases()].into_iter().flatten().collect(),
    interleavings: 12,
    create: |number, runtime| {
        Box::new(Postgres::create(&format!("{}_{number}", std::process::id()), runtime.handle()))
    },
};

struct Postgres {
    schema: String,
    /// With the schema as its search path.
    url: String,
    runtime: Handle,
}

fn cases() -> Vec<Case> {
    vec![
        case(a_newer_schema_is_refused),
        case(an_address_that_cannot_be_read_is_not_shown),
        case(an_unreachable_server_is_no_failure_of_ours),
        case(case_003_connections_that_are_cut_are_replaced),
        case(changes_of_conversations_are_numbered_as_they_commit),
    ]
}

/// Without a server there is no result, and that is a failure.
#[expect(clippy::disallowed_methods, reason = "the test command hands the server over")]
fn url(schema: &str) -> String {
    let Ok(url) = std::env::var(URL_VARIABLE) else {
        panic!("{URL_VARIABLE} is not set: it must be the URL of a PostgreSQL for tests");
    };
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}options=-csearch_path%3D{schema}&application_name={schema}")
}

impl Postgres {
    fn create(name: &str, runtime: &Handle) -> Self {
        let schema = format!("conformance_{name}");
        let database = Self { url: url(&schema), schema, runtime: runtime.clone() };
        database.run(&format!("CREATE SCHEMA {}", database.schema));
        database
    }

    fn options(&self) -> PostgresOptions {
        PostgresOptions {
            url: self.url.clone(),
            policy: StorePolicy::default(),
            lease: KIND.lease,
            handoff: Arc::new(NoHandoff),
            new_tag: 7,
            connections_max: CONNECTIONS_MAX,
            sealer: Sealer::default(),
        }
    }

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
        sealer: Sealer,
        now: Timestamp,
    ) -> Result<Arc<dyn Store>, String> {
        let options = PostgresOptions { policy, handoff, sealer, ..self.options() };
        let store = self.runtime.block_on(PostgresStore::open(options, now));
        Ok(Arc::new(store.map_err(|error| error.to_string())?))
    }

    /// Its connections end with the store, which the caller replaces.
    fn crash(&mut self) {}

    fn multiply_endpoint(&self, count: usize) {
        self.run(&format!(
            "INSERT INTO endpoints (tenant, id, state, version, created_at, updated_at, settings, \
             secrets) SELECT tenant, gen_random_uuid(), state, version, created_at, \
             updated_at, settings, secrets FROM endpoints, generate_series(2, {count})"
        ));
    }

    fn store_as(&self, row: RowOf, column: &str, text: &str) {
        let text = text.replace('\'', "''");
        let changed = self.run(&format!(
            "UPDATE {} SET {column} = '{text}' \
             WHERE replace(id::text, '-', '') = '{:032x}' RETURNING 1",
            row.table, row.bits
        ));
        assert_eq!(changed.len(), 1);
    }

    fn rows(&self) -> BTreeMap<String, i64> {
        let tables = self.run(&format!(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = '{}' AND tablename <> 'meta'",
            self.schema
        ));
        let count = |table: String| {
            let rows = self.run(&format!("SELECT count(*) FROM {table}"))[0].get(0);
            (table, rows)
        };
        tables.iter().map(|row| count(row.get(0))).collect()
    }

    fn stored(&self, row: RowOf) -> [String; 2] {
        let rows = self.run(&format!(
            "SELECT settings, secrets FROM {} WHERE replace(id::text, '-', '') = '{:032x}'",
            row.table, row.bits
        ));
        [rows[0].get(0), rows[0].get(1)]
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

/// When the cases of this file happen.
const NOW: Timestamp = Timestamp::from_millis(1_750_000_000_000);

fn a_newer_schema_is_refused(_: Kind) {
    let runtime = Runtime::new().unwrap();
    let database = Postgres::create("newer", runtime.handle());
    let open = || runtime.block_on(PostgresStore::open(database.options(), NOW)).map(drop);
    assert_eq!((open(), open()), (Ok(()), Ok(())));
    database.run("UPDATE meta SET value = 99 WHERE name = 'schema'");
    let Err(StoreError::Failed(why)) = open() else { panic!("it was opened") };
    assert!(why.contains("schema 99"), "{why}");
}

fn an_address_that_cannot_be_read_is_not_shown(_: Kind) {
    let runtime = Runtime::new().unwrap();
    let database = Postgres::create("address", runtime.handle());
    for url in ["postgres://user:hunter2@host:port/x", "password=hunter2 nonsense=1", "hunter2"] {
        let options = PostgresOptions { url: url.into(), ..database.options() };
        let opened = runtime.block_on(PostgresStore::open(options, NOW)).map(drop);
        let Err(error @ StoreError::Failed(_)) = opened else { panic!("{opened:?}") };
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

fn an_unreachable_server_is_no_failure_of_ours(_: Kind) {
    let runtime = Runtime::new().unwrap();
    let database = Postgres::create("unreachable", runtime.handle());
    // Nobody listens on the port of TCP multiplexers any more.
    let url = "postgres://user:hunter2@127.0.0.1:1/x".into();
    let options = PostgresOptions { url, ..database.options() };
    let opened = runtime.block_on(PostgresStore::open(options, NOW)).map(drop);
    let Err(StoreError::Unavailable(why)) = opened else { panic!("{opened:?}") };
    assert!(why.contains("refused") && !why.contains("hunter2"), "{why}");
}

/// The server ends every connection, as a restart does: each one costs at most one refusal.
fn case_003_connections_that_are_cut_are_replaced(_: Kind) {
    let runtime = Runtime::new().unwrap();
    let database = Postgres::create("cut", runtime.handle());
    let store = runtime.block_on(PostgresStore::open(database.options(), NOW)).unwrap();
    let tenant = TenantId::default_tenant();
    let publish = || runtime.block_on(store.publish(publish_in(&tenant, events(1)), None, NOW));
    publish().unwrap();
    for _ in 0..3 {
        database.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = '{}' AND pid <> pg_backend_pid()",
            database.schema
        ));
        let mut refused = 0;
        while let Err(error) = publish() {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
            refused += 1;
            assert!(refused <= CONNECTIONS_MAX);
        }
    }
}

/// A change that is held up before its commit holds up the tenant's next one: else whoever reads on
/// behind that one would never see the first.
fn changes_of_conversations_are_numbered_as_they_commit(_: Kind) {
    let runtime = Runtime::new().unwrap();
    let database = Postgres::create("numbered", runtime.handle());
    let store = runtime.block_on(PostgresStore::open(database.options(), NOW)).unwrap();
    let (store, tenant) = (Arc::new(store), TenantId::default_tenant());
    let converse = |request| {
        let (store, converse) = (Arc::clone(&store), Converse { tenant: tenant.clone(), request });
        runtime.spawn(async move {
            let outcome = store.converse(converse, None, NOW).await.unwrap().done().unwrap();
            outcome.conversation().clone()
        })
    };
    let create = || converse(ConverseRequest::Create(NewConversation::default()));
    let close = |conversation: &Conversation| {
        let command = Command::Patch { status: Some(ConversationStatus::Closed), assignee: None };
        let conversation = conversation.id;
        converse(ConverseRequest::Change { conversation, command, expected: None })
    };
    let waiting = || -> i64 {
        database.run(&format!(
            "SELECT count(*) FROM pg_stat_activity \
             WHERE application_name = '{}' AND wait_event_type = 'Lock'",
            database.schema
        ))[0]
            .get(0)
    };
    let (first, second) =
        (runtime.block_on(create()).unwrap(), runtime.block_on(create()).unwrap());
    let (holder, connection) =
        runtime.block_on(tokio_postgres::connect(&database.url, NoTls)).unwrap();
    let driven = runtime.spawn(connection);
    let lock = format!(
        "BEGIN; SELECT 1 FROM conversations \
         WHERE replace(id::text, '-', '') = '{:032x}' FOR UPDATE",
        first.id.bits()
    );
    runtime.block_on(holder.batch_execute(&lock)).unwrap();
    let held_up = close(&first);
    while waiting() < 1 {}
    let behind = close(&second);
    while waiting() < 2 && !behind.is_finished() {}
    assert!(!held_up.is_finished() && !behind.is_finished());
    runtime.block_on(holder.batch_execute("COMMIT")).unwrap();
    let ended = [runtime.block_on(held_up).unwrap(), runtime.block_on(behind).unwrap()];
    let page = PageRequest { limit: 5, after: None, scan_limit: 5 };
    let listed = runtime.block_on(store.changed_since(tenant.clone(), Some(NOW), page)).unwrap();
    assert_eq!(listed.items, ended);
    drop(holder);
    runtime.block_on(driven).unwrap().unwrap();
}
