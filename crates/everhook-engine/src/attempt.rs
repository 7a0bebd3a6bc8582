//! One attempt: read the endpoint, sign, send, report.
//!
//! The endpoint is read when the attempt starts and at no other time, so that no request starts
//! after a pause, disable or delete was answered. A delivery that may not start after all is given
//! back, uncounted. Nothing here writes: the report goes to the recorder.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, AttemptReport, ErrorClass};
use everhook_domain::endpoint::{Endpoint, EndpointState, Part};
use everhook_domain::fault::{self, Step};
use everhook_domain::time::Timestamp;
use everhook_store::{LeasedDelivery, Settlement, SettlementResult, Store};
use futures_util::FutureExt;

use crate::clock::SteadyClock;
use crate::lane::Starting;
use crate::request::Preparations;
use crate::scheduler::Ended;
use crate::sender::Sender;
use crate::settings::EngineSettings;

/// How long a lane rests after a failure that was our own.
const OWN_FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// What every attempt needs.
pub(crate) struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sender: Arc<dyn Sender>,
    pub(crate) clock: Arc<SteadyClock>,
    pub(crate) settings: EngineSettings,
    pub(crate) preparations: Preparations,
}

/// The end of what was begun.
pub(crate) struct Finished {
    /// For the lane.
    pub(crate) ended: Ended,
    /// For the store.
    pub(crate) settlement: Settlement,
}

/// What came of it.
enum Run {
    Reported(Box<AttemptReport>),
    /// It may not start now; its lane knows why, or will in a moment.
    Released,
    /// We could not, though it may.
    Failed,
}

/// Makes one attempt. Never panics: one that does is given back and its lane rests for a while.
pub(crate) async fn attempt(context: Arc<Context>, starting: Starting) -> Finished {
    let Starting { delivery, place } = starting;
    let (id, token, endpoint, share) =
        (delivery.id, delivery.token, delivery.endpoint, delivery.share);
    let claimed_bytes = if place.is_none() { delivery.body.len() } else { 0 };
    let run = AssertUnwindSafe(run(&context, delivery)).catch_unwind().await;
    drop(place);
    let run = run.unwrap_or_else(|_panic| {
        let why = "an attempt panicked; the delivery is given back";
        tracing::error!(delivery = %id, %endpoint, "{why}");
        Run::Failed
    });
    let mut ended = Ended { endpoint, share, claimed_bytes, attempt: None, hold_until: None };
    let result = match run {
        Run::Reported(report) => {
            ended.attempt = Some((report.outcome.is_success(), report.duration));
            SettlementResult::Finished(report)
        }
        Run::Released => SettlementResult::Released,
        Run::Failed => {
            ended.hold_until = Some(context.clock.now() + OWN_FAILURE_PAUSE);
            SettlementResult::Released
        }
    };
    Finished { ended, settlement: Settlement { delivery: id, token, result } }
}

async fn run(context: &Context, delivery: LeasedDelivery) -> Run {
    let settings = &context.settings;
    let started_at = context.clock.now();
    let needed = settings.timeout + settings.lease_margin();
    if delivery.until.is_some_and(|until| until < started_at + needed) {
        return Run::Released;
    }
    let directory = match context.store.directory() {
        Ok(directory) => directory,
        Err(error) => {
            tracing::warn!(%error, "the endpoint of a delivery could not be read");
            return Run::Failed;
        }
    };
    let endpoint = match directory.endpoint(delivery.endpoint) {
        Some(endpoint) if endpoint.state == EndpointState::Enabled => endpoint,
        Some(_) | None => return Run::Released,
    };
    if let Some(obstacle) = endpoint.obstacle() {
        return Run::Reported(Box::new(impossible(endpoint, obstacle, started_at)));
    }
    let prepared = context.preparations.of(endpoint);
    let began = context.clock.monotonic();
    let request = prepared.request(&delivery, context.clock.wall());
    fault::reach(Step::SendBefore);
    let outcome = context.sender.send(request).await;
    fault::reach(Step::SendAfter);
    let duration = context.clock.monotonic().saturating_sub(began);
    let url = prepared.shown().to_owned();
    Run::Reported(Box::new(AttemptReport { started_at, duration, url, outcome }))
}

/// The report of an attempt for which no request can be made.
fn impossible(endpoint: &Endpoint, obstacle: String, started_at: Timestamp) -> AttemptReport {
    let settings = &endpoint.settings;
    let known = !settings.unusable.has(Part::Url);
    let url = if known { settings.url.to_string() } else { String::new() };
    let outcome = AttemptOutcome::failed(ErrorClass::Configuration, obstacle);
    AttemptReport { started_at, duration: Duration::ZERO, url, outcome }
}
