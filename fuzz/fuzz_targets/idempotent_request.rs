//! What requests with an `Idempotency-Key` are compared by, and the stored form of an answer.
//!
//! The first line is a content type, the rest a body.

#![no_main]

use everhook_domain::idempotency::Fingerprint;
use everhook_domain::idempotency::answer::Remembered;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let (content_type, body) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    assert_eq!(Fingerprint::new(content_type, body), Fingerprint::new(content_type, body));
    // What is added is seen, whatever the body was taken for.
    let longer = [body, b"\r\nx"].concat();
    assert_ne!(Fingerprint::new(content_type, body), Fingerprint::new(content_type, &longer));
    if let Ok(remembered) = Remembered::decode(input) {
        assert_eq!(Remembered::decode(&remembered.encode()), Ok(remembered));
    }
});
