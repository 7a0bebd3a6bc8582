//! The route of an inbox: verified, stored, and answered at once.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use everhook_domain::time::Clock;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;

use super::{Inbox, Letter, Stored};
use crate::answer::{self, Refusal};
use crate::door::{Door, Fetch, Opened};
use crate::verify::{EventKey, Verifier};

/// Verifies what comes and stores its events; a 2xx is given when that is committed. A request of
/// which nothing is new is answered as a duplicate. What an array holds is stored as an event each.
///
/// With axum: `Router::new().route_service("/hooks", InboxService::new(verifier, inbox))`.
#[derive(Clone, Debug)]
pub struct InboxService {
    door: Door,
    inbox: Arc<dyn Inbox>,
}

impl InboxService {
    /// The route of one source.
    pub fn new(verifier: Verifier, inbox: Arc<dyn Inbox>) -> Self {
        Self { door: Door::new(verifier), inbox }
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

    async fn take<B>(&self, request: Request<B>) -> Response<Bytes>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let opened = match self.door.open(request).await {
            Ok(opened) => opened,
            Err(answer) => return answer,
        };
        let letters = letters(&self.door.verifier, opened);
        match self.inbox.store(&letters).await {
            Ok(stored) => {
                for (letter, _) in
                    letters.iter().zip(&stored).filter(|(_, stored)| **stored == Stored::Captured)
                {
                    let key = letter.key.as_str();
                    tracing::warn!(key, "signed bytes came again under another id");
                }
                let is_duplicate = !stored.contains(&Stored::New);
                answer::success(&self.door.verifier, is_duplicate)
            }
            Err(error) => {
                tracing::error!(%error, "a webhook was not stored");
                Refusal::StoreAway.response()
            }
        }
    }
}

/// The events of a request, ready to be stored; of those that come twice in it one.
fn letters(verifier: &Verifier, opened: Opened) -> Vec<Letter> {
    let headers = verifier.passed_on(&opened.request());
    let body = opened.body;
    let mut letters: Vec<Letter> = Vec::with_capacity(opened.events.len());
    let mut seen: std::collections::HashSet<EventKey> = std::collections::HashSet::new();
    for event in opened.events {
        if seen.insert(event.key.clone()) {
            letters.push(Letter {
                key: event.key,
                guard: event.guard,
                event_type: event.event_type,
                headers: headers.clone(),
                body: event.item.unwrap_or_else(|| body.clone()),
            });
        }
    }
    letters
}

impl<B> Service<Request<B>> for InboxService
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.take(request).await.map(Full::from)) })
    }
}
