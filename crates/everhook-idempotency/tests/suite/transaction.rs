//! Key and effect in one transaction: the handler's own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use everhook_idempotency::{Answer, Claim, FinishError, Lapse, Settings};
use http::{HeaderMap, Response};

use crate::Case;
use crate::backend::{Backend, Kind};
#[cfg(feature = "postgres")]
use crate::case;
use crate::world::{Gate, Handler, Node, claim, handler, post, settled, short, text};

/// What a database must do for these cases.
pub(crate) trait Orders: Clone + Send + Sync + 'static {
    /// The orders in the database at this address.
    fn at(address: &str) -> Self;
    /// Makes the table of orders.
    fn create(&self) -> impl Future<Output = ()> + Send;
    /// How many orders there are.
    fn count(&self) -> impl Future<Output = i64> + Send;
    /// In one transaction: one more order, and the claim finished; then commits, or not.
    fn order(
        &self,
        claim: &Claim,
        answer: &Answer,
        commit: bool,
    ) -> impl Future<Output = Result<(), FinishError>> + Send;
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_cases() -> Vec<Case> {
    cases::<sqlite::Orders>()
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres_cases() -> Vec<Case> {
    let mut cases = cases::<postgres::Orders>();
    cases.push(case(postgres::a_transaction_that_stays_open_stops_nobody_else));
    cases.push(case(postgres::connections_that_are_cut_are_replaced));
    cases
}

fn cases<O: Orders>() -> Vec<Case> {
    // The name of a generic function ends with its parameter, which is no part of the case's.
    let named = |name, run: fn(Kind)| Case { name, run: Box::new(run) };
    vec![
        named("transaction::effect_and_answer_commit_together", together::<O>),
        named("transaction::what_was_rolled_back_never_was", rolled_back::<O>),
        named("transaction::a_commit_that_nobody_heard_of_counts", unheard::<O>),
        named("transaction::a_lost_claim_rolls_back", lost::<O>),
        named("transaction::an_answer_too_large_is_a_tombstone", too_large::<O>),
        named("transaction::its_bytes_count_in_the_account", counted::<O>),
    ]
}

/// What the handler of these cases does in its first run; later ones commit and answer 201.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Commits,
    RollsBack,
    DoesNotHear,
}

fn answer(body: &str) -> Answer {
    Answer::remember(201, &HeaderMap::new(), body.as_bytes().to_vec())
}

fn respond(answer: &Answer) -> Response<Body> {
    text(answer.status, std::str::from_utf8(&answer.body).unwrap())
}

fn ordering<O: Orders>(orders: &O, first: First) -> Handler {
    let orders = orders.clone();
    handler(move |request, run| -> Pin<Box<dyn Future<Output = _> + Send>> {
        let (orders, claim) = (orders.clone(), claim(&request));
        Box::pin(async move {
            let answer = answer(&format!("order {run}"));
            let commit = run > 1 || first != First::RollsBack;
            let done = orders.order(&claim, &answer, commit).await;
            if done.is_err() || (run == 1 && first != First::Commits) {
                claim.nothing_happened();
                return text(500, "not known to be done");
            }
            respond(&answer)
        })
    })
}

fn world<O: Orders>(kind: Kind) -> (Backend, O) {
    let world = kind.create();
    let orders = O::at(&world.address);
    world.runtime.block_on(orders.create());
    (world, orders)
}

fn rerun() -> Settings {
    Settings { lapse: Lapse::Rerun, ..short() }
}

fn together<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let node = Node::new(&world.nodes[0], rerun(), ordering(&orders, First::Commits));
    world.runtime.block_on(async {
        node.post("k").await.expect(201, "order 1", false);
        node.post("k").await.expect(201, "order 1", true);
        assert_eq!(orders.count().await, 1);
        assert_eq!(node.layer.counts().remembered, 1);
    });
}

fn rolled_back<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let node = Node::new(&world.nodes[0], rerun(), ordering(&orders, First::RollsBack));
    world.runtime.block_on(async {
        node.post("k").await.expect(500, "not known to be done", false);
        assert_eq!(orders.count().await, 0);
        node.post("k").await.expect(201, "order 2", false);
        node.post("k").await.expect(201, "order 2", true);
        assert_eq!(orders.count().await, 1);
    });
}

/// The handler believes that nothing happened, and the database knows better.
fn unheard<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let node = Node::new(&world.nodes[0], rerun(), ordering(&orders, First::DoesNotHear));
    world.runtime.block_on(async {
        node.post("k").await.expect(201, "order 1", true);
        node.post("k").await.expect(201, "order 1", true);
        assert_eq!((orders.count().await, node.runs()), (1, 1));
    });
}

/// The first handler stands still until its lease is over; a second one orders.
fn lost<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let gate = Gate::closed();
    let (held, inner) = (gate.clone(), ordering(&orders, First::Commits));
    let waiting = handler(move |request, run| {
        let (gate, inner) = (held.clone(), Arc::clone(&inner));
        async move {
            if run == 1 {
                gate.pass().await;
            }
            inner(request, run).await
        }
    });
    let unrenewed = Settings { handler_max: rerun().lease, ..rerun() };
    let node = Node::new(&world.nodes[0], unrenewed.clone(), waiting);
    let other = node.beside(&world.nodes[1], unrenewed);
    world.runtime.block_on(async {
        let first = tokio::spawn(node.send(post("k", "{}")));
        gate.arrival().await;
        settled(&other, "k").await.expect(201, "order 2", false);
        gate.open(1);
        first.await.unwrap().expect(201, "order 2", true);
        assert_eq!(orders.count().await, 1);
    });
}

fn too_large<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let settings = Settings { answer_bytes_max: 3, ..rerun() };
    let node = Node::new(&world.nodes[0], settings, ordering(&orders, First::Commits));
    world.runtime.block_on(async {
        node.post("k").await.expect(201, "order 1", false);
        let problem = node.post("k").await.expect_problem(409, "answer-not-replayable");
        assert_eq!(problem["original_status"], 201);
        assert_eq!(orders.count().await, 1);
    });
}

fn counted<O: Orders>(kind: Kind) {
    let (world, orders) = world::<O>(kind);
    let settings = Settings { account_bytes_max: 60, ..rerun() };
    let node = Node::new(&world.nodes[0], settings, ordering(&orders, First::Commits));
    world.runtime.block_on(async {
        node.post("1").await.expect(201, "order 1", false);
        node.post("2").await.expect(201, "order 2", false);
        node.post("3").await.expect_problem(429, "idempotency-quota");
        assert_eq!(orders.count().await, 2);
    });
}

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite {
    use everhook_idempotency::store::StoreError;
    use everhook_idempotency::store::sqlite::finish_in;
    use everhook_idempotency::store::sqlite::rusqlite::{Connection, TransactionBehavior};

    use super::{Answer, Claim, FinishError};

    #[derive(Clone)]
    pub(crate) struct Orders(String);

    impl Orders {
        fn connect(&self) -> Connection {
            let connection = Connection::open(&self.0).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
            connection
        }
    }

    impl super::Orders for Orders {
        fn at(address: &str) -> Self {
            Self(address.to_owned())
        }

        async fn create(&self) {
            let sql = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)";
            self.connect().execute_batch(sql).unwrap();
        }

        async fn count(&self) -> i64 {
            let sql = "SELECT count(*) FROM orders";
            self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
        }

        async fn order(
            &self,
            claim: &Claim,
            answer: &Answer,
            commit: bool,
        ) -> Result<(), FinishError> {
            let mut connection = self.connect();
            let behavior = TransactionBehavior::Immediate;
            let tx = connection.transaction_with_behavior(behavior).map_err(StoreError::from)?;
            tx.execute("INSERT INTO orders DEFAULT VALUES", []).map_err(StoreError::from)?;
            finish_in(&tx, claim, answer)?;
            if commit {
                tx.commit().map_err(StoreError::from)?;
            }
            Ok(())
        }
    }
}

#[cfg(feature = "postgres")]
pub(crate) use postgres::connect;

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use std::sync::Arc;

    use everhook_idempotency::store::StoreError;
    use everhook_idempotency::store::postgres::finish_in;
    use everhook_idempotency::store::postgres::tokio_postgres::{Client, Config, NoTls};
    use tokio::task::JoinSet;

    use super::{Answer, Claim, FinishError, Orders as _, answer, respond};
    use crate::backend::Kind;
    use crate::world::{Gate, Node, claim, handler, numbered, post};

    pub(crate) async fn connect(url: &str) -> Client {
        let config: Config = url.parse().unwrap();
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    #[derive(Clone)]
    pub(crate) struct Orders(String);

    impl super::Orders for Orders {
        fn at(address: &str) -> Self {
            Self(address.to_owned())
        }

        async fn create(&self) {
            let sql = "CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY)";
            connect(&self.0).await.batch_execute(sql).await.unwrap();
        }

        async fn count(&self) -> i64 {
            let client = connect(&self.0).await;
            client.query_one("SELECT count(*) FROM orders", &[]).await.unwrap().get(0)
        }

        async fn order(
            &self,
            claim: &Claim,
            answer: &Answer,
            commit: bool,
        ) -> Result<(), FinishError> {
            let mut client = connect(&self.0).await;
            let tx = client.transaction().await.map_err(StoreError::from)?;
            let sql = "INSERT INTO orders DEFAULT VALUES";
            tx.batch_execute(sql).await.map_err(StoreError::from)?;
            finish_in(&tx, claim, answer).await?;
            if commit {
                tx.commit().await.map_err(StoreError::from)?;
            }
            Ok(())
        }
    }

    pub(super) fn connections_that_are_cut_are_replaced(kind: Kind) {
        let world = kind.create();
        let node = Node::new(&world.nodes[0], super::rerun(), numbered());
        world.runtime.block_on(async {
            node.post("1").await.expect(201, "1", false);
            // Whatever is connected through this very address.
            let client = connect(&world.address).await;
            let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                 WHERE pid <> pg_backend_pid()
                     AND application_name = current_setting('application_name')";
            client.batch_execute(sql).await.unwrap();
            crate::world::recovered(&node).await;
            node.post("1").await.expect(201, "1", true);
        });
    }

    /// The first handler holds its transaction, with the claim finished in it, far beyond its
    /// lease: the key is in use, and other keys of the account go on.
    pub(super) fn a_transaction_that_stays_open_stops_nobody_else(kind: Kind) {
        let (world, orders) = super::world::<Orders>(kind);
        let (gate, address) = (Gate::closed(), orders.0.clone());
        let held = gate.clone();
        let slow = handler(move |request, run| {
            let (gate, address, claim) = (held.clone(), address.clone(), claim(&request));
            async move {
                let answer = answer(&format!("order {run}"));
                let mut client = connect(&address).await;
                let tx = client.transaction().await.unwrap();
                tx.batch_execute("INSERT INTO orders DEFAULT VALUES").await.unwrap();
                finish_in(&tx, &claim, &answer).await.unwrap();
                if run == 1 {
                    // Renewing does not wait for what only the handler itself can end.
                    claim.save_checkpoint(b"x").await.unwrap();
                    gate.pass().await;
                }
                tx.commit().await.unwrap();
                respond(&answer)
            }
        });
        let node = Node::new(&world.nodes[0], super::rerun(), slow);
        let other = node.beside(&world.nodes[1], super::rerun());
        world.runtime.block_on(async {
            let mut first = tokio::spawn(node.send(post("k", "{}")));
            tokio::select! {
                got = &mut first => panic!("it did not get to the gate: {got:?}"),
                () = gate.arrival() => {}
            }
            for turn in 2..40 {
                let mut tries = JoinSet::new();
                let (node, key) = ([&node, &other][turn % 2].clone(), turn.to_string());
                let same = Arc::new(other.clone());
                tries.spawn(async move { same.post("k").await });
                node.post(&key).await.expect(201, &format!("order {turn}"), false);
                let got = tries.join_next().await.unwrap().unwrap();
                got.expect_problem(409, "idempotency-in-progress");
            }
            gate.open(1);
            first.await.unwrap().expect(201, "order 1", false);
            other.post("k").await.expect(201, "order 1", true);
            assert_eq!(orders.count().await, 39);
        });
    }
}
