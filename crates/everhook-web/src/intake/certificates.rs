//! Certificates that providers sign with, fetched once and kept for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::inbound::CertificateUrl;
use everhook_domain::time::Timestamp;
use tokio::sync::{Mutex as Slot, MutexGuard};

use crate::fetch::{Fetch, FetchFailed};

/// The most URLs that are known.
const URLS_MAX: usize = 64;
/// The most URLs among them that are being asked for, or have failed. A URL comes from a request
/// that is not verified yet, so this bounds what anybody can make us keep and ask for, and it never
/// is the place of a certificate that is known.
const ASKED_MAX: usize = URLS_MAX / 2;
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

/// The slot of one URL.
type AskedFor = Slot<Option<Fetched>>;

/// Certificates by their URLs.
pub(crate) struct Certificates {
    fetch: Arc<dyn Fetch>,
    lifetime: Duration,
    by_url: Mutex<HashMap<CertificateUrl, Arc<AskedFor>>>,
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
        let slot = self.slot(url, now).ok_or_else(|| {
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
    fn slot(&self, url: &CertificateUrl, now: Timestamp) -> Option<Arc<AskedFor>> {
        let mut by_url = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        by_url.retain(|other, slot| other == url || self.stays(slot, now));
        if let Some(slot) = by_url.get(url) {
            return Some(Arc::clone(slot));
        }
        let asked = by_url.values().filter(|slot| known_since(slot).is_none()).count();
        if asked >= ASKED_MAX {
            let failed = by_url.iter().find(|(_, slot)| has_failed(slot));
            let failed = failed.map(|(url, _)| url.clone())?;
            by_url.remove(&failed);
        } else if by_url.len() >= URLS_MAX {
            let oldest = by_url.iter().filter_map(|(url, slot)| Some((known_since(slot)?, url)));
            let oldest = oldest.min_by_key(|(since, _)| *since).map(|(_, url)| url.clone())?;
            by_url.remove(&oldest);
        }
        Some(Arc::clone(by_url.entry(url.clone()).or_default()))
    }

    /// Whether anybody waits for it, or would be answered from it.
    fn stays(&self, slot: &Arc<AskedFor>, now: Timestamp) -> bool {
        let Some(fetched) = idle(slot) else { return true };
        fetched.as_ref().is_some_and(|fetched| self.holds(fetched, now))
    }
}

/// What a slot holds, if nobody asks or waits.
fn idle(slot: &Arc<AskedFor>) -> Option<MutexGuard<'_, Option<Fetched>>> {
    slot.try_lock().ok().filter(|_| Arc::strong_count(slot) == 1)
}

/// Since when the certificate is known.
fn known_since(slot: &Arc<AskedFor>) -> Option<Timestamp> {
    let fetched = slot.try_lock().ok()?;
    fetched.as_ref().filter(|fetched| fetched.result.is_ok()).map(|fetched| fetched.at)
}

fn has_failed(slot: &Arc<AskedFor>) -> bool {
    idle(slot).is_some_and(|it| it.as_ref().is_none_or(|fetched| fetched.result.is_err()))
}
