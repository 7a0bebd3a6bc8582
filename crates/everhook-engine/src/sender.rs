//! What the engine hands to whatever carries a request out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::attempt::AttemptOutcome;
use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint_url::EndpointUrl;
use http::HeaderMap;

/// One request, ready to go out. Made when the attempt starts, with the settings of that moment.
pub struct OutgoingRequest {
    /// Where it goes.
    pub url: Arc<EndpointUrl>,
    /// Every header except those that the transport writes itself (`host`, `content-length`).
    pub headers: HeaderMap,
    /// The bytes that were signed.
    pub body: Bytes,
    /// Who must have signed the server's certificate, in place of the public roots; asked on
    /// `https` only.
    pub ca_certificates: Option<CaCertificates>,
    /// From now until the answer's status line and headers are there.
    pub timeout: Duration,
}

impl fmt::Debug for OutgoingRequest {
    /// Without headers and body: they hold credentials and payload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Carries requests out: HTTP, and in tests a network that is made up.
#[async_trait]
pub trait Sender: Send + Sync {
    /// Sends the request once and tells what came of it; every failure is an outcome. Ends within
    /// the request's timeout. Dropping the future gives the request up.
    async fn send(&self, request: OutgoingRequest) -> AttemptOutcome;
}
