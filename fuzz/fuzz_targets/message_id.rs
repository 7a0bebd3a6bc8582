//! Message-IDs: never an empty one, never a line break in it, and white space around means nothing.

#![no_main]

use everhook_domain::inbound::MessageId;

libfuzzer_sys::fuzz_target!(|value: &[u8]| {
    let id = MessageId::parse(value);
    if let Some(id) = &id {
        assert!(!id.as_str().is_empty() && id.as_str().len() <= 998);
        assert!(!id.as_str().contains(['\r', '\n']));
    }
    let folded = [b"\r\n ", value, b" \r\n"].concat();
    assert_eq!(MessageId::parse(&folded), id);
    assert_eq!(MessageId::first([&b" "[..], value]), id);
});
