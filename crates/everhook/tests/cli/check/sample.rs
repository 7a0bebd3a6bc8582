//! Receivers to be tried: right ones, and for each way to get it wrong one that does just that.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::inbound::{Context, InboundRequest, Judgement, Rejection, judge};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::{Clock as _, SystemClock};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};
use tokio::task::JoinSet;

/// What is wrong with a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    CheckThenInsert,
    MarkedBeforeTheEffect,
    EffectBeforeDedupe,
    ParsedBeforeVerified,
    StaleAccepted,
    OrderAssumed,
    DuplicatesRefused,
    ContentHashAsKey,
    MemoryOnly,
    Slow,
}

/// How a receiver is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Design {
    /// Right: key, version and effect in one transaction, then the answer.
    OneTransaction,
    /// Right: stored and answered at once, worked off afterwards.
    Inbox,
    /// As the first one, but for this.
    Flawed(Flaw),
    /// As the first one; it tells its effects and takes no orders.
    Silent,
}

/// What is committed.
#[derive(Clone, Default)]
struct Disk {
    seen: HashSet<String>,
    applied: BTreeMap<String, u64>,
    versions: HashMap<String, i64>,
    inbox: VecDeque<Webhook>,
}

/// A genuine webhook.
#[derive(Clone)]
struct Webhook {
    id: String,
    data: Value,
}

/// It went down.
struct Crash;

/// A receiver.
pub(crate) struct Sample {
    design: Design,
    source: SourceSettings,
    clock: SystemClock,
    disk: Mutex<Disk>,
    /// What a restart loses.
    memory: Mutex<HashSet<String>>,
    /// Handlers that are to fail once.
    faults: Mutex<HashMap<String, String>>,
    ahead: Mutex<Duration>,
    /// Where those meet that found an event absent.
    barrier: Mutex<Option<Arc<Barrier>>>,
    /// Who handles an event, one at a time.
    turns: tokio::sync::Mutex<()>,
    arrived: Notify,
    tasks: Mutex<JoinSet<()>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}

impl Sample {
    /// Serves it; returns where, as `http://127.0.0.1:…`.
    pub(crate) async fn start(design: Design, kind: &str, secret: &str) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let public_url = format!("{url}/hook");
        let input = json!({
            "name": "sample", "kind": kind, "secrets": [secret], "public_url": public_url,
        });
        let input: SourceInput = serde_json::from_value(input).expect("an input");
        let sample = Arc::new(Self {
            design,
            source: SourceSettings::parse(input).expect("settings"),
            clock: SystemClock::start(),
            disk: Mutex::default(),
            memory: Mutex::default(),
            faults: Mutex::default(),
            ahead: Mutex::default(),
            barrier: Mutex::default(),
            turns: tokio::sync::Mutex::default(),
            arrived: Notify::new(),
            tasks: Mutex::default(),
        });
        let (server, worker) = (Arc::clone(&sample), Arc::clone(&sample));
        locked(&sample.tasks).spawn(async move { server.serve(listener).await });
        locked(&sample.tasks).spawn(async move { worker.work().await });
        (sample, url)
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let sample = Arc::clone(&self);
            connections.spawn(async move {
                let answering = service_fn(move |request: Request<Incoming>| {
                    let sample = Arc::clone(&sample);
                    async move { sample.answer(request).await }
                });
                let http = hyper::server::conn::http1::Builder::new();
                let _client_gone = http.serve_connection(TokioIo::new(stream), answering).await;
            });
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let (status, body) = match (head.uri.path(), &head.method) {
            ("/hook", _) => (self.receive(&head.headers, &body).await, String::new()),
            ("/effects", &Method::GET) => (StatusCode::OK, self.told().to_string()),
            ("/effects", &Method::POST) => (self.obey(&body), String::new()),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = status;
        Ok(response)
    }

    fn told(&self) -> Value {
        let disk = locked(&self.disk);
        json!({ "applied": disk.applied, "pending": disk.inbox.len() })
    }

    fn obey(&self, body: &[u8]) -> StatusCode {
        if self.design == Design::Silent {
            return StatusCode::NOT_FOUND;
        }
        let order: Value = serde_json::from_slice(body).expect("JSON");
        let text = |name: &str| order[name].as_str().unwrap_or_default().to_owned();
        match &*text("do") {
            "fail" => drop(locked(&self.faults).insert(text("event"), text("when"))),
            "restart" => locked(&self.memory).clear(),
            "later" => {
                *locked(&self.ahead) += Duration::from_secs(order["seconds"].as_u64().expect("s"));
            }
            _ => return StatusCode::NOT_IMPLEMENTED,
        }
        StatusCode::NO_CONTENT
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.design == Design::Flawed(flaw)
    }

    async fn receive(&self, headers: &HeaderMap, body: &[u8]) -> StatusCode {
        if self.has(Flaw::ParsedBeforeVerified) && serde_json::from_slice::<Value>(body).is_err() {
            return StatusCode::BAD_REQUEST;
        }
        let request = InboundRequest { method: &Method::POST, target: "/hook", headers, body };
        let now = self.clock.wall() + *locked(&self.ahead);
        match judge(&request, &Context { source: &self.source, now, certificate: None }) {
            Ok(Judgement::Store(_)) => {}
            Err(Rejection::Stale { .. }) if self.has(Flaw::StaleAccepted) => {}
            _ => return StatusCode::UNAUTHORIZED,
        }
        let webhook = read(headers, body);
        if self.has(Flaw::Slow) && webhook.data["row"] == "slow" {
            std::future::pending::<()>().await;
        }
        match self.handle(webhook).await {
            Ok(true) => StatusCode::OK,
            Ok(false) if self.has(Flaw::DuplicatesRefused) => StatusCode::CONFLICT,
            Ok(false) => StatusCode::OK,
            Err(Crash) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Whether it is new.
    async fn handle(&self, webhook: Webhook) -> Result<bool, Crash> {
        let key = match self.has(Flaw::ContentHashAsKey) {
            true => format!("{:x?}", Sha256::digest(webhook.data.to_string())),
            false => webhook.id.clone(),
        };
        match self.design {
            Design::Inbox => {
                let new = self.transaction(|disk| {
                    let new = disk.seen.insert(key);
                    disk.inbox.extend(new.then_some(webhook));
                    Ok(new)
                });
                self.arrived.notify_one();
                new
            }
            Design::Flawed(Flaw::CheckThenInsert) => {
                let seen = locked(&self.disk).seen.contains(&key);
                if let Some(copies) = webhook.data["copies"].as_u64() {
                    self.meet(copies).await;
                }
                if seen {
                    return Ok(false);
                }
                self.transaction(|disk| {
                    disk.seen.insert(key);
                    self.apply(disk, &webhook, true)
                })
            }
            Design::Flawed(Flaw::MarkedBeforeTheEffect) => {
                if !self.transaction(|disk| Ok(disk.seen.insert(key)))? {
                    return Ok(false);
                }
                self.transaction(|disk| self.apply(disk, &webhook, false))?;
                self.fault(&webhook, "after").map(|()| true)
            }
            Design::Flawed(Flaw::EffectBeforeDedupe) => {
                let _turn = self.turns.lock().await;
                if locked(&self.disk).seen.contains(&key) {
                    return Ok(false);
                }
                self.transaction(|disk| self.apply(disk, &webhook, false))?;
                self.fault(&webhook, "after")?;
                self.transaction(|disk| Ok(disk.seen.insert(key)))
            }
            Design::Flawed(Flaw::MemoryOnly) => {
                if !locked(&self.memory).insert(key.clone()) {
                    return Ok(false);
                }
                let applied = self.transaction(|disk| self.apply(disk, &webhook, true));
                if applied.is_err() {
                    locked(&self.memory).remove(&key);
                }
                applied
            }
            _ => self.transaction(|disk| match disk.seen.insert(key) {
                true => self.apply(disk, &webhook, true),
                false => Ok(false),
            }),
        }
    }

    /// All or nothing.
    fn transaction<T>(&self, work: impl FnOnce(&mut Disk) -> Result<T, Crash>) -> Result<T, Crash> {
        let mut disk = locked(&self.disk);
        let mut changed = disk.clone();
        let value = work(&mut changed)?;
        *disk = changed;
        Ok(value)
    }

    /// The effect, if it is not of an older version. `together`: a failure after it undoes it.
    fn apply(&self, disk: &mut Disk, webhook: &Webhook, together: bool) -> Result<bool, Crash> {
        self.fault(webhook, "before")?;
        let (object, version) = (webhook.data["object"].as_str(), webhook.data["version"].as_i64());
        let mut is_newer = true;
        if let (Some(object), Some(version)) = (object, version) {
            let held = disk.versions.entry(object.to_owned()).or_default();
            is_newer = *held < version || self.has(Flaw::OrderAssumed);
            *held = version.max(*held);
        }
        if is_newer {
            *disk.applied.entry(webhook.id.clone()).or_default() += 1;
        }
        if together {
            self.fault(webhook, "after")?;
        }
        Ok(true)
    }

    /// Fails if that was asked for, once.
    fn fault(&self, webhook: &Webhook, when: &str) -> Result<(), Crash> {
        let mut faults = locked(&self.faults);
        if faults.get(&webhook.id).is_none_or(|asked| asked != when) {
            return Ok(());
        }
        faults.remove(&webhook.id);
        Err(Crash)
    }

    /// Waits until so many are here.
    async fn meet(&self, copies: u64) {
        let barrier = {
            let mut barrier = locked(&self.barrier);
            let count = usize::try_from(copies).expect("few");
            Arc::clone(barrier.get_or_insert_with(|| Arc::new(Barrier::new(count))))
        };
        barrier.wait().await;
    }

    /// Works the inbox off; what fails is tried again.
    async fn work(&self) {
        loop {
            let next = locked(&self.disk).inbox.front().cloned();
            let Some(webhook) = next else {
                self.arrived.notified().await;
                continue;
            };
            let _tried_again = self.transaction(|disk| {
                disk.inbox.pop_front();
                self.apply(disk, &webhook, true)
            });
        }
    }
}

/// What identifies a webhook, and its data, wherever its kind has them.
fn read(headers: &HeaderMap, body: &[u8]) -> Webhook {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    let body = if body.is_array() { &body[0] } else { &body };
    let body = if body["event-data"].is_object() { &body["event-data"] } else { body };
    let header = ["webhook-id", "x-github-delivery"].iter().find_map(|name| headers.get(*name));
    let id = header.map(|value| value.to_str().expect("text").to_owned());
    let id = id.or_else(|| body["id"].as_str().map(ToOwned::to_owned)).expect("an id");
    Webhook { id, data: body["data"].clone() }
}
