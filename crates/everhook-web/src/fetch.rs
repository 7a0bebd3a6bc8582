//! The one thing that receiving asks of the network: a GET of a URL whose host a kind of source has
//! checked, for a certificate or to confirm a subscription. The binary hands in who does it.

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::inbound::CertificateUrl;

/// Fetches over TLS, from public addresses only.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// The whole body of a 2xx answer, of at most `bytes_max` bytes, within the fetcher's own
    /// timeout. Redirects are not followed: the host that was checked is the one that answers.
    ///
    /// # Errors
    /// [`FetchFailed`]; asking again later is right.
    async fn get(&self, url: &CertificateUrl, bytes_max: usize) -> Result<Bytes, FetchFailed>;
}

/// Why something was not fetched, in words for the operator. The URL is not among them: it is the
/// word of a sender who could be anybody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FetchFailed(pub String);

/// Fetches nothing, where no kind of source needs it.
#[derive(Clone, Copy, Debug)]
pub struct FetchNothing;

#[async_trait]
impl Fetch for FetchNothing {
    async fn get(&self, _: &CertificateUrl, _: usize) -> Result<Bytes, FetchFailed> {
        Err(FetchFailed("this process fetches nothing".to_owned()))
    }
}
