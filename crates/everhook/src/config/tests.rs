use std::collections::BTreeSet;

use super::problem::Origin;
use super::*;

/// What a file, variables and flags come to: the problems, or nothing.
fn check(
    file: &str,
    variables: &[(&str, &str)],
    flags: &[(&'static str, &'static str, &str)],
) -> String {
    match load(&sources(file, variables, flags)) {
        Ok(_) => String::new(),
        Err(Problems(problems)) => problems
            .iter()
            .map(|Problem { place, what, todo }| format!("{place}: {what}; {todo}"))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn sources(
    file: &str,
    variables: &[(&str, &str)],
    flags: &[(&'static str, &'static str, &str)],
) -> Sources {
    Sources {
        file: Some(("my.toml".into(), file.to_owned())),
        variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        flags: flags.iter().map(|(flag, key, value)| (*flag, *key, (*value).to_owned())).collect(),
    }
}

#[test]
fn the_default_file_is_complete_and_tells_what_is_allowed() {
    let loaded = load(&Sources::default()).expect("the defaults are legal");
    let read: BTreeSet<_> = loaded.effective.iter().map(|setting| setting.key).collect();
    let layers = Layers::with_defaults();
    let written: BTreeSet<_> = layers.keys().collect();
    assert_eq!(read, written, "what is read and what the file has");

    let lines: Vec<_> = DEFAULT_FILE.lines().collect();
    for Effective { key, allowed, origin, .. } in &loaded.effective {
        let Origin::Default { line } = origin else { panic!("{key} is not from the file") };
        let comment: Vec<_> =
            lines[..line - 1].iter().rev().map_while(|line| line.strip_prefix("# ")).collect();
        let comment = comment.into_iter().rev().collect::<Vec<_>>().join(" ");
        let (meaning, range) = comment.split_once("Allowed: ").expect(key);
        assert!(meaning.len() > 40, "{key} says what it does: {meaning}");
        assert_eq!(range, format!("{allowed}."), "{key}");
    }
}

#[test]
fn the_default_file_reads_in_its_own_order() {
    let loaded = load(&Sources::default()).expect("the defaults are legal");
    let lines: Vec<_> = loaded
        .effective
        .iter()
        .map(|setting| match setting.origin {
            Origin::Default { line } => line,
            _ => 0,
        })
        .collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn the_defaults_are_those_that_are_promised() {
    let config = load(&Sources::default()).expect("the defaults are legal").config;
    let seconds = std::time::Duration::from_secs;
    assert_eq!(config.retry.schedule, everhook_domain::schedule::Schedule::default());
    assert_eq!(config.headers.prefix, everhook_domain::header::HeaderPrefix::default());
    assert!(!config.retry.honor_retry_after);
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!((config.delivery.timeout, config.delivery.lease), (seconds(10), seconds(15)));
    assert_eq!(config.delivery.endpoint_in_flight_max, 64);
    assert_eq!(config.delivery.endpoint_requests_per_second, None);
    assert_eq!(config.delivery.failing_requests_per_second, 100);
    assert_eq!(config.events.dedupe_window, seconds(86_400));
    assert_eq!(config.events.body_bytes_max, 1 << 20);
    assert_eq!(config.receive.body_bytes_max, 25 << 20);
    assert_eq!(config.receive.bodies_bytes_max, 128 << 20);
    assert_eq!(config.server.public_url, None);
    assert_eq!(config.idempotency.ttl, seconds(86_400));
    assert_eq!(config.idempotency.account_keys_max, 1_000_000);
    assert_eq!(config.idempotency.account_bytes_max, 1 << 30);
    assert_eq!(config.idempotency.lease, seconds(30));
    let claims = everhook_web::ClaimLimits::default();
    assert_eq!(config.claims.wait_max, claims.wait_max);
    assert_eq!(config.claims.result_bytes_max, claims.result_bytes_max);
    let quota = everhook_store::StorePolicy::default().idempotency_quota;
    assert_eq!(claims.quota, quota);
    assert!(config.proxy.upstream.is_none() && !config.proxy.anonymous);
    assert_eq!(config.proxy.listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.proxy.methods, [http::Method::POST]);
    assert_eq!(config.proxy.timeout, seconds(60));
    assert!(config.auth.jwt_hs256_secret_file.is_none());
    assert!(config.auth.jwt_ed25519_public_key_file.is_none());
    assert_eq!(config.secrets.overlap, seconds(86_400));
    assert_eq!(
        (config.secrets.master_key_file, config.secrets.master_key_files_old),
        (None, vec![])
    );
    assert!(config.security.allow_targets.is_empty() && !config.security.require_https);
    assert_eq!(config.store.data_dir, PathBuf::from("./everhook-data"));
}

#[test]
fn each_layer_covers_the_one_below() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\nthreads = 3\n[log]\nlevel = \"warn\"";
    let variables = [
        ("EVERHOOK_SERVER_LISTEN", "127.0.0.1:2"),
        ("EVERHOOK_LOG_LEVEL", "info,everhook_engine=debug"),
        ("EVERHOOK_RETRY_SCHEDULE", "0s, 1s,2s"),
        ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8,::1"),
        ("EVERHOOK_ADMIN_TOKEN", "not a setting"),
    ];
    let flags = [("--listen", "server.listen", "127.0.0.1:3")];
    let loaded = load(&sources(file, &variables, &flags)).expect("legal");
    let shown = |key: &str| {
        let setting = loaded.effective.iter().find(|setting| setting.key == key).expect(key);
        (setting.value.clone(), setting.origin.to_string())
    };
    for (key, value, origin) in [
        ("server.listen", "\"127.0.0.1:3\"", "--listen"),
        ("server.threads", "3", "my.toml:3"),
        ("log.level", "\"info,everhook_engine=debug\"", "EVERHOOK_LOG_LEVEL"),
        ("retry.schedule", "[\"0s\", \"1s\", \"2s\"]", "EVERHOOK_RETRY_SCHEDULE"),
        (
            "security.allow_targets",
            "[\"127.0.0.0/8\", \"::1/128\"]",
            "EVERHOOK_SECURITY_ALLOW_TARGETS",
        ),
        ("delivery.timeout", "\"10s\"", "default"),
    ] {
        assert_eq!(shown(key), (value.to_owned(), origin.to_owned()), "{key}");
    }
}

#[test]
fn what_is_shown_can_be_used_as_a_file() {
    let variables = [("EVERHOOK_RETRY_SCHEDULE", "0s,90s"), ("EVERHOOK_LOG_FORMAT", "json")];
    let loaded = load(&sources("", &variables, &[])).expect("legal");
    let again = load(&sources(&as_text(&loaded.effective), &[], &[])).expect("legal");
    let values = |loaded: &Loaded| -> Vec<_> {
        loaded.effective.iter().map(|setting| (setting.key, setting.value.clone())).collect()
    };
    assert_eq!(values(&again), values(&loaded));
}

#[test]
fn what_the_proxy_cannot_be() {
    let url = "an http or https URL without credentials and query, such as http://127.0.0.1:3000";
    let refused = |value: &str, why: &str| {
        format!(
            "EVERHOOK_PROXY_UPSTREAM: proxy.upstream = {value:?} is refused: {why}; allowed: none, \
             or {url}"
        )
    };
    let credentials = "credentials are the client's own and are handed on: take them out";
    check_all(&[
        ("", "EVERHOOK_PROXY_UPSTREAM=https://shop.test/base", ""),
        (
            "",
            "EVERHOOK_PROXY_UPSTREAM=http://u:p@shop.test",
            &refused("http://***@shop.test", credentials),
        ),
        (
            "",
            "EVERHOOK_PROXY_UPSTREAM=http://shop.test/?a",
            &refused("http://shop.test/?a", "each request has its own query: take it out"),
        ),
        ("[proxy]\nmethods = [\"POST\", \"DELETE\"]", "", ""),
        (
            "[proxy]\nmethods = []",
            "",
            "my.toml:2: proxy.methods = [] is refused: name at least one, as in [\"POST\"]; \
             allowed: one or more of POST, PUT, PATCH and DELETE",
        ),
        (
            "[proxy]\nmethods = [\"GET\"]",
            "",
            "my.toml:2: proxy.methods = [\"GET\"] holds \"GET\", which is not one of them; \
             allowed: one or more of POST, PUT, PATCH and DELETE",
        ),
        (
            "[proxy]\nanswer_max = \"5s\"",
            "",
            "my.toml:2: proxy.answer_max = \"5s\" is too small for idempotency.lease = \"30s\"; \
             set proxy.answer_max to \"30s\" or more, or idempotency.lease to less",
        ),
    ]);
}

/// A file, one variable (or none), and what they come to.
type Case<'a> = (&'a str, &'a str, &'a str);

fn check_all(cases: &[Case<'_>]) {
    for (file, variable, expected) in cases {
        let variables: Vec<_> = variable.split_once('=').into_iter().collect();
        assert_eq!(check(file, &variables, &[]), *expected, "{file} {variable}");
    }
}

#[test]
fn bad_values() {
    let lease = "set delivery.lease to \"14s\" or more, or delivery.timeout to less";
    check_all(&[
        (
            "[delivery]\ntimeout = 10",
            "",
            "my.toml:2: delivery.timeout = 10 has no unit, as in \"10s\"; allowed: 100ms to 5m",
        ),
        (
            "",
            "EVERHOOK_DELIVERY_TIMEOUT=5x",
            "EVERHOOK_DELIVERY_TIMEOUT: delivery.timeout = \"5x\" has the unit \"x\"; the units \
             are ms, s, m, h, d; allowed: 100ms to 5m",
        ),
        (
            "[delivery]\nlease = \"13s\"",
            "",
            &format!(
                "my.toml:2: delivery.lease = \"13s\" is too small for delivery.timeout = \"10s\"; \
                 {lease}"
            ),
        ),
        (
            "[delivery]\n\ntimeout = \"11s\"",
            "EVERHOOK_SERVER_THREADS=2",
            "my.toml:3: delivery.lease = \"15s\" is too small for delivery.timeout = \"11s\"; set \
             delivery.lease to \"15400ms\" or more, or delivery.timeout to less",
        ),
        (
            "[replay]\nrate_per_second_max = 100",
            "",
            "my.toml:2: replay.rate_per_second_max = \"100\" is too small for \
             replay.rate_per_second = 500; set replay.rate_per_second_max to \"500\" or more, or \
             replay.rate_per_second to less",
        ),
        (
            "[events]\nbatch_bytes_max = \"512KiB\"",
            "",
            "my.toml:2: events.batch_bytes_max = \"512KiB\" is too small for \
             events.body_bytes_max = \"1MiB\"; set events.batch_bytes_max to \"1MiB\" or more, \
             or events.body_bytes_max to less",
        ),
        ("[delivery]\ntimeout = \"1s\"\nlease = \"2s\"", "", ""),
        ("[delivery]\ntimeout = \"10s\"\nlease = \"14s\"", "", ""),
    ]);
}

#[test]
fn values_that_mean_nothing() {
    check_all(&[
        (
            "",
            "EVERHOOK_RETRY_SCHEDULE=1s,2s",
            "EVERHOOK_RETRY_SCHEDULE: retry.schedule = \"1s,2s\" is refused: the first offset must \
             be 0s: the first attempt starts at once; allowed: 1 to 20 durations, the first 0s, \
             each longer than the one before",
        ),
        (
            "[retry]\nschedule = [\"0s\", 5]",
            "",
            "my.toml:2: retry.schedule = [\"0s\", 5] holds 5, which has no unit, as in \"10s\"; \
             allowed: 1 to 20 durations, the first 0s, each longer than the one before",
        ),
        (
            "[security]\nallow_targets = [\"localhost\"]",
            "",
            "my.toml:2: security.allow_targets = [\"localhost\"] holds \"localhost\", which is \
             refused: not an IP address or block such as 10.0.0.0/8, 192.168.1.7 or fd00::/8 \
             (names cannot be listed); allowed: IP addresses and blocks, such as 10.1.2.0/24, \
             192.168.1.7 or fd00::/8",
        ),
        (
            "",
            "EVERHOOK_HEADERS_PREFIX=X-Message",
            "EVERHOOK_HEADERS_PREFIX: headers.prefix = \"X-Message\" is refused: must be 2 to 64 \
             characters that are legal in a header name, the last of them '-', such as \
             X-Message-; allowed: 2 or more characters of a header name, the last of them a \
             hyphen",
        ),
        (
            "",
            "EVERHOOK_SERVER_LISTEN=localhost:8080",
            "EVERHOOK_SERVER_LISTEN: server.listen = \"localhost:8080\" is refused: invalid socket \
             address syntax; allowed: an IP address with a port, such as 127.0.0.1:8080, \
             0.0.0.0:8080 or [::1]:8080",
        ),
        (
            "",
            "EVERHOOK_LOG_LEVEL=inf",
            "EVERHOOK_LOG_LEVEL: log.level = \"inf\" is refused: \"inf\" is no level; allowed: \
             off, error, warn, info, debug or trace; several as in info,everhook_engine=debug",
        ),
        (
            "",
            "EVERHOOK_LOG_FORMAT=xml",
            "EVERHOOK_LOG_FORMAT: log.format = \"xml\" is not one of them; allowed: human or json",
        ),
        (
            "",
            "EVERHOOK_STORE_DATA_DIR=",
            "EVERHOOK_STORE_DATA_DIR: store.data_dir = \"\" is empty; allowed: a path; a relative \
             one counts from the working directory",
        ),
    ]);
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let file = "[delivery]\ntimeout = 10\nlese = \"1s\"\n[evnts]\nx = 1\n[server]\nthreads = 0";
    let variables = [("EVERHOOK_LOG_LEVL", "info"), ("EVERHOOK_EVENTS_BODY_BYTES_MAX", "1MB")];
    let flags = [("--listen", "server.listen", "8080")];
    let Err(problems) = load(&sources(file, &variables, &flags)) else { panic!("not legal") };
    let mut places: Vec<_> = problems.0.iter().map(|problem| problem.place.as_str()).collect();
    places.sort_unstable();
    let expected = [
        "--listen",
        "EVERHOOK_EVENTS_BODY_BYTES_MAX",
        "EVERHOOK_LOG_LEVL",
        "my.toml:2",
        "my.toml:3",
        "my.toml:4",
        "my.toml:7",
    ];
    assert_eq!(places, expected);
    assert!(problems.to_string().starts_with("the configuration has 7 problems:\n"));
}

#[test]
fn a_wrong_value_is_told_even_where_another_layer_covers_it() {
    let variables = [("EVERHOOK_SERVER_THREADS", "4")];
    assert_eq!(
        check("[server]\nthreads = \"four\"", &variables, &[]),
        "my.toml:2: server.threads = \"four\" is not a whole number; allowed: 1 to 256"
    );
}
