//! What becomes of a delivery when its receiver misbehaves, from the API to the wire and back.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::time::{SystemClock, Timestamp};
use everhook_lab::{Door, Lab, Reply, Script, Step};
use serde_json::{Value, json};

use crate::process::{Server, TOKEN, TempDir};

/// Between two looks at the API.
const LOOK: Duration = Duration::from_millis(25);
/// How often it is looked at before a test gives up.
const LOOKS_MAX: usize = 1_200;

/// A receiver, what happens to a delivery there, and how each of its attempts ends: with a status,
/// or with a class and the beginning of its detail.
type Case = (&'static str, Vec<Reply>, &'static str, &'static [(&'static str, &'static str)]);

/// Closes in order after every answer, so that each attempt has a connection of its own.
fn closing(reply: Reply) -> Reply {
    reply.then(Step::Close)
}

fn cases(other: &str) -> Vec<Case> {
    let endless = Reply::raw("HTTP/1.1 200 OK\r\n\r\n")
        .then(Step::Endlessly("x".repeat(4_096).into(), Duration::ZERO));
    let amid = Reply::raw("HTTP/1.1 200 O").then(Step::Pause(LOOK)).then(Step::Close);
    let elsewhere = closing(Reply::answer(307, &[("location", other)], ""));
    let gone = closing(Reply::answer(410, &[("retry-after", "3600")], "<b>gone</b>"));
    vec![
        ("endless", vec![endless], "delivered", &[("200", "")]),
        (
            "recovers",
            vec![amid, elsewhere, closing(Reply::status(204))],
            "delivered",
            &[
                ("reset", "the connection was closed by the endpoint before its headers were"),
                ("status", "the endpoint answered with status 307, a redirect, which is never"),
                ("204", ""),
            ],
        ),
        ("gone", vec![gone], "dead", &[("status", "the endpoint answered with status 410"); 3]),
        (
            "silent",
            vec![Reply::nothing().then(Step::Hold)],
            "dead",
            &[("timeout", "no status line and headers came within 500 ms"); 3],
        ),
        (
            "ssh",
            vec![closing(Reply::raw("SSH-2.0-OpenSSH_9.6\r\n"))],
            "dead",
            &[("protocol", "the answer is not HTTP/1.1"); 3],
        ),
    ]
}

async fn lab(script: impl Into<everhook_lab::Behaviour>) -> Lab {
    let clock = Arc::new(SystemClock::start());
    Lab::start(Door::Open, script, clock).await.expect("a free port")
}

/// Makes an endpoint for events of the type `name`, and sends it one.
fn send(server: &Server, name: &str, url: &str) {
    let endpoint = json!({ "url": url, "event_types": [name] }).to_string();
    assert_eq!(server.call(TOKEN, "POST", "/api/v1/endpoints", &endpoint).0, 201);
    let event = json!({ "type": name, "data": 1 }).to_string();
    let (status, event) = server.call(TOKEN, "POST", "/api/v1/events", &event);
    assert_eq!((status, &event["deliveries"]), (202, &json!(1)));
}

/// The delivery of events of this type, once it is neither due nor leased, or has this many
/// attempts.
async fn ended(server: &Server, event_type: &str, attempts: u64) -> Value {
    for _ in 0..LOOKS_MAX {
        let path = format!("/api/v1/deliveries?type={event_type}");
        let delivery = server.call(TOKEN, "GET", &path, "").1["data"][0].take();
        let over = !["due", "leased"].contains(&delivery["status"].as_str().expect("a status"));
        if over || delivery["attempt_count"].as_u64() >= Some(attempts) {
            let path = format!("/api/v1/deliveries/{}", delivery["id"].as_str().expect("an id"));
            return server.call(TOKEN, "GET", &path, "").1;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("the delivery of {event_type} does not end");
}

fn check_attempt(name: &str, attempt: &Value, (end, detail): (&str, &str)) {
    let error = &attempt["error"];
    let found = match error["class"].as_str() {
        Some(class) => class.to_owned(),
        None => attempt["status_code"].to_string(),
    };
    assert_eq!(found, end, "{name}: {attempt}");
    let said = error["detail"].as_str().unwrap_or_default();
    assert!(said.starts_with(detail), "{name}: {attempt}");
    assert!(said.is_empty() == detail.is_empty(), "{name}: {attempt}");
    let answered = attempt["status_code"].is_number();
    assert_eq!(answered, attempt["response_body"].is_string(), "{name}: {attempt}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_005_case_014_case_015_case_074_case_075_the_api_tells_what_the_wire_did() {
    let other = lab(Reply::status(200)).await;
    let cases = cases(&other.url("/"));
    let mut script = Script::otherwise(Reply::status(404));
    for (name, replies, _, _) in &cases {
        script = script.on(&format!("/{name}"), replies.clone());
    }
    let lab = lab(script).await;
    let dir = TempDir::new();
    let variables = [
        ("EVERHOOK_ADMIN_TOKEN", TOKEN),
        ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.1"),
        ("EVERHOOK_RETRY_SCHEDULE", "0s,100ms,200ms"),
        ("EVERHOOK_DELIVERY_TIMEOUT", "500ms"),
    ];
    let server = Server::start(&dir.0, &variables);
    for (name, ..) in &cases {
        send(&server, name, &lab.url(&format!("/{name}")));
    }
    for (name, _, status, attempts) in &cases {
        let delivery = ended(&server, name, 4).await;
        assert_eq!(delivery["status"], *status, "{delivery}");
        let made = delivery["attempts"].as_array().expect("attempts");
        assert_eq!(made.len(), attempts.len(), "{delivery}");
        for (attempt, expected) in made.iter().zip(*attempts) {
            check_attempt(name, attempt, *expected);
        }
        let path = format!("/{name}");
        let record = lab.record();
        let requests: Vec<_> = record.requests.iter().filter(|r| r.target() == path).collect();
        assert_eq!(requests.len(), attempts.len(), "{name}: as many requests as attempts");
        for (at, request) in requests.iter().enumerate() {
            assert_eq!(request.body, requests[0].body);
            assert_eq!(request.header("webhook-id"), requests[0].header("webhook-id"));
            let number = (at + 1).to_string();
            assert_eq!(request.header("x-message-webhook-attempt"), Some(number.as_str()));
        }
    }
    assert_eq!(other.record().connections, 0, "nothing of ours goes where a redirect points");
    let endpoints = server.call(TOKEN, "GET", "/api/v1/endpoints", "").1;
    let states = endpoints["data"].as_array().expect("a list").iter().map(|e| &e["state"]);
    assert!(states.clone().all(|state| state == "enabled"), "410 disables nothing: {endpoints}");
    assert_eq!(states.count(), cases.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_peers_fail_15_a_name_that_leads_inside_is_blocked_by_default() {
    let lab = lab(Reply::answer(200, &[], "inside")).await;
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    send(&server, "inside", &format!("http://localhost:{}/", lab.address().port()));
    let delivery = ended(&server, "inside", 1).await;
    let attempt = &delivery["attempts"][0];
    check_attempt("inside", attempt, ("blocked", "the endpoint leads to a loopback address;"));
    assert_eq!(lab.record().connections, 0);
    assert!(!delivery["next_attempt_at"].is_null(), "retried as ever: {delivery}");
}

/// `Retry-After`, and the seconds after which the next attempt is due where the header counts. By
/// the schedule it would be 60.
const WAITS: [(&str, i64); 7] = [
    ("600", 600),
    ("1000000", 3_660),
    ("Fri, 31 Dec 9999 23:59:59 GMT", 3_660),
    ("0", 60),
    ("Sun, 06 Nov 1994 08:49:37 GMT", 60),
    ("-600", 60),
    ("soon", 60),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_peers_fail_9_retry_after_moves_the_next_attempt_where_that_is_switched_on() {
    for honor in [true, false] {
        let mut script = Script::otherwise(Reply::status(404));
        for (nth, (value, _)) in WAITS.iter().enumerate() {
            let reply = Reply::answer(429, &[("retry-after", value)], "");
            script = script.on(&format!("/wait-{nth}"), [reply]);
        }
        let lab = lab(script).await;
        let dir = TempDir::new();
        let variables = [
            ("EVERHOOK_ADMIN_TOKEN", TOKEN),
            ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.1"),
            ("EVERHOOK_RETRY_HONOR_RETRY_AFTER", if honor { "true" } else { "false" }),
        ];
        let server = Server::start(&dir.0, &variables);
        for (nth, (value, seconds)) in WAITS.iter().enumerate() {
            let name = format!("wait-{nth}");
            send(&server, &name, &lab.url(&format!("/{name}")));
            let delivery = ended(&server, &name, 1).await;
            let at = |time: &Value| {
                let time = Timestamp::parse(time.as_str().expect("a time")).expect("a time");
                time.as_secs()
            };
            let started = at(&delivery["attempts"][0]["started_at"]);
            let wait = at(&delivery["next_attempt_at"]) - started;
            let expected = if honor { *seconds } else { 60 };
            // The wait that was asked for counts from the answer, which takes a moment.
            assert!((expected..expected + 10).contains(&wait), "{value}, {honor}: {wait} s");
        }
    }
}
