//! Processes that are killed or stand still between any two steps.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::backend::{Backend, Folder, Kind};
use crate::server::{LEASE, Serve};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(acceptance_03_killed_with_the_effect_apart),
        case(acceptance_03_killed_while_a_key_is_freed),
        case(acceptance_03_what_is_unknown_is_settled),
        case(acceptance_04_an_owner_that_stood_still_is_fenced),
        case(acceptance_04_an_owner_that_stood_still_settles_what_is_unknown),
    ]
}

/// For stores that know a transaction of the handler's.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn transaction_cases() -> Vec<Case> {
    vec![case(acceptance_02_killed_with_the_effect_in_one_transaction)]
}

/// Every step of a request at which a process can die.
const STEPS: [&str; 10] = [
    "look:before",
    "look:after",
    "take:before",
    "take:after",
    "renew:before",
    "renew:after",
    "effect:before",
    "effect:after",
    "finish:before",
    "finish:after",
];

/// A running server; killed when it is dropped.
struct Server {
    child: Child,
    said: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(serve: &Serve) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(serve.words())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, said, address: String::new() };
        server.address = server.next_word();
        server
    }

    fn next_word(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the server ended");
        line.trim().to_owned()
    }

    /// Sends the request; the answer, or nothing if the server died first.
    fn send(&self) -> JoinHandle<String> {
        let address = self.address.clone();
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let request = "POST /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
                           Idempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}";
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _died = stream.read_to_end(&mut answer);
            String::from_utf8(answer).unwrap()
        })
    }

    /// Asks until the answer is another than that the first request still runs.
    fn settled(&self) -> String {
        loop {
            let answer = self.send().join().unwrap();
            if !answer.contains("idempotency-in-progress") {
                return answer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _reaped_already = self.child.wait();
    }
}

/// A database and a ledger for one crash.
struct Scene {
    world: Backend,
    serve: Serve,
    folder: Folder,
}

impl Scene {
    fn new(kind: Kind, effect: &str, lapse: &str) -> Self {
        let world = kind.create();
        // A number of its own: the database's may be a folder already.
        let number = 1_000_000 + NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = Folder::create(number);
        let serve = Serve {
            kind: kind.name.to_owned(),
            address: world.address.clone(),
            effect: effect.to_owned(),
            lapse: lapse.to_owned(),
            halt: "none".to_owned(),
            ledger: folder.0.join("ledger").to_str().unwrap().to_owned(),
        };
        let scene = Self { world, serve, folder };
        if effect == "together" {
            scene.orders(true);
        }
        scene
    }

    /// A server that halts at this step.
    fn start(&self, halt: &str) -> Server {
        Server::start(&Serve { halt: halt.to_owned(), ..self.serve.clone() })
    }

    /// Kills a server at this step of a request.
    fn crash(&self, step: &str) {
        let mut server = self.start(step);
        let sent = server.send();
        assert_eq!(server.next_word(), "halted");
        server.kill();
        assert_eq!(sent.join().unwrap(), "", "{step}");
    }

    /// How many orders there are; first makes their table if that is asked for.
    fn orders(&self, create: bool) -> i64 {
        if self.serve.effect == "apart" {
            let ledger = std::fs::read_to_string(self.folder.0.join("ledger"));
            return i64::try_from(ledger.unwrap_or_default().lines().count()).unwrap();
        }
        let address = &self.world.address;
        match self.serve.kind.as_str() {
            #[cfg(feature = "sqlite")]
            "sqlite" => self.table::<crate::transaction::sqlite::Orders>(address, create),
            #[cfg(feature = "postgres")]
            "postgres" => self.table::<crate::transaction::postgres::Orders>(address, create),
            other => panic!("{other} has no table: {address} {create}"),
        }
    }

    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn table<O: crate::transaction::Orders>(&self, address: &str, create: bool) -> i64 {
        let orders = O::at(address);
        self.world.runtime.block_on(async {
            if create {
                orders.create().await;
            }
            orders.count().await
        })
    }
}

static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// The effect that a store allows to commit together with the key.
fn closest(kind: Kind) -> &'static str {
    if kind.name == "redis" { "apart" } else { "together" }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn acceptance_02_killed_with_the_effect_in_one_transaction(kind: Kind) {
    for step in STEPS {
        let scene = Scene::new(kind, "together", "rerun");
        scene.crash(step);
        let server = scene.start("none");
        let answer = server.settled();
        assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("sold"), "{step}: {answer}");
        let again = server.settled();
        assert!(again.contains("idempotency-replayed: true"), "{step}: {again}");
        assert_eq!(scene.orders(false), 1, "{step}");
    }
}

fn acceptance_03_killed_with_the_effect_apart(kind: Kind) {
    for step in STEPS {
        let scene = Scene::new(kind, "apart", "unknown");
        scene.crash(step);
        let done = scene.orders(false);
        let server = scene.start("none");
        let answer = server.settled();
        // Before the key was taken nothing was begun; after the answer was recorded all is known.
        let (status, orders) = match step {
            "look:before" | "look:after" | "take:before" => (201, 1),
            "take:after" | "renew:before" | "renew:after" | "effect:before" => (409, 0),
            "effect:after" | "finish:before" => (409, 1),
            _ => (201, 1),
        };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{step}: {answer}");
        assert_eq!(answer.contains("outcome-unknown"), status == 409, "{step}: {answer}");
        assert_eq!(scene.orders(false), orders, "{step}: {done} when it died");
        assert!(server.settled().starts_with(&format!("HTTP/1.1 {status}")), "{step}");
        assert_eq!(scene.orders(false), orders, "{step}");
    }
}

fn acceptance_03_killed_while_a_key_is_freed(kind: Kind) {
    for (step, expected) in
        [("release:before", "outcome-unknown"), ("release:after", "nothing happened")]
    {
        let scene = Scene::new(kind, "none", "unknown");
        scene.crash(step);
        let server = scene.start("none");
        for _ in 0..2 {
            let answer = server.settled();
            assert!(answer.contains(expected), "{step}: {answer}");
        }
    }
}

fn acceptance_03_what_is_unknown_is_settled(kind: Kind) {
    let scene = Scene::new(kind, "apart", "unknown");
    scene.crash("effect:after");
    let server = scene.start("none");
    assert!(server.settled().contains("outcome-unknown"));
    let node = crate::world::Node::new(
        &scene.world.nodes[0],
        everhook_idempotency::Settings::default(),
        crate::world::numbered(),
    );
    scene.world.runtime.block_on(async {
        let lost = node.layer.unknown(10).await.unwrap();
        assert_eq!(lost.len(), 1);
        let answer = everhook_idempotency::Answer {
            status: 201,
            headers: vec![],
            body: b"found in the ledger".to_vec(),
        };
        let settlement = everhook_idempotency::Settlement::Answer(answer);
        assert_eq!(node.layer.settle(lost[0].record, settlement).await, Ok(true));
    });
    let answer = server.settled();
    assert!(answer.ends_with("found in the ledger"), "{answer}");
    assert_eq!(scene.orders(false), 1);
}

/// Its process is stopped as a whole before its effect, and continued when another has the key.
fn acceptance_04_an_owner_that_stood_still_is_fenced(kind: Kind) {
    let scene = Scene::new(kind, closest(kind), "rerun");
    let mut slow = scene.start("stop:effect:before");
    let sent = slow.send();
    assert_eq!(slow.next_word(), "halted");
    let other = scene.start("none");
    let answer = other.settled();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(!answer.contains("idempotency-replayed"), "{answer}");
    slow.signal(Signal::CONT);
    let late = sent.join().unwrap();
    assert!(late.contains("idempotency-replayed: true"), "{late}");
    // An effect that is apart may happen twice where its owner said that it may run again.
    let most = if closest(kind) == "together" { 1 } else { 2 };
    assert_eq!(scene.orders(false), most);
    assert!(other.settled().contains("idempotency-replayed: true"));
}

fn acceptance_04_an_owner_that_stood_still_settles_what_is_unknown(kind: Kind) {
    let scene = Scene::new(kind, "apart", "unknown");
    let mut slow = scene.start("stop:effect:before");
    let sent = slow.send();
    assert_eq!(slow.next_word(), "halted");
    let other = scene.start("none");
    assert!(other.settled().contains("outcome-unknown"), "within {LEASE:?} and some");
    slow.signal(Signal::CONT);
    let late = sent.join().unwrap();
    assert!(late.starts_with("HTTP/1.1 201"), "{late}");
    assert!(other.settled().contains("idempotency-replayed: true"));
    assert_eq!(scene.orders(false), 1);
}
