use super::HeaderRule::{
    Count, HopByHop, NameCharacters, NameSize, Ours, TotalSize, Twice, ValueAscii, ValueControl,
    ValueEmpty, ValueEnds, ValueSize,
};
use super::*;
use proptest::prelude::*;

fn parse(pairs: &[(&str, &str)]) -> Result<CustomHeaders, Vec<InvalidHeader>> {
    let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    CustomHeaders::parse(pairs, &HeaderPrefix::default())
}

/// The rules that the headers break, in order.
fn check(pairs: &[(&str, &str)], expected: &[HeaderRule]) {
    let problems = parse(pairs).err().unwrap_or_default();
    let rules: Vec<_> = problems.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, expected, "{pairs:?}");
}

#[test]
fn what_a_customer_may_set() {
    check(&[], &[]);
    for name in ["Authorization", "X-Api-Key", "cookie", "x_y", "Webhook", "X-Messages", "Date"] {
        check(&[(name, "Bearer a b\tc;=\"")], &[]);
    }
    check(&[("a", "1"), ("b", "1"), ("c", "2")], &[]);
    check(&[(&"n".repeat(NAME_BYTES_MAX), "v")], &[]);
    check(&[("n", &"v".repeat(VALUE_BYTES_MAX))], &[]);
}

#[test]
fn case_068_no_line_is_broken_and_no_odd_letter_is_sent() {
    check(&[("x", "a\r\nEvil: 1")], &[ValueControl]);
    check(&[("x", "a\nb")], &[ValueControl]);
    check(&[("x", "a\rb")], &[ValueControl]);
    check(&[("x", "a\r\n folded")], &[ValueControl]);
    check(&[("x", "a\0")], &[ValueControl]);
    check(&[("x", "a\u{7f}")], &[ValueControl]);
    check(&[("x", "a\u{85}b")], &[ValueControl]);
    check(&[("x", "مرحبا")], &[ValueAscii]);
    check(&[("x", "naïve")], &[ValueAscii]);
    check(&[("x", "")], &[ValueEmpty]);
    check(&[("x", "  ")], &[ValueEnds]);
    check(&[("x", " a")], &[ValueEnds]);
    check(&[("x", "a\t")], &[ValueEnds]);
    check(&[("x", &"v".repeat(VALUE_BYTES_MAX + 1))], &[ValueSize]);
    for name in ["x y", " x", "x ", "x:", "x\r\ny", "ключ", "x(y)", "x\"", "x/y", "x@", "x\0"] {
        check(&[(name, "v")], &[NameCharacters]);
    }
    check(&[("", "v")], &[NameSize]);
    check(&[(&"n".repeat(NAME_BYTES_MAX + 1), "v")], &[NameSize]);
}

#[test]
fn case_068_names_that_are_not_the_customers() {
    for name in [
        "Host",
        "HOST",
        "content-length",
        "Content-Type",
        "Content-Encoding",
        "User-Agent",
        "Expect",
        "webhook-id",
        "Webhook-Signature",
        "webhook-anything",
        "X-Message-Webhook-Id",
        "x-message-else",
        "X-MESSAGE-",
    ] {
        check(&[(name, "v")], &[Ours]);
    }
    for name in [
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Proxy-Connection",
        "Proxy-Authorization",
        "proxy-anything",
    ] {
        check(&[(name, "v")], &[HopByHop]);
    }
}

#[test]
fn case_068_count_and_size_are_capped() {
    let names: Vec<_> = (0..200).map(|number| format!("x-{number}")).collect();
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
    check(&all[..HEADERS_MAX], &[]);
    check(&all[..=HEADERS_MAX], &[Count]);
    check(&all, &[Count]);
    // With names of three bytes, four of these values fill the sum exactly.
    let value = "v".repeat(VALUE_BYTES_MAX - 3);
    let four: Vec<_> = names[..4].iter().map(|name| (name.as_str(), value.as_str())).collect();
    check(&four, &[]);
    check(&[&four[..], &[("y", "v")]].concat(), &[TotalSize]);
}

#[test]
fn all_problems_at_once_each_with_its_name() {
    let pairs = [("Host", ""), ("ok", "v"), ("OK", "v"), ("a b", "v"), ("x", "secret\n")];
    check(&pairs, &[Ours, ValueEmpty, Twice, NameCharacters, ValueControl]);
    let problems = parse(&pairs).expect_err("broken");
    let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "header 'Host': the name is reserved: Everhook sets it itself",
            "header 'Host': a value must not be empty",
            "header 'OK': the name occurs more than once",
            "header 'a b': a name consists of letters, digits and !#$%&'*+-.^_`|~, without \
             spaces",
            "header 'x': a value must not hold line breaks or control characters",
        ]
    );
    let problem = InvalidHeader { name: Some(format!("\n{}", "é".repeat(200))), rule: NameSize };
    assert!(problem.to_string().len() < 150, "{problem}");
    assert!(!problem.to_string().contains('\n'));
}

#[test]
fn no_value_is_printed() {
    let headers = parse(&[("Authorization", "Bearer hunter2")]).expect("legal");
    assert_eq!(format!("{headers:?}"), r#"{"authorization"}"#);
    let (_, value) = headers.iter().next().expect("one");
    assert!(!format!("{value:?}").contains("hunter2"));
}

#[test]
fn stored_form() {
    let headers = parse(&[("X-B", "1"), ("x-a", "\"2\"")]).expect("legal");
    let text = serde_json::to_string(&headers).expect("JSON");
    assert_eq!(text, r#"{"x-b":"1","x-a":"\"2\""}"#);
    assert_eq!(CustomHeaders::from_stored(&text).expect("stored"), headers);
    for bad in [r#"{"a":"\n"}"#, r#"{"a b":"v"}"#, r#"{"a":"1","A":"2"}"#, r#"{"a":1}"#, "[]"] {
        assert!(CustomHeaders::from_stored(bad).is_err(), "{bad}");
    }
    let under_another_prefix = r#"{"x-acme-key":"v"}"#;
    assert!(CustomHeaders::from_stored(under_another_prefix).is_ok());
}

#[test]
fn prefixes() {
    use InvalidHeaderPrefix::{Form, Reserved};
    for (text, expected) in [
        ("X-Message-", Ok("x-message-webhook-id")),
        ("Acme-", Ok("acme-webhook-id")),
        ("x_y-", Ok("x_y-webhook-id")),
        ("", Err(Form)),
        ("-", Err(Form)),
        ("X-Message", Err(Form)),
        ("X Message-", Err(Form)),
        ("Ä-", Err(Form)),
        ("X:-", Err(Form)),
        ("X\r\n-", Err(Form)),
        (&format!("{}-", "x".repeat(PREFIX_BYTES_MAX)), Err(Form)),
        ("Webhook-", Err(Reserved)),
        ("proxy-x-", Err(Reserved)),
    ] {
        let prefix = text.parse::<HeaderPrefix>();
        let id = prefix.as_ref().map(|prefix| prefix.webhook_id().as_str()).map_err(|e| *e);
        assert_eq!(id, expected, "{text}");
    }
    let default: HeaderPrefix = "X-Message-".parse().expect("legal");
    assert_eq!(default, HeaderPrefix::default());
    assert_eq!(default.attempt(), "x-message-webhook-attempt");
    let acme: HeaderPrefix = "Acme-".parse().expect("legal");
    let pair = |name: &str| [(name.to_owned(), "v".to_owned())];
    assert!(CustomHeaders::parse(pair("ACME-x"), &acme).is_err());
    assert!(CustomHeaders::parse(pair("X-Message-x"), &acme).is_ok());
}

proptest! {
    #[test]
    fn what_is_accepted_is_one_line_of_ascii(
        pairs in prop::collection::vec(("[ -~\r\né]{0,6}", "\\PC{0,6}|[ -~\t\r\n]{0,6}"), 0..6)
    ) {
        let Ok(headers) = CustomHeaders::parse(pairs, &HeaderPrefix::default()) else {
            return Ok(());
        };
        for (_, value) in headers.iter() {
            let bytes = value.as_bytes();
            prop_assert!(bytes.iter().all(|b| matches!(b, b'\t' | b' '..=b'~')));
            prop_assert_eq!(bytes, bytes.trim_ascii());
        }
        let text = serde_json::to_string(&headers).expect("JSON");
        prop_assert_eq!(CustomHeaders::from_stored(&text).expect("stored"), headers);
    }
}
