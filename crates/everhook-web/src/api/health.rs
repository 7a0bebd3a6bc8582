//! `/healthz` and `/readyz`: for supervisors and load balancers, without credentials.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use everhook_domain::time::millis;
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

/// `GET /readyz`: the store takes writes, and deliveries are sent when they are due. Paused
/// endpoints do not count.
pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let mut reasons: Vec<Cow<'static, str>> = Vec::new();
    let mut oldest_due_age_ms = 0;
    match app.store.health().await {
        Ok(health) => {
            if !health.writable {
                reasons.push(Cow::from("the store takes no writes; the server's log says why"));
            }
            let age = health.oldest_due.map(|due| app.now().since(due)).unwrap_or_default();
            let allowed = app.settings.ready_due_age_max;
            if age > allowed {
                let (age, allowed) = (age.as_secs(), allowed.as_secs());
                reasons.push(Cow::from(format!(
                    "a delivery has been due for {age} s and was not sent; {allowed} s are allowed"
                )));
            }
            oldest_due_age_ms = millis(age);
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
