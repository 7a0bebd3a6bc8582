//! `everhook listen`: what comes to a source comes to a program on this machine too.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

/// A program that answers 202; each request comes through the channel, head and body.
fn program() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let (seen, requests) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a head");
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a number");
                }
                head += &line;
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n";
            reader.get_mut().write_all(answer).expect("a client");
            seen.send((head, body)).expect("a test");
        }
    });
    (url, requests)
}

fn bring(server: &Server, source: &str, body: &[u8]) {
    let mut stream = TcpStream::connect(&server.address).expect("it listens");
    let head = format!(
        "POST /in/{source} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-signature: s1\r\n\
         x-api-token: hunter2\r\ncontent-type: application/odd\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("writable");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_comes_in_from_now_on_is_brought_byte_for_byte() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let mut id = String::new();
    for name in ["other", "shop"] {
        let source = format!(r#"{{"name":"{name}","kind":"none"}}"#);
        let (status, made) = server.call(TOKEN, "POST", "/api/v1/sources", &source);
        assert_eq!(status, 201);
        id = made["id"].as_str().expect("an id").to_owned();
    }
    bring(&server, "shop", b"before");
    let (url, requests) = program();
    let mut command = server.command("listen", &["--source", "shop", "--to", &url]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    assert_eq!(line(), format!("shop -> {url}: waiting; Ctrl-C ends it"));
    // The second one after a new name was given, and with another source's between them.
    for (name, body) in [("shop", &b" {\"a\": 1.0}\n"[..]), ("store", b"\x00\xff\xfe")] {
        let renamed = format!(r#"{{"name":"{name}"}}"#);
        let path = format!("/api/v1/sources/{id}");
        assert_eq!(server.call(TOKEN, "PATCH", &path, &renamed).0, 200);
        bring(&server, "other", body);
        bring(&server, name, body);
        let (head, brought) = requests.recv().expect("a request");
        assert_eq!(brought, body);
        assert!(head.starts_with("POST /hook HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("x-signature: s1\r\n"), "{head}");
        assert!(head.contains("content-type: application/odd\r\n"), "{head}");
        assert!(head.contains("webhook-id: evt_"), "{head}");
        assert!(!head.contains("x-api-token"), "{head}");
        let line = line();
        assert!(
            line.contains(&format!(" {name}.received ")) && line.contains(": 202 in "),
            "{line}"
        );
    }
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    assert!(child.wait().expect("ours").success());
    assert!(requests.try_recv().is_err(), "each came once");
}

#[test]
fn a_program_that_is_not_there_is_told_and_the_next_webhook_is_tried() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    let source = r#"{"name":"shop","kind":"none"}"#;
    let (_, made) = server.call(TOKEN, "POST", "/api/v1/sources", source);
    let id = made["id"].as_str().expect("an id");
    let to = ["--to", "http://127.0.0.1:1/"];
    let mut command = server.command("listen", &["--source", id, to[0], to[1], "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut said = BufReader::new(child.stdout.take().expect("piped")).lines();
    // It says nothing before the first webhook, so come again until it does.
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                bring(&server, "shop", format!("{n}").as_bytes());
                thread::park_timeout(Duration::from_millis(200));
            }
        });
        let lines: Vec<Value> = (0..2)
            .map(|_| said.next().expect("a line").expect("text"))
            .map(|line| serde_json::from_str(&line).expect("JSON"))
            .collect();
        done.store(true, Ordering::Relaxed);
        for line in &lines {
            let answer = line["answer"].as_str().expect("text");
            assert!(answer.contains("cannot be reached"), "{answer}");
            assert_eq!(line["type"], "shop.received");
        }
        assert_ne!(lines[0]["event_id"], lines[1]["event_id"]);
    });
    child.kill().expect("ours");
    child.wait().expect("ours");
}

#[test]
fn what_cannot_be_listened_to_is_told() {
    let dir = TempDir::new();
    let server = Server::start(&dir.0, &[("EVERHOOK_ADMIN_TOKEN", TOKEN)]);
    for (args, code, expected) in [
        (&["--source", "nobody", "--to", "http://localhost:1/"][..], 5, "there is no source"),
        (&["--source", "nobody", "--to", "localhost:1"], 2, "--to: "),
        (&["--source", "nobody"], 2, "--to <URL>"),
    ] {
        let (found, _, stderr) = ended(&mut server.command("listen", args));
        assert_eq!(found, code, "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    let args = ["listen", "--source", "a", "--to", "http://localhost:1", "--token", "x"];
    let (code, _, stderr) = ended(everhook(&args).args(["--server", "http://127.0.0.1:1"]));
    assert_eq!(code, 4, "{stderr}");
}
