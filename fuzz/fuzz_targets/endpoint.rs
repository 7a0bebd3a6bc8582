//! The body of `POST /api/v1/endpoints` and of its PATCH: what is accepted can be stored and read.

#![no_main]

use everhook_domain::endpoint::EndpointSettings;
use everhook_web::endpoint::{EndpointRules, parse_endpoint, parse_endpoint_patch};

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let rules = EndpointRules::default();
    let start = br#"{"url":"https://example.com/","headers":{"x-a":"b"},"event_types":["a.*"]}"#;
    if let Ok(current) = parse_endpoint(start, &rules)
        && let Ok(changed) = parse_endpoint_patch(body, &current, &rules)
    {
        check(&changed);
    }
    if let Ok(settings) = parse_endpoint(body, &rules) {
        check(&settings);
    }
});

fn check(settings: &EndpointSettings) {
    let stored = settings.to_stored();
    let read = EndpointSettings::from_stored(&stored);
    assert_eq!(read.unusable.iter().next(), None, "what was accepted can be used");
    assert_eq!(read.to_stored(), stored);
}
