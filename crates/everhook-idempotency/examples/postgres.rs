//! An order and the answer to its request, in one PostgreSQL transaction.
//!
//! `cargo run -p everhook-idempotency --features postgres --example postgres -- URL`

use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use everhook_idempotency::store::StoreError;
use everhook_idempotency::store::postgres::tokio_postgres::{self, Client, NoTls};
use everhook_idempotency::store::postgres::{PostgresStore, finish_in};
use everhook_idempotency::{
    AccountOf, Answer, Claim, FinishError, IdempotencyLayer, Lapse, Settings,
};
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tower_service::Service as _;

/// The shop's own connection. A busier one has a pool of them.
type Shop = Arc<Mutex<Client>>;

/// The order and its answer commit together, or neither is there.
async fn order(shop: &Shop, claim: &Claim) -> Result<Answer, FinishError> {
    let mut shop = shop.lock().await;
    let tx = shop.transaction().await.map_err(StoreError::from)?;
    let insert = "INSERT INTO orders DEFAULT VALUES RETURNING id";
    let id: i64 = tx.query_one(insert, &[]).await.map_err(StoreError::from)?.get(0);
    let body = format!("order {id}").into_bytes();
    let answer = Answer::remember(201, &HeaderMap::new(), body);
    finish_in(&tx, claim, &answer).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(answer)
}

async fn sell(shop: Shop, claim: Claim) -> Response {
    match order(&shop, &claim).await {
        Ok(answer) => (StatusCode::CREATED, answer.body).into_response(),
        Err(_) => {
            // Rolled back; if it was committed after all, the layer finds the answer.
            claim.nothing_happened();
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Orders twice with one key in this database; returns how many orders there are.
pub(crate) async fn run(url: &str) -> Result<i64, Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY)").await?;
    let store = PostgresStore::new(url.parse()?, NoTls, 4);
    store.migrate().await?;
    let settings = Settings { lapse: Lapse::Rerun, ..Settings::default() };
    let once = IdempotencyLayer::new(Arc::new(store), AccountOf::everybody(), settings)?;
    let shop: Shop = Arc::new(Mutex::new(client));
    let own = Arc::clone(&shop);
    let mut router: Router = Router::new()
        .route("/orders", post(move |Extension(claim): Extension<Claim>| sell(own, claim)))
        .route_layer(once);
    for replayed in [false, true] {
        let request = Request::post("/orders").header("idempotency-key", "a-random-key");
        let answer = router.call(request.body(Body::from("{}"))?).await?;
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replayed);
    }
    Ok(shop.lock().await.query_one("SELECT count(*) FROM orders", &[]).await?.get(0))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name an empty database as postgres://…")?;
    assert_eq!(run(&url).await?, 1);
    Ok(())
}
