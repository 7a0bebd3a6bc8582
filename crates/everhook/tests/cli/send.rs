//! `everhook send`: what it prints, and how it ends when the server does not do as it is asked.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

fn send(server: &Server, args: &[&str]) -> (i32, String, String) {
    ended(&mut server.command("send", args))
}

#[test]
fn events_are_published_and_shown() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);

    let (code, text, stderr) = send(&server, &["order.created", "--data", r#"{"order": 1}"#]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(text.ends_with(" order.created: accepted; no endpoint wants it\n"), "{text}");
    let id = text.split(' ').next().expect("an id");
    let (status, event) = server.call(TOKEN, "GET", &format!("/api/v1/events/{id}"), "");
    assert_eq!((status, &event["data"]), (200, &json!({ "order": 1 })));

    let once = ["order.paid", "--source-event-id", "order-1-paid", "--json"];
    let shown = |args: &[&str]| -> Value {
        let (code, text, stderr) = send(&server, args);
        assert_eq!((code, stderr.as_str()), (0, ""));
        serde_json::from_str(&text).expect("JSON")
    };
    let (first, again) = (shown(&once), shown(&once));
    assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["id"], again["id"]);

    let keyed = ["order.paid", "--idempotency-key", "k-1", "--json"];
    assert_eq!(shown(&keyed)["id"], shown(&keyed)["id"]);
}

#[test]
fn data_comes_from_a_file_or_from_standard_input() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let file = dir.0.join("data.json");
    std::fs::write(&file, "[1.0]").expect("writable");
    let argument = format!("@{}", file.display());
    assert_eq!(send(&server, &["t", "--data", &argument]).0, 0);

    let url = format!("http://{}", server.address);
    let args = ["send", "t", "--data", "-", "--json", "--server", &url, "--token", TOKEN];
    let mut child =
        everhook(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("piped").write_all(b"{\"from\": \"stdin\"}\n").expect("writable");
    let output = child.wait_with_output().expect("ours");
    assert!(output.status.success());
    let event: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let path = format!("/api/v1/events/{}", event["id"].as_str().expect("an id"));
    assert_eq!(server.call(TOKEN, "GET", &path, "").1["data"], json!({ "from": "stdin" }));
}

#[test]
fn refusals_are_told_in_the_server_s_words_with_code_5() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let (code, _, stderr) = send(&server, &["everhook.mine"]);
    assert_eq!(code, 5);
    assert!(stderr.starts_with("everhook: the server answered 422"), "{stderr}");
    assert!(stderr.contains("/type: ") && stderr.contains("reserved"), "{stderr}");

    let (code, _, stderr) = send(&server, &["t", "--token", "not the right one"]);
    assert_eq!(code, 5);
    assert!(stderr.starts_with("everhook: the server answered 401"), "{stderr}");
    assert!(stderr.contains("EVERHOOK_TOKEN") && !stderr.contains("not the right"), "{stderr}");
}

#[test]
fn a_server_that_is_not_there_is_told_with_code_4() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    drop(listener);
    let (code, _, stderr) = ended(&mut everhook(&["send", "t", "--server", &url, "--token", "x"]));
    assert_eq!(code, 4);
    assert!(stderr.starts_with(&format!("everhook: {url} cannot be reached")), "{stderr}");
    assert!(stderr.contains("is the server running"), "{stderr}");
}

#[test]
fn wrong_input_is_told_with_code_2() {
    for (args, variable, expected) in [
        (&["t"][..], None, "set EVERHOOK_TOKEN"),
        (&["t", "--token", "x", "--data", "{"], None, "--data is not JSON"),
        (&["t", "--token", "x", "--server", "localhost"], None, "--server: the server's URL"),
        (&["t", "--token", "x", "--idempotency-key", "a\nb"], None, "visible ASCII"),
        (&["t", "--token", "a\nb"], None, "control characters"),
        (&["t", "--token", "x"], Some("EVERHOOK_SEVER"), "did you mean EVERHOOK_SERVER?"),
    ] {
        let mut command = everhook(&["send"]);
        command.args(args).envs(variable.map(|name| (name, "x")));
        let (code, _, stderr) = ended(&mut command);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
