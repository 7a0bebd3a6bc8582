//! A POST that runs once: its key, its claim, and one answer, now and when the key is seen again.
//!
//! The bytes that a key remembers are made by the same function as the direct answer, inside the
//! transaction of the effect. So a crash at any instant leaves both or neither, and a replay is
//! byte for byte the first answer.

use std::sync::Arc;

use axum::response::Response;
use everhook_domain::fault::{self, Fate, Step};
use everhook_domain::idempotency::{Answer, Fingerprint, IdempotencyKey, Scope};
use everhook_domain::key::KeyHash;
use everhook_domain::tenant::TenantId;
use everhook_store::{Claim, Claimed, StoreError};
use http::header;
use http::request::Parts;

use crate::access::Caller;
use crate::answer::{self, Rendered};
use crate::app::App;
use crate::problem::{Problem, ProblemKind};
use crate::seal::{self, Seal};
use crate::settings::Entropy;

/// A request's `Idempotency-Key`, and what a second use of it is compared by.
pub(crate) struct Keyed {
    tenant: TenantId,
    key: IdempotencyKey,
    hash: KeyHash,
    account: KeyHash,
    account_name: Arc<str>,
    /// Method and path, as they are shown.
    subject: String,
    fingerprint: Fingerprint,
}

impl Keyed {
    /// The key's scope is tenant, account, method, and path with query as they were sent.
    pub(crate) fn new(key: IdempotencyKey, caller: &Caller, parts: &Parts, body: &[u8]) -> Self {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let scope = Scope {
            tenant: &caller.tenant,
            account: &caller.account,
            method: parts.method.as_str(),
            target,
        };
        let (hash, account) = (scope.key(&key), scope.account());
        let content_type = parts.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.map_or(&b""[..], |value| value.as_bytes());
        Self {
            tenant: caller.tenant.clone(),
            key,
            hash,
            account,
            account_name: Arc::clone(&caller.account),
            subject: format!("{} {}", parts.method, parts.uri.path()),
            fingerprint: Fingerprint::new(content_type, body),
        }
    }
}

/// How a verb's result is answered.
pub(crate) struct Answering<T> {
    render: Arc<dyn Fn(&T) -> Rendered + Send + Sync>,
    sealed: bool,
}

impl<T: 'static> Answering<T> {
    /// Answers that a key remembers as they are. `render` must be pure.
    pub(crate) fn plain(render: impl Fn(&T) -> Rendered + Send + Sync + 'static) -> Self {
        Self { render: Arc::new(render), sealed: false }
    }

    /// Answers that hold a secret: a key remembers them sealed. `render` must be pure.
    pub(crate) fn secret(render: impl Fn(&T) -> Rendered + Send + Sync + 'static) -> Self {
        Self { render: Arc::new(render), sealed: true }
    }

    /// The claim to run the verb under, if the request carries a key.
    pub(crate) fn claim(&self, keyed: Option<&Keyed>, entropy: &Entropy) -> Option<Claim<T>> {
        let keyed = keyed?;
        let render = Arc::clone(&self.render);
        let seal = self.sealed.then(|| Seal::new(&keyed.key, keyed.hash, entropy));
        let remembered = move |value: &T| {
            let answer = render(value).into_answer();
            match &seal {
                Some(seal) => Answer { body: seal.seal(answer.body), ..answer },
                None => answer,
            }
        };
        Some(Claim {
            tenant: keyed.tenant.clone(),
            key: keyed.hash,
            account: keyed.account,
            account_name: Arc::clone(&keyed.account_name),
            subject: keyed.subject.clone(),
            fingerprint: keyed.fingerprint,
            render: Arc::new(remembered),
        })
    }

    /// The response for what the store said.
    ///
    /// # Errors
    /// The store's, `idempotency-key-reused` and `idempotency-quota`.
    pub(crate) fn respond(
        &self,
        app: &App,
        keyed: Option<&Keyed>,
        claimed: Result<Claimed<T>, StoreError>,
    ) -> Result<Response, Problem> {
        let claimed = claimed.map_err(|error| app.problem(&error))?;
        if fault::reach(Step::AnswerBefore) == Fate::Fail {
            return Err(Problem::store_unavailable());
        }
        match claimed {
            Claimed::Done(value) => Ok((self.render)(&value).into_response()),
            Claimed::Replayed(answer) => self.replayed(keyed, answer),
            Claimed::Mismatch => Err(Problem::new(
                ProblemKind::IdempotencyKeyReused,
                "this Idempotency-Key was used here for a request with another body or content \
                 type; nothing was done. Use a new key for a new request",
            )),
            Claimed::OverQuota => Err(Problem::new(
                ProblemKind::IdempotencyQuota,
                "the account has as many idempotency keys, or as many bytes of answers under them, \
                 as it may have; nothing was done. Keys make room when they are over, a day after \
                 their request was answered unless the server is set otherwise",
            )),
        }
    }

    fn replayed(&self, keyed: Option<&Keyed>, answer: Answer) -> Result<Response, Problem> {
        if !self.sealed {
            return Ok(answer::replayed(answer));
        }
        let opened = keyed.and_then(|keyed| seal::open(&keyed.key, keyed.hash, &answer.body));
        match opened {
            Some(body) => Ok(answer::replayed(Answer { body, ..answer })),
            None => {
                tracing::error!("a sealed answer in the store cannot be opened");
                Err(Problem::internal())
            }
        }
    }
}
