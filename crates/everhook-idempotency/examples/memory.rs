//! The layer around an axum router, with its keys in memory.
//!
//! `cargo run -p everhook-idempotency --example memory`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use everhook_idempotency::store::memory::MemoryStore;
use everhook_idempotency::{AccountOf, IdempotencyLayer, Settings};
use http::Request;
use tower_service::Service as _;

/// Orders twice with one key; returns how many orders there are.
pub(crate) async fn run() -> Result<u32, Box<dyn Error>> {
    let orders = Arc::new(AtomicU32::new(0));
    let sold = Arc::clone(&orders);
    let store = Arc::new(MemoryStore::default());
    let once = IdempotencyLayer::new(store, AccountOf::everybody(), Settings::default())?;
    let sell = move || async move { format!("order {}", sold.fetch_add(1, Ordering::SeqCst) + 1) };
    let mut shop: Router = Router::new().route("/orders", post(sell)).route_layer(once);
    for replayed in [false, true] {
        let request = Request::post("/orders").header("idempotency-key", "a-random-key");
        let answer = shop.call(request.body(Body::from("{}"))?).await?;
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replayed);
    }
    Ok(orders.load(Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    assert_eq!(run().await?, 1);
    Ok(())
}
