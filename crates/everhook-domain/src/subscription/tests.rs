use super::*;
use proptest::prelude::*;

fn subscription(text: &str) -> Subscription {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Which of the events (`origin type` or `received source`) the patterns and sources take.
fn check(event_types: &[&str], sources: &[&str], taken: &[&str], left: &[&str]) {
    let subscription = Subscription {
        event_types: event_types.iter().map(|text| text.parse().expect("a pattern")).collect(),
        sources: sources.iter().map(|name| (*name).to_owned()).collect(),
        conditions: Vec::new(),
    };
    for (events, expected) in [(taken, true), (left, false)] {
        for event in events {
            let facts = match event.split_once(' ').expect("two words") {
                ("published", name) => Facts::new(Origin::Published, name, None, b"{}"),
                ("system", name) => Facts::new(Origin::System, name, None, b"{}"),
                (_, source) => Facts::new(Origin::Received, "s.paid", Some(source), b"{}"),
            };
            assert_eq!(subscription.matches(&facts), expected, "{event_types:?} {event}");
        }
    }
}

/// Whether a condition holds for the data.
fn check_condition(pointer: &str, equals: &str, data: &str, expected: bool) {
    let pointer = serde_json::to_string(pointer).expect("JSON");
    let text = format!(r#"{{"conditions":[{{"pointer":{pointer},"equals":{equals}}}]}}"#);
    let facts = Facts::new(Origin::Published, "a", None, data.as_bytes());
    assert_eq!(subscription(&text).matches(&facts), expected, "{pointer} = {equals} in {data}");
}

/// The places of everything that is wrong.
fn check_problems(text: &str, expected: &[&str]) {
    let input = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let problems = Subscription::parse(input).err().unwrap_or_default();
    let places: Vec<_> = problems.iter().map(|problem| problem.pointer.as_str()).collect();
    assert_eq!(places, expected, "{text}");
}

#[test]
fn types_of_published_events() {
    check(
        &["invoice.paid"],
        &[],
        &["published invoice.paid"],
        &["published invoice.paid.late", "published invoice", "published Invoice.paid"],
    );
    check(
        &["invoice.*"],
        &[],
        &["published invoice.paid", "published invoice.a.b", "published invoice.."],
        &[
            "published invoice",
            "published invoice.",
            "published invoicex.y",
            "published x.invoice.a",
        ],
    );
    check(&["*"], &[], &["published invoice.paid", "published a"], &[]);
    check(&["a", "b.*"], &[], &["published a", "published b.c"], &["published c"]);
    check(&[], &[], &[], &["published a"]);
}

#[test]
fn system_events_must_be_named() {
    let dead = "system everhook.delivery.dead";
    check(&["*"], &[], &[], &[dead]);
    check(&["everhook.delivery.dead"], &[], &[dead], &["system everhook.endpoint.failing"]);
    check(&["everhook.*"], &[], &[dead, "system everhook.endpoint.failing"], &["published a"]);
    check(&["everhook.delivery.*"], &[], &[dead], &["system everhook.endpoint.failing"]);
    check(&["*", "everhook.*"], &[], &[dead, "published a"], &[]);
    check(&["everhook", "ever.*"], &[], &[], &[dead]);
}

#[test]
fn received_events_match_by_source_only() {
    check(&["*"], &[], &[], &["received stripe"]);
    check(&["s.paid"], &[], &[], &["received stripe"]);
    check(&[], &["stripe"], &["received stripe"], &["received stripe2", "published stripe"]);
    let all = subscription(r#"{"sources":["stripe"]}"#);
    assert!(!all.matches(&Facts::new(Origin::Received, "s.paid", None, b"{}")));
    assert!(all.matches(&Facts::new(Origin::Received, "s.paid", Some("stripe"), b"\xff\xd8")));
}

#[test]
fn pointers_name_parts_of_the_data() {
    // RFC 6901 §5.
    let data = r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,
        "m~n":8}"#;
    for (pointer, equals) in [
        ("/foo", r#"["bar","baz"]"#),
        ("/foo/0", r#""bar""#),
        ("/", "0"),
        ("/a~1b", "1"),
        ("/c%d", "2"),
        ("/e^f", "3"),
        ("/g|h", "4"),
        ("/i\\j", "5"),
        ("/k\"l", "6"),
        ("/ ", "7"),
        ("/m~0n", "8"),
    ] {
        check_condition(pointer, equals, data, true);
    }
    check_condition("", r#"{"a":1}"#, r#"{ "a": 1.0 }"#, true);
    check_condition("", "null", "null", true);
    check_condition("/~01", "1", r#"{"~1":1}"#, true);
    check_condition("/0", "1", r#"{"0":1}"#, true);
    for pointer in ["/foo/2", "/foo/-", "/foo/00", "/foo/01", "/foo/+1", "/foo/", "/foo/0/0", "/x"]
    {
        for equals in ["null", r#""bar""#, r#""baz""#] {
            check_condition(pointer, equals, data, false);
        }
    }
    check_condition("/foo/99999999999999999999999", "1", data, false);
}

#[test]
fn conditions_compare_by_value() {
    check_condition("/n", "1", r#"{"n":1.0}"#, true);
    check_condition("/n", "1", r#"{"n":"1"}"#, false);
    check_condition("/n", "9007199254740993", r#"{"n":9007199254740992}"#, false);
    check_condition("/n", "123456789012345678901234", r#"{"n":123456789012345678901234}"#, true);
    check_condition("/n", "123456789012345678901234", r#"{"n":123456789012345678901235}"#, false);
    check_condition("/s", r#""\u00e9""#, r#"{"s":"é"}"#, true);
    check_condition("/o", r#"{"b":2,"a":1}"#, r#"{"o":{"a":1,"b":2}}"#, true);
    check_condition("/a", "null", r#"{"a":null}"#, true);
    check_condition("/a", "null", "{}", false);
    check_condition("/a", "1", r#"{"x":"\ud800","a":1}"#, true);
    for data in ["", "not json", "{\"a\":1", "\u{feff}{\"a\":1}"] {
        check_condition("/a", "1", data, false);
    }
}

#[test]
fn a_test_is_for_nobody_who_only_names_it() {
    for names in ["everhook.*", "everhook.test", "*"] {
        let subscription = subscription(&format!(r#"{{"event_types":["{names}"]}}"#));
        let facts = Facts::new(Origin::System, "everhook.test", None, b"{}");
        assert!(!subscription.matches(&facts), "{names}");
    }
}

#[test]
fn all_conditions_must_hold_whatever_the_origin() {
    let both = subscription(
        r#"{"event_types":["*","everhook.*"],"sources":["s"],"conditions":[
            {"pointer":"/a","equals":1},{"pointer":"/b","equals":2}]}"#,
    );
    for (data, expected) in [(r#"{"a":1,"b":2}"#, true), (r#"{"a":1,"b":3}"#, false)] {
        for (origin, name) in [
            (Origin::Published, "x"),
            (Origin::System, "everhook.delivery.dead"),
            (Origin::Received, "s.x"),
        ] {
            let facts = Facts::new(origin, name, Some("s"), data.as_bytes());
            assert_eq!(both.matches(&facts), expected, "{origin:?} {data}");
        }
    }
}

#[test]
fn legal_and_illegal_patterns() {
    use InvalidEventPattern::{Character, Empty, Length, Prefix, Star};
    let longest = "x".repeat(TYPE_BYTES_MAX);
    for text in ["*", "a", "a.b-c_D.9", "a.*", "a.b.*", "..*", &longest] {
        let pattern = text.parse::<EventPattern>().map(|pattern| pattern.to_string());
        assert_eq!(pattern.as_deref(), Ok(text));
    }
    for (text, expected) in [
        ("", Empty),
        ("**", Star),
        ("a*", Star),
        ("*.a", Star),
        ("a.*.b", Star),
        ("a.**", Star),
        (".*", Prefix),
        ("a b", Character),
        (" a", Character),
        ("é.*", Character),
        ("a,b", Character),
        (&format!("{longest}x"), Length),
    ] {
        assert_eq!(text.parse::<EventPattern>(), Err(expected), "{text}");
    }
}

#[test]
fn legal_and_illegal_pointers() {
    use InvalidJsonPointer::{Length, Slash, Tilde};
    for text in ["", "/", "/a/b", "/~0~1", "//", &format!("/{}", "x".repeat(POINTER_BYTES_MAX - 1))]
    {
        assert_eq!(text.parse::<JsonPointer>().expect(text).as_str(), text);
    }
    for (text, expected) in [
        ("a", Slash),
        ("#/a", Slash),
        ("$.a", Slash),
        ("/~", Tilde),
        ("/~2", Tilde),
        ("/a~/b", Tilde),
        ("/~~0", Tilde),
        (&format!("/{}", "x".repeat(POINTER_BYTES_MAX)), Length),
    ] {
        assert_eq!(text.parse::<JsonPointer>(), Err(expected), "{text}");
    }
}

#[test]
fn all_problems_at_once_each_with_its_place() {
    check_problems("{}", &[]);
    check_problems(
        r#"{"event_types":["a","b*",""],"sources":["ok","No"],"conditions":[
            {"pointer":"a","equals":1},{"pointer":"/a","equals":1},{"pointer":"/~","equals":1}]}"#,
        &[
            "/event_types/1",
            "/event_types/2",
            "/sources/1",
            "/conditions/0/pointer",
            "/conditions/2/pointer",
        ],
    );
    let list = |item: &str, count: usize| vec![item; count].join(",");
    for (most, place) in [(EVENT_TYPES_MAX, "event_types"), (SOURCES_MAX, "sources")] {
        check_problems(&format!(r#"{{"{place}":[{}]}}"#, list(r#""a""#, most)), &[]);
        let over = format!(r#"{{"{place}":[{}]}}"#, list(r#""A*""#, most + 1));
        check_problems(&over, &[&format!("/{place}")]);
    }
    let condition = r#"{"pointer":"","equals":0}"#;
    let over = format!(r#"{{"conditions":[{}]}}"#, list(condition, CONDITIONS_MAX + 1));
    check_problems(&over, &["/conditions"]);
    for equals in [
        format!("\"{}\"", "x".repeat(EQUALS_BYTES_MAX)),
        format!("{}{}", "[".repeat(129), "]".repeat(129)),
    ] {
        let over = format!(r#"{{"conditions":[{{"pointer":"","equals":{equals}}}]}}"#);
        check_problems(&over, &["/conditions/0/equals"]);
    }
}

#[test]
fn stored_form_is_what_was_asked_for() {
    let text = concat!(
        r#"{"event_types":["a.*","everhook.*"],"sources":["stripe"],"#,
        r#""conditions":[{"pointer":"/a~1b","equals":12345678901234567890123.0}]}"#
    );
    let read = subscription(text);
    assert_eq!(serde_json::to_string(&read).expect("JSON"), text);
    let value: serde_json::Value = serde_json::from_str(r#"{"sources":["s"]}"#).expect("JSON");
    let read: Subscription = serde_json::from_value(value).expect("a subscription");
    assert_eq!(read, Subscription { sources: vec!["s".to_owned()], ..Subscription::default() });
    assert_eq!(subscription("{}"), Subscription::default());
    for bad in [
        r#"{"event_type":[]}"#,
        r#"{"event_types":["a*"]}"#,
        r#"{"event_types":"*"}"#,
        r#"{"conditions":[{"pointer":"/a"}]}"#,
        r#"{"conditions":[{"pointer":"/a","equals":1,"not":2}]}"#,
    ] {
        assert!(serde_json::from_str::<Subscription>(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn a_pattern_reads_its_own_text_and_covers_what_it_begins(
        prefix in "[a-z_-]{1,5}(\\.[a-z]{1,5}){0,2}", rest in "[a-z.]{1,5}"
    ) {
        let exact: EventPattern = prefix.parse().expect("a pattern");
        let under: EventPattern = format!("{prefix}.*").parse().expect("a pattern");
        prop_assert_eq!(under.to_string().parse::<EventPattern>(), Ok(under.clone()));
        prop_assert!(exact.covers(&prefix) && !under.covers(&prefix));
        let below = format!("{prefix}.{rest}");
        prop_assert!(under.covers(&below) && !exact.covers(&below));
        prop_assert!(EventPattern::ALL.covers(&below) && !EventPattern::ALL.names(&below));
    }

    #[test]
    fn a_pointer_finds_any_name(names in prop::collection::vec("\\PC{0,5}", 1..5)) {
        let mut data = "1".to_owned();
        let mut pointer = String::new();
        for name in names.iter().rev() {
            data = format!("{{{}:{data}}}", serde_json::to_string(name).expect("JSON"));
            pointer = format!("/{}{pointer}", name.replace('~', "~0").replace('/', "~1"));
        }
        check_condition(&pointer, "1", &data, true);
        check_condition(&pointer, "2", &data, false);
    }
}
