//! What stands before the layer.

use std::convert::Infallible;
use std::future::{Future, Ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use everhook_domain::hop;
use everhook_idempotency::IdempotencyService;
use http::{HeaderValue, Method, Request, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use super::onward::{LostAnswer, Onward};
use super::patient::{Incoming, Patient};
use crate::problem::{Problem, ProblemKind};

/// What a request goes through after the front.
pub(super) type Passage = IdempotencyService<Onward>;
/// The place of a request that is under way, until its answer is whole. It goes with the request,
/// since that may outlive its client.
pub(super) type Place = Arc<OwnedSemaphorePermit>;

/// Refuses what cannot be handed on, bounds what is under way, and answers what was lost.
#[derive(Clone)]
pub(super) struct Front<S> {
    inner: S,
    places: Arc<Semaphore>,
    silence_max: Duration,
}

impl<S> Front<S> {
    pub(super) const fn new(inner: S, places: Arc<Semaphore>, silence_max: Duration) -> Self {
        Self { inner, places, silence_max }
    }

    /// The request as it goes on.
    fn admit(&self, mut request: Request<Body>) -> Result<Request<Body>, Problem> {
        let refused = |detail| Err(Problem::new(ProblemKind::NotForwarded, detail));
        if request.method() == Method::CONNECT {
            return refused("tunnels are not opened here: this is a proxy in front of one service");
        }
        if hop::wants_other_protocol(request.headers()) {
            return refused(
                "a connection cannot change its protocol here (Upgrade); WebSockets go to the \
                 service without this proxy",
            );
        }
        if !is_below_root(request.method(), request.uri().path()) {
            let detail = "the path must begin with '/' and may not lead above the service's own \
                          with '..'";
            return Err(Problem::new(ProblemKind::UnsafePath, detail));
        }
        // What the request line names counts, whatever Host says (RFC 9112 §3.2.2).
        if let Some(authority) = request.uri().authority()
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let detail = "as many requests are under way as may be; nothing was done";
            Problem::new(ProblemKind::Overloaded, detail)
        })?;
        request.extensions_mut().insert::<Place>(Arc::new(place));
        let (longest, incoming) = (self.silence_max, Incoming::default());
        request.extensions_mut().insert(incoming.clone());
        Ok(request.map(|body| Body::new(Patient::new(body, longest, incoming))))
    }
}

type Answered = Result<Response, Infallible>;

impl<S, R> Service<Request<Body>> for Front<S>
where
    S: Service<Request<Body>, Response = http::Response<R>, Error = LostAnswer>,
    S::Future: Send + 'static,
    R: hyper::body::Body<Data = bytes::Bytes> + Send + 'static,
    R::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Answered> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Nothing in here is ever not ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let request = match self.admit(request) {
            Ok(request) => request,
            Err(problem) => return Box::pin(refuse(problem)),
        };
        let called = self.inner.call(request);
        Box::pin(async move {
            Ok(match called.await {
                Ok(response) => response.map(Body::new),
                Err(lost) => lost.into_problem().into_response(),
            })
        })
    }
}

/// Whether a path, put behind the service's own, stays below it however it is read: services differ
/// in what they decode before they resolve dots (RFC 3986 §5.2.4). `*` is for OPTIONS alone.
fn is_below_root(method: &Method, path: &str) -> bool {
    if path == "*" {
        return method == Method::OPTIONS;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let decoded = plain.replace("%2f", "/").replace("%5c", "/").replace('\\', "/");
    path.starts_with('/') && [plain, decoded].iter().all(|path| never_climbs_out(path))
}

fn never_climbs_out(path: &str) -> bool {
    let mut depth = 0_usize;
    // What follows `;` is a parameter to some.
    for segment in path.split('/').filter_map(|segment| segment.split(';').next()) {
        match segment {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

fn refuse(problem: Problem) -> Ready<Answered> {
    std::future::ready(Ok(problem.into_response()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_services_own() {
        let check = |method: &Method, path: &str, below: bool| {
            assert_eq!(is_below_root(method, path), below, "{method} {path}");
        };
        for path in ["/", "/a/../b", "/...", "/a..b/", "/.well-known/x", "/a%2Fb/..", "//a/./"] {
            check(&Method::POST, path, true);
        }
        for path in ["/..", "/../a", "/a/../../b", "/%2e%2E/a", "/./.%2e", "/..;x=1/b", "*", "a"] {
            check(&Method::POST, path, false);
        }
        // Two segments to one service, one to another.
        for path in ["/a%2fb/../..", "/..%2fa", "/a/..%5c..", "/a\\..\\.."] {
            check(&Method::POST, path, false);
        }
        check(&Method::OPTIONS, "*", true);
    }
}
