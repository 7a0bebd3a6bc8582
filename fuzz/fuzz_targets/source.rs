//! The body of `POST /api/v1/sources` and of its PATCH: what is accepted can be stored and read.

#![no_main]

use everhook_domain::source::SourceSettings;
use everhook_web::source::{parse_source, parse_source_patch};

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let start = br#"{"name":"a","kind":"stripe","secrets":["s"],"options":{"empty":"ignore"}}"#;
    if let Ok(current) = parse_source(start)
        && let Ok(changed) = parse_source_patch(body, &current)
    {
        check(&changed);
    }
    if let Ok(settings) = parse_source(body) {
        check(&settings);
    }
});

fn check(settings: &SourceSettings) {
    let (stored, secrets) = (settings.to_stored(), settings.secrets_to_stored());
    let read = SourceSettings::from_stored(&stored, &secrets);
    assert_eq!(read.as_ref(), Ok(settings), "what was accepted can be used");
}
