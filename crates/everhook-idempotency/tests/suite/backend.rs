//! The stores that the suite runs on.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use everhook_idempotency::store::Store;
use everhook_idempotency::store::memory::MemoryStore;
use tokio::runtime::Runtime;

use crate::{Case, acceptance};

/// Numbers the databases of this process.
static DATABASES: AtomicU32 = AtomicU32::new(1);

/// The address of a database, and what removes it when it is dropped.
type Database = (String, Box<dyn Any>);

/// A kind of store.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// The first part of its cases' names.
    pub(crate) name: &'static str,
    /// Cases that only this kind has.
    pub(crate) own: fn() -> Vec<Case>,
    /// Makes an empty database with this number.
    pub(crate) create: fn(u32, &Runtime) -> Database,
    /// A node on the database at this address.
    pub(crate) open: fn(&str, &Runtime) -> Arc<dyn Store>,
}

/// One database and two nodes on it, as two processes would be.
pub(crate) struct Backend {
    pub(crate) address: String,
    pub(crate) nodes: [Arc<dyn Store>; 2],
    pub(crate) runtime: Runtime,
    _database: Box<dyn Any>,
}

impl Kind {
    /// An empty database of this kind.
    pub(crate) fn create(self) -> Backend {
        let runtime = runtime();
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let (address, database) = (self.create)(number, &runtime);
        let nodes = [(self.open)(&address, &runtime), (self.open)(&address, &runtime)];
        Backend { address, nodes, runtime, _database: database }
    }
}

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The kind of this name.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) fn kind(name: &str) -> Kind {
    kinds().into_iter().find(|kind| kind.name == name).expect("a kind of store")
}

/// Every kind that this build has.
pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        MEMORY,
        #[cfg(feature = "sqlite")]
        sqlite::KIND,
        #[cfg(feature = "postgres")]
        postgres::KIND,
        #[cfg(feature = "redis")]
        redis::KIND,
    ]
}

const MEMORY: Kind = Kind {
    name: "memory",
    own: acceptance::own_cases,
    create: |number, _| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        memories().lock().unwrap().insert(number, store);
        (number.to_string(), Box::new(()))
    },
    open: |address, _| Arc::clone(&memories().lock().unwrap()[&address.parse::<u32>().unwrap()]),
};

type Memories = std::sync::Mutex<std::collections::HashMap<u32, Arc<dyn Store>>>;

fn memories() -> &'static Memories {
    static MEMORIES: std::sync::OnceLock<Memories> = std::sync::OnceLock::new();
    MEMORIES.get_or_init(Memories::default)
}

/// Removes a folder when it is dropped.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
impl Folder {
    pub(crate) fn create(number: u32) -> Self {
        let name = format!("everhook-idempotency-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::{Arc, Folder, Kind, Store};
    use crate::{crash, transaction};
    use everhook_idempotency::store::sqlite::SqliteStore;

    pub(super) const KIND: Kind = Kind {
        name: "sqlite",
        own: || {
            let cases = [transaction::sqlite_cases(), crash::cases(), crash::transaction_cases()];
            cases.into_iter().flatten().collect()
        },
        create: |number, _| {
            let folder = Folder::create(number);
            let address = folder.0.join("keys.db").to_str().unwrap().to_owned();
            (address, Box::new(folder))
        },
        open: |address, _| -> Arc<dyn Store> { Arc::new(SqliteStore::open(address).unwrap()) },
    };
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{Arc, Kind, Runtime, Store};
    use crate::{crash, transaction};
    use everhook_idempotency::store::postgres::PostgresStore;
    use everhook_idempotency::store::postgres::tokio_postgres::NoTls;

    /// The variable that names the server.
    const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";
    const CONNECTIONS_MAX: usize = 4;

    /// Each database is a schema of its own, which is gone with the server.
    pub(super) const KIND: Kind = Kind {
        name: "postgres",
        own: || {
            let cases = [transaction::postgres_cases(), crash::cases(), crash::transaction_cases()];
            cases.into_iter().flatten().collect()
        },
        create: |number, runtime| {
            let url = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
                panic!("{URL_VARIABLE} is not set: it must be the URL of a PostgreSQL for tests")
            });
            let schema = format!("idempotency_{}_{number}", std::process::id());
            let client = runtime.block_on(transaction::connect(&url));
            runtime.block_on(client.batch_execute(&format!("CREATE SCHEMA {schema}"))).unwrap();
            let joint = if url.contains('?') { '&' } else { '?' };
            let named = format!("options=-csearch_path%3D{schema}&application_name={schema}");
            (format!("{url}{joint}{named}"), Box::new(()))
        },
        open: |address, runtime: &Runtime| -> Arc<dyn Store> {
            let store = PostgresStore::new(address.parse().unwrap(), NoTls, CONNECTIONS_MAX);
            runtime.block_on(store.migrate()).unwrap();
            Arc::new(store)
        },
    };
}

#[cfg(feature = "redis")]
mod redis {
    use super::{Arc, Kind, Store};
    use crate::world::{Node, numbered, recovered};
    use crate::{case, crash};
    use everhook_idempotency::Settings;
    use everhook_idempotency::store::redis::RedisStore;
    use everhook_idempotency::store::redis::redis::{Client, cmd};

    /// The variable that names the server.
    const URL_VARIABLE: &str = "EVERHOOK_TEST_REDIS";

    /// Each database is a number of the server, which the test command gives enough of.
    pub(super) const KIND: Kind = Kind {
        name: "redis",
        own: || {
            let mut cases = crash::cases();
            cases.push(case(connections_that_are_cut_are_replaced));
            cases
        },
        create: |number, runtime| {
            let url = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
                panic!("{URL_VARIABLE} is not set: it must be the URL of a Redis for tests")
            });
            let address = format!("{}/{number}", url.trim_end_matches('/'));
            runtime.block_on(async {
                let client = Client::open(address.as_str()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                cmd("FLUSHDB").query_async::<()>(&mut connection).await.unwrap();
            });
            (address, Box::new(()))
        },
        open: |address, runtime| -> Arc<dyn Store> {
            let client = Client::open(address).unwrap();
            Arc::new(runtime.block_on(RedisStore::connect(client)).unwrap())
        },
    };

    fn connections_that_are_cut_are_replaced(kind: Kind) {
        let world = kind.create();
        let node = Node::new(&world.nodes[0], Settings::default(), numbered());
        let database = format!("db={}", world.address.rsplit('/').next().unwrap());
        world.runtime.block_on(async {
            node.post("1").await.expect(201, "1", false);
            let (root, _) = world.address.rsplit_once('/').unwrap();
            let client = Client::open(root).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let listed: String =
                cmd("CLIENT").arg("LIST").query_async(&mut connection).await.unwrap();
            let own = listed.lines().filter(|line| line.split(' ').any(|word| word == database));
            let ids: Vec<&str> = own
                .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("id=")))
                .collect();
            assert!(!ids.is_empty(), "{listed}");
            for id in ids {
                let mut kill = cmd("CLIENT");
                let kill = kill.arg("KILL").arg("ID").arg(id);
                kill.query_async::<i64>(&mut connection).await.unwrap();
            }
            recovered(&node).await;
            node.post("1").await.expect(201, "1", true);
        });
    }
}
