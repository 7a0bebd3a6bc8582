//! The layer with its keys in Redis; the handler calls another service under a derived key.
//!
//! `cargo run -p everhook-idempotency --features redis --example redis -- URL`

use std::error::Error;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::routing::post;
use axum::{Extension, Router};
use everhook_idempotency::store::redis::RedisStore;
use everhook_idempotency::store::redis::redis::Client;
use everhook_idempotency::{AccountOf, Claim, IdempotencyLayer, Settings};
use http::Request;
use tower_service::Service as _;

/// What the payment service would be sent as its own `Idempotency-Key`.
async fn pay(Extension(claim): Extension<Claim>) -> String {
    claim.derived_key("charge the card")
}

/// Pays twice with one key; returns the two answers.
pub(crate) async fn run(url: &str) -> Result<[String; 2], Box<dyn Error>> {
    let store = Arc::new(RedisStore::connect(Client::open(url)?).await?);
    let once = IdempotencyLayer::new(store, AccountOf::everybody(), Settings::default())?;
    let mut router: Router = Router::new().route("/payments", post(pay)).route_layer(once);
    let mut answers = [String::new(), String::new()];
    for (replayed, body) in [false, true].into_iter().zip(&mut answers) {
        let request = Request::post("/payments").header("idempotency-key", "a-random-key");
        let answer = router.call(request.body(Body::from("{}"))?).await?;
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replayed);
        *body = String::from_utf8(to_bytes(answer.into_body(), 1_000).await?.to_vec())?;
    }
    Ok(answers)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name an empty database as redis://…")?;
    let [first, second] = run(&url).await?;
    assert_eq!(first, second);
    Ok(())
}
