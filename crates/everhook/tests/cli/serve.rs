//! `everhook serve`: how it starts, refuses, restarts and stops.

use std::io::Read as _;
use std::net::TcpListener;
use std::time::Instant;

use serde_json::json;

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

#[test]
fn the_first_start_makes_a_token_that_later_starts_keep() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[]);
    let token = server.made_token.clone().expect("made at the first start");
    assert!(token.starts_with("ek_"), "{token}");
    assert_eq!(server.call("", "GET", "/healthz", "").0, 200);
    assert_eq!(server.call("", "GET", "/readyz", "").0, 200);
    assert_eq!(server.call(&token, "GET", "/api/v1/events", "").0, 200);
    assert_eq!(server.call("ek_other", "GET", "/api/v1/events", "").0, 401);
    server.signal("TERM");
    let (code, _, log) = server.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("stopped"), "{log}");
    assert!(!log.contains(&token), "the token is not logged");

    let server = Server::start(&dir.0, &[]);
    assert_eq!(server.made_token, None, "shown once");
    assert_eq!(server.call(&token, "GET", "/api/v1/events", "").0, 200);
    server.signal("INT");
    assert_eq!(server.wait().0, 0);

    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    assert_eq!(server.call(&token, "GET", "/api/v1/events", "").0, 401, "set anew");
    assert_eq!(server.call(TOKEN, "GET", "/api/v1/events", "").0, 200);
}

#[test]
fn a_second_process_on_the_same_data_says_who_has_it() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let args = ["serve", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
    let (code, stdout, stderr) = ended(&mut everhook(&args));
    assert_eq!((code, stdout.as_str()), (3, ""));
    let holder = format!("(process {}, listening on {})", server.child.id(), server.address);
    assert!(stderr.contains(&holder), "{stderr}");
    assert!(stderr.contains("stop that one first"), "{stderr}");
    assert_eq!(server.call(TOKEN, "GET", "/api/v1/events", "").0, 200, "the first one goes on");
}

#[test]
fn what_was_accepted_is_there_after_a_kill() {
    let dir = TempDir::new();
    let variables = [("EVERHOOK_ADMIN_TOKEN", TOKEN)];
    let server = Server::start(&dir.0, &variables);
    let body = json!({ "type": "order.created", "data": { "order": 1 } }).to_string();
    let (status, event) = server.call(TOKEN, "POST", "/api/v1/events", &body);
    assert_eq!(status, 202);
    server.signal("KILL");
    server.wait();

    let server = Server::start(&dir.0, &variables);
    let path = format!("/api/v1/events/{}", event["id"].as_str().expect("an id"));
    let (status, kept) = server.call(TOKEN, "GET", &path, "");
    assert_eq!((status, &kept["type"]), (200, &json!("order.created")));
}

#[test]
fn a_stopped_server_leaves_one_file_that_is_whole() {
    let dir = TempDir::new();
    let variables = [("EVERHOOK_ADMIN_TOKEN", TOKEN)];
    let server = Server::start(&dir.0, &variables);
    let body = json!({ "type": "order.created", "data": { "order": 1 } }).to_string();
    let (_, event) = server.call(TOKEN, "POST", "/api/v1/events", &body);
    // Reads have connections of their own.
    assert_eq!(server.call(TOKEN, "GET", "/api/v1/events", "").0, 200);
    server.signal("TERM");
    assert_eq!(server.wait().0, 0);
    assert!(dir.0.join("everhook.db").exists());
    assert!(!dir.0.join("everhook.db-wal").exists(), "the log is folded into the database");

    let copy = TempDir::new();
    std::fs::create_dir_all(&copy.0).expect("a folder");
    std::fs::copy(dir.0.join("everhook.db"), copy.0.join("everhook.db")).expect("a copy");
    let server = Server::start(&copy.0, &variables);
    let path = format!("/api/v1/events/{}", event["id"].as_str().expect("an id"));
    assert_eq!(server.call(TOKEN, "GET", &path, "").0, 200);
}

#[test]
fn bad_configuration_refuses_to_start_before_anything_is_made() {
    let dir = TempDir::new();
    let args = ["serve", "--data-dir", dir.arg(), "--listen", "nowhere"];
    let mut command = everhook(&args);
    command.env("EVERHOOK_ADMIN_TOKEN", "short").env("EVERHOOK_DELIVERY_LEASE", "10s");
    let (code, stdout, stderr) = ended(command.env("EVERHOOK_STORE_DATADIR", "x"));
    assert_eq!((code, stdout.as_str()), (2, ""));
    for expected in [
        "the configuration has 3 problems:",
        "--listen: server.listen = \"nowhere\"",
        "EVERHOOK_ADMIN_TOKEN has 5 characters",
        "did you mean EVERHOOK_STORE_DATA_DIR?",
    ] {
        assert!(stderr.contains(expected), "{expected} is missing in {stderr}");
    }
    assert!(!dir.0.exists());
}

#[test]
fn a_taken_port_is_told_and_makes_no_token() {
    let dir = TempDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let args = ["serve", "--data-dir", dir.arg(), "--listen", &address];
    let (code, stdout, stderr) = ended(&mut everhook(&args));
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.contains(&format!("{address} cannot be listened on")), "{stderr}");
    assert!(!dir.0.join("admin-token.sha256").exists());
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let dir = TempDir::new();
    std::fs::create_dir(&dir.0).expect("free");
    let database = dir.0.join("everhook.db");
    std::fs::write(&database, "this is no database at all, and long enough to be read as one")
        .expect("writable");
    let args = ["serve", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
    let mut command = everhook(&args);
    let (code, _, stderr) =
        ended(command.env("EVERHOOK_ADMIN_TOKEN", TOKEN).env("EVERHOOK_LOG_FORMAT", "json"));
    assert_ne!(code, 0);
    let last = stderr.lines().last().expect("a reason");
    let last: serde_json::Value = serde_json::from_str(last).expect("JSON lines to the end");
    assert!(
        last["reason"].as_str().expect("text").contains("everhook.db cannot be used"),
        "{last}"
    );
    let kept = std::fs::read_to_string(&database).expect("there");
    assert!(kept.starts_with("this is no database"));
}

#[test]
fn people_are_told_where_it_is() {
    let dir = TempDir::new();
    let args = ["serve", "--data-dir", dir.arg(), "--listen", "127.0.0.1:0"];
    let mut command = everhook(&args);
    command.env("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8").env("EVERHOOK_LOG_LEVEL", "off");
    command.env("EVERHOOK_SERVER_PUBLIC_URL", "https://hooks.example.com/");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("starts");
    let mut stdout = child.stdout.take().expect("piped");
    let mut said = String::new();
    while !said.contains("sends") || !said.ends_with('\n') {
        let mut buffer = [0; 256];
        let read = stdout.read(&mut buffer).expect("readable");
        assert_ne!(read, 0, "it ended after {said}");
        said.push_str(std::str::from_utf8(&buffer[..read]).expect("text"));
    }
    child.kill().expect("ours");
    child.wait().expect("ours");
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].starts_with("Admin token, shown only now: ek_"), "{said}");
    assert!(
        lines[1].starts_with("Everhook 0.") && lines[1].contains("http://127.0.0.1:"),
        "{said}"
    );
    assert!(lines[2].ends_with("/api/v1"), "{said}");
    assert_eq!(lines[3], "  webhooks https://hooks.example.com/in/{source}");
    assert!(lines[4].ends_with(dir.arg()), "{said}");
    assert_eq!(lines[5], "  sends to public addresses, and 127.0.0.0/8");
}

/// An endpoint that takes a connection and never answers.
#[test]
fn the_first_signal_lets_requests_finish_and_the_second_does_not() {
    let dir = TempDir::new();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let variables = [
        ("EVERHOOK_ADMIN_TOKEN", TOKEN),
        ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.0/8"),
        ("EVERHOOK_DELIVERY_TIMEOUT", "5m"),
        ("EVERHOOK_DELIVERY_LEASE", "15m"),
    ];
    let mut server = Server::start(&dir.0, &variables);
    let endpoint = json!({ "url": format!("http://{}/", silent.local_addr().expect("bound")) });
    let (status, _) = server.call(TOKEN, "POST", "/api/v1/endpoints", &endpoint.to_string());
    assert_eq!(status, 201);
    let event = json!({ "type": "order.created", "data": 1 }).to_string();
    assert_eq!(server.call(TOKEN, "POST", "/api/v1/events", &event).0, 202);
    let (_held, _) = silent.accept().expect("the attempt");

    let mut log = server.log();
    server.signal("TERM");
    assert!(log.any(|line| line.contains("a second signal ends the process at once")));
    let began = Instant::now();
    server.signal("TERM");
    assert_eq!(server.wait().0, 1);
    assert!(began.elapsed().as_secs() < 60, "the request under way was not waited for");
}
