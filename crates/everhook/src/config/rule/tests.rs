use super::*;

fn text_raw(text: &str) -> Raw {
    Raw::Text(text.to_owned())
}

/// What a rule makes of a value: its TOML, or what is wrong.
fn check<T: 'static>(rule: &Rule<T>, raw: Raw) -> String {
    match rule.read(&raw) {
        Ok(value) => rule.show(&value),
        Err(wrong) => format!("! {wrong}"),
    }
}

#[test]
fn durations() {
    let rule = duration(Duration::from_millis(100)..=Duration::from_secs(90 * 86_400));
    assert_eq!(rule.allowed, "100ms to 90d");
    for (raw, expected) in [
        (text_raw("250ms"), "\"250ms\""),
        (text_raw(" 10s "), "\"10s\""),
        (text_raw("10000ms"), "\"10s\""),
        (text_raw("60s"), "\"1m\""),
        (text_raw("90s"), "\"90s\""),
        (text_raw("1d"), "\"24h\""),
        (text_raw("48h"), "\"2d\""),
        (text_raw("90d"), "\"90d\""),
        (text_raw("99ms"), "! is below what is allowed"),
        (text_raw("91d"), "! is above what is allowed"),
        (text_raw("10"), "! has no unit, as in \"10s\""),
        (Raw::Integer(10), "! has no unit, as in \"10s\""),
        (text_raw("s"), "! does not begin with a whole number, as in \"10s\""),
        (text_raw("-1s"), "! does not begin with a whole number, as in \"10s\""),
        (text_raw("1.5s"), "! has the unit \".5s\"; the units are ms, s, m, h, d"),
        (text_raw("10S"), "! has the unit \"S\"; the units are ms, s, m, h, d"),
        (text_raw("1h30m"), "! has the unit \"h30m\"; the units are ms, s, m, h, d"),
        (text_raw("99999999999999999999s"), "! is too large"),
        (text_raw("9999999999999999d"), "! is too large"),
        (text_raw(""), "! is empty"),
        (Raw::Switch(true), "! must be text in quotes, as in \"10s\""),
        (Raw::Other("float"), "! must be text in quotes, as in \"10s\""),
    ] {
        assert_eq!(check(&rule, raw.clone()), expected, "{raw}");
    }
    let zero = duration(Duration::ZERO..=Duration::from_secs(60));
    assert_eq!(
        (zero.allowed.as_str(), check(&zero, text_raw("0ms"))),
        ("0s to 1m", "\"0s\"".into())
    );
}

#[test]
fn sizes() {
    let rule = size(1024..=16 << 20);
    assert_eq!(rule.allowed, "1KiB to 16MiB");
    for (raw, expected) in [
        (text_raw("1MiB"), "\"1MiB\""),
        (text_raw("1024KiB"), "\"1MiB\""),
        (text_raw("1536KiB"), "\"1536KiB\""),
        (text_raw("2000B"), "\"2000B\""),
        (text_raw("1B"), "! is below what is allowed"),
        (text_raw("1GiB"), "! is above what is allowed"),
        (text_raw("1MB"), "! has the unit \"MB\"; the units are B, KiB, MiB, GiB"),
        (text_raw("4096"), "! has no unit, as in \"1MiB\""),
        (Raw::Integer(4096), "! has no unit, as in \"1MiB\""),
    ] {
        assert_eq!(check(&rule, raw.clone()), expected, "{raw}");
    }
}

#[test]
fn counts_and_switches() {
    let rule = optional(count::<u32>(1..=64));
    assert_eq!(rule.allowed, "none, or 1 to 64");
    for (raw, expected) in [
        (Raw::Integer(1), "1"),
        (text_raw("64"), "64"),
        (text_raw("none"), "\"none\""),
        (Raw::Integer(0), "! is below what is allowed"),
        (Raw::Integer(65), "! is above what is allowed"),
        (Raw::Integer(i64::MIN), "! is below what is allowed"),
        (text_raw("many"), "! is not a whole number"),
        (text_raw("6.4"), "! is not a whole number"),
        (Raw::List(vec![]), "! is not a whole number"),
    ] {
        assert_eq!(check(&rule, raw.clone()), expected, "{raw}");
    }
    for (raw, expected) in [
        (Raw::Switch(true), "true"),
        (text_raw("false"), "false"),
        (text_raw("yes"), "! is neither"),
        (Raw::Integer(1), "! is neither"),
    ] {
        assert_eq!(check(&switch(), raw.clone()), expected, "{raw}");
    }
}

#[test]
fn words() {
    let rule = word(&[("human", 1), ("json", 2)]);
    assert_eq!(rule.allowed, "human or json");
    for (raw, expected) in [
        (text_raw("json"), "\"json\""),
        (text_raw("JSON"), "! is not one of them"),
        (Raw::Switch(true), "! must be text in quotes, as in \"human\""),
    ] {
        assert_eq!(check(&rule, raw.clone()), expected, "{raw}");
    }
}

#[test]
fn lists() {
    let rule = list("numbers", count::<u32>(0..=9))
        .into(|list| if list.len() > 3 { Err("more than three") } else { Ok(list) }, Clone::clone);
    for (raw, expected) in [
        (text_raw("1, 2,3"), "[1, 2, 3]"),
        (text_raw(""), "[]"),
        (Raw::List(vec![Raw::Integer(4), text_raw("5")]), "[4, 5]"),
        (text_raw("1,,2"), "! holds \"\", which is not a whole number"),
        (text_raw("1,22"), "! holds \"22\", which is above what is allowed"),
        (text_raw("1,2,3,4"), "! is refused: more than three"),
        (Raw::Integer(1), "! is not a list"),
    ] {
        assert_eq!(check(&rule, raw.clone()), expected, "{raw}");
    }
}

#[test]
fn text_of_the_domain() {
    let rule = text::<std::net::SocketAddr>("an address", "127.0.0.1:8080");
    assert_eq!(check(&rule, text_raw("[::1]:0")), "\"[::1]:0\"");
    assert_eq!(check(&rule, text_raw("8080")), "! is refused: invalid socket address syntax");
    assert_eq!(check(&rule, Raw::Integer(1)), "! must be text in quotes, as in \"127.0.0.1:8080\"");
}
