//! A verified route whose work and receipt are one PostgreSQL transaction: exactly one effect.
//!
//! `cargo run -p everhook-receiver --features axum,postgres --example axum_postgres -- URL`

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use everhook_receiver::store::postgres::tokio_postgres::{self, Client, NoTls};
use everhook_receiver::store::postgres::{PostgresStore, claim_in};
use everhook_receiver::store::{Claimed, StoreError};
use everhook_receiver::{Verifier, Webhook, WebhookLayer};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tower_service::Service as _;

/// A secret as GitHub has it: any text.
const SECRET: &str = "It's a Secret to Everybody";
/// What GitHub would send for it with these bytes, by its documentation.
const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const BODY: &str = "Hello, World!";

/// The shop's own connection. A busier one has a pool of them.
type Shop = Arc<Mutex<Client>>;

/// All events of a request in one transaction: what is new of them is done, and all of it commits,
/// or nothing.
async fn process(shop: &Shop, webhook: &Webhook) -> Result<StatusCode, StoreError> {
    let mut shop = shop.lock().await;
    let tx = shop.transaction().await?;
    for event in webhook.events() {
        match claim_in(&tx, &event.key, webhook.keep()).await? {
            Claimed::Yes => {
                tx.execute("INSERT INTO orders DEFAULT VALUES", &[]).await?;
            }
            Claimed::Processed => {}
            // It comes again; what was done here is rolled back.
            Claimed::InProgress => return Ok(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
    tx.commit().await?;
    Ok(StatusCode::OK)
}

async fn take(shop: Shop, webhook: Webhook) -> StatusCode {
    process(&shop, &webhook).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a webhook was not processed, and comes again");
        StatusCode::SERVICE_UNAVAILABLE
    })
}

/// Sends one webhook twice to a service on this database; returns how many orders there are.
pub(crate) async fn run(url: &str) -> Result<i64, Box<dyn Error>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY)").await?;
    PostgresStore::new(url.parse()?, NoTls, 1).migrate().await?;
    let shop: Shop = Arc::new(Mutex::new(client));
    let own = Arc::clone(&shop);
    let verifier = Verifier::new("github", [SECRET])?;
    // Only verifying: the handler deduplicates.
    let mut route: Router = Router::new()
        .route("/hooks/github", post(move |webhook: Webhook| take(own, webhook)))
        .route_layer(WebhookLayer::verifying(verifier));
    for _ in 0..2 {
        let request = Request::post("/hooks/github")
            .header("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
            .header("x-hub-signature-256", SIGNATURE);
        let answer = route.call(request.body(Body::from(BODY))?).await?;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    Ok(shop.lock().await.query_one("SELECT count(*) FROM orders", &[]).await?.get(0))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("name an empty database as postgres://…")?;
    assert_eq!(run(&url).await?, 1);
    Ok(())
}
