//! Bad input is answered before anything is stored, with everything that is wrong.

use crate::harness::{Api, TOKEN};

/// One request that must be refused.
struct Row<'a> {
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
    status: u16,
    slug: &'a str,
    pointers: &'a [&'a str],
}

/// Sends it, compares, and looks whether anything is stored.
async fn check(row: Row<'_>) -> String {
    let api = Api::new();
    let reply = api.send(row.method, row.path, row.headers, row.body).await;
    let what = format!("{} {} {}", row.method, row.path, String::from_utf8_lossy(row.body));
    let what: String = what.chars().take(200).collect();
    assert_eq!((reply.status, reply.slug().as_str()), (row.status, row.slug), "{what}: {reply:?}");
    assert_eq!(reply.pointers(), row.pointers, "{what}");
    for list in ["/api/v1/events", "/api/v1/endpoints", "/api/v1/deliveries"] {
        assert!(api.list(list).await.is_empty(), "{what} stored something in {list}");
    }
    String::from_utf8(reply.body).expect("UTF-8")
}

async fn check_body(path: &str, body: &[u8], status: u16, slug: &str, pointers: &[&str]) -> String {
    check(Row { method: "POST", path, headers: &[], body, status, slug, pointers }).await
}

#[tokio::test]
async fn broken_json_says_where() {
    for (body, place) in [
        (&b""[..], "the body is empty"),
        (b" \n ", "the body is empty"),
        (b"{", "the text ends inside an object at line 1, column 1"),
        (b"{\"type\":\"a\",\n \"data\": tru}", "at line 2, column 13 (byte 25)"),
        (b"{\"type\":\"a\"\n \"data\":1}", "expected `,` or `}` at line 2, column 2 (byte 13)"),
        (b"{\"type\":\"a\",\"data\":1,}", "trailing comma at line 1, column 22 (byte 21)"),
        (b"{\"type\":\"a\",\"data\":1} x", "trailing characters at line 1, column 23 (byte 22)"),
        (b"{\"type\":\"a\",\"data\":01}", "invalid number at line 1, column 21"),
        (b"{\"type\":\"a\",\"data\":NaN}", "a value was expected at line 1, column 20"),
        (b"{'type':'a','data':1}", "key must be a string at line 1, column 2"),
        (b"{\"type\":\"a\",\"data\":\"\xff\"}", "the text is not UTF-8 at line 1, column 21"),
        (b"{\"type\":\"a\",\"data\":\"\n\"}", "control character"),
        (b"{\"type\":\"a\",\"data\":\"\\x\"}", "invalid escape at line 1, column 22"),
        (
            b"\xef\xbb\xbf{\"type\":\"a\",\"data\":1}",
            "a value was expected at line 1, column 1 (byte 0)",
        ),
        (b"{\"ty\\ud800pe\":1}", "a name escapes half of a surrogate pair"),
        (b"hello-secret", "a value was expected at line 1, column 1 (byte 0)"),
        (b"[1,", "the text ends inside"),
    ] {
        for path in ["/api/v1/events", "/api/v1/events/batch", "/api/v1/endpoints"] {
            let answer = check_body(path, body, 400, "malformed-json", &[]).await;
            let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
            let detail = answer["detail"].as_str().expect("text");
            assert!(detail.contains(place), "{}: {detail}", String::from_utf8_lossy(body));
            assert!(!detail.contains("secret"), "{detail}");
        }
    }
}

#[tokio::test]
async fn deep_nesting_costs_no_stack() {
    let deep = format!(r#"{{"type":"a","data":{}{}}}"#, "[".repeat(128), "]".repeat(128));
    let answer = check_body("/api/v1/events", deep.as_bytes(), 400, "malformed-json", &[]).await;
    assert!(answer.contains("nested at line 1, column 147 (byte 146)"), "{answer}");
    let deeper = [b"{\"type\":\"a\",\"data\":".to_vec(), b"[{\"x\":".repeat(100_000)].concat();
    check_body("/api/v1/events", &deeper, 400, "malformed-json", &[]).await;
    check_body("/api/v1/events/batch", &deeper, 400, "malformed-json", &[]).await;
    let quoted = format!(r#"{{"type":"a","data":"{}\"","type":1}}"#, "[".repeat(500));
    check_body("/api/v1/events", quoted.as_bytes(), 400, "duplicate-member", &[]).await;
}

#[tokio::test]
async fn repeated_members_are_refused() {
    for (path, body, pointer) in [
        ("/api/v1/events", r#"{"type":"a","data":1,"type":"a"}"#, "/type"),
        ("/api/v1/events", r#"{"type":"a","data":1,"dat\u0061":1}"#, "/data"),
        ("/api/v1/events", r#"{"x/y":1,"x/y":1}"#, "/x~1y"),
        ("/api/v1/events/batch", r#"{"events":[],"events":[]}"#, "/events"),
        ("/api/v1/events/batch", r#"{"events":[{},{"data":1,"data":1}]}"#, "/events/1/data"),
        ("/api/v1/endpoints", r#"{"url":"https://example.com","url":""}"#, "/url"),
        (
            "/api/v1/endpoints",
            r#"{"url":"https://example.com","headers":{"a":"1","a":"2"}}"#,
            "/headers/a",
        ),
        (
            "/api/v1/endpoints",
            r#"{"url":"https://example.com","conditions":[{"pointer":"","pointer":""}]}"#,
            "/conditions/0/pointer",
        ),
    ] {
        let answer = check_body(path, body.as_bytes(), 400, "duplicate-member", &[]).await;
        assert!(answer.contains(pointer), "{body}: {answer}");
    }
}

#[tokio::test]
async fn invalid_events_name_everything_at_once() {
    let long = "x".repeat(129);
    let type_long = format!(r#"{{"type":"{long}","data":1}}"#);
    let id_long = format!(r#"{{"type":"a","data":1,"source_event_id":"{}"}}"#, "ä".repeat(128));
    for (body, pointers) in [
        ("[]", &[""][..]),
        ("\"a\"", &[""]),
        ("17", &[""]),
        ("null", &[""]),
        ("{}", &["/type", "/data"]),
        (r#"{"type":"a"}"#, &["/data"]),
        (r#"{"data":1}"#, &["/type"]),
        (r#"{"type":null,"data":1}"#, &["/type"]),
        (r#"{"type":7,"data":1}"#, &["/type"]),
        (r#"{"type":"","data":1}"#, &["/type"]),
        (r#"{"type":"a b","data":1}"#, &["/type"]),
        (r#"{"type":"ä","data":1}"#, &["/type"]),
        (r#"{"type":"\ud800","data":1}"#, &["/type"]),
        (r#"{"type":"everhook.test","data":1}"#, &["/type"]),
        (type_long.as_str(), &["/type"]),
        (r#"{"type":"a","data":1,"source_event_id":""}"#, &["/source_event_id"]),
        (r#"{"type":"a","data":1,"source_event_id":1}"#, &["/source_event_id"]),
        (r#"{"type":"a","data":1,"source_event_id":"\u0000"}"#, &["/source_event_id"]),
        (id_long.as_str(), &["/source_event_id"]),
        (r#"{"type":"a","data":1,"timestamp":"yesterday"}"#, &["/timestamp"]),
        (r#"{"type":"a","data":1,"timestamp":1767225600}"#, &["/timestamp"]),
        (r#"{"type":"a","data":1,"Type":"a"}"#, &["/Type"]),
        (r#"{"type":"a","data":1,"id":"evt_1","a/b~":{"c":1}}"#, &["/id", "/a~1b~0"]),
        (
            r#"{"x":1,"type":"a b","source_event_id":[],"timestamp":true}"#,
            &["/x", "/type", "/data", "/source_event_id", "/timestamp"],
        ),
    ] {
        check_body("/api/v1/events", body.as_bytes(), 422, "invalid", pointers).await;
    }
}

#[tokio::test]
async fn invalid_batches_name_the_index() {
    let many = format!("{{\"events\":[{}1]}}", "1,".repeat(1_000));
    for (body, pointers) in [
        ("{}", &["/events"][..]),
        (r#"{"events":{}}"#, &["/events"]),
        (r#"{"events":null}"#, &["/events"]),
        (r#"{"events":[]}"#, &["/events"]),
        (r#"{"event":[]}"#, &["/event", "/events"]),
        (many.as_str(), &["/events"]),
        (
            r#"{"events":[{"type":"a","data":1},7,{"type":"everhook.x","data":1},
                {"type":"a","x":1}],"y":1}"#,
            &["/y", "/events/1", "/events/2/type", "/events/3/x", "/events/3/data"],
        ),
    ] {
        check_body("/api/v1/events/batch", body.as_bytes(), 422, "invalid", pointers).await;
    }
}

#[tokio::test]
async fn a_huge_object_is_bounded_in_what_it_costs() {
    let members: Vec<String> = (0..50_000).map(|n| format!("\"m{n}\":0")).collect();
    let body = format!("{{{}}}", members.join(","));
    let api = Api::new();
    let reply = api.post("/api/v1/events", &body).await;
    assert_eq!((reply.status, reply.slug().as_str()), (422, "invalid"));
    assert_eq!(reply.pointers().len(), 64 + 3);
    assert!(reply.json()["errors"].to_string().contains("49936 more members"));
    let name = format!("{{\"{}\":1}}", "n".repeat(100_000));
    let reply = api.post("/api/v1/events", &name).await;
    assert!(reply.body.len() < 2_000, "a long name is cut");
}

#[tokio::test]
async fn invalid_endpoints_name_everything_at_once() {
    let ok = "\"url\":\"https://example.com/\"";
    let long = "x".repeat(1_025);
    for (rest, pointers) in [
        (r#""url":"#.to_owned() + "\"\"", &["/url"][..]),
        ("\"kind\":\"http\"".to_owned(), &["/url"]),
        ("\"url\":null".to_owned(), &["/url"]),
        ("\"url\":\"ftp://example.com\"".to_owned(), &["/url"]),
        ("\"url\":\"https://example.com/#x\"".to_owned(), &["/url"]),
        ("\"url\":\"https://127.0.0.1/\"".to_owned(), &["/url"]),
        ("\"url\":\"https://2130706433/\"".to_owned(), &["/url"]),
        ("\"url\":\"https://[::ffff:10.0.0.1]/\"".to_owned(), &["/url"]),
        ("\"url\":\"https://169.254.169.254/latest\"".to_owned(), &["/url"]),
        ("\"url\":\"https://***:***@example.com/\"".to_owned(), &["/url"]),
        (format!("{ok},\"kind\":\"sqs\""), &["/kind"]),
        (format!("{ok},\"kind\":\"smtp\""), &["/kind"]),
        (format!("{ok},\"kind\":1"), &["/kind"]),
        (format!("{ok},\"options\":{{\"queue\":\"q\"}}"), &["/options/queue"]),
        (format!("{ok},\"options\":[]"), &["/options"]),
        (format!("{ok},\"event_types\":\"a\""), &["/event_types"]),
        (
            format!("{ok},\"event_types\":[\"a\",\"b c\",7,\"*x\"]"),
            &["/event_types/2", "/event_types/1", "/event_types/3"],
        ),
        (format!("{ok},\"sources\":[\"A b\"]"), &["/sources/0"]),
        (format!("{ok},\"conditions\":[7]"), &["/conditions/0"]),
        (format!("{ok},\"conditions\":[{{}}]"), &["/conditions/0/pointer", "/conditions/0/equals"]),
        (
            format!("{ok},\"conditions\":[{{\"pointer\":\"a\",\"equals\":1,\"x\":1}}]"),
            &["/conditions/0/x", "/conditions/0/pointer"],
        ),
        (format!("{ok},\"description\":\"{long}\""), &["/description"]),
        (format!("{ok},\"description\":7"), &["/description"]),
        (format!("{ok},\"requests_per_second\":0"), &["/requests_per_second"]),
        (format!("{ok},\"requests_per_second\":1.5"), &["/requests_per_second"]),
        (format!("{ok},\"max_in_flight\":\"1\""), &["/max_in_flight"]),
        (format!("{ok},\"max_in_flight\":-1"), &["/max_in_flight"]),
        (format!("{ok},\"secret\":\"whsec_x\""), &["/secret"]),
        (
            "\"uri\":1,\"kind\":\"x\",\"description\":1,\"max_in_flight\":0".to_owned(),
            &["/uri", "/kind", "/url", "/description", "/max_in_flight"],
        ),
    ] {
        let body = format!("{{{rest}}}");
        check_body("/api/v1/endpoints", body.as_bytes(), 422, "invalid", pointers).await;
    }
}

#[tokio::test]
async fn case_068_headers_that_break_a_request_are_refused_by_name() {
    let api = Api::new();
    let path = format!("/api/v1/endpoints/{}", api.endpoint().await);
    let many: Vec<String> = (0..200).map(|n| format!("\"x-{n}\":\"v\"")).collect();
    for (headers, pointers) in [
        (r#"{"x-a":"v\r\nx-b: c"}"#.to_owned(), &["/headers/x-a"][..]),
        (r#"{"x a":"v"}"#.to_owned(), &["/headers/x a"]),
        (r#"{"x-a":""}"#.to_owned(), &["/headers/x-a"]),
        (r#"{"x-a":"مرحبا"}"#.to_owned(), &["/headers/x-a"]),
        (r#"{"x-a":7}"#.to_owned(), &["/headers/x-a"]),
        (
            r#"{"Host":"a","Content-Length":"1","webhook-signature":"x",
                "X-Message-Webhook-Id":"x"}"#
                .to_owned(),
            &[
                "/headers/Host",
                "/headers/Content-Length",
                "/headers/webhook-signature",
                "/headers/X-Message-Webhook-Id",
            ],
        ),
        (r#"{"x-a":"1","X-A":"2"}"#.to_owned(), &["/headers/X-A"]),
        (r#"{"x-api-key":"***"}"#.to_owned(), &["/headers/x-api-key"]),
        (format!("{{{}}}", many.join(",")), &["/headers"]),
        ("[]".to_owned(), &["/headers"]),
    ] {
        let body = format!(r#"{{"url":"https://example.com/","headers":{headers}}}"#);
        check_body("/api/v1/endpoints", body.as_bytes(), 422, "invalid", pointers).await;
        let changed = api.patch(&path, &format!(r#"{{"headers":{headers}}}"#)).await;
        assert_eq!(
            (changed.status, changed.pointers()),
            (422, pointers.iter().map(|p| (*p).to_owned()).collect()),
            "{headers}"
        );
    }
}

#[tokio::test]
async fn wrong_media_types_and_encodings_are_refused() {
    let body = br#"{"type":"a","data":1}"#;
    for headers in [
        &[("content-type", "text/plain")][..],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
    ] {
        for path in ["/api/v1/events", "/api/v1/events/batch", "/api/v1/endpoints"] {
            let slug = "unsupported-media-type";
            let row = Row { method: "POST", path, headers, body, status: 415, slug, pointers: &[] };
            check(row).await;
        }
    }
}

#[tokio::test]
async fn case_084_large_bodies_are_refused_with_the_limit() {
    const MIB: usize = 1_024 * 1_024;
    let of = |size: usize| {
        let head = br#"{"type":"a","data":""#.to_vec();
        let fill = vec![b'x'; size - head.len() - 2];
        [head, fill, b"\"}".to_vec()].concat()
    };
    for size in [MIB + 1, 2_100_000, 30_000_000] {
        let answer = check_body("/api/v1/events", &of(size), 413, "body-too-large", &[]).await;
        assert!(answer.contains("1048576"), "{answer}");
    }
    let answer =
        check_body("/api/v1/events/batch", &of(16 * MIB + 1), 413, "body-too-large", &[]).await;
    assert!(answer.contains("16777216"), "{answer}");
    check_body("/api/v1/endpoints", &of(MIB + 1), 413, "body-too-large", &[]).await;
    let api = Api::new();
    let reply = api.send("POST", "/api/v1/events", &[], &of(MIB)).await;
    assert_eq!(reply.status, 202, "exactly the limit is allowed");
}

#[tokio::test]
async fn bad_parameters_are_refused() {
    let delivery = "/api/v1/deliveries";
    for (path, part) in [
        ("/api/v1/events?limit=0", "1 to 250"),
        ("/api/v1/events?limit=251", "1 to 250"),
        ("/api/v1/events?limit=x&from=y", "from"),
        ("/api/v1/events?type=a%20b", "type"),
        ("/api/v1/events?from=2026", "RFC 3339"),
        ("/api/v1/events?to=2026-01-01T00:00:00%2B25:00", "RFC 3339"),
        ("/api/v1/events?status=due", "unknown parameter 'status'"),
        ("/api/v1/events?limit=1&limit=1", "more than once"),
        ("/api/v1/endpoints?type=a", "unknown parameter 'type'"),
        ("/api/v1/deliveries?status=pending", "due, leased, delivered, dead, cancelled"),
        ("/api/v1/deliveries?status=", "due, leased, delivered, dead, cancelled"),
        ("/api/v1/deliveries?endpoint_id=x", "endpoint id"),
        ("/api/v1/deliveries?event_id=dlv_00000000000000000000000000", "event id"),
        ("/api/v1/deliveries?since=1", "unknown parameter 'since'"),
        ("/api/v1/events/evt_00000000000000000000000000?x=1", "unknown parameter 'x'"),
    ] {
        let slug = "invalid-parameter";
        let row =
            Row { method: "GET", path, headers: &[], body: b"", status: 400, slug, pointers: &[] };
        let answer = check(row).await;
        assert!(answer.contains(part), "{path}: {answer}");
    }
    for path in [format!("{delivery}?cursor=x"), format!("{delivery}?cursor=%ff")] {
        let (path, slug) = (path.as_str(), "invalid-cursor");
        check(Row {
            method: "GET",
            path,
            headers: &[],
            body: b"",
            status: 400,
            slug,
            pointers: &[],
        })
        .await;
    }
}

#[tokio::test]
async fn credentials_come_before_everything_else() {
    let api = Api::new();
    let bearer = format!("Bearer {TOKEN}");
    let wrong = format!("Bearer {TOKEN}x");
    let body = br#"{"type":"a","data":1}"#;
    for (method, path) in [
        ("POST", "/api/v1/events"),
        ("GET", "/api/v1/events?x=1"),
        ("GET", "/api/v1/events/x"),
        ("POST", "/api/v1/endpoints/x/pause"),
        ("PATCH", "/api/v1/endpoints/x"),
        ("DELETE", "/api/v1/endpoints/x"),
        ("GET", "/api/v1/deliveries/x"),
    ] {
        for headers in [&[][..], &[("authorization", wrong.as_str())]] {
            let reply = api.raw(method, path, headers, body).await;
            assert_eq!((reply.status, reply.slug().as_str()), (401, "unauthorized"), "{path}");
            assert!(reply.header("www-authenticate").is_some_and(|h| h.starts_with("Bearer")));
        }
        for (tenant, status, slug) in
            [("nobody", 404, "unknown-tenant"), ("No Body", 400, "invalid-header")]
        {
            let headers = [("authorization", bearer.as_str()), ("everhook-tenant", tenant)];
            let reply = api.raw(method, path, &headers, body).await;
            assert_eq!((reply.status, reply.slug().as_str()), (status, slug), "{path}");
        }
    }
    assert!(api.list("/api/v1/events").await.is_empty());
}

#[tokio::test]
async fn unknown_and_foreign_ids_are_not_found() {
    let api = Api::new();
    api.create_tenant("acme").await;
    let (endpoint, event) = (api.endpoint().await, api.event("a").await);
    let delivery = api.list("/api/v1/deliveries").await.remove(0);
    let foreign = [("everhook-tenant", "acme")];
    for (method, path) in [
        ("GET", format!("/api/v1/events/{event}")),
        ("POST", format!("/api/v1/events/{event}/replay")),
        ("GET", format!("/api/v1/endpoints/{endpoint}")),
        ("PATCH", format!("/api/v1/endpoints/{endpoint}")),
        ("DELETE", format!("/api/v1/endpoints/{endpoint}")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/rotate-secret")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/pause")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/resume")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/disable")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/enable")),
        ("POST", format!("/api/v1/endpoints/{endpoint}/test")),
        ("GET", format!("/api/v1/deliveries/{delivery}")),
        ("POST", format!("/api/v1/deliveries/{delivery}/replay")),
        ("POST", format!("/api/v1/deliveries/{delivery}/cancel")),
        ("POST", format!("/api/v1/deliveries/{delivery}/acknowledge")),
    ] {
        let body: &[u8] = if method == "PATCH" { b"{}" } else { b"" };
        let reply = api.send(method, &path, &foreign, body).await;
        assert_eq!((reply.status, reply.slug().as_str()), (404, "not-found"), "{method} {path}");
        for id in [&endpoint, &event, &delivery] {
            let unknown = path.replace(id.as_str(), "%ff");
            let reply = api.send(method, &unknown, &foreign, body).await;
            assert_eq!(reply.status, 404, "{method} {unknown}");
        }
    }
    for list in ["/api/v1/events", "/api/v1/endpoints", "/api/v1/deliveries"] {
        let page = api.send("GET", list, &foreign, b"").await;
        assert_eq!(page.json()["data"], serde_json::json!([]), "{list}");
    }
}
