//! `everhook health`: ready, not ready, not there.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

fn health(address: &str, more: &[&str]) -> (i32, String, String) {
    ended(everhook(&["health"]).args(more).env("EVERHOOK_SERVER", format!("http://{address}")))
}

#[test]
fn a_server_that_is_ready_says_so() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let said = (0, format!("http://{} is ready\n", server.address), String::new());
    assert_eq!(health(&server.address, &[]), said);
    let (code, json, _) = health(&server.address, &["--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &json["ready"]), (0, &Value::Bool(true)));
}

#[test]
fn one_that_is_not_ready_says_why_with_code_1() {
    for (answer, code, expected) in [
        (
            r#"{"title": "Not ready", "detail": "the disk is full"}"#,
            1,
            "not ready: the disk is full",
        ),
        ("{}", 1, "it does not say why"),
        ("<html>", 5, "is not JSON: is it an Everhook server?"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("free");
        let address = listener.local_addr().expect("bound").to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("asked");
            let mut asked = [0; 1024];
            let length = stream.read(&mut asked).expect("a request");
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let length = answer.len();
            write!(
                stream,
                "HTTP/1.1 503 Service Unavailable\r\ncontent-length: {length}\r\n\r\n{answer}"
            )
            .expect("writable");
            asked
        });
        let (found, _, stderr) = health(&address, &[]);
        let asked = server.join().expect("asked");
        assert!(asked.starts_with("GET /readyz HTTP/1.1\r\n"), "{asked}");
        assert!(!asked.to_lowercase().contains("authorization"), "{asked}");
        assert_eq!(found, code, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert_eq!(health("127.0.0.1:1", &[]).0, 4);
}
