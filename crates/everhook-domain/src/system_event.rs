//! What Everhook tells of itself: system events, by type and data.
//!
//! They are events as any other, with origin `system`: stored, routed and sent by the same rules.
//! No secret, no payload, no answer's body and no credential of a URL is in them.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::attempt::{Attempt, ErrorClass};
use crate::delivery::{DeadReason, Progress};
use crate::endpoint::{DisabledReason, Endpoint, Part};
use crate::event::{Envelope, EventType, NewEvent, Origin};
use crate::health::{EndpointHealth, HealthChange};
use crate::id::{DeliveryId, EndpointId, EventId};
use crate::time::Timestamp;

/// A delivery was given up.
pub const DELIVERY_DEAD: &str = "everhook.delivery.dead";
/// An endpoint counts as failing.
pub const ENDPOINT_FAILING: &str = "everhook.endpoint.failing";
/// The first success of an endpoint that counted as failing.
pub const ENDPOINT_RECOVERED: &str = "everhook.endpoint.recovered";
/// An endpoint was disabled.
pub const ENDPOINT_DISABLED: &str = "everhook.endpoint.disabled";

/// Something that Everhook tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemEvent {
    /// A delivery was given up.
    DeliveryDead {
        /// Which one; its event's id is in it.
        delivery: DeliveryId,
        /// Where it went.
        endpoint: EndpointId,
        /// The type of its event.
        event_type: String,
        /// Why.
        reason: DeadReason,
        /// How far it had come.
        progress: Progress,
        /// The attempt that ended it; `None` where an interruption did.
        last_attempt: Option<LastAttempt>,
    },
    /// An endpoint counts as failing.
    EndpointFailing {
        /// Which one.
        endpoint: AboutEndpoint,
        /// Its failures so far.
        health: EndpointHealth,
        /// When the next failure disables it; `None` where that is off.
        disables_at: Option<Timestamp>,
        /// The attempt that made it count.
        last_attempt: LastAttempt,
    },
    /// An endpoint that counted as failing has answered with a success.
    EndpointRecovered {
        /// Which one.
        endpoint: AboutEndpoint,
        /// Its failures before that.
        before: EndpointHealth,
    },
    /// An endpoint was disabled.
    EndpointDisabled {
        /// Which one.
        endpoint: AboutEndpoint,
        /// Why.
        reason: DisabledReason,
        /// Its failures until then.
        health: EndpointHealth,
    },
}

/// The endpoint that a system event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AboutEndpoint {
    /// Its id.
    #[serde(rename = "endpoint_id")]
    pub id: EndpointId,
    /// Its URL without user and password; `None` where the stored one cannot be used.
    pub url: Option<String>,
}

/// What a system event says of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LastAttempt {
    /// Its number.
    pub number: u32,
    /// When it started.
    pub started_at: Timestamp,
    /// The answer's status; `None` without an answer.
    pub status_code: Option<u16>,
    /// Why it failed.
    pub error_class: Option<ErrorClass>,
}

impl From<&Endpoint> for AboutEndpoint {
    fn from(endpoint: &Endpoint) -> Self {
        let settings = &endpoint.settings;
        let url = (!settings.unusable.has(Part::Url)).then(|| settings.url.to_string());
        Self { id: endpoint.id, url }
    }
}

impl LastAttempt {
    /// Whether it succeeded.
    pub const fn is_success(&self) -> bool {
        self.error_class.is_none()
    }
}

impl From<&Attempt> for LastAttempt {
    fn from(attempt: &Attempt) -> Self {
        let outcome = &attempt.report.outcome;
        Self {
            number: attempt.number,
            started_at: attempt.report.started_at,
            status_code: outcome.response.as_ref().map(|response| response.status),
            error_class: outcome.error.as_ref().map(|error| error.class),
        }
    }
}

#[derive(Serialize)]
struct DeadData<'a> {
    delivery_id: DeliveryId,
    event_id: EventId,
    endpoint_id: EndpointId,
    #[serde(rename = "type")]
    event_type: &'a str,
    reason: &'static str,
    round: u32,
    attempt_count: u32,
    interruptions: u32,
    last_attempt: Option<LastAttempt>,
}

#[derive(Serialize)]
struct FailingData<'a> {
    #[serde(flatten)]
    endpoint: &'a AboutEndpoint,
    consecutive_failures: u32,
    failing_since: Option<Timestamp>,
    disables_at: Option<Timestamp>,
    last_attempt: &'a LastAttempt,
}

#[derive(Serialize)]
struct RecoveredData<'a> {
    #[serde(flatten)]
    endpoint: &'a AboutEndpoint,
    consecutive_failures: u32,
    failing_since: Option<Timestamp>,
}

#[derive(Serialize)]
struct DisabledData<'a> {
    #[serde(flatten)]
    endpoint: &'a AboutEndpoint,
    reason: &'static str,
    consecutive_failures: u32,
    failing_since: Option<Timestamp>,
}

impl SystemEvent {
    /// Its type.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::DeliveryDead { .. } => DELIVERY_DEAD,
            Self::EndpointFailing { .. } => ENDPOINT_FAILING,
            Self::EndpointRecovered { .. } => ENDPOINT_RECOVERED,
            Self::EndpointDisabled { .. } => ENDPOINT_DISABLED,
        }
    }

    /// The event that tells of it; its timestamp is `at`.
    pub fn compose(&self, at: Timestamp) -> NewEvent {
        let event_type = EventType::own(self.type_name());
        NewEvent {
            envelope: Envelope::compose(&event_type, at, &self.data()),
            event_type,
            origin: Origin::System,
            source_event_id: None,
            timestamp: at,
        }
    }

    fn data(&self) -> Box<RawValue> {
        match self {
            Self::DeliveryDead {
                delivery,
                endpoint,
                event_type,
                reason,
                progress,
                last_attempt,
            } => json(&DeadData {
                delivery_id: *delivery,
                event_id: delivery.event(),
                endpoint_id: *endpoint,
                event_type,
                reason: reason.as_str(),
                round: progress.round,
                attempt_count: progress.number,
                interruptions: progress.interruptions,
                last_attempt: *last_attempt,
            }),
            Self::EndpointFailing { endpoint, health, disables_at, last_attempt } => {
                json(&FailingData {
                    endpoint,
                    consecutive_failures: health.health.consecutive_failures,
                    failing_since: health.failing_since(),
                    disables_at: *disables_at,
                    last_attempt,
                })
            }
            Self::EndpointRecovered { endpoint, before } => json(&RecoveredData {
                endpoint,
                consecutive_failures: before.health.consecutive_failures,
                failing_since: before.failing_since(),
            }),
            Self::EndpointDisabled { endpoint, reason, health } => json(&DisabledData {
                endpoint,
                reason: reason.as_str(),
                consecutive_failures: health.health.consecutive_failures,
                failing_since: health.failing_since(),
            }),
        }
    }
}

/// An endpoint's health after one more attempt there, and what is to be told of that.
pub fn observe(
    endpoint: &Endpoint,
    before: EndpointHealth,
    attempt: LastAttempt,
    disable_after: Option<Duration>,
) -> (EndpointHealth, Option<SystemEvent>) {
    let (health, change) = before.observe(attempt.is_success(), attempt.started_at);
    let event = change.map(|change| match change {
        HealthChange::Failing => SystemEvent::EndpointFailing {
            endpoint: endpoint.into(),
            health,
            disables_at: health.disables_at(disable_after),
            last_attempt: attempt,
        },
        HealthChange::Recovered => {
            SystemEvent::EndpointRecovered { endpoint: endpoint.into(), before }
        }
    });
    (health, event)
}

/// Numbers, times and texts are always JSON.
fn json(data: &impl Serialize) -> Box<RawValue> {
    to_raw_value(data).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests;
