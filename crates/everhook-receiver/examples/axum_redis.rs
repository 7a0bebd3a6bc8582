//! A verified route whose events are deduplicated in Redis.
//!
//! `cargo run -p everhook-receiver --features axum,redis --example axum_redis -- URL`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use everhook_receiver::store::redis::RedisStore;
use everhook_receiver::store::redis::redis::Client;
use everhook_receiver::{Verifier, Webhook, WebhookLayer};
use http::{Request, StatusCode};
use tower_service::Service as _;

/// A secret as GitHub has it: any text.
const SECRET: &str = "It's a Secret to Everybody";
/// What GitHub would send for it with these bytes, by its documentation.
const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const BODY: &str = "Hello, World!";

/// The route: everything that a service has to write.
async fn route(url: &str, ran: Arc<AtomicU32>) -> Result<Router, Box<dyn Error>> {
    let store = Arc::new(RedisStore::connect(Client::open(url)?).await?);
    let verifier = Verifier::new("github", [SECRET])?;
    let handler = async move |webhook: Webhook| {
        for event in webhook.events() {
            tracing::info!(%event.key, event.event_type, "processing");
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    let hooks = Router::new().route("/hooks/github", post(handler));
    Ok(hooks.route_layer(WebhookLayer::new(verifier, store)))
}

/// Sends one webhook twice; returns how often the handler ran.
pub(crate) async fn run(url: &str) -> Result<u32, Box<dyn Error>> {
    let ran = Arc::new(AtomicU32::new(0));
    let mut route = route(url, Arc::clone(&ran)).await?;
    for _ in 0..2 {
        let request = Request::post("/hooks/github")
            .header("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
            .header("x-github-event", "issues")
            .header("x-hub-signature-256", SIGNATURE);
        let answer = route.call(request.body(Body::from(BODY))?).await?;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    Ok(ran.load(Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name an empty database as redis://…")?;
    assert_eq!(run(&url).await?, 1);
    Ok(())
}
