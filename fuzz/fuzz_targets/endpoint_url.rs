//! Endpoint URLs: an accepted one reads back as itself, and its parts fit into a request.

#![no_main]

use everhook_domain::endpoint_url::EndpointUrl;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(url) = EndpointUrl::parse(text, false) else { return };
    let again = EndpointUrl::parse(url.expose(), false).expect("its own text is accepted");
    assert_eq!(again.expose(), url.expose());
    assert!(url.path_and_query().starts_with('/'));
    let visible = |part: &str| part.bytes().all(|byte| byte.is_ascii_graphic());
    assert!(visible(url.authority()) && visible(url.path_and_query()));
    assert!(url.basic_auth().is_none_or(|value| visible(&value.replace(' ', ""))));
});
