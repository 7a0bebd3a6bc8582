//! The body of `POST /api/v1/events/batch`.

#![no_main]

use everhook_domain::time::Timestamp;
use everhook_web::event::{BATCH_EVENTS_MAX, parse_batch};

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let Ok(events) = parse_batch(body, Timestamp::from_millis(1_700_000_000_000)) else { return };
    assert!((1..=BATCH_EVENTS_MAX).contains(&events.len()));
});
