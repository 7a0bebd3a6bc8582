//! A route that stores what comes and answers at once, and a worker that processes it. Here in a
//! SQLite file; `PostgresInbox` is used in the same way.
//!
//! `cargo run -p everhook-receiver --features axum,sqlite --example inbox -- FILE`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use everhook_receiver::Verifier;
use everhook_receiver::inbox::sqlite::SqliteInbox;
use everhook_receiver::inbox::{Inbox, InboxService, Job, Worker, WorkerSettings};
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tower_service::Service as _;

/// A secret as GitHub has it: any text.
const SECRET: &str = "It's a Secret to Everybody";
/// What GitHub would send for it with these bytes, by its documentation.
const SIGNATURE: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
const BODY: &str = "Hello, World!";

/// Sends one webhook twice; returns how often it was processed.
pub(crate) async fn run(file: &str) -> Result<u32, Box<dyn Error>> {
    let inbox: Arc<dyn Inbox> = Arc::new(SqliteInbox::open(file)?);
    let verifier = Verifier::new("github", [SECRET])?;
    let service = InboxService::new(verifier, Arc::clone(&inbox));
    let mut route: Router = Router::new().route_service("/hooks/github", service);

    // The worker: any number of them, here or in other processes.
    let (ran, stop, done) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()), Notify::new());
    let (counting, stopping, telling) = (Arc::clone(&ran), Arc::clone(&stop), Arc::new(done));
    let done = Arc::clone(&telling);
    let handler = move |job: Job| {
        let (ran, done) = (Arc::clone(&counting), Arc::clone(&telling));
        async move {
            tracing::info!(key = %job.key, job.attempt, "processing");
            ran.fetch_add(1, Ordering::SeqCst);
            done.notify_one();
            Ok::<(), String>(())
        }
    };
    let worker = Worker::new(inbox, WorkerSettings::default());
    let mut workers = JoinSet::new();
    workers.spawn(async move { worker.run(handler, stopping.notified()).await });

    for _ in 0..2 {
        let request = Request::post("/hooks/github")
            .header("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
            .header("x-hub-signature-256", SIGNATURE);
        let answer = route.call(request.body(Body::from(BODY))?).await?;
        assert_eq!(answer.status(), StatusCode::OK);
    }
    done.notified().await;
    // An orderly stop: what is being worked on is finished.
    stop.notify_one();
    workers.join_all().await;
    Ok(ran.load(Ordering::SeqCst))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("name a file that is not there yet")?;
    assert_eq!(run(&file).await?, 1);
    Ok(())
}
