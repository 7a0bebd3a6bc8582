//! Receiving, by the real program.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::process::{Server, TOKEN, TempDir};

/// The most memory that the process has had, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(path).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

/// Sends a body without an end until it is answered or broken off; the status.
fn endless(address: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let head = "POST /in/open HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("taken");
    let chunk = [b"100000\r\n".as_slice(), &vec![b'x'; 0x10_0000], b"\r\n"].concat();
    let mut reader = stream.try_clone().expect("a socket");
    let writer = std::thread::spawn(move || {
        // Far more than any memory that this may take.
        for _ in 0..1_000 {
            if stream.write_all(&chunk).is_err() {
                break;
            }
        }
    });
    let mut start = [0; 12];
    reader.read_exact(&mut start).expect("an answer");
    drop(reader);
    writer.join().expect("no panic");
    let status = std::str::from_utf8(&start[9..]).expect("text");
    status.parse().expect("a status")
}

#[test]
fn case_035_endless_bodies_take_no_more_memory_than_one_may() {
    let dir = TempDir::new();
    // One thread: the allocator keeps for each what it had last, and which one serves is chance.
    let settings = [("EVERHOOK_ADMIN_TOKEN", TOKEN), ("EVERHOOK_SERVER_THREADS", "1")];
    let server = Server::start(&dir.0, &settings);
    let source = json!({"name": "open", "kind": "none"}).to_string();
    let (status, source) = server.call(TOKEN, "POST", "/api/v1/sources", &source);
    assert_eq!(status, 201);
    let before = peak_kib(&server);
    for _ in 0..3 {
        assert_eq!(endless(&server.address), 413);
    }
    let grown = peak_kib(&server) - before;
    assert!(grown < 48 * 1_024, "{grown} KiB more, for a limit of 25 MiB");
    let path = format!("/api/v1/sources/{}", source["id"].as_str().expect("an id"));
    let (_, shown) = server.call(TOKEN, "GET", &path, "");
    assert_eq!(shown["rejected"]["too_large"], 3);
    server.signal("TERM");
    let (code, _, log) = server.wait();
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("too_large") && log.contains("26214400"), "{log}");
}
