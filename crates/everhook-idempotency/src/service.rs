//! The tower service: HTTP on both sides, and the handler in a task of its own.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use everhook_domain::idempotency::answer::{Answer, Remembered};
use everhook_domain::idempotency::claim::is_remembered;
use everhook_domain::idempotency::{Fingerprint, IdempotencyKey, Scope};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, header, response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tower_service::Service;

use crate::body::AnswerBody;
use crate::claim::Claim;
use crate::counts::count;
use crate::keys::{Admitted, Ended, Keyed, Keys};
use crate::layer::Shared;
use crate::problem::Problem;

/// The header that carries the key.
const HEADER: &str = "idempotency-key";

/// A service that runs once for each `Idempotency-Key`; made by
/// [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> IdempotencyService<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

/// What came of a service's call.
type Called<R, E> = Result<Response<AnswerBody<R>>, E>;

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
    R: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<AnswerBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Called<R, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let other = self.inner.clone();
        // The one that was found ready is the one that is called.
        let mut inner = std::mem::replace(&mut self.inner, other);
        let shared = Arc::clone(&self.shared);
        let key = match find_key(&shared.keys, &request) {
            Ok(key) => key,
            Err(problem) => return Box::pin(async move { Ok(refuse(&shared.keys, &problem)) }),
        };
        let Some(key) = key else {
            let called = inner.call(request);
            return Box::pin(async move { Ok(called.await?.map(AnswerBody::untouched)) });
        };
        Box::pin(async move {
            let (keyed, request) = match read(&shared, request, &key).await {
                Ok(read) => read,
                Err(problem) => return Ok(refuse(&shared.keys, &problem)),
            };
            let (answer, answered) = oneshot::channel();
            let owner = Arc::clone(&shared);
            shared.tasks.spawn(async move {
                // A client that hung up is told nothing, and its request runs to its end.
                let _hung_up = answer.send(run(&owner.keys, inner, keyed, request).await);
            });
            let unanswered = || Ok(Problem::Unanswered.response().map(ours));
            answered.await.unwrap_or_else(|_| unanswered())
        })
    }
}

fn ours<R>(body: Bytes) -> AnswerBody<R> {
    AnswerBody::whole(body, None)
}

fn refuse<R>(keys: &Keys, problem: &Problem) -> Response<AnswerBody<R>> {
    count(&keys.counters.invalid);
    problem.response().map(ours)
}

fn find_key<B>(keys: &Keys, request: &Request<B>) -> Result<Option<IdempotencyKey>, Problem> {
    if !keys.settings.methods.contains(request.method()) {
        return Ok(None);
    }
    let values = request.headers().get_all(HEADER).into_iter().map(|value| value.as_bytes());
    let key = IdempotencyKey::from_headers(values).map_err(Problem::InvalidKey)?;
    if key.is_none() && keys.settings.key_required {
        return Err(Problem::MissingKey);
    }
    Ok(key)
}

/// Reads the whole request: nothing is claimed for one that is not all there.
async fn read<B>(
    shared: &Shared,
    request: Request<B>,
    key: &IdempotencyKey,
) -> Result<(Keyed, Request<B>), Problem>
where
    B: Body + From<Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let account = shared.account_of.find(&parts).ok_or(Problem::MissingAccount)?;
    let max = shared.keys.settings.request_bytes_max;
    let body = Limited::new(body, max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            Problem::BodyTooLarge { max }
        } else {
            Problem::UnreadableBody
        }
    })?;
    let body = body.to_bytes();
    let scope = Scope {
        tenant: &account.tenant,
        account: &account.id,
        method: parts.method.as_str(),
        target: target(&parts),
    };
    let keyed = Keyed {
        key: scope.key(key),
        account_name: account.id.clone(),
        account: scope.account(),
        subject: format!("{} {}", parts.method, parts.uri.path()),
        fingerprint: Fingerprint::new(content_type(&parts.headers), &body),
    };
    Ok((keyed, Request::from_parts(parts, B::from(body))))
}

fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", |target| target.as_str())
}

fn content_type(headers: &HeaderMap) -> &[u8] {
    headers.get(header::CONTENT_TYPE).map_or(b"", |value| value.as_bytes())
}

/// Runs a request to its end, whoever still waits for it.
async fn run<S, B, R>(
    keys: &Keys,
    inner: S,
    keyed: Keyed,
    mut request: Request<B>,
) -> Called<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
{
    let claim = match keys.admit(keyed).await {
        Ok(Admitted::Run(claim)) => claim,
        Ok(Admitted::Given(response)) => return Ok(response.map(ours)),
        Err(error) => {
            tracing::error!(%error, "a request with a key was refused");
            count(&keys.counters.store_away);
            return Ok(Problem::StoreAway.response().map(ours));
        }
    };
    request.extensions_mut().insert(claim.clone());
    // Within this task's reach, and out of its way: a handler may block, or panic.
    let mut handler = JoinSet::new();
    handler.spawn(call(inner, request, keys.settings.answer_bytes_max));
    let outcome = tokio::select! {
        outcome = handler.join_next() => outcome,
        () = keys.keep(&claim) => handler.join_next().await,
    };
    let outcome = outcome.and_then(Result::ok).unwrap_or(Outcome::Broken);
    let instead = keys.conclude(&claim, ended(keys, &claim, &outcome)).await;
    match (instead, outcome) {
        (Some(instead), _) => Ok(instead.map(ours)),
        (None, Outcome::Failed(error)) => Err(error),
        (None, Outcome::Broken) => Ok(Problem::Unanswered.response().map(ours)),
        (None, Outcome::CutOff) => Ok(Problem::CutOff(claim.key()).response().map(ours)),
        (None, Outcome::Whole(parts, data, trailers)) => {
            Ok(Response::from_parts(parts, AnswerBody::whole(data, trailers)))
        }
        (None, Outcome::Begun(parts, data, rest)) => {
            Ok(Response::from_parts(parts, AnswerBody::begun(data, rest)))
        }
    }
}

/// What a handler came to.
enum Outcome<R, E> {
    /// A whole answer.
    Whole(response::Parts, Bytes, Option<HeaderMap>),
    /// An answer that is too large, or has no end: its beginning, and the rest.
    Begun(response::Parts, Bytes, Pin<Box<R>>),
    /// The service's own error.
    Failed(E),
    /// A body that broke off.
    CutOff,
    /// A panic.
    Broken,
}

async fn call<S, B, R>(mut inner: S, request: Request<B>, max: usize) -> Outcome<R, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    let (parts, body) = match inner.call(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => return Outcome::Failed(error),
    };
    let mut body = Box::pin(body);
    if is_stream(&parts) {
        return Outcome::Begun(parts, Bytes::new(), body);
    }
    let mut data = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Outcome::CutOff };
        match frame.into_data() {
            Ok(more) => data.extend_from_slice(&more),
            Err(frame) => {
                let trailers = frame.into_trailers().ok();
                return Outcome::Whole(parts, data.freeze(), trailers);
            }
        }
        if data.len() > max {
            return Outcome::Begun(parts, data.freeze(), body);
        }
    }
    Outcome::Whole(parts, data.freeze(), None)
}

/// Whether the answer has no end that could be waited for.
fn is_stream(parts: &response::Parts) -> bool {
    parts.status == StatusCode::SWITCHING_PROTOCOLS
        || content_type(&parts.headers).starts_with(b"text/event-stream")
}

fn ended<R, E>(keys: &Keys, claim: &Claim, outcome: &Outcome<R, E>) -> Ended {
    let (parts, remembered) = match outcome {
        Outcome::Failed(_) | Outcome::CutOff | Outcome::Broken => {
            let free = claim.had_no_effect();
            return if free { Ended::Free } else { Ended::Unanswered };
        }
        Outcome::Whole(parts, data, _) => {
            let answer = Answer::remember(parts.status.as_u16(), &parts.headers, data.to_vec());
            (parts, claim.remembered(answer))
        }
        Outcome::Begun(parts, _, _) => {
            (parts, Remembered::Tombstone { status: parts.status.as_u16() })
        }
    };
    if claim.had_no_effect() || !is_remembered(keys.settings.policy, parts.status.as_u16()) {
        return Ended::Free;
    }
    Ended::Remember(remembered)
}
