//! The stores that the suite runs on.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use everhook_receiver::inbox::Inbox;
use everhook_receiver::store::Store;
use everhook_receiver::store::memory::MemoryStore;
use tokio::runtime::Runtime;

use crate::{Case, examples};

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
    create: fn(u32, &Runtime) -> Database,
    /// A node on the database at this address.
    pub(crate) open: fn(&str, &Runtime) -> Arc<dyn Store>,
    /// The inbox there, of a kind that has one.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) inbox: fn(&str, &Runtime) -> Arc<dyn Inbox>,
    /// Whether a receipt goes by itself when its time is over.
    pub(crate) forgets_by_itself: bool,
}

/// One database and two nodes on it, as two processes would be.
pub(crate) struct Backend {
    pub(crate) kind: Kind,
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
        Backend { kind: self, address, nodes, runtime, _database: database }
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Backend {
    /// Two inboxes on it, as two processes would have them.
    pub(crate) fn inboxes(&self) -> [Arc<dyn Inbox>; 2] {
        [(); 2].map(|()| (self.kind.inbox)(&self.address, &self.runtime))
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

#[cfg(any(feature = "sqlite", feature = "postgres"))]
const NO_INBOX: fn(&str, &Runtime) -> Arc<dyn Inbox> =
    |address, _| panic!("there is no inbox at {address}");

const MEMORY: Kind = Kind {
    name: "memory",
    own: Vec::new,
    create: |number, _| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        memories().lock().unwrap().insert(number, store);
        (number.to_string(), Box::new(()))
    },
    open: |address, _| Arc::clone(&memories().lock().unwrap()[&address.parse::<u32>().unwrap()]),
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    inbox: NO_INBOX,
    forgets_by_itself: false,
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
    pub(crate) fn create(name: &str) -> Self {
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("everhook-receiver-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A path in it, as text.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
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
    use super::{Arc, Folder, Inbox, Kind, Store, examples};
    use crate::{crash, inbox, transaction};
    use everhook_receiver::inbox::sqlite::SqliteInbox;
    use everhook_receiver::store::sqlite::SqliteStore;

    pub(super) const KIND: Kind = Kind {
        name: "sqlite",
        own: || {
            let cases = [
                crash::cases(),
                crash::transaction_cases(),
                transaction::cases(),
                inbox::cases(),
                examples::sqlite_cases(),
            ];
            cases.into_iter().flatten().collect()
        },
        create: |_, _| {
            let folder = Folder::create("sqlite");
            (folder.path("webhooks.db"), Box::new(folder))
        },
        open: |address, _| -> Arc<dyn Store> { Arc::new(SqliteStore::open(address).unwrap()) },
        inbox: |address, _| -> Arc<dyn Inbox> { Arc::new(SqliteInbox::open(address).unwrap()) },
        forgets_by_itself: false,
    };
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{Arc, Inbox, Kind, Runtime, Store, examples};
    use crate::{crash, inbox, transaction};
    use everhook_receiver::inbox::postgres::PostgresInbox;
    use everhook_receiver::store::postgres::PostgresStore;
    use everhook_receiver::store::postgres::tokio_postgres::NoTls;

    /// The variable that names the server.
    const URL_VARIABLE: &str = "EVERHOOK_TEST_POSTGRES";
    const CONNECTIONS_MAX: usize = 4;

    /// Each database is a schema of its own, which is gone with the server.
    pub(super) const KIND: Kind = Kind {
        name: "postgres",
        own: || {
            let cases = [
                crash::cases(),
                crash::transaction_cases(),
                transaction::cases(),
                inbox::cases(),
                examples::postgres_cases(),
            ];
            cases.into_iter().flatten().collect()
        },
        create: |number, runtime| {
            let url = std::env::var(URL_VARIABLE).unwrap_or_else(|_| {
                panic!("{URL_VARIABLE} is not set: it must be the URL of a PostgreSQL for tests")
            });
            let schema = format!("receiver_{}_{number}", std::process::id());
            let client = runtime.block_on(transaction::connect(&url));
            runtime.block_on(client.batch_execute(&format!("CREATE SCHEMA {schema}"))).unwrap();
            let joint = if url.contains('?') { '&' } else { '?' };
            (format!("{url}{joint}options=-csearch_path%3D{schema}"), Box::new(()))
        },
        open: |address, runtime: &Runtime| -> Arc<dyn Store> {
            let store = PostgresStore::new(address.parse().unwrap(), NoTls, CONNECTIONS_MAX);
            runtime.block_on(store.migrate()).unwrap();
            Arc::new(store)
        },
        inbox: |address, runtime: &Runtime| -> Arc<dyn Inbox> {
            let store = PostgresStore::new(address.parse().unwrap(), NoTls, CONNECTIONS_MAX);
            let inbox = PostgresInbox::new(store);
            runtime.block_on(inbox.migrate()).unwrap();
            Arc::new(inbox)
        },
        forgets_by_itself: false,
    };
}

#[cfg(feature = "redis")]
mod redis {
    use super::{Arc, Kind, Store, examples};
    use crate::{case, crash};
    use everhook_receiver::store::redis::RedisStore;
    use everhook_receiver::store::redis::redis::{Client, cmd};
    use everhook_receiver::store::{Claimed, Terms, Token};
    use everhook_receiver::{EventKey, KEEP};

    /// The variable that names the server.
    const URL_VARIABLE: &str = "EVERHOOK_TEST_REDIS";

    /// Each database is a number of the server, which the test command gives enough of.
    pub(super) const KIND: Kind = Kind {
        name: "redis",
        own: || {
            let own = vec![case(connections_that_are_cut_are_replaced)];
            [crash::cases(), examples::redis_cases(), own].into_iter().flatten().collect()
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
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        inbox: super::NO_INBOX,
        forgets_by_itself: true,
    };

    fn connections_that_are_cut_are_replaced(kind: Kind) {
        let world = kind.create();
        let store = &world.nodes[0];
        let (root, number) = world.address.rsplit_once('/').unwrap();
        let database = format!("db={number}");
        let terms = Terms { lease: KEEP, keep: KEEP };
        let (key, other) = (EventKey::new("test", "1"), EventKey::new("test", "2"));
        world.runtime.block_on(async {
            assert_eq!(store.claim(&key, Token(1), terms).await, Ok(Claimed::Yes));
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
            // What is under way meanwhile may fail; what comes afterwards does not.
            while store.claim(&other, Token(2), terms).await.is_err() {
                tokio::task::yield_now().await;
            }
            assert_eq!(store.finish(&key, Token(1)).await, Ok(true));
        });
    }
}
