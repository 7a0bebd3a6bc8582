//! `/api/v1/claims`: keys of work that is done elsewhere, once.
//!
//! No `Idempotency-Key` is taken here: a claim is one. Only the account that made a claim finds it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use everhook_domain::id::{RecordId, kind};
use everhook_domain::idempotency::claim::{
    ClaimState, Decision, Finished, Lapse, Taken, Terms, Token, decide,
};
use everhook_domain::idempotency::{ClaimScope, fingerprint};
use everhook_domain::time::Timestamp;
use everhook_store::{HeldClaim, RecordName, RecordOrigin, StoredClaim, Taking};
use serde::Serialize;

use super::Named;
use crate::access::Caller;
use crate::answer;
use crate::app::{Admitted, App};
use crate::claim::{self, Owned, ShownClaim, ShownTaken, Wanted};
use crate::problem::{Problem, ProblemKind};
use crate::query::Query;
use crate::server::Stopping;

/// How often a key that keeps changing is looked at before its caller is asked to come back.
const LOOKS_MAX: u32 = 16;

/// `POST /api/v1/claims`: 200, whoever has the key.
pub(super) async fn take(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let wanted = Wanted::parse(sent.body.bytes())?;
    for _ in 0..LOOKS_MAX {
        if let Some(response) = try_to_take(&app, &sent.admitted.caller, &wanted).await? {
            return Ok(response);
        }
    }
    Err(Problem::new(
        ProblemKind::Overloaded,
        "the key was claimed and released by others again and again; nothing was claimed. Try \
         again",
    ))
}

/// Looks, decides, and takes a key that is as it was seen; `None` if it was not.
async fn try_to_take(
    app: &App,
    caller: &Caller,
    wanted: &Wanted,
) -> Result<Option<Response>, Problem> {
    let Caller { tenant, account, .. } = caller;
    let scope = ClaimScope { tenant, account, scope: &wanted.scope };
    let key = scope.key(&wanted.key);
    let look = async || {
        let looked = app.store.look(tenant.clone(), key).await;
        looked.map_err(|error| app.problem(&error))
    };
    let (seen, now) = (look().await?, app.now());
    let record = seen.as_ref().map(|seen| &seen.record);
    let outcome = match decide(record, wanted.fingerprint, Lapse::Rerun, now) {
        Decision::New => "new",
        Decision::Reclaim { .. } => "reclaimed",
        Decision::InProgress | Decision::Completed(_) | Decision::Unknown => {
            return Ok(seen.as_ref().map(taken_before));
        }
        Decision::Mismatch => return Err(mismatch()),
    };
    let token = claim::draw_token(&app.settings.entropy);
    let name = RecordName {
        origin: RecordOrigin::Claim,
        account: account.to_string(),
        subject: wanted.scope.clone(),
    };
    let taking = Taking {
        tenant: tenant.clone(),
        key,
        account: scope.account(),
        name,
        rule: fingerprint::RULE,
        fingerprint: wanted.fingerprint,
        token,
        checkpoint: None,
    };
    let seen = seen.map(|seen| (seen.record.token, seen.record.expires_at));
    let quota = app.settings.claim_limits.quota;
    let taken = app.store.take(taking, seen, wanted.terms, quota, now).await;
    match taken.map_err(|error| app.problem(&error))? {
        Taken::Yes => {}
        Taken::Changed => return Ok(None),
        Taken::OverQuota => return Err(over_quota()),
    }
    // For its id. Who has it by now is no matter: what was taken is told to its owner.
    let stored = look().await?.ok_or_else(lost)?;
    Ok(Some(answer::ok(&ShownTaken {
        id: stored.id,
        outcome,
        token: Some(claim::show_token(token)),
        lease_until: Some(now + wanted.terms.lease),
        result: None,
    })))
}

/// What is told of a key that somebody else has, or has completed.
fn taken_before(claim: &StoredClaim) -> Response {
    let (outcome, lease_until, result) = match &claim.record.state {
        ClaimState::Open { lease_until, .. } => ("in_progress", Some(*lease_until), None),
        ClaimState::Finished(remembered) => ("completed", None, claim::result(remembered)),
    };
    answer::ok(&ShownTaken { id: claim.id, outcome, token: None, lease_until, result })
}

fn mismatch() -> Problem {
    Problem::new(
        ProblemKind::ClaimMismatch,
        "this key was claimed in this scope with another fingerprint; nothing was claimed. Use a \
         new key for other work",
    )
}

fn over_quota() -> Problem {
    Problem::new(
        ProblemKind::IdempotencyQuota,
        "this account has as many claims, or as much remembered for them, as it may have \
         (idempotency.account_keys_max, idempotency.account_bytes_max); nothing was claimed. \
         Claims end when their ttl_s is over",
    )
}

fn lost() -> Problem {
    Problem::new(
        ProblemKind::ClaimLost,
        "the claim is not held with this token: its lease ended and somebody else claimed the key, \
         or it was completed, settled or forgotten. Nothing was changed; stop the work",
    )
}

/// `GET /api/v1/claims/{id}`: with `wait_ms`, once it is no longer in progress, or after so long.
pub(super) async fn read(
    State(app): State<Arc<App>>,
    id: Named<kind::Record>,
    request: Request,
) -> Result<Response, Problem> {
    let caller = Admitted::noted(request.extensions())?.caller;
    let mut query = Query::parse(request.uri().query(), &["wait_ms"]);
    let max = app.settings.claim_limits.wait_max.as_millis();
    let wait = query.value("wait_ms", |text| {
        let wait = text.parse::<u64>().ok().filter(|wait| u128::from(*wait) <= max);
        wait.ok_or_else(|| format!("must be a whole number from 0 to {max}"))
    });
    query.check()?;
    let id = claim_id(id)?;
    let limit = Duration::from_millis(wait.unwrap_or_default());
    let (found, seen_at) = wait_for_end(&app, &caller, id, limit, Stopping::of(&request)).await?;
    Ok(answer::ok(&ShownClaim::new(&found, seen_at)))
}

/// The claim once it is not in progress, or as it was seen last when the time is over or the server
/// stops; and when it was so.
async fn wait_for_end(
    app: &App,
    caller: &Caller,
    id: RecordId,
    limit: Duration,
    stopping: Stopping,
) -> Result<(StoredClaim, Timestamp), Problem> {
    let mut over = pin!(tokio::time::sleep(limit));
    let mut stopping = pin!(stopping.wait());
    let waiter = app.waiters.wait_for(id);
    loop {
        let mut changed = pin!(waiter.changed.notified());
        // Before looking, so that no change goes unnoticed between the two.
        changed.as_mut().enable();
        let found = find(app, caller, id).await?;
        let now = app.now();
        let left = match found.record.state {
            ClaimState::Open { lease_until, .. } => lease_until.since(now),
            ClaimState::Finished(_) => Duration::ZERO,
        };
        if left.is_zero() || limit.is_zero() {
            return Ok((found, now));
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep(left) => {}
            () = &mut over => return Ok((found, now)),
            () = &mut stopping => return Ok((found, now)),
        }
    }
}

fn claim_id(id: Named<kind::Record>) -> Result<RecordId, Problem> {
    id.id().map_err(|problem| problem.about("claim"))
}

/// A claim of this caller that is not over.
async fn find(app: &App, caller: &Caller, id: RecordId) -> Result<StoredClaim, Problem> {
    let Caller { tenant, account, .. } = caller;
    let found = app.store.look_at(tenant.clone(), id).await;
    let found = found.map_err(|error| app.problem(&error))?;
    let own = ClaimScope { tenant, account, scope: "" }.account();
    let live =
        |claim: &StoredClaim| claim.record.account == own && claim.record.expires_at > app.now();
    found.filter(live).ok_or_else(|| Problem::not_found("claim"))
}

/// A claim that its owner has something to say about.
struct Held {
    caller: Caller,
    stored: StoredClaim,
    token: Token,
}

impl Held {
    /// # Errors
    /// `claim-lost` for another token than the claim's.
    async fn find(
        app: &App,
        caller: Caller,
        id: RecordId,
        token: Option<Token>,
    ) -> Result<Self, Problem> {
        let stored = find(app, &caller, id).await?;
        match token {
            Some(token) if token == stored.record.token => Ok(Self { caller, stored, token }),
            Some(_) | None => Err(lost()),
        }
    }

    fn claim(&self) -> HeldClaim {
        let tenant = self.caller.tenant.clone();
        HeldClaim { tenant, key: self.stored.key, token: self.token }
    }

    /// For how long the result is remembered: what the lease leaves of the record's life.
    fn ttl(&self) -> Option<Duration> {
        match self.stored.record.state {
            ClaimState::Open { lease_until, .. } => {
                Some(self.stored.record.expires_at.since(lease_until))
            }
            ClaimState::Finished(_) => None,
        }
    }
}

/// `POST /api/v1/claims/{id}/complete`: 200; from now on the key is answered with the result.
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    id: Named<kind::Record>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let id = claim_id(id)?;
    let max = app.settings.claim_limits.result_bytes_max;
    let owned = Owned::parse(sent.body.bytes(), &["token", "result"], max)?;
    let held = Held::find(&app, sent.admitted.caller, id, owned.token).await?;
    // Said again after its answer was lost: what it was completed with stays.
    if let (Some(ttl), Some(result)) = (held.ttl(), owned.result) {
        let bytes = claim::remember(result).encode();
        let finished = app.store.finish(held.claim(), bytes, ttl, app.now()).await;
        match finished.map_err(|error| app.problem(&error))? {
            Finished::Now => app.waiters.wake(id),
            Finished::Before => {}
            Finished::Lost => return Err(lost()),
        }
    }
    shown(&app, &held.caller, id).await
}

/// `POST /api/v1/claims/{id}/renew`: 200; the lease is so long from now, also after its end.
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    id: Named<kind::Record>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let id = claim_id(id)?;
    let owned = Owned::parse(sent.body.bytes(), &["token", "lease_ms"], 0)?;
    let held = Held::find(&app, sent.admitted.caller, id, owned.token).await?;
    if let (Some(ttl), Some(lease)) = (held.ttl(), owned.lease) {
        let terms = Terms { lease, ttl };
        let renewed = app.store.renew(held.claim(), terms, None, app.now()).await;
        if !renewed.map_err(|error| app.problem(&error))? {
            return Err(lost());
        }
    }
    shown(&app, &held.caller, id).await
}

/// `POST /api/v1/claims/{id}/release`: 200; nothing was done, and the key is free.
pub(super) async fn release(
    State(app): State<Arc<App>>,
    id: Named<kind::Record>,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let sent = app.admit_unkeyed(&parts, body).await?;
    let id = claim_id(id)?;
    let owned = Owned::parse(sent.body.bytes(), &["token"], 0)?;
    let held = Held::find(&app, sent.admitted.caller, id, owned.token).await?;
    let released = app.store.release(held.claim()).await;
    if !released.map_err(|error| app.problem(&error))? {
        return Err(lost());
    }
    app.waiters.wake(id);
    Ok(answer::ok(&ShownReleased { id, state: "released" }))
}

#[derive(Debug, Serialize)]
struct ShownReleased {
    id: RecordId,
    state: &'static str,
}

async fn shown(app: &App, caller: &Caller, id: RecordId) -> Result<Response, Problem> {
    let found = find(app, caller, id).await?;
    Ok(answer::ok(&ShownClaim::new(&found, app.now())))
}
