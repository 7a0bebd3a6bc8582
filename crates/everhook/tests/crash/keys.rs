//! A client that has only its `Idempotency-Key`: it tries each POST until it is answered, through
//! every death of the server, and each has one effect and one answer for ever.
//!
//! Its events have no source event ID, so nothing but the key tells a second try from another
//! event. Every so often it makes an endpoint, whose answer holds a secret and is stored sealed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use everhook_domain::fault::Step;
use serde_json::{Value, json};

use crate::support::api::TOKEN;
use crate::support::http::{Connection, Message};
use crate::support::world::was_killed;
use crate::support::{alone, pause, tell};
use crate::tests::{CRASH_AT, Case};

/// The client's own, so that its lists are its effects.
const TENANT: &str = "keyed";
/// Each so many is an endpoint.
const ENDPOINT_EVERY: u64 = 16;
/// Connections that post at once.
const POSTERS: usize = 4;
/// How long a poster waits that was asked to come back later.
const COME_BACK_AFTER: Duration = Duration::from_millis(50);
/// Deaths at random instants.
const RANDOM_DEATHS: u32 = 20;
/// How often a step is passed before the process dies at it; chosen within these.
const PASSES: [(u64, u64); 2] = [(1, 6), (7, 60)];
/// Callers that come with one key at the same time.
const CALLERS: usize = 200;

/// Something that is to be done once.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    number: u64,
    tries: u32,
}

impl Wanted {
    fn is_endpoint(self) -> bool {
        self.number.is_multiple_of(ENDPOINT_EVERY)
    }

    /// What its effect is found by in the list.
    fn name(self) -> String {
        format!("keyed.{}", self.number)
    }

    fn list(self) -> &'static str {
        if self.is_endpoint() { "/api/v1/endpoints" } else { "/api/v1/events" }
    }

    fn body(self) -> String {
        let name = self.name();
        let body = if self.is_endpoint() {
            json!({"url": "http://127.0.0.1:9/", "event_types": ["none"], "description": name})
        } else {
            json!({"type": name, "data": {"number": self.number}})
        };
        body.to_string()
    }

    /// Asks for it, with its key.
    fn ask(self, connection: &mut Connection) -> std::io::Result<(u16, Message)> {
        let key = format!("key-{}", self.number);
        let call = format!("POST {}", self.list());
        let headers = [("content-type", "application/json"), ("idempotency-key", &key)];
        send(connection, &call, &headers, &self.body())
    }
}

fn send(
    connection: &mut Connection,
    call: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, Message)> {
    let bearer = format!("Bearer {TOKEN}");
    let own = [("authorization", bearer.as_str()), ("everhook-tenant", TENANT)];
    connection.call(call, &[&own, headers].concat(), body.as_bytes())
}

fn is_replayed(answer: &Message) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// What the client wanted so far.
#[derive(Debug, Default)]
struct Client(Mutex<Wishes>);

#[derive(Debug, Default)]
struct Wishes {
    next: u64,
    unanswered: Vec<Wanted>,
    answered: Vec<(Wanted, Vec<u8>)>,
    wrong: Vec<String>,
}

impl Client {
    /// A client with a tenant of its own.
    fn new(address: SocketAddr) -> Self {
        let mut connection = Connection::open(address).expect("it is ready");
        let body = json!({"id": TENANT, "name": TENANT}).to_string();
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let made = connection.call("POST /api/v1/tenants", &headers, body.as_bytes());
        assert_eq!(made.expect("an answer").0, 201);
        Self::default()
    }

    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Wanted {
        let mut wishes = self.wishes();
        let mut wanted = wishes.unanswered.pop().unwrap_or_else(|| {
            wishes.next += 1;
            Wanted { number: wishes.next, tries: 0 }
        });
        wanted.tries += 1;
        wanted
    }

    /// Posts until the server is gone, from several connections.
    fn post_until_it_dies(&self, address: SocketAddr) {
        std::thread::scope(|scope| {
            for _ in 0..POSTERS {
                scope.spawn(|| {
                    let Ok(mut connection) = Connection::open(address) else { return };
                    while self.post(&mut connection, self.next()).is_ok() {}
                });
            }
        });
    }

    /// Tries once, and once more if it was answered.
    ///
    /// # Errors
    /// The server is gone. What has no answer is tried again in the next life.
    fn post(&self, connection: &mut Connection, wanted: Wanted) -> std::io::Result<()> {
        match wanted.ask(connection) {
            Ok((200..300, answer)) => {
                if is_replayed(&answer) && wanted.tries == 1 {
                    self.wishes().wrong.push(format!("{wanted:?} was replayed at first"));
                }
                self.wishes().answered.push((wanted, answer.body.clone()));
                let (status, again) = wanted.ask(connection)?;
                self.compare(wanted, &answer.body, status, &again);
                Ok(())
            }
            Ok((409 | 503, answer)) if answer.header("retry-after").is_some() => {
                self.wishes().unanswered.push(wanted);
                pause(COME_BACK_AFTER);
                Ok(())
            }
            Ok((status, answer)) => {
                let body = String::from_utf8_lossy(&answer.body);
                self.wishes().wrong.push(format!("{wanted:?} was answered {status}: {body}"));
                Ok(())
            }
            Err(gone) => {
                self.wishes().unanswered.push(wanted);
                Err(gone)
            }
        }
    }

    fn compare(&self, wanted: Wanted, first: &[u8], status: u16, again: &Message) {
        let same = (200..300).contains(&status) && is_replayed(again) && again.body == first;
        if !same {
            let [first, body] = [first, &again.body].map(String::from_utf8_lossy);
            let what = format!("{wanted:?} was answered {first}, then {status} {body}");
            self.wishes().wrong.push(what);
        }
    }

    /// Demands that everything that was ever tried has one effect and one answer.
    fn judge(self, address: SocketAddr) {
        let mut connection = Connection::open(address).expect("it is ready");
        loop {
            let Some(mut wanted) = self.wishes().unanswered.pop() else { break };
            wanted.tries += 1;
            self.post(&mut connection, wanted).expect("it lives");
        }
        let answered = std::mem::take(&mut self.wishes().answered);
        for (wanted, first) in &answered {
            let (status, again) = wanted.ask(&mut connection).expect("it lives");
            self.compare(*wanted, first, status, &again);
        }
        let effects = effects(&mut connection);
        let wishes = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert!(wishes.wrong.is_empty(), "{:#?}", wishes.wrong);
        assert_eq!(wishes.next, u64::try_from(answered.len()).expect("few"), "each is answered");
        for (wanted, answer) in &answered {
            let answer: Value = serde_json::from_slice(answer).expect("JSON");
            let id = answer["id"].as_str().expect("an id").to_owned();
            assert_eq!(effects.get(&wanted.name()), Some(&vec![id]), "{wanted:?}");
        }
        assert_eq!(effects.len(), answered.len(), "nothing else was done");
        let retried = answered.iter().filter(|(wanted, _)| wanted.tries > 1).count();
        assert!(retried > 0, "no death came between a request and its answer");
        tell(&format!("{} keys, {retried} of them tried again after a death", answered.len()));
    }
}

/// The ids of everything that the client has effected, by name.
fn effects(connection: &mut Connection) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for (list, name) in [("events", "type"), ("endpoints", "description")] {
        let mut cursor = String::new();
        loop {
            let call = format!("GET /api/v1/{list}?limit=250{cursor}");
            let (status, page) = send(connection, &call, &[], "").expect("it lives");
            assert_eq!(status, 200, "{}", String::from_utf8_lossy(&page.body));
            let page: Value = serde_json::from_slice(&page.body).expect("JSON");
            for row in page["data"].as_array().expect("a list") {
                let text = |member: &str| row[member].as_str().expect("text").to_owned();
                found.entry(text(name)).or_default().push(text("id"));
            }
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
    }
    found
}

/// Each named step, with the load of the other tests beside it, so that every step is passed.
#[test]
fn acceptance_02_a_key_runs_once_whatever_step_the_process_dies_at() {
    let _machine = alone();
    let mut case = Case::new("crash-keys-steps");
    let client = Client::new(case.world.address());
    for step in Step::ALL {
        for (least, most) in PASSES {
            // Leases lapse once a start: there it may be dead before anybody could post.
            let nth = if step == Step::Lapsed { 1 } else { case.chance.between(least, most) };
            let at = format!("{}:{nth}", step.name());
            case.kill_while(&client);
            if case.world.start(&case.data, vec![(CRASH_AT, OsString::from(&at))]).is_err() {
                case.world.start_ready(&case.data, Vec::new());
                continue;
            }
            let address = case.world.address();
            let ended = std::thread::scope(|scope| {
                scope.spawn(|| client.post_until_it_dies(address));
                case.world.press_until_end(|_| ())
            });
            assert!(ended.is_some_and(|ended| was_killed(&ended)), "{at} was not reached");
            case.world.start_ready(&case.data, Vec::new());
        }
    }
    client.judge(case.world.address());
}

#[test]
fn acceptance_02_a_key_runs_once_whatever_instant_the_process_dies_at() {
    let _machine = alone();
    let mut case = Case::new("crash-keys-instants");
    let client = Client::new(case.world.address());
    for _ in 0..RANDOM_DEATHS {
        case.kill_while(&client);
        case.world.start_ready(&case.data, Vec::new());
    }
    client.judge(case.world.address());
}

impl Case {
    /// Kills the process at some instant while the client posts.
    fn kill_while(&mut self, client: &Client) {
        let address = self.world.address();
        std::thread::scope(|scope| {
            scope.spawn(|| client.post_until_it_dies(address));
            self.press_and_kill();
        });
    }
}

/// Everybody gets the one answer; who is told to come back later does.
#[test]
fn acceptance_01_of_two_hundred_at_once_one_runs() {
    let _machine = alone();
    let case = Case::new("crash-keys-at-once");
    let address = case.world.address();
    let client = Client::new(address);
    for number in [ENDPOINT_EVERY, 1] {
        let wanted = Wanted { number, tries: 1 };
        let all_are_here = std::sync::Barrier::new(CALLERS);
        let ask = || {
            let mut connection = Connection::open(address).expect("it is ready");
            all_are_here.wait();
            loop {
                match wanted.ask(&mut connection).expect("it lives") {
                    (200..300, answer) => return answer,
                    (409, answer) if answer.header("retry-after").is_some() => {
                        pause(COME_BACK_AFTER);
                    }
                    (status, answer) => panic!("{status} {answer:?}"),
                }
            }
        };
        let answers: Vec<Message> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(ask)).collect();
            callers.into_iter().map(|caller| caller.join().expect("an answer")).collect()
        });
        assert!(answers.iter().all(|answer| answer.body == answers[0].body));
        assert_eq!(answers.iter().filter(|answer| !is_replayed(answer)).count(), 1);
    }
    let mut connection = Connection::open(address).expect("it is ready");
    assert!(effects(&mut connection).values().all(|ids| ids.len() == 1));
    assert_eq!(effects(&mut connection).len(), 2);
    drop(client);
}
