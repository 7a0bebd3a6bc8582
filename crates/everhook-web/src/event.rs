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
