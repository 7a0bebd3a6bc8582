//! The `Idempotency-Key` header: an accepted key reads the same bare and quoted.

#![no_main]

use everhook_domain::idempotency::IdempotencyKey;

libfuzzer_sys::fuzz_target!(|value: &[u8]| {
    let Ok(key) = IdempotencyKey::parse(value) else { return };
    assert!((1..=255).contains(&key.as_str().len()));
    let quoted = format!("\"{}\"", key.as_str());
    let again = IdempotencyKey::parse(quoted.as_bytes()).expect("the quoted form is accepted");
    assert_eq!(again.as_str(), key.as_str());
});
