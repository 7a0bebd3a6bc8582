//! An order and the answer to its request, in one SQLite transaction.
//!
//! `cargo run -p everhook-idempotency --features sqlite --example sqlite -- FILE`

use std::error::Error;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};
use everhook_idempotency::store::StoreError;
use everhook_idempotency::store::sqlite::rusqlite::Connection;
use everhook_idempotency::store::sqlite::{SqliteStore, finish_in};
use everhook_idempotency::{
    AccountOf, Answer, Claim, FinishError, IdempotencyLayer, Lapse, Settings,
};
use http::{HeaderMap, Request, StatusCode};
use tower_service::Service as _;

/// The order and its answer commit together, or neither is there.
fn order(file: &str, claim: &Claim) -> Result<Answer, FinishError> {
    let mut shop = Connection::open(file).map_err(StoreError::from)?;
    let tx = shop.transaction().map_err(StoreError::from)?;
    tx.execute("INSERT INTO orders DEFAULT VALUES", []).map_err(StoreError::from)?;
    let body = format!("order {}", tx.last_insert_rowid());
    let answer = Answer::remember(201, &HeaderMap::new(), body.into_bytes());
    finish_in(&tx, claim, &answer)?;
    tx.commit().map_err(StoreError::from)?;
    Ok(answer)
}

async fn sell(file: Arc<str>, claim: Claim) -> Response {
    let own = claim.clone();
    match tokio::task::spawn_blocking(move || order(&file, &own)).await {
        Ok(Ok(answer)) => (StatusCode::CREATED, answer.body).into_response(),
        Ok(Err(_)) | Err(_) => {
            // Rolled back; if it was committed after all, the layer finds the answer.
            claim.nothing_happened();
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Orders twice with one key in this file; returns how many orders there are.
pub(crate) async fn run(file: &str) -> Result<i64, Box<dyn Error>> {
    let shop = Connection::open(file)?;
    shop.execute_batch("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")?;
    let settings = Settings { lapse: Lapse::Rerun, ..Settings::default() };
    let store = Arc::new(SqliteStore::open(file)?);
    let once = IdempotencyLayer::new(store, AccountOf::everybody(), settings)?;
    let name: Arc<str> = file.into();
    let mut router: Router = Router::new()
        .route("/orders", post(move |Extension(claim): Extension<Claim>| sell(name, claim)))
        .route_layer(once);
    for replayed in [false, true] {
        let request = Request::post("/orders").header("idempotency-key", "a-random-key");
        let answer = router.call(request.body(Body::from("{}"))?).await?;
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replayed);
    }
    Ok(shop.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("name a file that is not there yet")?;
    assert_eq!(run(&file).await?, 1);
    Ok(())
}
