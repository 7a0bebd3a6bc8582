//! The layer that makes a route a verified one that processes each event once.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use everhook_domain::time::Clock;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower_layer::Layer;
use tower_service::Service;

use crate::answer::{self, Refusal};
use crate::door::{Door, Fetch, Opened};
use crate::once::{Admitted, Claim, Once, OnceSettings};
use crate::patience::patience;
use crate::store::Store;
use crate::tasks::Tasks;
use crate::verify::Verifier;
use crate::webhook::Webhook;

/// Verifies what comes to a route, and lets the handler run for events that were not processed.
///
/// The handler finds a [`Webhook`] in the extensions of its request. With a 2xx it says that the
/// events are processed; with anything else, or a panic, it gives them back, and the sender's next
/// attempt runs it again. It runs in a task of its own, so a sender that hangs up ends nothing.
///
/// | a request | answer |
/// | --- | --- |
/// | new | the handler's own |
/// | all of whose events were processed | 200 `{"status":"duplicate"}`, or as the kind has it |
/// | one of whose events somebody is at work on | 503 with `Retry-After`, so that it comes again |
/// | that does not verify, or is stale | 401, or `options.reject_status` |
/// | larger than `options.body_max` (25 MiB) | 413 |
/// | while the store is away, or work could not be recorded | 503 with `Retry-After` |
///
/// 503 and not 409, since some providers never repeat what is answered with a 4xx.
#[derive(Clone, Debug)]
pub struct WebhookLayer {
    door: Door,
    once: Option<Once>,
    tasks: Arc<Tasks>,
}

impl WebhookLayer {
    /// A layer that deduplicates in this store, with receipts for as long as the verifier's
    /// [`keep`](Verifier::keep).
    pub fn new(verifier: Verifier, store: Arc<dyn Store>) -> Self {
        let settings = OnceSettings { keep: verifier.keep(), ..OnceSettings::default() };
        Self::with_settings(verifier, store, settings)
    }

    /// A layer that deduplicates in this store.
    pub fn with_settings(
        verifier: Verifier,
        store: Arc<dyn Store>,
        settings: OnceSettings,
    ) -> Self {
        let once = Some(Once::new(store, settings));
        Self { door: Door::new(verifier), once, tasks: Arc::default() }
    }

    /// A layer that only verifies: the handler deduplicates, with `claim_in` of a store, in the
    /// transaction of its work.
    pub fn verifying(verifier: Verifier) -> Self {
        Self { door: Door::new(verifier), once: None, tasks: Arc::default() }
    }

    /// The same with something that fetches certificates: for `aws_sns` and `paypal`.
    #[must_use]
    pub fn fetching(mut self, fetch: Arc<dyn Fetch>) -> Self {
        self.door.fetch = Some(fetch);
        self
    }

    /// The same by another clock, of which it reads the time on the wall: for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.door.clock = clock;
        self
    }

    /// Waits until no handler runs: the last step of an orderly stop, after the server takes no
    /// more requests.
    pub async fn drain(&self) {
        self.tasks.drain().await;
    }
}

impl<S> Layer<S> for WebhookLayer {
    type Service = WebhookService<S>;

    fn layer(&self, inner: S) -> WebhookService<S> {
        WebhookService { inner, layer: self.clone() }
    }
}

/// A service behind a [`WebhookLayer`].
#[derive(Clone, Debug)]
pub struct WebhookService<S> {
    inner: S,
    layer: WebhookLayer,
}

impl<S, B, R> Service<Request<B>> for WebhookService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: From<Bytes> + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let other = self.inner.clone();
        // The one that was found ready is the one that is called.
        let inner = std::mem::replace(&mut self.inner, other);
        let layer = self.layer.clone();
        Box::pin(async move {
            let opened = match layer.door.open(request).await {
                Ok(opened) => opened,
                Err(answer) => return Ok(answer.map(R::from)),
            };
            let (answer, answered) = oneshot::channel();
            let tasks = Arc::clone(&layer.tasks);
            tasks.spawn(async move {
                // A sender that hung up is told nothing, and its event is processed.
                let _hung_up = answer.send(run(&layer, inner, opened).await);
            });
            answered.await.unwrap_or_else(|_| Ok(Refusal::Broken.response().map(R::from)))
        })
    }
}

/// Runs a request to its end, whoever still waits for it.
async fn run<S, B, R>(
    layer: &WebhookLayer,
    inner: S,
    opened: Opened,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: From<Bytes> + Send + 'static,
    R: From<Bytes> + Send + 'static,
{
    let Opened { parts, body, mut events } = opened;
    let claim = match &layer.once {
        None => None,
        Some(once) => match once.claim(&events).await {
            Ok(Admitted::Run(claim)) => Some(claim),
            Ok(Admitted::Duplicate) => {
                return Ok(answer::success(&layer.door.verifier, true).map(R::from));
            }
            Ok(Admitted::InProgress) => return Ok(Refusal::InProgress.response().map(R::from)),
            Err(error) => {
                tracing::error!(%error, "a webhook was refused");
                return Ok(Refusal::StoreAway.response().map(R::from));
            }
        },
    };
    if let Some(claim) = &claim {
        events.clone_from(&claim.events);
    }
    let keep = layer.door.verifier.keep();
    let webhook = Webhook { events: events.into(), body: body.clone(), keep };
    let mut request = Request::from_parts(parts, B::from(body));
    request.extensions_mut().insert(webhook);
    let handler = handle(inner, request, &layer.door.verifier);
    match claim {
        None => answered(handler.await),
        Some(claim) => {
            let outcome = claim.during(handler).await;
            conclude(&claim, outcome).await
        }
    }
}

/// What a handler came to; `None`: it panicked.
type Outcome<R, E> = Option<Result<Response<R>, E>>;

/// Runs the handler within a task's reach, as it may panic, and tells when its sender's patience
/// is nearly over.
async fn handle<S, B, R>(
    mut inner: S,
    request: Request<B>,
    verifier: &Verifier,
) -> Outcome<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Send + 'static,
{
    let mut handler = JoinSet::new();
    handler.spawn(async move { inner.call(request).await });
    let patience = patience(verifier.kind());
    let ended = tokio::select! {
        ended = handler.join_next() => ended,
        () = tokio::time::sleep(patience * 4 / 5) => {
            let (source, patience_s) = (verifier.source(), patience.as_secs());
            tracing::warn!(
                source, patience_s,
                "a handler takes nearly as long as its sender waits; ack first and work later"
            );
            handler.join_next().await
        }
    };
    ended.and_then(Result::ok)
}

fn answered<R: From<Bytes>, E>(outcome: Outcome<R, E>) -> Result<Response<R>, E> {
    outcome.unwrap_or_else(|| Ok(Refusal::Broken.response().map(R::from)))
}

/// Marks or gives back what a handler ran for. A success is answered after it is recorded.
async fn conclude<R: From<Bytes>, E>(
    claim: &Claim,
    outcome: Outcome<R, E>,
) -> Result<Response<R>, E> {
    let has_succeeded = matches!(&outcome, Some(Ok(response)) if response.status().is_success());
    if !has_succeeded {
        claim.release().await;
        return answered(outcome);
    }
    match claim.finish().await {
        Ok(true) => answered(outcome),
        Ok(false) => {
            tracing::warn!("a handler took longer than its lease, and another has its events");
            Ok(Refusal::InProgress.response().map(R::from))
        }
        Err(error) => {
            tracing::error!(%error, "a handler has succeeded, and that could not be recorded");
            Ok(Refusal::StoreAway.response().map(R::from))
        }
    }
}
