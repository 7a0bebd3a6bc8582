//! Certificates that providers sign with, fetched once and kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::inbound::CertificateUrl;
use everhook_domain::time::Timestamp;
use tokio::sync::Mutex as Slot;

use crate::fetch::{Fetch, FetchFailed};

/// The most URLs that are known or being asked for. A URL comes from a request that is not verified
/// yet, so this bounds what anybody can make us keep and ask for.
const URLS_MAX: usize = 64;
/// The largest certificate, or chain of them, in bytes.
const CERTIFICATE_BYTES_MAX: usize = 64 * 1_024;
/// For so long a failure is the answer for all who ask.
const FAILURE_REST: Duration = Duration::from_secs(1);

/// What came of asking for one URL. Whoever holds the slot asks; the others wait for the slot.
#[derive(Clone, Debug)]
struct Fetched {
    at: Timestamp,
    result: Result<Bytes, FetchFailed>,
}

/// Certificates by their URLs.
pub(crate) struct Certificates {
    fetch: Arc<dyn Fetch>,
    lifetime: Duration,
    by_url: Mutex<HashMap<CertificateUrl, Arc<Slot<Option<Fetched>>>>>,
}

impl Certificates {
    pub(crate) fn new(fetch: Arc<dyn Fetch>, lifetime: Duration) -> Self {
        Self { fetch, lifetime, by_url: Mutex::default() }
    }

    /// The certificate at this URL, fetched by one of all who ask at the same time.
    ///
    /// # Errors
    /// [`FetchFailed`].
    pub(crate) async fn get(
        &self,
        url: &CertificateUrl,
        now: Timestamp,
    ) -> Result<Bytes, FetchFailed> {
        let slot = self.slot(url).ok_or_else(|| {
            FetchFailed("too many certificates are being fetched at the same time".to_owned())
        })?;
        let mut slot = slot.lock().await;
        if let Some(fetched) = slot.as_ref().filter(|fetched| self.holds(fetched, now)) {
            return fetched.result.clone();
        }
        let result = self.fetch.get(url, CERTIFICATE_BYTES_MAX).await;
        *slot = Some(Fetched { at: now, result: result.clone() });
        result
    }

    /// A GET that is made each time: it confirms something.
    ///
    /// # Errors
    /// [`FetchFailed`].
    pub(crate) async fn confirm(&self, url: &CertificateUrl) -> Result<(), FetchFailed> {
        self.fetch.get(url, CERTIFICATE_BYTES_MAX).await.map(|_| ())
    }

    fn holds(&self, fetched: &Fetched, now: Timestamp) -> bool {
        let lifetime = if fetched.result.is_ok() { self.lifetime } else { FAILURE_REST };
        now.since(fetched.at) < lifetime
    }

    /// The slot of a URL; `None` when there is no room, because so many are being fetched.
    fn slot(&self, url: &CertificateUrl) -> Option<Arc<Slot<Option<Fetched>>>> {
        let mut by_url = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = by_url.get(url) {
            return Some(Arc::clone(slot));
        }
        if by_url.len() >= URLS_MAX {
            let leaves = least_useful(&by_url)?;
            by_url.remove(&leaves);
        }
        Some(Arc::clone(by_url.entry(url.clone()).or_default()))
    }
}

/// Of those that nobody waits for: one that failed, else the one that is known for longest.
fn least_useful(
    by_url: &HashMap<CertificateUrl, Arc<Slot<Option<Fetched>>>>,
) -> Option<CertificateUrl> {
    let idle = by_url.iter().filter_map(|(url, slot)| {
        let fetched = slot.try_lock().ok()?;
        let use_of = fetched.as_ref().map(|fetched| (fetched.result.is_ok(), fetched.at));
        (Arc::strong_count(slot) == 1).then_some((use_of, url))
    });
    idle.min_by_key(|(use_of, _)| *use_of).map(|(_, url)| url.clone())
}
