//! The `Retry-After` header of any server there is.

#![no_main]

use everhook_domain::retry_after::{WAIT_MAX, parse};
use everhook_domain::time::Timestamp;

libfuzzer_sys::fuzz_target!(|value: &str| {
    let now = Timestamp::from_millis(1_700_000_000_000);
    assert!(parse(value, now).is_none_or(|wait| wait <= WAIT_MAX));
});
