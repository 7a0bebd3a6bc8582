//! `everhook replay`: one delivery, one event, and all that match a filter.

use serde_json::{Value, json};

use crate::process::{Server, TOKEN, TempDir, ended};

/// A server where every delivery to a port that nobody listens on is dead after one attempt, with
/// so many of them.
fn with_dead(dir: &TempDir, count: usize) -> (Server, String) {
    let variables = [
        ("EVERHOOK_ADMIN_TOKEN", TOKEN),
        ("EVERHOOK_RETRY_SCHEDULE", "0s"),
        ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8"),
    ];
    let server = Server::start(&dir.0, &variables);
    let endpoint = json!({ "url": "http://127.0.0.1:1/" }).to_string();
    let (status, endpoint) = server.call(TOKEN, "POST", "/api/v1/endpoints", &endpoint);
    assert_eq!(status, 201);
    for _ in 0..count {
        let event = r#"{"type": "a.b", "data": 1}"#;
        assert_eq!(server.call(TOKEN, "POST", "/api/v1/events", event).0, 202);
    }
    while dead(&server).len() < count {
        std::thread::yield_now();
    }
    (server, endpoint["id"].as_str().expect("an id").to_owned())
}

fn dead(server: &Server) -> Vec<Value> {
    let (_, page) = server.call(TOKEN, "GET", "/api/v1/deliveries?status=dead&limit=250", "");
    page["data"].as_array().expect("a list").clone()
}

fn replay(server: &Server, args: &[&str]) -> (i32, String, String) {
    ended(&mut server.command("replay", args))
}

fn shown(server: &Server, args: &[&str]) -> Value {
    let args: Vec<_> = args.iter().copied().chain(["--json"]).collect();
    let (code, text, stderr) = replay(server, &args);
    assert_eq!((code, stderr.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&text).expect("JSON")
}

fn text<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().expect("text")
}

#[test]
fn what_matches_is_counted_first_and_sent_after_a_yes() {
    let dir = TempDir::new();
    let (server, endpoint) = with_dead(&dir, 3);
    assert_eq!(shown(&server, &["--status", "dead", "--dry-run"]), json!({ "matched": 3 }));
    let (code, text_, _) = replay(&server, &["--type", "a.b", "--dry-run"]);
    assert_eq!((code, text_.as_str()), (0, "3 deliveries match\n"));
    let (code, text_, _) = replay(&server, &["--type", "other"]);
    assert_eq!((code, text_.as_str()), (0, "0 deliveries match\n"));

    let (code, stdout, stderr) = replay(&server, &["--status", "dead"]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    let expected =
        "everhook: 3 deliveries would be sent again; nothing was sent: say so with --yes";
    assert_eq!(stderr.trim_end(), expected);
    assert!(dead(&server).iter().all(|delivery| delivery["attempt_count"] == 1));

    let done = shown(&server, &["--status", "dead", "--endpoint", &endpoint, "--yes"]);
    assert_eq!((&done["status"], &done["sent"]), (&json!("done"), &json!(3)));
    let (code, said, _) = replay(&server, &[text(&done, "id")]);
    let id = text(&done, "id");
    assert_eq!((code, said), (0, format!("{id}: done, 3 deliveries sent again\n")));
}

#[test]
fn a_bulk_replay_goes_on_by_itself_and_is_cancelled_by_its_id() {
    let dir = TempDir::new();
    let (server, _) = with_dead(&dir, 5);
    // So slow that it would take the better part of a minute to end by itself.
    let slow = ["--status", "dead", "--rate", "1", "--yes", "--no-wait"];
    let begun = shown(&server, &slow);
    assert_eq!(begun["matched"], 5);
    let id = text(&begun, "id");
    let (code, said, stderr) = replay(&server, &[id, "--cancel"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(said.starts_with(&format!("{id}: cancelled, ")), "{said}");
}

#[test]
fn one_delivery_or_one_event_is_sent_again() {
    let dir = TempDir::new();
    let (server, endpoint) = with_dead(&dir, 1);
    let first = dead(&server).remove(0);
    let again = shown(&server, &[text(&first, "id")]);
    assert_eq!(again["id"], first["id"]);
    let event = text(&first, "event_id");
    let again = shown(&server, &[event, "--endpoint", &endpoint]);
    assert_eq!(again["deliveries"].as_array().map(Vec::len), Some(1));
    let (code, said, _) = replay(&server, &[event]);
    assert_eq!((code, said), (0, format!("{event}: 1 delivery sent again\n")));
}

#[test]
fn what_is_no_replay_is_told() {
    let dir = TempDir::new();
    let (server, endpoint) = with_dead(&dir, 1);
    let delivery = dead(&server).remove(0);
    let (delivery, endpoint) = (text(&delivery, "id"), endpoint.as_str());
    for (args, code, expected) in [
        (&[][..], 2, "say what is to be sent again: an id"),
        (&["--rate", "7", "--yes"], 2, "say what is to be sent again: an id"),
        (&[endpoint], 2, "is no id of a delivery (dlv_…), an event (evt_…) or a bulk replay"),
        (&[delivery, "--endpoint", endpoint], 2, "--endpoint goes with an event or a filter"),
        (&[delivery, "--cancel"], 2, "--cancel goes with the id of a bulk replay"),
        (&[delivery, "--status", "dead"], 2, "cannot be used with"),
        (&["--status", "lost", "--dry-run"], 5, "/status: must be one of due, leased"),
        (&["--from", "yesterday", "--yes"], 5, "/from: "),
        (&["rpl_00000000000000000000000000"], 5, "the server answered 404"),
    ] {
        let (found, _, stderr) = replay(&server, args);
        assert_eq!(found, code, "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
