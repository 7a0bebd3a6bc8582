use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;
use proptest::prelude::*;

fn parse(text: &str) -> EndpointUrl {
    EndpointUrl::parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The URL as it is shown, or why it is refused.
fn check(text: &str, expected: Result<&str, InvalidEndpointUrl>) {
    let shown = EndpointUrl::parse(text, false).map(|url| url.to_string());
    assert_eq!(shown, expected.map(str::to_owned), "{text:?}");
}

fn check_refused(texts: &[&str], expected: InvalidEndpointUrl) {
    for text in texts {
        check(text, Err(expected));
    }
}

fn check_target(text: &str, authority: &str, path_and_query: &str) {
    let url = parse(text);
    assert_eq!((url.authority(), url.path_and_query()), (authority, path_and_query), "{text:?}");
}

fn check_address(text: &str, expected: impl Into<IpAddr>) {
    assert_eq!(*parse(text).host(), Host::Ip(expected.into()), "{text:?}");
}

#[test]
fn parts() {
    let url = parse("HTTPS://Hooks.Example.COM:8443/in?a=1");
    assert_eq!(url.scheme(), Scheme::Https);
    assert_eq!(*url.host(), Host::Name("hooks.example.com".to_owned()));
    assert_eq!(url.port(), 8443);
    assert_eq!(url.basic_auth(), None);
    assert_eq!(url.to_string(), "https://hooks.example.com:8443/in?a=1");
    assert_eq!(parse("http://a").port(), 80);
    assert_eq!(parse("https://a").port(), 443);
}

#[test]
fn what_is_sent() {
    check_target("http://a", "a", "/");
    check_target("http://a:80?x", "a", "/?x");
    check_target("http://a:443/", "a:443", "/");
    check_target("https://a:443/", "a", "/");
    check_target("https://a:/", "a", "/");
    check_target("http://a/b/../c/./d", "a", "/c/d");
    check_target("http://[::1]:8080/p", "[::1]:8080", "/p");
    check_target("http://[FD00::0:1]/p", "[fd00::1]", "/p");
    check_target("http://u:p@a:8080/p?", "a:8080", "/p?");
    check_target("http://a//b", "a", "//b");
}

#[test]
fn case_021_path_and_query_are_encoded_once() {
    check_target("http://a/one two", "a", "/one%20two");
    check_target("http://a/one%20two", "a", "/one%20two");
    check_target("http://a/a%2Fb%2fc", "a", "/a%2Fb%2fc");
    check_target("http://a/%252F", "a", "/%252F");
    check_target("http://a/🦀", "a", "/%F0%9F%A6%80");
    check_target("http://a/%F0%9F%A6%80", "a", "/%F0%9F%A6%80");
    check_target("http://a/👩‍🚀", "a", "/%F0%9F%91%A9%E2%80%8D%F0%9F%9A%80");
    check_target("http://a/?q=1+2%2B3 4&r=100%", "a", "/?q=1+2%2B3%204&r=100%");
    check_target("http://a/?q=ü", "a", "/?q=%C3%BC");
}

#[test]
fn case_021_hosts_are_sent_and_shown_in_punycode() {
    check("http://müller.example/", Ok("http://xn--mller-kva.example/"));
    check("http://MÜLLER.example/", Ok("http://xn--mller-kva.example/"));
    check("http://xn--mller-kva.example/", Ok("http://xn--mller-kva.example/"));
    check("http://XN--MLLER-KVA.example/", Ok("http://xn--mller-kva.example/"));
    check("http://m%C3%BCller.example/", Ok("http://xn--mller-kva.example/"));
    // A Cyrillic letter among Latin ones looks like another host, and is shown unlike it.
    check("http://exаmple.com/", Ok("http://xn--exmple-4nf.com/"));
    check("http://例え。テスト/", Ok("http://xn--r8jz45g.xn--zckzah/"));
    check("http://xn--a/", Err(InvalidEndpointUrl::Host));
    check("http://xn--mller-kva\u{ad}.example/", Err(InvalidEndpointUrl::Invisible));
    let name = |text| parse(text).host().clone();
    assert_eq!(name("http://müller.example."), Host::Name("xn--mller-kva.example".to_owned()));
}

#[test]
fn odd_numeric_hosts_come_out_as_addresses() {
    for text in [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://１２７.０.０.１/",
        "http://127。0。0。1/",
        "http://%31%32%37.0.0.1/",
        "http://①②⑦.0.0.1/",
    ] {
        check_address(text, Ipv4Addr::LOCALHOST);
    }
    check_address("http://0/", Ipv4Addr::UNSPECIFIED);
    check_address("http://[::1]/", Ipv6Addr::LOCALHOST);
    check_address("http://[::ffff:127.0.0.1]/", Ipv4Addr::LOCALHOST.to_ipv6_mapped());
    for text in [
        "http://256.0.0.1/",
        "http://4294967296/",
        "http://1.2.3.4.5/",
        "http://a.0x1/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://::1/",
        "http://[127.0.0.1]/",
    ] {
        let parsed = EndpointUrl::parse(text, false);
        assert!(!matches!(parsed.as_ref().map(EndpointUrl::host), Ok(Host::Name(_))), "{text}");
    }
}

#[test]
fn a_dot_at_the_end_of_a_name_changes_nothing() {
    check("http://example.com.:8080/p", Ok("http://example.com:8080/p"));
    assert_eq!(parse("http://u@example.com./").expose(), "http://u@example.com/");
    check("http://example.com../", Err(InvalidEndpointUrl::Host));
    check("http://./", Err(InvalidEndpointUrl::Host));
}

#[test]
fn nothing_is_repaired_in_silence() {
    check_refused(
        &["\thttp://a", "http://a\n", " http://a/", "http://a/ ", "\u{3000}http://a"],
        InvalidEndpointUrl::WhiteSpace,
    );
    check_refused(
        &[
            "ht\ntp://a/",
            "http://a\t.b/",
            "http://a/b\r\nc",
            "http://a/\u{a0}",
            "http://a/\u{2028}",
        ],
        InvalidEndpointUrl::WhiteSpace,
    );
    check_refused(
        &["http://a/\0", "http://a\u{7f}/", "http://a/\u{1b}[31m", "http://a\u{200b}b/"],
        InvalidEndpointUrl::Invisible,
    );
    check_refused(&["http://a/\u{202e}moc", "http://\u{feff}a/"], InvalidEndpointUrl::Invisible);
    check_refused(
        &["http://a\\b", "http:\\\\a\\", "http://a\\@b/", "http://a/?x=\\"],
        InvalidEndpointUrl::Backslash,
    );
    check_refused(
        &["http://a/#top", "http://a/#", "http://u:p#w@a/"],
        InvalidEndpointUrl::Fragment,
    );
    check_refused(&["http://a@b@c/"], InvalidEndpointUrl::Ambiguous);
}

#[test]
fn other_schemes_hosts_and_ports_are_refused() {
    check_refused(&[""], InvalidEndpointUrl::Empty);
    check_refused(
        &["a.example", "//a/", "/path", "http:a", "http:/a", "http//a", "://a", "https"],
        InvalidEndpointUrl::Scheme,
    );
    check_refused(
        &["ftp://a/", "file:///etc/passwd", "javascript:alert(1)//http://", "amqp://a", "ws://a"],
        InvalidEndpointUrl::Scheme,
    );
    check_refused(
        &["http://", "https:///a", "http:////a", "http://?a", "http://u:p@/", "http://:80/"],
        InvalidEndpointUrl::NoHost,
    );
    check_refused(
        &["http://a:0/", "http://a:65536/", "http://a:x/", "http://a:-1/", "http://u:p/w@a/"],
        InvalidEndpointUrl::Port,
    );
    check_refused(
        &["http://a b/", "http://a..b/", "http://.a/", "http://a$b/", "http://a*/", "http://a<b/"],
        InvalidEndpointUrl::Host,
    );
    check_refused(
        &["http://a%zz/", "http://a%2fb/", "http://a%00/", "http://[::1]x/"],
        InvalidEndpointUrl::Host,
    );
    check("http://my_service:3000/", Ok("http://my_service:3000/"));
}

#[test]
fn lengths() {
    use InvalidEndpointUrl::{Host, Length};
    let label = |length: usize| format!("http://{}.x/", "a".repeat(length));
    check(&label(63), Ok(&label(63)));
    check(&label(64), Err(Host));
    let name = |labels: usize| format!("http://{}x/", "abc.".repeat(labels));
    check(&name(63), Ok(&name(63)));
    check(&name(64), Err(Host));
    let url = |rest: &str, times: usize| format!("http://a/{}", rest.repeat(times));
    check(&url("x", 2_039), Ok(&url("x", 2_039)));
    check(&url("x", 2_040), Err(Length(2_049)));
    check(&url(" y", 900), Err(Length(3_609)));
}

#[test]
fn https_only() {
    let check = |text: &str, expected: Result<(), InvalidEndpointUrl>| {
        assert_eq!(EndpointUrl::parse(text, true).map(drop), expected, "{text}");
    };
    check("https://a/", Ok(()));
    check("HTTPS://a/", Ok(()));
    check("http://a/", Err(InvalidEndpointUrl::NotHttps));
    check("ftp://a/", Err(InvalidEndpointUrl::Scheme));
}

#[test]
fn user_and_password_become_basic() {
    let check = |text: &str, expected: Option<&str>| {
        let expected = expected.map(|pair| format!("Basic {}", BASE64.encode(pair)));
        let url = parse(text);
        assert_eq!(url.basic_auth(), expected.as_deref(), "{text}");
        assert_eq!(parse(url.expose()), url);
    };
    check("http://a/", None);
    check("http://@a/", None);
    check("http://:@a/", None);
    check("http://user@a/", Some("user:"));
    check("http://:pw@a/", Some(":pw"));
    check("http://user:pw@a/", Some("user:pw"));
    check("http://us%40er:p%3Aw%2F%25@a/", Some("us@er:p:w/%"));
    check("http://user:p:w@a/", Some("user:p:w"));
    check("http://user:100%@a/", Some("user:100%"));
    check("http://üser:pässword@a/", Some("üser:pässword"));
    check("http://user:a+b c@a/", Some("user:a+b c"));
    // RFC 7617 §2.
    let url = parse("http://Aladdin:open%20sesame@a/");
    assert_eq!(url.basic_auth(), Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
    for text in ["http://us%3Aer:p@a/", "http://u:p%0A@a/", "http://u%00:p@a/", "http://u:%7f@a/"] {
        let refused = EndpointUrl::parse(text, false).map(drop);
        assert_eq!(refused, Err(InvalidEndpointUrl::Credentials), "{text}");
    }
}

#[test]
fn credentials_are_never_shown() {
    let text = "https://hunter1:hunter2@a.example:8443/p?q";
    let url = parse(text);
    assert_eq!(url.expose(), text);
    assert_eq!(url.to_string(), "https://a.example:8443/p?q");
    assert_eq!(format!("{url:?}"), r#"EndpointUrl("https://a.example:8443/p?q")"#);
    let json = serde_json::to_string(&url).expect("JSON");
    assert_eq!(json, r#""https://a.example:8443/p?q""#);
    for text in ["http://hunter2@b@a/", "http://u:hunter2@", "hunter2@a", "http://u:hunter2@a:0/"] {
        let error = EndpointUrl::parse(text, false).expect_err("refused");
        assert!(!format!("{error:?} {error}").contains("hunter2"), "{text}");
    }
}

proptest! {
    #[test]
    fn what_is_accepted_round_trips_and_can_be_sent(
        scheme in "https?",
        user in "([a-zA-Z0-9%:é]{0,6}@)?",
        host in "[a-zA-Z0-9.é-]{1,9}|\\[[0-9a-f:]{2,9}\\]",
        port in "(:[0-9]{1,4})?",
        rest in "[/?]\\PC{0,20}",
    ) {
        let text = format!("{scheme}://{user}{host}{port}{rest}");
        let Ok(url) = EndpointUrl::parse(&text, false) else { return Ok(()) };
        let again = parse(url.expose());
        prop_assert_eq!(&again, &url);
        prop_assert_eq!(again.expose(), url.expose());
        let shown = parse(&url.to_string());
        prop_assert_eq!(shown.to_string(), url.to_string());
        prop_assert_eq!(shown.basic_auth(), None);
        prop_assert!(url.to_string().is_ascii());
        prop_assert!(url.path_and_query().parse::<http::uri::PathAndQuery>().is_ok());
        let authority: http::uri::Authority = url.authority().parse().expect("an authority");
        let port = authority.port_u16().unwrap_or(url.scheme().default_port());
        prop_assert_eq!(port, url.port());
        let value = url.basic_auth().map(http::HeaderValue::from_str);
        prop_assert!(!matches!(value, Some(Err(_))));
    }

    #[test]
    fn no_text_is_too_strange(text in "(https?://)?\\PC{0,40}", https_only: bool) {
        if let Ok(url) = EndpointUrl::parse(&text, https_only) {
            prop_assert!(!https_only || url.scheme() == Scheme::Https);
        }
    }
}
