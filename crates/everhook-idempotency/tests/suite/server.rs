//! A small server to be killed: this very program, started with `serve`.
//!
//! It sells one order a request, either *apart* from its key (a line in a file, as a call to
//! somebody else would be) or *together* with it (a row in the store's own database). At one named
//! step it says so and goes no further.

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use everhook_idempotency::store::Store;
use everhook_idempotency::{Answer, Claim, Lapse, Settings};
use http::{HeaderMap, Request, Response};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::process::{Signal, getpid, kill_process};
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::backend::{kind, runtime};
use crate::hooked::{Hook, Hooked};
use crate::world::{Node, claim, handler, text};

/// The lease of the server's keys.
pub(crate) const LEASE: Duration = Duration::from_millis(500);

/// How a server is started: the words after `serve`.
#[derive(Clone, Debug)]
pub(crate) struct Serve {
    /// The kind of store, and where it is.
    pub(crate) kind: String,
    pub(crate) address: String,
    /// `apart`, `together`, or `none` for a handler that says that nothing happened.
    pub(crate) effect: String,
    /// `unknown` or `rerun`.
    pub(crate) lapse: String,
    /// The step at which it goes no further, or `none`; after `stop:` it stops itself as a whole,
    /// and goes on when it is continued.
    pub(crate) halt: String,
    /// The file of orders that are apart.
    pub(crate) ledger: String,
}

impl Serve {
    pub(crate) fn words(&self) -> [&str; 7] {
        let Self { kind, address, effect, lapse, halt, ledger } = self;
        ["serve", kind, address, effect, lapse, halt, ledger]
    }
}

/// Serves until it is killed, if the program was started to.
pub(crate) fn serve_if_asked() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [serve, kind, address, effect, lapse, halt, ledger] =
        <[String; 7]>::try_from(words).ok()?;
    (serve == "serve").then_some(())?;
    let serve = Serve { kind, address, effect, lapse, halt, ledger };
    let runtime = runtime();
    let store = (kind_of(&serve).open)(&serve.address, &runtime);
    runtime.block_on(run(serve, store));
    Some(ExitCode::SUCCESS)
}

fn kind_of(serve: &Serve) -> crate::backend::Kind {
    kind(&serve.kind)
}

/// Tells whoever started us.
fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{word}").unwrap();
    out.flush().unwrap();
}

/// Goes no further if this is the step.
async fn reach(halt: &str, step: &str) {
    if halt == step {
        say("halted");
        std::future::pending::<()>().await;
    }
    if halt.strip_prefix("stop:") == Some(step) {
        let continued = SignalKind::from_raw(Signal::CONT.as_raw());
        let mut continued = tokio::signal::unix::signal(continued).unwrap();
        say("halted");
        kill_process(getpid(), Signal::STOP).unwrap();
        // A thread may run on for a moment after it has asked, and must not get into a transaction.
        continued.recv().await.unwrap();
    }
}

async fn run(serve: Serve, store: Arc<dyn Store>) {
    let halt = serve.halt.clone();
    let hook: Hook = Arc::new(move |step| {
        let halt = halt.clone();
        Box::pin(async move {
            reach(&halt, step).await;
            // A process that stands still does not renew; nor may it hold the database's own lock.
            if halt.starts_with("stop:") && step == "renew:before" {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    });
    let store: Arc<dyn Store> = Arc::new(Hooked { inner: store, hook });
    let lapse = if serve.lapse == "rerun" { Lapse::Rerun } else { Lapse::Unknown };
    let settings = Settings { lapse, lease: LEASE, ..Settings::default() };
    let serve = Arc::new(serve);
    let selling = handler(move |request, _| {
        let (serve, claim) = (Arc::clone(&serve), claim(&request));
        async move { sell(&serve, &claim).await }
    });
    let node = Node::new(&store, settings, selling);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    say(&listener.local_addr().unwrap().to_string());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = node.layer.layer(node.shop.clone());
        tokio::spawn(async move {
            let answering = service_fn(move |request: Request<hyper::body::Incoming>| {
                let mut service = service.clone();
                async move { service.call(request.map(Body::new)).await }
            });
            let http = hyper::server::conn::http1::Builder::new();
            let _client_gone = http.serve_connection(TokioIo::new(stream), answering).await;
        });
    }
}

async fn sell(serve: &Serve, claim: &Claim) -> Response<Body> {
    reach(&serve.halt, "effect:before").await;
    // Where a renewal is the step, it is waited for.
    if serve.halt.starts_with("renew") {
        std::future::pending::<()>().await;
    }
    let sold = match serve.effect.as_str() {
        "apart" => {
            note(Path::new(&serve.ledger));
            true
        }
        "none" => false,
        _ => together(serve, claim).await,
    };
    reach(&serve.halt, "effect:after").await;
    if sold {
        return text(201, "sold");
    }
    claim.nothing_happened();
    text(500, "nothing happened")
}

/// One order in the file, on the disk.
fn note(ledger: &Path) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger).unwrap();
    file.write_all(b"order\n").unwrap();
    file.sync_all().unwrap();
}

type Sold<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

fn together<'a>(serve: &'a Serve, claim: &'a Claim) -> Sold<'a> {
    let answer = Answer::remember(201, &HeaderMap::new(), b"sold".to_vec());
    match serve.kind.as_str() {
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::pin(async move {
            use crate::transaction::{Orders, sqlite};
            sqlite::Orders::at(&serve.address).order(claim, &answer, true).await.is_ok()
        }),
        #[cfg(feature = "postgres")]
        "postgres" => Box::pin(async move {
            use crate::transaction::{Orders, postgres};
            postgres::Orders::at(&serve.address).order(claim, &answer, true).await.is_ok()
        }),
        other => panic!("{other} has no transactions of handlers: {claim:?} {answer:?}"),
    }
}
