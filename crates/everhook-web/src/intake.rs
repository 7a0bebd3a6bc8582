//! What comes to sources: taken as it is on the wire, judged by the domain, and answered.
//!
//! The shell around [`everhook_domain::inbound::judge`], which decides. It adds what a pure
//! function cannot have: bounds of memory, certificates from the network, and the count of what was
//! turned away, which is in memory only: it tells an owner what is wrong now, and nothing depends
//! on it.

mod answer;
mod beside;
mod certificates;
mod rejections;

use std::sync::Arc;

use bytes::Bytes;
use everhook_domain::header::HeaderPrefix;
use everhook_domain::inbound::{
    CertificateUrl, Context, ForwardedHeaders, InboundRequest, Judgement, Rejection, judge,
};
use everhook_domain::source::{ContentEncoding, Source, SourceSettings};
use everhook_domain::time::Timestamp;
use http::{HeaderMap, Method};

use crate::body::Bodies;
use crate::settings::WebSettings;

use beside::Beside;

pub(crate) use answer::{confirmed, given, success};
pub(crate) use certificates::Certificates;
pub(crate) use rejections::{Rejections, ShownRejections, TurnedAway};

/// A body beyond this is judged beside the threads that serve: at about 1 ms for a mebibyte and
/// pass, a smaller one takes less than handing it over is worth.
const INLINE_BYTES_MAX: usize = 256 * 1_024;

/// What all requests to sources share.
pub(crate) struct Intake {
    /// Their bodies have room of their own, so that they and the API's do not starve each other.
    pub(crate) bodies: Bodies,
    pub(crate) rejections: Rejections,
    pub(crate) certificates: Certificates,
    beside: Beside,
}

/// A request to a source, whole.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) method: Method,
    /// Path and query, as they were sent.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// When its head had come, by the clock on the wall.
    pub(crate) at: Timestamp,
}

impl Arrived {
    /// Hands the request and what it is judged by to a function of the domain.
    pub(crate) fn with<R>(
        &self,
        source: &SourceSettings,
        certificate: Option<&(CertificateUrl, Bytes)>,
        decide: impl FnOnce(&InboundRequest<'_>, &Context<'_>) -> R,
    ) -> R {
        let request = InboundRequest {
            method: &self.method,
            target: &self.target,
            headers: &self.headers,
            body: &self.body,
        };
        let certificate = certificate.map(|(url, bytes)| (url, &bytes[..]));
        decide(&request, &Context { source, now: self.at, certificate })
    }

    /// What of it goes on with its events.
    pub(crate) fn forwarded(
        &self,
        source: &SourceSettings,
        prefix: &HeaderPrefix,
    ) -> ForwardedHeaders {
        let called = source.called(&self.target);
        self.with(source, None, |request, _| ForwardedHeaders::of(request, &called, prefix))
    }

    /// Whether judging it may take long.
    fn is_heavy(&self, source: &SourceSettings) -> bool {
        self.body.len() > INLINE_BYTES_MAX
            || source.options.content_encoding == ContentEncoding::Decoded
    }
}

impl Intake {
    pub(crate) fn new(settings: &WebSettings) -> Self {
        let limits = settings.receive_limits;
        Self {
            bodies: Bodies::of_sources(&limits),
            rejections: Rejections::default(),
            certificates: Certificates::new(
                Arc::clone(&settings.fetch),
                limits.certificate_lifetime,
            ),
            beside: Beside::default(),
        }
    }

    /// Judges a request; a certificate that this needs is fetched, or known. `now` is the steady
    /// present.
    ///
    /// # Errors
    /// [`TurnedAway`]; nothing of the request is to be stored.
    pub(crate) async fn judge(
        &self,
        arrived: &Arc<Arrived>,
        source: &Arc<Source>,
        now: Timestamp,
    ) -> Result<Judgement, TurnedAway> {
        let settings = &source.settings;
        let turned_away = |rejection: Rejection| TurnedAway::new(&rejection, settings);
        let url = match self.judge_with(arrived, source, None).await? {
            Err(Rejection::CertificateNeeded(url)) => url,
            judged => return judged.map_err(turned_away),
        };
        let certificate = self.certificates.get(&url, now).await;
        let certificate = certificate.map_err(|error| TurnedAway::no_certificate(&error))?;
        let judged = self.judge_with(arrived, source, Some((url, certificate))).await?;
        judged.map_err(turned_away)
    }

    async fn judge_with(
        &self,
        arrived: &Arc<Arrived>,
        source: &Arc<Source>,
        certificate: Option<(CertificateUrl, Bytes)>,
    ) -> Result<Result<Judgement, Rejection>, TurnedAway> {
        if !arrived.is_heavy(&source.settings) {
            return Ok(arrived.with(&source.settings, certificate.as_ref(), judge));
        }
        let place = self.beside.place(source.id).await.ok_or_else(TurnedAway::no_place)?;
        let (arrived, source) = (Arc::clone(arrived), Arc::clone(source));
        let judging = tokio::task::spawn_blocking(move || {
            // Kept even if nobody waits for the result any more.
            let _place = place;
            arrived.with(&source.settings, certificate.as_ref(), judge)
        });
        match judging.await.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(judged) => Ok(judged),
            // As if it had been judged here.
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is ending, and this request with it.
            Err(Err(_)) => std::future::pending().await,
        }
    }
}
