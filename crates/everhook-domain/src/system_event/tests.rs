use std::time::Duration;

use super::*;
use crate::event::Nature;
use crate::health::Health;

const AT: Timestamp = Timestamp::from_millis(1_750_000_000_000);

fn about() -> AboutEndpoint {
    let url = Some("https://example.org/a".into());
    AboutEndpoint { id: EndpointId::from_parts(1, 2, 3, 0), url }
}

fn health(consecutive_failures: u32) -> EndpointHealth {
    let first = AT.minus(Duration::from_secs(3_600));
    EndpointHealth { health: Health { consecutive_failures }, first_failure_at: Some(first) }
}

const LAST: LastAttempt = LastAttempt {
    number: 7,
    started_at: AT,
    status_code: Some(503),
    error_class: Some(ErrorClass::Status),
};

/// A system event, its type, and its data as it is written.
fn check(event: &SystemEvent, event_type: &str, data: &str) {
    let composed = event.compose(AT);
    assert_eq!(composed.event_type.as_str(), event_type);
    assert_eq!(EventType::any(event_type), Ok(composed.event_type.clone()));
    assert_eq!((composed.origin, composed.timestamp), (Origin::System, AT));
    assert_eq!(composed.source_event_id, None);
    assert_eq!(Nature::of(event_type), Nature::System);
    let expected: String = data.lines().map(str::trim).collect();
    assert_eq!(String::from_utf8_lossy(composed.envelope.data()), expected, "{event_type}");
}

fn dead(reason: DeadReason, last_attempt: Option<LastAttempt>) -> SystemEvent {
    SystemEvent::DeliveryDead {
        delivery: EventId::from_parts(1, 5, 3, 0).delivery(2),
        endpoint: about().id,
        event_type: "invoice.paid".into(),
        reason,
        progress: Progress { round: 2, number: 7, interruptions: 3, ..Progress::NEW },
        last_attempt,
    }
}

#[test]
fn a_dead_delivery() {
    check(
        &dead(DeadReason::Exhausted, Some(LAST)),
        "everhook.delivery.dead",
        r#"{"delivery_id":"dlv_0000000001000000000m006002",
            "event_id":"evt_0000000001000000000m006000",
            "endpoint_id":"ep_00000000010000000008006000",
            "type":"invoice.paid","reason":"exhausted","round":2,"attempt_count":7,
            "interruptions":3,"last_attempt":{"number":7,
            "started_at":"2025-06-15T15:06:40.000Z","status_code":503,"error_class":"status"}}"#,
    );
    check(
        &dead(DeadReason::Interrupted, None),
        "everhook.delivery.dead",
        r#"{"delivery_id":"dlv_0000000001000000000m006002",
            "event_id":"evt_0000000001000000000m006000",
            "endpoint_id":"ep_00000000010000000008006000",
            "type":"invoice.paid","reason":"interrupted","round":2,"attempt_count":7,
            "interruptions":3,"last_attempt":null}"#,
    );
}

#[test]
fn a_failing_endpoint() {
    let failing = |disables_at| SystemEvent::EndpointFailing {
        endpoint: about(),
        health: health(5),
        disables_at,
        last_attempt: LastAttempt {
            status_code: None,
            error_class: Some(ErrorClass::Timeout),
            ..LAST
        },
    };
    let data = |disables_at: &str| {
        format!(
            r#"{{"endpoint_id":"ep_00000000010000000008006000","url":"https://example.org/a",
                "consecutive_failures":5,"failing_since":"2025-06-15T14:06:40.000Z",
                "disables_at":{disables_at},"last_attempt":{{"number":7,
                "started_at":"2025-06-15T15:06:40.000Z","status_code":null,
                "error_class":"timeout"}}}}"#
        )
    };
    check(&failing(None), "everhook.endpoint.failing", &data("null"));
    let at = Some(AT + Duration::from_secs(86_400));
    let data = data(r#""2025-06-16T15:06:40.000Z""#);
    check(&failing(at), "everhook.endpoint.failing", &data);
}

#[test]
fn an_endpoint_that_has_recovered() {
    check(
        &SystemEvent::EndpointRecovered { endpoint: about(), before: health(12) },
        "everhook.endpoint.recovered",
        r#"{"endpoint_id":"ep_00000000010000000008006000","url":"https://example.org/a",
            "consecutive_failures":12,"failing_since":"2025-06-15T14:06:40.000Z"}"#,
    );
}

#[test]
fn a_disabled_endpoint() {
    for (reason, failures, rest) in [
        (
            DisabledReason::Automatic,
            40,
            r#""reason":"automatic","consecutive_failures":40,
            "failing_since":"2025-06-15T14:06:40.000Z"}"#,
        ),
        (
            DisabledReason::Requested,
            4,
            r#""reason":"requested","consecutive_failures":4,"failing_since":null}"#,
        ),
    ] {
        let event =
            SystemEvent::EndpointDisabled { endpoint: about(), reason, health: health(failures) };
        let head = r#"{"endpoint_id":"ep_00000000010000000008006000",
            "url":"https://example.org/a","#;
        check(&event, "everhook.endpoint.disabled", &format!("{head}{rest}"));
    }
}

#[test]
fn an_attempt_is_told_of_without_its_answer() {
    let report = crate::attempt::AttemptReport {
        started_at: AT,
        duration: Duration::from_millis(3),
        url: "https://example.org/a?token=secret".into(),
        outcome: crate::attempt::AttemptOutcome::answered(
            crate::attempt::KeptResponse {
                status: 503,
                headers: vec![("set-cookie".into(), "secret".into())],
                body: "secret".into(),
                truncated: false,
            },
            None,
        ),
    };
    let attempt =
        Attempt { number: 7, round: 1, trigger: crate::attempt::Trigger::Schedule, report };
    assert_eq!(LastAttempt::from(&attempt), LAST);
}
