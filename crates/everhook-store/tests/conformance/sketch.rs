//! Short forms of what the verbs take.

use std::time::Duration;

use everhook_domain::attempt::{AttemptOutcome, AttemptReport, KeptResponse};
use everhook_domain::budget::Budget;
use everhook_domain::endpoint::EndpointSettings;
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::event::{Envelope, EventType, NewEvent, Origin, SourceEventId};
use everhook_domain::id::{DeliveryId, EndpointId};
use everhook_domain::idempotency::{Answer, Fingerprint};
use everhook_domain::key::{KeyHash, KeySpace};
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::Subscription;
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{
    Change, Claim, LeasedDelivery, Publish, Settlement, SettlementResult, Targets, Wanted,
};
use serde_json::value::RawValue;

/// When the tests' events happened.
pub(crate) const HAPPENED: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// The type of events whose type does not matter.
pub(crate) const TYPE: &str = "order.paid";

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// The last instant before one.
pub(crate) fn just_before(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis() - 1)
}

pub(crate) fn tenant(id: &str) -> TenantId {
    id.parse().unwrap()
}

pub(crate) fn event_type(text: &str) -> EventType {
    EventType::any(text).unwrap()
}

/// An event of our API, without a source event ID.
pub(crate) fn event(event_type: &str, data: &str) -> NewEvent {
    let event_type = self::event_type(event_type);
    let data = RawValue::from_string(data.to_owned()).unwrap();
    NewEvent {
        envelope: Envelope::compose(&event_type, HAPPENED, &data),
        event_type,
        origin: Origin::Published,
        source_event_id: None,
        timestamp: HAPPENED,
    }
}

/// An event with a source event ID.
pub(crate) fn keyed(key: &str, data: &str) -> NewEvent {
    NewEvent { source_event_id: Some(SourceEventId::parse(key).unwrap()), ..event(TYPE, data) }
}

/// So many events of no interest.
pub(crate) fn events(count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| event(TYPE, &n.to_string())).collect()
}

pub(crate) fn publish_in(tenant: &TenantId, events: Vec<NewEvent>) -> Publish {
    Publish { tenant: tenant.clone(), events, targets: Targets::Subscribed }
}

/// Settings of an endpoint that wants these types.
pub(crate) fn settings(event_types: &[&str]) -> Box<EndpointSettings> {
    Box::new(EndpointSettings {
        url: EndpointUrl::parse("https://example.org/hook", false).unwrap(),
        description: String::new(),
        headers: Default::default(),
        subscription: Subscription {
            event_types: event_types.iter().map(|text| text.parse().unwrap()).collect(),
            ..Subscription::default()
        },
        requests_per_second: None,
        max_in_flight: None,
        ca_certificates: None,
        unusable: Default::default(),
    })
}

pub(crate) fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

pub(crate) fn secrets(byte: u8) -> SecretSet {
    SecretSet::new(secret(byte))
}

/// More than anything here weighs.
pub(crate) const AMPLE: Budget = Budget::new(usize::MAX);

/// Everything in one lane.
pub(crate) const fn everything(endpoint: EndpointId) -> Wanted {
    Wanted { endpoint, fresh: 10_000, retry: 10_000, suspect: 10_000, held: 0 }
}

/// An answer with this status and nothing else.
pub(crate) fn answered(status: u16) -> AttemptOutcome {
    let response =
        KeptResponse { status, headers: Vec::new(), body: String::new(), truncated: false };
    AttemptOutcome::answered(response, None)
}

/// A short attempt.
pub(crate) fn report(started_at: Timestamp, outcome: AttemptOutcome) -> Box<AttemptReport> {
    Box::new(AttemptReport {
        started_at,
        duration: ms(12),
        url: "https://example.org/hook".into(),
        outcome,
    })
}

/// The result of a lease: an attempt that started at this instant.
pub(crate) fn finished(lease: &LeasedDelivery, at: Timestamp, status: u16) -> Settlement {
    Settlement {
        delivery: lease.id,
        token: lease.token,
        result: SettlementResult::Finished(report(at, answered(status))),
    }
}

/// A lease that is given back.
pub(crate) fn released(lease: &LeasedDelivery) -> Settlement {
    Settlement { delivery: lease.id, token: lease.token, result: SettlementResult::Released }
}

/// A delivery id that no store has given out.
pub(crate) fn nobodys_delivery() -> DeliveryId {
    DeliveryId::from_parts(1_700_000_000_000, 3, 999, 1)
}

/// The hash of an idempotency key of the default tenant.
pub(crate) fn key(text: &str) -> KeyHash {
    let scope: &[&[u8]] = &[b"account", b"POST", b"/api/v1/events"];
    KeyHash::new(KeySpace::Idempotency, &TenantId::default_tenant(), scope, text.as_bytes())
}

/// What the keys of an account of the default tenant are counted under.
pub(crate) fn account(name: &str) -> KeyHash {
    let tenant = TenantId::default_tenant();
    KeyHash::new(KeySpace::IdempotencyAccount, &tenant, &[], name.as_bytes())
}

/// Makes a tenant.
pub(crate) fn create_tenant(id: &str) -> Change {
    Change::CreateTenant { id: tenant(id), name: format!("The {id}").parse().unwrap() }
}

/// A claim whose answer shows the verb's result.
pub(crate) fn claim<T: std::fmt::Debug>(key: &str, body: &str) -> Claim<T> {
    Claim {
        tenant: TenantId::default_tenant(),
        key: self::key(key),
        account: account("account"),
        account_name: "account".into(),
        subject: "POST /api/v1/events".into(),
        fingerprint: Fingerprint::new(b"application/json", body.as_bytes()),
        render: std::sync::Arc::new(|result| answer(&format!("{result:?}"))),
    }
}

/// An answer with this text, and bytes that are no text.
pub(crate) fn answer(text: &str) -> Answer {
    let headers =
        vec![("content-type".into(), "application/json".into()), ("x".into(), "ä".into())];
    Answer { status: 202, headers, body: [text.as_bytes(), b"\xff\x00"].concat() }
}
