//! Joins what receiving fetches to the connector that every request of the server goes through.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use everhook_domain::inbound::CertificateUrl;
use everhook_engine::http::HttpSender;
use everhook_web::fetch::{Fetch, FetchFailed};

/// Whoever sends a webhook waits meanwhile, and is told to come again where it takes longer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Fetches through the engine's client.
pub(crate) struct EngineFetch(pub(crate) Arc<HttpSender>);

#[async_trait]
impl Fetch for EngineFetch {
    async fn get(&self, url: &CertificateUrl, bytes_max: usize) -> Result<Bytes, FetchFailed> {
        let fetched = self.0.fetch(url.as_str(), bytes_max, TIMEOUT).await;
        // Without the URL, which is the sender's word.
        let failed = |why| FetchFailed(format!("what the request names was not fetched: {why}"));
        fetched.map_err(failed)
    }
}
