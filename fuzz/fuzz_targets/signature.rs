//! The Standard Webhooks headers: no foreign bytes verify, and no secret text is half-read.

#![no_main]

use std::time::Duration;

use everhook_domain::secret::Secret;
use everhook_domain::signature::{Signed, verify};
use everhook_domain::time::Timestamp;

libfuzzer_sys::fuzz_target!(|input: (&str, &str, &str, &str, &[u8])| {
    let (id, timestamp, signature, text, body) = input;
    let secret = Secret::from_bytes([7; 32]);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let signed = Signed { id, timestamp, signature };
    let tolerance = Duration::from_secs(300);
    assert!(verify(std::iter::once(&secret), signed, body, now, tolerance).is_err());
    if let Ok(secret) = Secret::parse(text) {
        assert!(Secret::parse(&secret.expose()).is_ok_and(|again| again == secret));
    }
});
