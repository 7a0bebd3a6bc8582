//! From a publisher's bytes to events that can be accepted: nothing invalid goes further.

use std::borrow::Cow;

use everhook_domain::event::{Envelope, EventType, NewEvent, Origin, SourceEventId};
use everhook_domain::time::Timestamp;
use serde_json::value::RawValue;

use crate::json::{self, Members};
use crate::problem::{FieldErrors, Problem};

/// The most events in one batch.
pub const BATCH_EVENTS_MAX: usize = 1_000;

const EVENT_MEMBERS: &[&str] = &["type", "data", "source_event_id", "timestamp"];
const BATCH_MEMBERS: &[&str] = &["events"];

/// Reads the body of `POST /api/v1/events`. `accepted` is the event's timestamp if it names none.
/// `data` keeps its bytes.
///
/// # Errors
/// `malformed-json`, `duplicate-member`, or `invalid` with everything that is wrong.
pub fn parse_event(body: &[u8], accepted: Timestamp) -> Result<NewEvent, Problem> {
    let members = Members::of_body(body, EVENT_MEMBERS)?;
    let mut errors = FieldErrors::default();
    let event = new_event(&members, accepted, &mut errors);
    errors.check()?;
    event.ok_or_else(Problem::internal)
}

/// Reads the body of `POST /api/v1/events/batch`.
///
/// # Errors
/// As [`parse_event`], for all events at once.
pub fn parse_batch(body: &[u8], accepted: Timestamp) -> Result<Vec<NewEvent>, Problem> {
    let members = Members::of_body(body, BATCH_MEMBERS)?;
    let mut errors = FieldErrors::default();
    members.refuse_unknown(&mut errors);
    let items = match members.required("events", &mut errors) {
        None => Vec::new(),
        Some(value) => json::items::<BATCH_EVENTS_MAX>(value).unwrap_or_else(|detail| {
            errors.add("", "events", detail);
            Vec::new()
        }),
    };
    if items.is_empty() && errors.is_empty() {
        errors.add("", "events", "must have at least one event");
    }
    let mut events = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let base = format!("/events/{index}");
        match json::object(item) {
            Err(detail) => errors.add_at(&base, detail),
            Ok(object) => {
                let members = Members::new(object, base, EVENT_MEMBERS)?;
                events.extend(new_event(&members, accepted, &mut errors));
            }
        }
    }
    errors.check()?;
    Ok(events)
}

/// One event, if nothing is wrong with it.
fn new_event(
    members: &Members<'_>,
    accepted: Timestamp,
    errors: &mut FieldErrors,
) -> Option<NewEvent> {
    let base = members.base();
    members.refuse_unknown(errors);
    let event_type = members
        .required("type", errors)
        .and_then(|value| noted(event_type(value), base, "type", errors));
    let data = members.required("data", errors);
    let source_event_id = match members.optional("source_event_id") {
        None => Some(None),
        Some(value) => noted(source_event_id(value), base, "source_event_id", errors).map(Some),
    };
    let timestamp = match members.optional("timestamp") {
        None => Some(accepted),
        Some(value) => noted(timestamp(value), base, "timestamp", errors),
    };
    let (event_type, timestamp) = (event_type?, timestamp?);
    Some(NewEvent {
        envelope: Envelope::compose(&event_type, timestamp, data?),
        event_type,
        origin: Origin::Published,
        source_event_id: source_event_id?,
        timestamp,
    })
}

/// The value, or nothing after what is wrong was noted.
fn noted<T>(
    read: Result<T, Cow<'static, str>>,
    base: &str,
    name: &str,
    errors: &mut FieldErrors,
) -> Option<T> {
    read.map_err(|detail| errors.add(base, name, detail)).ok()
}

fn event_type(value: &RawValue) -> Result<EventType, Cow<'static, str>> {
    EventType::published(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn source_event_id(value: &RawValue) -> Result<SourceEventId, Cow<'static, str>> {
    SourceEventId::parse(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

fn timestamp(value: &RawValue) -> Result<Timestamp, Cow<'static, str>> {
    Timestamp::parse(&json::text(value)?).map_err(|error| Cow::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Any JSON value, not too large.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn data_keeps_its_bytes(data in any_json(), pretty: bool) {
            let write = if pretty { serde_json::to_string_pretty } else { serde_json::to_string };
            let data = write(&data).expect("JSON");
            let body = format!("{{\"data\": {data} ,\"type\":\"a\"}}");
            let event = parse_event(body.as_bytes(), Timestamp::default()).expect("legal");
            prop_assert_eq!(event.envelope.data(), data.as_bytes());
            let batch = format!("{{\"events\":[{body},\n{body}]}}");
            let events = parse_batch(batch.as_bytes(), Timestamp::default()).expect("legal");
            prop_assert!(events.iter().all(|event| event.envelope.data() == data.as_bytes()));
        }

        #[test]
        fn whatever_comes_is_answered(body: Vec<u8>) {
            prop_assert!(parse_event(&body, Timestamp::default()).is_err());
        }

        #[test]
        fn a_cut_or_changed_body_is_answered(at in 0_usize..72, byte: u8) {
            let body = br#"{"type":"a","data":[1,"\u00e4"],"timestamp":"2026-01-31T12:00:00Z"}"#;
            let at = at.min(body.len() - 1);
            prop_assert!(parse_event(&body[..at], Timestamp::default()).is_err());
            let mut changed = body.to_vec();
            changed[at] = byte;
            if let Err(problem) = parse_event(&changed, Timestamp::default()) {
                prop_assert!(problem.kind().status().is_client_error());
            }
        }
    }
}
