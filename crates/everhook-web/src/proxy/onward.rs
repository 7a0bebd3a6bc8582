//! What stands behind the layer: the way to the service.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use everhook_domain::hop::{self, Hop};
use everhook_idempotency::Claim;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::{Frame, SizeHint};
use tower_service::Service;

use super::front::Place;
use super::patient::Incoming;
use super::{NotAnswered, ProxySettings, Upstream};
use crate::pace::LogPace;
use crate::problem::{Problem, ProblemKind};
use crate::server::Peer;
use crate::settings::Now;

/// Hands requests on, and answers in the service's place when it does not.
#[derive(Clone)]
pub(super) struct Onward(Arc<Shared>);

struct Shared {
    upstream: Arc<dyn Upstream>,
    settings: ProxySettings,
    log: (Now, LogPace),
}

/// A request with a key was sent, and there is no answer: its record stays unknown.
#[derive(Debug)]
pub(super) struct LostAnswer {
    record: String,
    silent: bool,
}

impl LostAnswer {
    pub(super) fn into_problem(self) -> Problem {
        let (status, how) = if self.silent {
            (StatusCode::GATEWAY_TIMEOUT, "went silent")
        } else {
            (StatusCode::BAD_GATEWAY, "broke off")
        };
        let detail = format!(
            "the request was sent to the service, which {how} before it had answered; whether the \
             work was done is not known. Ask again with the same Idempotency-Key, which never \
             sends it a second time unless the operator has allowed that"
        );
        let problem = Problem::new(ProblemKind::OutcomeUnknown, detail).answered(status);
        problem.with_record(self.record)
    }
}

impl Onward {
    pub(super) fn new(
        upstream: Arc<dyn Upstream>,
        settings: ProxySettings,
        log: (Now, LogPace),
    ) -> Self {
        Self(Arc::new(Shared { upstream, settings, log }))
    }
}

impl Service<Request<Body>> for Onward {
    type Response = Response;
    type Error = LostAnswer;
    type Future = Pin<Box<dyn Future<Output = Result<Response, LostAnswer>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LostAnswer>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.forward(request).await })
    }
}

impl Shared {
    async fn forward(&self, mut request: Request<Body>) -> Result<Response, LostAnswer> {
        let claim = request.extensions_mut().remove::<Claim>();
        let place = request.extensions_mut().remove::<Place>();
        let incoming = request.extensions_mut().remove::<Incoming>();
        let hop = self.hop(&request);
        hop.onward(request.headers_mut());
        let edit = hop::trailers_onward;
        let request = request.map(|body| Body::new(Handed { body, edit, _place: None }));
        match self.upstream.forward(request).await {
            Ok(mut response) => {
                hop::back(response.headers_mut());
                let edit = hop::back;
                Ok(response.map(|body| Body::new(Handed { body, edit, _place: place })))
            }
            Err(why) => {
                let silent = matches!(why, NotAnswered::Silent(_));
                let at_fault =
                    |incoming: &Incoming| incoming.is_broken() || (silent && incoming.is_awaited());
                if claim.is_none() && incoming.as_ref().is_some_and(at_fault) {
                    let detail = "the body broke off, stopped before its end, or is not HTTP; \
                                  what came of it may have been sent to the service";
                    let problem = Problem::new(ProblemKind::UnreadableBody, detail);
                    return Ok(problem.into_response());
                }
                self.unanswered(why, claim.as_ref())
            }
        }
    }

    fn hop(&self, request: &Request<Body>) -> Hop {
        let peer = request.extensions().get::<Peer>();
        Hop {
            // The server tells it of every request.
            peer: peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0),
            version: request.version(),
            trusts_peer: self.settings.behind_proxy,
            host: self.settings.upstream_host.clone(),
            keeps_host: self.settings.keeps_host,
        }
    }

    fn unanswered(&self, why: NotAnswered, claim: Option<&Claim>) -> Result<Response, LostAnswer> {
        use NotAnswered::{Lost, Silent, Unsent};
        let record = claim.map(|claim| claim.record().to_string());
        let (Unsent(reason) | Lost(reason) | Silent(reason)) = &why;
        if let Some(left_out) = self.log.1.due((self.log.0)()) {
            let sent = !matches!(why, Unsent(_));
            tracing::warn!(reason, sent, record, left_out, "the service has not answered");
        }
        if let Unsent(_) = why {
            if let Some(claim) = claim {
                claim.nothing_happened();
            }
            let detail = "nothing of the request was sent and nothing was done; try again later";
            return Ok(Problem::new(ProblemKind::UpstreamUnreachable, detail).into_response());
        }
        let silent = matches!(why, Silent(_));
        if let Some(record) = record {
            return Err(LostAnswer { record, silent });
        }
        let kind = if silent { ProblemKind::UpstreamTimeout } else { ProblemKind::UpstreamFailed };
        let detail = "the request was sent to the service, which has not answered; whether it did \
                      something is not known. With an Idempotency-Key it is safe to ask again";
        Ok(Problem::new(kind, detail).into_response())
    }
}

/// A body whose trailers are made those that go on; of an answer, with the place of its request.
struct Handed {
    body: Body,
    edit: fn(&mut HeaderMap),
    _place: Option<Place>,
}

impl hyper::body::Body for Handed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let edit = self.edit;
        Pin::new(&mut self.body).poll_frame(context).map_ok(|frame| match frame.into_trailers() {
            Ok(mut trailers) => {
                edit(&mut trailers);
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
