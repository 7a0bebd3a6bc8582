//! A handler that was down catches up from `GET /api/v1/conversations?from=`, by the real program.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::time::SystemClock;
use everhook_lab::{Behaviour, Door, Lab, Reply, Request};
use everhook_receiver::reconcile::{
    Ask, Listed, MemoryProgress, NoPage, Objects, Page, Pages, ReconcileError, Reconciler,
};
use everhook_receiver::version::memory::VersionGate;
use everhook_receiver::version::{Content, ObjectKey, State, Verdict, Version};
use everhook_receiver::{InboundRequest, Timestamp, Verifier};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use crate::process::{Server, TOKEN, TempDir};

const CONVERSATIONS: &str = "/api/v1/conversations";
/// Between two looks at what is to happen.
const LOOK: Duration = Duration::from_millis(25);
/// How often it is looked at before a test gives up.
const LOOKS_MAX: usize = 2_400;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}"))
}

/// A `Date` header, such as `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn http_date(date: &str) -> Timestamp {
    const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let words: Vec<&str> = date.trim().split(' ').collect();
    let [_, day, month, year, time, "GMT"] = words[..] else { panic!("{date}") };
    let month = MONTHS.find(month).expect("a month") / 3 + 1;
    Timestamp::parse(&format!("{year}-{month:02}-{day}T{time}Z")).expect("a time")
}

/// A service that keeps a copy of all conversations.
#[derive(Default)]
struct Handler {
    is_down: AtomicBool,
    /// Made of its endpoint's secret.
    verifier: Mutex<Option<Verifier>>,
    gate: VersionGate,
    held: Mutex<BTreeMap<String, (State, Value)>>,
    applied: Mutex<Vec<(String, i64)>>,
}

impl Handler {
    fn answer(&self, request: &Request) -> Reply {
        if self.is_down.load(Ordering::SeqCst) {
            return Reply::status(503);
        }
        let mut headers = HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            let value = request.header(name).expect("a signed webhook");
            headers.insert(name, value.parse().expect("text"));
        }
        let inbound = InboundRequest {
            method: &Method::POST,
            target: "/hook",
            headers: &headers,
            body: &request.body,
        };
        let verifier = self.verifier.lock().expect("no panic");
        verifier.as_ref().expect("a secret").verify_now(&inbound).expect("a genuine webhook");
        let event: Value = serde_json::from_slice(&request.body).expect("JSON");
        // Of a message only the conversation's version is told, which is not its state.
        if text(&event, "type").starts_with("conversation.") {
            let _any = self.receive(&event["data"]);
        }
        Reply::status(204)
    }

    /// The one way in, of webhooks and of what is read.
    fn receive(&self, conversation: &Value) -> Verdict {
        let id = text(conversation, "id");
        let version = conversation["version"].as_i64().expect("a version");
        let content = match conversation["deleted_at"].is_null() {
            true => Content::of(conversation.to_string().as_bytes()),
            false => Content::Deleted,
        };
        let state = State { version: Version(version), content };
        let write = || -> Result<(), Infallible> {
            let mut held = self.held.lock().expect("no panic");
            held.insert(id.to_owned(), (state, conversation.clone()));
            self.applied.lock().expect("no panic").push((id.to_owned(), version));
            Ok(())
        };
        let Ok(verdict) = self.gate.advance(&ObjectKey::new(&[id]), &state, write);
        verdict
    }

    /// What it holds, without what is deleted.
    fn copy(&self) -> BTreeMap<String, Value> {
        let held = self.held.lock().expect("no panic").clone().into_iter();
        let lives = held.filter(|(_, (state, _))| state.content != Content::Deleted);
        lives.map(|(id, (_, conversation))| (id, conversation)).collect()
    }

    /// Nothing was applied twice or backwards.
    fn check_order(&self) {
        let mut last = BTreeMap::new();
        for (id, version) in self.applied.lock().expect("no panic").iter() {
            let before = last.insert(id.clone(), *version);
            assert!(before < Some(*version), "{id}: {version} after {before:?}");
        }
    }
}

#[async_trait]
impl Objects<Value> for Handler {
    type Error = String;

    async fn apply(&self, listed: Listed<Value>) -> Result<Verdict, String> {
        Ok(self.receive(&listed.object))
    }

    async fn held(&self) -> Result<Vec<String>, String> {
        Ok(self.copy().into_keys().collect())
    }

    async fn missing(&self, id: &str) -> Result<(), String> {
        Err(format!("{id} was listed as deleted and is missing"))
    }
}

/// The API of the server, two conversations a page.
struct Api {
    address: String,
    asked: AtomicU32,
    /// What is done before the page of this number, counted from 1; whether there is none then.
    before: Mutex<Box<dyn FnMut(u32) -> bool + Send>>,
}

impl Api {
    /// Status, the time on the server's clock, and the body.
    fn get(&self, path: &str) -> (u16, Timestamp, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        write!(stream, "{head}authorization: Bearer {TOKEN}\r\n\r\n").expect("writable");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let date = head.lines().find_map(|line| line.strip_prefix("date: ")).expect("a date");
        let now = http_date(date);
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), now, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

fn listed(conversation: &Value) -> Listed<Value> {
    let changed_at = Timestamp::parse(text(conversation, "updated_at")).expect("a time");
    let id = text(conversation, "id").to_owned();
    Listed { id, changed_at, object: conversation.clone() }
}

#[async_trait]
impl Pages for Api {
    type Object = Value;
    type Error = String;

    async fn page(&self, ask: &Ask) -> Result<Page<Value>, NoPage<String>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if (*self.before.lock().expect("no panic"))(number) {
            return Err(NoPage::Failed("no answer".to_owned()));
        }
        let from = ask.from.map(|from| format!("&from={from}")).unwrap_or_default();
        let cursor = ask.cursor.as_ref().map(|cursor| format!("&cursor={cursor}"));
        let path = format!("{CONVERSATIONS}?limit=2{from}{}", cursor.unwrap_or_default());
        let (status, now, body) = self.get(&path);
        assert_eq!(status, 200, "{path}: {body}");
        let objects = body["data"].as_array().expect("a list").iter().map(listed).collect();
        let next = body["next_cursor"].as_str().map(ToOwned::to_owned);
        Ok(Page { objects, next, now })
    }

    async fn one(&self, id: &str) -> Result<Option<Listed<Value>>, String> {
        let (status, _, body) = self.get(&format!("{CONVERSATIONS}/{id}"));
        Ok((status == 200).then(|| listed(&body)))
    }
}

/// A server, and the handler that its conversations are told to.
struct World {
    server: Arc<Server>,
    handler: Arc<Handler>,
    _lab: Lab,
    _dir: TempDir,
}

impl World {
    async fn start() -> Self {
        let handler = Arc::<Handler>::default();
        let answering = Arc::clone(&handler);
        let behaviour = Behaviour::by(move |request| answering.answer(request));
        let lab = Lab::start(Door::Open, behaviour, Arc::new(SystemClock::start())).await;
        let (lab, dir) = (lab.expect("a free port"), TempDir::new());
        let variables = [
            ("EVERHOOK_ADMIN_TOKEN", TOKEN),
            ("EVERHOOK_SECURITY_ALLOW_TARGETS", "127.0.0.1"),
            ("EVERHOOK_RETRY_SCHEDULE", "0s,50ms"),
        ];
        let server = Arc::new(Server::start(&dir.0, &variables));
        let endpoint = json!({ "url": lab.url("/hook") }).to_string();
        let (status, endpoint) = server.call(TOKEN, "POST", "/api/v1/endpoints", &endpoint);
        assert_eq!(status, 201, "{endpoint}");
        let verifier = Verifier::new("message", [text(&endpoint, "secret")]).expect("a secret");
        *handler.verifier.lock().expect("no panic") = Some(verifier);
        Self { server, handler, _lab: lab, _dir: dir }
    }

    fn make(&self, subject: &str) -> String {
        let made = json!({ "subject": subject }).to_string();
        let (status, made) = self.server.call(TOKEN, "POST", CONVERSATIONS, &made);
        assert_eq!(status, 201, "{made}");
        text(&made, "id").to_owned()
    }

    /// Changes the conversation with this id.
    fn change(&self, method: &str, path: &str, change: &Value) {
        let path = format!("{CONVERSATIONS}/{path}");
        let body = if change.is_null() { String::new() } else { change.to_string() };
        let (status, answer) = self.server.call(TOKEN, method, &path, &body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
    }

    fn deliveries(&self, status: &str) -> usize {
        let path = format!("/api/v1/deliveries?limit=250&status={status}");
        let (_, listed) = self.server.call(TOKEN, "GET", &path, "");
        listed["data"].as_array().expect("a list").len()
    }

    /// Waits until it is so.
    async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..LOOKS_MAX {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("not so in the end: {what}");
    }

    /// The handler has what the server has.
    fn check_copy(&self) {
        let path = format!("{CONVERSATIONS}?limit=250");
        let (_, listed) = self.server.call(TOKEN, "GET", &path, "");
        let listed = listed["data"].as_array().expect("a list").iter();
        let there: BTreeMap<_, _> =
            listed.map(|it| (text(it, "id").to_owned(), it.clone())).collect();
        assert_eq!(self.handler.copy(), there);
        self.handler.check_order();
    }

    /// Makes six conversations, and changes four and makes one while the handler is down.
    async fn live_through_an_outage(&self) -> Vec<String> {
        let ids: Vec<_> = (0..6).map(|number| self.make(&number.to_string())).collect();
        self.until("all are told", |world| world.handler.copy().len() == 6).await;
        self.handler.is_down.store(true, Ordering::SeqCst);
        self.change("PATCH", &ids[0], &json!({ "status": "pending" }));
        self.change("PATCH", &ids[0], &json!({ "status": "closed" }));
        self.change("POST", &format!("{}/transfer", ids[1]), &json!({ "assignee": "ann" }));
        self.change("DELETE", &ids[2], &Value::Null);
        self.change("POST", &format!("{}/messages", ids[3]), &json!({ "body": "hello" }));
        self.make("in the outage");
        self.until("all of the outage is dead", |world| world.deliveries("dead") == 6).await;
        self.handler.is_down.store(false, Ordering::SeqCst);
        ids
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_060_case_063_case_108_after_an_outage_a_copy_of_all_conversations_is_whole_again() {
    let world = World::start().await;
    let api = Arc::new(Api {
        address: world.server.address.clone(),
        asked: AtomicU32::new(0),
        before: Mutex::new(Box::new(|_| false)),
    });
    let (pages, progress) = (Arc::clone(&api), MemoryProgress::default());
    let handler = Arc::clone(&world.handler);
    let reconciler = Reconciler::new("conversations", pages, handler, progress);
    reconciler.changes().await.expect("nothing to do yet");
    let ids = world.live_through_an_outage().await;
    // A webhook of version 3 comes while version 2 is dead.
    world.change("PATCH", &ids[1], &json!({ "status": "closed" }));
    let is_closed = |world: &World| world.handler.copy()[&ids[1]]["version"] == 3;
    world.until("version 3 is told", is_closed).await;
    // The second page fails; later a conversation changes that was read, and one that was not.
    let first = api.asked.load(Ordering::SeqCst);
    let (server, changed) = (Arc::clone(&world.server), [ids[1].clone(), ids[5].clone()]);
    *api.before.lock().expect("no panic") = Box::new(move |page| {
        if page == first + 4 {
            for id in &changed {
                let path = format!("{CONVERSATIONS}/{id}");
                let change = json!({ "assignee": "bob" }).to_string();
                assert_eq!(server.call(TOKEN, "PATCH", &path, &change).0, 200);
            }
        }
        page == first + 2
    });
    let failed = ReconcileError::Pages("no answer".to_owned());
    assert_eq!(reconciler.changes().await.expect_err("a page that fails"), failed);
    let report = reconciler.changes().await.expect("the rest");
    assert!(report.resumed && report.conflicts.is_empty(), "{report:?}");
    let is_told = |world: &World| world.handler.copy()[&ids[5]]["assignee"] == "bob";
    world.until("the last change is told", is_told).await;
    reconciler.changes().await.expect("what changed meanwhile");
    world.check_copy();
    assert!(!world.handler.copy().contains_key(&ids[2]), "the deletion was listed");
    // All that died is told now, and is old.
    let applied = world.handler.applied.lock().expect("no panic").len();
    let replay = json!({ "status": "dead" }).to_string();
    let (status, replayed) = world.server.call(TOKEN, "POST", "/api/v1/replays", &replay);
    assert_eq!((status, &replayed["matched"]), (202, &json!(6)));
    let over = |world: &World| {
        ["dead", "due", "leased"].iter().all(|status| world.deliveries(status) == 0)
    };
    world.until("all is delivered", over).await;
    assert_eq!(world.handler.applied.lock().expect("no panic").len(), applied);
    let report = reconciler.sweep().await.expect("a whole sweep");
    assert_eq!((report.fresh, report.missing.len()), (0, 0), "{report:?}");
    world.check_copy();
}
