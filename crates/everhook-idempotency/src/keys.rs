//! What becomes of a request with a key, and of its claim when the handler has ended.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::idempotency::answer::{Answer, REPLAYED, Remembered};
use everhook_domain::idempotency::claim::{Decision, Token, decide};
use everhook_domain::idempotency::{Fingerprint, fingerprint};
use everhook_domain::key::KeyHash;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use crate::claim::Claim;
use crate::counts::{Counters, count};
use crate::problem::Problem;
use crate::settings::Settings;
use crate::store::{Finished, Store, StoreError, Taken, Taking, Terms};

/// How often a key that keeps changing is looked at; then its request is told that it is in use.
const LOOKS_MAX: u32 = 16;
/// After every so many handlers, as many records that are over are cleared away.
const CLEAN_EVERY: u64 = 64;
const CLEAN_MAX: u32 = 500;
/// The first pause before an answer is recorded again; it doubles.
const RECORD_PAUSE: Duration = Duration::from_millis(20);

/// The keys of a layer.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
}

/// A request's key, and what a second use of it is compared by.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) key: KeyHash,
    pub(crate) account: KeyHash,
    /// What people see: whose it is, and what it is for.
    pub(crate) account_name: String,
    pub(crate) subject: String,
    pub(crate) fingerprint: Fingerprint,
}

/// What becomes of a request.
pub(crate) enum Admitted {
    /// Its handler runs.
    Run(Claim),
    /// This is its answer.
    Given(Response<Bytes>),
}

/// How a handler ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With what its key remembers.
    Remember(Remembered),
    /// With nothing that a key should remember.
    Free,
    /// Without an answer.
    Unanswered,
}

impl Keys {
    /// Decides, and takes the key if the handler is to run.
    pub(crate) async fn admit(&self, keyed: Keyed) -> Result<Admitted, StoreError> {
        for _ in 0..LOOKS_MAX {
            let look = self.store.look(keyed.key).await?;
            let decision =
                decide(look.record.as_ref(), keyed.fingerprint, self.settings.lapse, look.now);
            let rerun = match decision {
                Decision::New => None,
                Decision::Reclaim { checkpoint } => Some(checkpoint),
                Decision::InProgress
                | Decision::Completed(_)
                | Decision::Mismatch
                | Decision::Unknown => return Ok(Admitted::Given(self.give(keyed.key, decision))),
            };
            let taking = Taking {
                key: keyed.key,
                account: keyed.account,
                account_name: keyed.account_name.clone(),
                subject: keyed.subject.clone(),
                rule: fingerprint::RULE,
                fingerprint: keyed.fingerprint,
                token: draw_token()?,
                checkpoint: rerun.clone().flatten(),
            };
            let (terms, quota) = (self.settings.terms(), self.settings.quota());
            let taken = self.store.take(&taking, look.record.as_ref(), terms, quota).await;
            if taken.is_err() {
                // It may have been taken all the same, for a handler that will not run.
                let _gone_or_away = self.store.release(keyed.key, taking.token).await;
            }
            match taken? {
                Taken::Yes => return Ok(Admitted::Run(self.claim(&taking, rerun))),
                Taken::Changed => {}
                Taken::OverQuota => {
                    count(&self.counters.over_quota);
                    return Ok(Admitted::Given(Problem::OverQuota.response()));
                }
            }
        }
        Ok(Admitted::Given(self.give(keyed.key, Decision::InProgress)))
    }

    fn claim(&self, taking: &Taking, rerun: Option<Option<Vec<u8>>>) -> Claim {
        if rerun.is_some() {
            count(&self.counters.reran);
        }
        count(&self.counters.ran);
        let own = (taking.key, taking.token);
        let max = self.settings.answer_bytes_max;
        Claim::new(Arc::clone(&self.store), own, self.settings.terms(), max, rerun)
    }

    /// The answer to a request whose handler does not run.
    fn give(&self, key: KeyHash, decision: Decision) -> Response<Bytes> {
        let (counter, problem) = match decision {
            Decision::Completed(Remembered::Answer(answer)) => {
                count(&self.counters.replayed);
                return replay(answer);
            }
            Decision::Completed(Remembered::Tombstone { status }) => {
                (&self.counters.not_replayable, Problem::NotReplayable { status })
            }
            Decision::InProgress => (&self.counters.in_progress, Problem::InProgress),
            Decision::Mismatch => (&self.counters.mismatched, Problem::Mismatch),
            Decision::Unknown | Decision::New | Decision::Reclaim { .. } => {
                (&self.counters.unknown, Problem::Unknown(key))
            }
        };
        count(counter);
        problem.response()
    }

    /// Renews a claim's lease until the claim is lost or its handler has had its time.
    pub(crate) async fn keep(&self, claim: &Claim) {
        let renewing = async {
            loop {
                tokio::time::sleep(self.settings.lease / 3).await;
                match self.store.renew(claim.key(), claim.token(), claim.terms(), None).await {
                    Ok(true) => {}
                    Ok(false) => {
                        claim.lose();
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "a lease was not renewed"),
                }
            }
        };
        if tokio::time::timeout(self.settings.handler_max, renewing).await.is_err() {
            tracing::warn!(record = %claim.record(), "a handler runs longer than it may");
        }
    }

    /// Records how a handler ended. What is returned is given instead of its own answer.
    pub(crate) async fn conclude(&self, claim: &Claim, ended: Ended) -> Option<Response<Bytes>> {
        let concluded = match ended {
            Ended::Remember(remembered) => self.remember(claim, &remembered).await,
            // Nothing is promised by such an answer, so it is given whether or not the key is free.
            Ended::Free => Ok(self.free(claim).await.unwrap_or_else(|error| {
                tracing::warn!(%error, record = %claim.record(), "a key was not freed");
                None
            })),
            Ended::Unanswered => {
                count(&self.counters.unanswered);
                let over = Terms { lease: Duration::ZERO, ..claim.terms() };
                let left = self.store.renew(claim.key(), claim.token(), over, None).await;
                left.map(|_| None)
            }
        };
        self.clean_now_and_then().await;
        concluded.unwrap_or_else(|error| {
            tracing::error!(%error, record = %claim.record(), "an answer was not recorded");
            count(&self.counters.store_away);
            Some(Problem::Unrecorded(claim.key()).response())
        })
    }

    async fn remember(
        &self,
        claim: &Claim,
        remembered: &Remembered,
    ) -> Result<Option<Response<Bytes>>, StoreError> {
        let bytes = remembered.encode();
        let (key, token, ttl) = (claim.key(), claim.token(), claim.terms().ttl);
        let finish = || self.store.finish(key, token, &bytes, ttl);
        match persist(self.settings.lease, finish).await? {
            Finished::Now | Finished::Before => {
                count(match remembered {
                    Remembered::Answer(_) => &self.counters.remembered,
                    Remembered::Tombstone { .. } => &self.counters.tombstones,
                });
                Ok(None)
            }
            Finished::Lost => self.others(claim).await.map(Some),
        }
    }

    async fn free(&self, claim: &Claim) -> Result<Option<Response<Bytes>>, StoreError> {
        let release = || self.store.release(claim.key(), claim.token());
        if persist(self.settings.lease, release).await? {
            count(&self.counters.freed);
            return Ok(None);
        }
        self.others(claim).await.map(Some)
    }

    /// What the key means by now to the request whose own claim of it is over.
    async fn others(&self, claim: &Claim) -> Result<Response<Bytes>, StoreError> {
        claim.lose();
        count(&self.counters.fenced);
        let look = self.store.look(claim.key()).await?;
        let decision = look.record.as_ref().map_or(Decision::Unknown, |record| {
            decide(Some(record), record.fingerprint, self.settings.lapse, look.now)
        });
        Ok(self.give(claim.key(), decision))
    }

    async fn clean_now_and_then(&self) {
        let ran = self.counters.read().ran;
        if ran.is_multiple_of(CLEAN_EVERY)
            && let Err(error) = self.store.clean(CLEAN_MAX).await
        {
            tracing::debug!(%error, "what is over was not cleared away");
        }
    }
}

/// Tries again while the store is away, for as long as a lease lasts.
async fn persist<T, F>(lease: Duration, mut verb: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = RECORD_PAUSE;
    let mut waited = Duration::ZERO;
    loop {
        match verb().await {
            Ok(value) => return Ok(value),
            Err(error) if waited >= lease => return Err(error),
            Err(error) => tracing::warn!(%error, "the store is tried again"),
        }
        tokio::time::sleep(pause).await;
        waited += pause;
        pause *= 2;
    }
}

/// A remembered answer, marked as such.
fn replay(answer: Answer) -> Response<Bytes> {
    let headers = answer.header_map();
    let mut response = Response::new(Bytes::from(answer.body));
    *response.status_mut() =
        StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    let name = HeaderName::from_static(REPLAYED);
    response.headers_mut().insert(name, HeaderValue::from_static("true"));
    response
}

/// The only place of the crate that draws random bytes.
#[expect(clippy::disallowed_methods, reason = "the one place where random bytes are drawn")]
pub(crate) fn draw_token() -> Result<Token, StoreError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(StoreError::new)?;
    Ok(Token(i64::from_be_bytes(bytes)))
}
