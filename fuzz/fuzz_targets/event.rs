//! The body of `POST /api/v1/events`: what is accepted is sent as it came.

#![no_main]

use everhook_domain::event::data_of_stored;
use everhook_domain::id::EventId;
use everhook_domain::time::Timestamp;
use everhook_web::event::parse_event;
use serde_json::value::RawValue;

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let Ok(event) = parse_event(body, Timestamp::from_millis(1_700_000_000_000)) else { return };
    let data = event.envelope.data().to_vec();
    assert!(body.windows(data.len()).any(|part| part == data), "the data's bytes were changed");
    let sent = event.envelope.seal(EventId::from_bits(7));
    assert!(serde_json::from_slice::<&RawValue>(&sent).is_ok(), "what is sent is not JSON");
    assert_eq!(data_of_stored(&event.event_type, &sent), Some(&data[..]));
});
