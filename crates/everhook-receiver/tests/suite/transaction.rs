//! Work in a database of its own, in one transaction with the receipt of its event, or with the
//! mark of its job.

use everhook_receiver::inbox::Job;
#[cfg(feature = "postgres")]
use everhook_receiver::store::postgres::tokio_postgres;
#[cfg(feature = "sqlite")]
use everhook_receiver::store::sqlite::rusqlite;
use everhook_receiver::store::{Claimed, Terms, Token};
use everhook_receiver::{EventKey, KEEP};

use crate::backend::{Backend, Kind};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(receipt_and_work_commit_together),
        case(receipt_and_work_roll_back_together),
        case(of_transactions_at_the_same_time_one_works),
        case(a_claim_and_a_transaction_know_of_each_other),
    ]
}

/// A table of orders, of which each event makes one.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    kind: &'static str,
    address: String,
}

/// What the work is done together with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With<'a> {
    Receipt(&'a EventKey),
    Mark(&'a Job),
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    RollBack,
}

impl Orders {
    pub(crate) fn of(kind: Kind, address: &str) -> Self {
        Self { kind: kind.name, address: address.to_owned() }
    }

    /// The orders of a new database.
    pub(crate) fn create(world: &Backend) -> Self {
        let orders = Self::of(world.kind, &world.address);
        world.runtime.block_on(orders.run("CREATE TABLE orders (number INTEGER)"));
        orders
    }

    async fn run(&self, sql: &str) {
        match self.kind {
            #[cfg(feature = "sqlite")]
            "sqlite" => self.sqlite().execute_batch(sql).unwrap(),
            #[cfg(feature = "postgres")]
            "postgres" => connect(&self.address).await.batch_execute(sql).await.unwrap(),
            other => panic!("{other} has no transactions"),
        }
    }

    pub(crate) async fn count(&self) -> i64 {
        let sql = "SELECT count(*) FROM orders";
        match self.kind {
            #[cfg(feature = "sqlite")]
            "sqlite" => self.sqlite().query_row(sql, [], |row| row.get(0)).unwrap(),
            #[cfg(feature = "postgres")]
            "postgres" => connect(&self.address).await.query_one(sql, &[]).await.unwrap().get(0),
            other => panic!("{other} has no transactions"),
        }
    }

    /// One order in one transaction, if the event is new or the job its own; `step` is told how far
    /// it is.
    pub(crate) async fn order(
        &self,
        with: With<'_>,
        end: End,
        step: impl AsyncFn(&'static str),
    ) -> Claimed {
        match self.kind {
            #[cfg(feature = "sqlite")]
            "sqlite" => self.order_in_sqlite(with, end, step).await,
            #[cfg(feature = "postgres")]
            "postgres" => self.order_in_postgres(with, end, step).await,
            other => panic!("{other} has no transactions"),
        }
    }

    #[cfg(feature = "sqlite")]
    fn sqlite(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(&self.address).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
        connection
    }

    #[cfg(feature = "sqlite")]
    async fn order_in_sqlite(
        &self,
        with: With<'_>,
        end: End,
        step: impl AsyncFn(&'static str),
    ) -> Claimed {
        use everhook_receiver::inbox::sqlite::finish_in;
        use everhook_receiver::store::sqlite::claim_in;

        let mut connection = self.sqlite();
        let behavior = rusqlite::TransactionBehavior::Immediate;
        let tx = connection.transaction_with_behavior(behavior).unwrap();
        step("begun").await;
        let claimed = match with {
            With::Receipt(key) => claim_in(&tx, key, KEEP).unwrap(),
            With::Mark(job) => yes_or_lost(finish_in(&tx, job).unwrap()),
        };
        if claimed != Claimed::Yes {
            return claimed;
        }
        step("claimed").await;
        tx.execute("INSERT INTO orders VALUES (1)", []).unwrap();
        step("worked").await;
        match end {
            End::Commit => tx.commit().unwrap(),
            End::RollBack => tx.rollback().unwrap(),
        }
        step("committed").await;
        claimed
    }

    #[cfg(feature = "postgres")]
    async fn order_in_postgres(
        &self,
        with: With<'_>,
        end: End,
        step: impl AsyncFn(&'static str),
    ) -> Claimed {
        use everhook_receiver::inbox::postgres::finish_in;
        use everhook_receiver::store::postgres::claim_in;

        let mut client = connect(&self.address).await;
        let tx = client.transaction().await.unwrap();
        step("begun").await;
        let claimed = match with {
            With::Receipt(key) => claim_in(&tx, key, KEEP).await.unwrap(),
            With::Mark(job) => yes_or_lost(finish_in(&tx, job).await.unwrap()),
        };
        if claimed != Claimed::Yes {
            return claimed;
        }
        step("claimed").await;
        tx.execute("INSERT INTO orders VALUES (1)", &[]).await.unwrap();
        step("worked").await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::RollBack => tx.rollback().await.unwrap(),
        }
        step("committed").await;
        claimed
    }
}

fn yes_or_lost(is_mine: bool) -> Claimed {
    if is_mine { Claimed::Yes } else { Claimed::InProgress }
}

#[cfg(feature = "postgres")]
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// For those who do not look how far it is.
pub(crate) async fn on(_: &'static str) {}

fn key() -> EventKey {
    EventKey::new("message", "evt_1")
}

fn receipt_and_work_commit_together(kind: Kind) {
    let world = kind.create();
    let orders = Orders::create(&world);
    world.runtime.block_on(async {
        for expected in [Claimed::Yes, Claimed::Processed, Claimed::Processed] {
            let claimed = orders.order(With::Receipt(&key()), End::Commit, on).await;
            assert_eq!(claimed, expected);
            assert_eq!(orders.count().await, 1);
        }
        let receipt = world.nodes[0].receipt(&key()).await.unwrap().unwrap();
        assert!(receipt.processed_at.is_some());
    });
}

fn receipt_and_work_roll_back_together(kind: Kind) {
    let world = kind.create();
    let orders = Orders::create(&world);
    world.runtime.block_on(async {
        let claimed = orders.order(With::Receipt(&key()), End::RollBack, on).await;
        assert_eq!((claimed, orders.count().await), (Claimed::Yes, 0));
        assert_eq!(world.nodes[0].receipt(&key()).await, Ok(None));
        let claimed = orders.order(With::Receipt(&key()), End::Commit, on).await;
        assert_eq!((claimed, orders.count().await), (Claimed::Yes, 1));
    });
}

fn of_transactions_at_the_same_time_one_works(kind: Kind) {
    let world = kind.create();
    let orders = Orders::create(&world);
    // Each in a thread of its own, as a transaction of SQLite blocks it.
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let orders = orders.clone();
            std::thread::spawn(move || {
                let runtime = crate::backend::runtime();
                runtime.block_on(orders.order(With::Receipt(&key()), End::Commit, on))
            })
        })
        .collect();
    let mut claimed: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    claimed.retain(|claimed| *claimed != Claimed::Processed);
    assert_eq!(claimed, [Claimed::Yes]);
    assert_eq!(world.runtime.block_on(orders.count()), 1);
}

fn a_claim_and_a_transaction_know_of_each_other(kind: Kind) {
    let world = kind.create();
    let orders = Orders::create(&world);
    let store = &world.nodes[0];
    world.runtime.block_on(async {
        let terms = Terms { lease: std::time::Duration::from_secs(600), keep: KEEP };
        assert_eq!(store.claim(&key(), Token(1), terms).await, Ok(Claimed::Yes));
        let claimed = orders.order(With::Receipt(&key()), End::Commit, on).await;
        assert_eq!((claimed, orders.count().await), (Claimed::InProgress, 0));
        store.release(&key(), Token(1)).await.unwrap();
        let claimed = orders.order(With::Receipt(&key()), End::Commit, on).await;
        assert_eq!((claimed, orders.count().await), (Claimed::Yes, 1));
        assert_eq!(store.claim(&key(), Token(2), terms).await, Ok(Claimed::Processed));
    });
}
