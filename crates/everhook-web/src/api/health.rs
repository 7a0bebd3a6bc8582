//! `/healthz` and `/readyz`: for supervisors and load balancers, without credentials.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use everhook_domain::time::{Timestamp, millis};
use serde::Serialize;

use crate::answer;
use crate::app::App;
use crate::problem::Problem;

#[derive(Debug, Serialize)]
struct Alive {
    alive: bool,
}

#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    /// How long the delivery that is overdue longest has been so; 0 if none is.
    oldest_due_age_ms: i64,
}

/// `GET /healthz`: the process answers.
pub(super) async fn alive() -> Response {
    answer::ok(&Alive { alive: true })
}

/// `GET /readyz`: the store takes writes, and sending moves. Endpoints that are paused, fail, or
/// are paced by their own limits keep deliveries waiting, and do not count: no other server could
/// send to them sooner.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut oldest_due_age_ms = 0;
    match app.store.health().await {
        Ok(health) => {
            if !health.writable {
                reasons.push(Cow::from("the store takes no writes; the server's log says why"));
            }
            let age = |since: Option<Timestamp>| {
                since.map(|since| app.now().since(since)).unwrap_or_default()
            };
            let (stalled, allowed) = (age(health.stalled_since), app.settings.ready_due_age_max);
            if stalled > allowed {
                let (stalled, allowed) = (stalled.as_secs(), allowed.as_secs());
                reasons.push(Cow::from(format!(
                    "deliveries that could be sent have waited for {stalled} s without any being \
                     begun; {allowed} s are allowed"
                )));
            }
            oldest_due_age_ms = millis(age(health.oldest_due));
        }
        Err(error) => {
            let _logged = app.problem(&error);
            reasons.push(Cow::from("the store does not answer; the server's log says why"));
        }
    }
    match reasons.is_empty() {
        true => Ok(answer::ok(&Ready { ready: true, oldest_due_age_ms })),
        false => Err(Problem::not_ready(reasons)),
    }
}
