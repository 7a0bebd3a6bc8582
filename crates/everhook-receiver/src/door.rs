//! A request's way to its events: read, verified, or answered at once.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::inbound::{CertificateUrl, Handshake, InboundRequest, Rejection};
use everhook_domain::time::{Clock, SystemClock, Timestamp};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::answer::{self, Refusal};
use crate::verify::{Event, Verified, Verifier};

/// Fetches what two kinds need from their provider: the certificates that `aws_sns` and `paypal`
/// sign with, unless they are given as secrets, and the confirmation of a subscription of
/// `aws_sns`. It is asked at each request, so keep what you have fetched.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// A GET of this URL: `https`, of a host of the provider, which was checked. Follow no redirect
    /// and read no more than 64 KiB.
    ///
    /// # Errors
    /// It could not be had: the sender is told to come again.
    async fn get(&self, url: &CertificateUrl) -> Result<Bytes, Box<dyn Error + Send + Sync>>;
}

#[derive(Clone)]
pub(crate) struct Door {
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fetch: Option<Arc<dyn Fetch>>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

/// A request whose events are to be processed.
pub(crate) struct Opened {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
    pub(crate) events: Vec<Event>,
}

impl Opened {
    pub(crate) fn request(&self) -> InboundRequest<'_> {
        inbound(&self.parts, &self.body)
    }
}

fn inbound<'a>(parts: &'a Parts, body: &'a [u8]) -> InboundRequest<'a> {
    InboundRequest {
        method: &parts.method,
        target: parts.uri.path_and_query().map_or("/", |target| target.as_str()),
        headers: &parts.headers,
        body,
    }
}

impl Door {
    pub(crate) fn new(verifier: Verifier) -> Self {
        let clock = Arc::new(SystemClock::start());
        Self { verifier: Arc::new(verifier), clock, fetch: None }
    }

    /// Reads and verifies a request; what it is answered if there is nothing to process.
    pub(crate) async fn open<B>(&self, request: Request<B>) -> Result<Opened, Response<Bytes>>
    where
        B: Body,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let now = self.clock.wall();
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, self.verifier.body_bytes_max()).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Refusal::BodyTooLarge.response(),
            false => Refusal::Incomplete.response(),
        })?;
        let body = body.to_bytes();
        let verified = match self.verify(&parts, &body, now).await {
            Ok(verified) => verified,
            Err(rejection) => {
                let source = self.verifier.source();
                tracing::warn!(source, reason = %rejection, "a webhook was turned away");
                return Err(Refusal::of(&rejection, &self.verifier).response());
            }
        };
        match verified {
            Verified::Events(events) if events.is_empty() => {
                Err(answer::success(&self.verifier, false))
            }
            Verified::Events(events) => Ok(Opened { parts, body, events }),
            Verified::Ignored => Err(answer::success(&self.verifier, false)),
            Verified::Handshake(Handshake::Answer(answer)) => Err(answer::given(answer)),
            Verified::Handshake(Handshake::Confirm(url)) => Err(match self.fetch(&url).await {
                Some(_) => answer::success(&self.verifier, false),
                None => Refusal::NotReady.response(),
            }),
        }
    }

    async fn verify(
        &self,
        parts: &Parts,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Verified, Rejection> {
        match self.verifier.verify(&inbound(parts, body), now) {
            Err(Rejection::CertificateNeeded(url)) => match self.fetch(&url).await {
                Some(pem) => self.verifier.verify_with(&inbound(parts, body), now, (&url, &pem)),
                None => Err(Rejection::CertificateNeeded(url)),
            },
            verified => verified,
        }
    }

    async fn fetch(&self, url: &CertificateUrl) -> Option<Bytes> {
        let Some(fetch) = &self.fetch else {
            tracing::error!(%url, "this kind fetches something, and no Fetch is set");
            return None;
        };
        match fetch.get(url).await {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::warn!(%url, error, "what a webhook needs could not be fetched");
                None
            }
        }
    }
}
