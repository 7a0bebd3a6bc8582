//! The receiver: records every request, and answers each endpoint in its own way.
//!
//! A request belongs to the *life* of the server process that sent it. Between two lives the
//! receiver waits until every connection of the old one is closed, so that a late request is never
//! taken for one of the new process.

use std::collections::HashMap;
use std::io::{BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chance::mix;
use super::http::{Connection, Message};
use super::intake::SIGNATURE;
use super::now;

/// How the endpoints behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    /// Takes everything at once.
    Ready,
    /// Refuses the first attempts of many events.
    Flaky,
    /// Takes everything, after a while.
    Slow,
    /// Refuses everything.
    Refusing,
    /// Never answers: the server is to be killed when it is asked.
    Fatal,
    /// Takes what came to the sources; refuses the first attempts of many events.
    Handler,
}

/// How long [`Target::Slow`] takes, well within the timeout of an attempt.
const SLOWNESS: Duration = Duration::from_millis(120);
/// Connections of a dead process are closed by the system at once.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);
/// A delivery that was interrupted several times is tried again after a pause.
const FATAL_LIMIT: Duration = Duration::from_secs(20);
const FENCE: &str = "/fence";
/// Far more requests than a delivery may cause. What comes beyond is answered and forgotten, so
/// that a server that never stops sending does not fill the memory.
const REQUESTS_MAX: usize = 64;

impl Target {
    /// Every one.
    pub(crate) const ALL: [Self; 6] =
        [Self::Ready, Self::Flaky, Self::Slow, Self::Refusing, Self::Fatal, Self::Handler];

    /// Its path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Ready => "/ready",
            Self::Flaky => "/flaky",
            Self::Slow => "/slow",
            Self::Refusing => "/refusing",
            Self::Fatal => "/fatal",
            Self::Handler => "/handler",
        }
    }

    /// How it answers an attempt, always in the same way.
    pub(crate) fn status(self, event: &str, number: u32) -> u16 {
        match self {
            Self::Ready | Self::Slow => 200,
            Self::Flaky | Self::Handler if number <= failures(event) => 503,
            Self::Flaky | Self::Handler => 204,
            Self::Refusing | Self::Fatal => 500,
        }
    }
}

/// How many attempts of an event [`Target::Flaky`] refuses: none to three.
fn failures(event: &str) -> u32 {
    let number = event.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    u32::try_from(number % 4).expect("below four")
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Which process sent it.
    pub(crate) life: usize,
    /// The attempt number in its header.
    pub(crate) number: u32,
    /// What it said.
    pub(crate) body: Arc<[u8]>,
    /// Whether both id headers name the event of the body; of a webhook, whether both name the same
    /// and the provider's signature came along.
    pub(crate) ids_agree: bool,
    /// When it was read.
    pub(crate) at: Instant,
    /// When it was answered; `None` when its sender was gone, or it is still under way.
    pub(crate) answered_at: Option<Instant>,
}

/// What arrived for one delivery, in order.
pub(crate) type Arrivals = HashMap<(String, Target), Vec<Arrival>>;

#[derive(Debug, Default)]
struct State {
    life: usize,
    /// The life is over: nobody waits for an answer.
    over: bool,
    open: usize,
    fatal: u32,
    flooded: bool,
    arrivals: Arrivals,
    strange: Vec<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `done` or the time has passed; says whether it was done.
    fn wait(&self, limit: Duration, mut done: impl FnMut(&State) -> bool) -> bool {
        let going = |state: &mut State| !done(state);
        let waited = self.changed.wait_timeout_while(self.lock(), limit, going);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// The receiver. Its threads end with the test process.
#[derive(Debug)]
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl Receiver {
    /// Listens on loopback.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                accepting.lock().open += 1;
                let serving = Arc::clone(&accepting);
                std::thread::spawn(move || serve(stream, &serving));
            }
        });
        Self { shared, address }
    }

    /// The URL of an endpoint.
    pub(crate) fn url(&self, target: Target) -> String {
        format!("http://{}{}", self.address, target.path())
    }

    /// Ends the life of a process that is dead, and begins the next one; returns its number.
    pub(crate) fn next_life(&self) -> usize {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        // Connections are accepted in order: once this one is answered, all older ones are known.
        let mut fence = Connection::open(self.address).expect("we listen");
        fence.call(&format!("GET {FENCE}"), &[], b"").expect("we answer");
        drop(fence);
        let closed = self.shared.wait(CLOSE_LIMIT, |state| state.open == 0);
        assert!(closed, "connections of a dead process stay open");
        let mut state = self.shared.lock();
        state.over = false;
        state.life += 1;
        state.life
    }

    /// What has arrived so far.
    pub(crate) fn arrivals(&self) -> Arrivals {
        self.shared.lock().arrivals.clone()
    }

    /// Waits for the next request to [`Target::Fatal`] after so many; whether it came.
    pub(crate) fn fatal_request(&self, before: u32) -> bool {
        self.shared.wait(FATAL_LIMIT, |state| state.fatal > before)
    }

    /// Whether some delivery was sent so often that it makes no sense to wait for its end.
    pub(crate) fn is_flooded(&self) -> bool {
        self.shared.lock().flooded
    }

    /// Requests that no delivery of ours can have caused.
    pub(crate) fn strange(&self) -> Vec<String> {
        self.shared.lock().strange.clone()
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = Message::read(&mut reader) {
        let Some(answer) = take(&request, shared) else { break };
        if reader.get_mut().write_all(answer.bytes.as_bytes()).is_err() {
            break;
        }
        if let Some((key, index)) = answer.arrival
            && let Some(arrival) =
                shared.lock().arrivals.get_mut(&key).and_then(|a| a.get_mut(index))
        {
            arrival.answered_at = Some(now());
        }
    }
    shared.lock().open -= 1;
    shared.changed.notify_all();
}

struct Answer {
    bytes: String,
    arrival: Option<((String, Target), usize)>,
}

/// Records a request; `None` when nobody waits for the answer any more.
fn take(request: &Message, shared: &Shared) -> Option<Answer> {
    let at = now();
    let path = request.subject();
    let bytes = |status: u16| match status {
        204 => "HTTP/1.1 204 \r\n\r\n".to_owned(),
        status => format!("HTTP/1.1 {status} \r\ncontent-length: 2\r\n\r\nok"),
    };
    if path == FENCE {
        return Some(Answer { bytes: bytes(200), arrival: None });
    }
    let target = Target::ALL.into_iter().find(|target| target.path() == path);
    let id = request.header("webhook-id");
    let event = match target {
        Some(Target::Handler) => id.map(str::to_owned),
        Some(_) | None => event_id(&request.body),
    };
    let number = request.header("x-message-webhook-attempt").and_then(|text| text.parse().ok());
    let (Some(target), Some(event), Some(number)) = (target, event, number) else {
        shared.lock().strange.push(format!("{}: {:?}", request.start, request.body));
        return Some(Answer { bytes: bytes(400), arrival: None });
    };
    let names_it = |header: &str| request.header(header) == Some(event.as_str());
    let mut state = shared.lock();
    let life = state.life;
    let arrivals = state.arrivals.entry((event.clone(), target)).or_default();
    let index = arrivals.len();
    if index == REQUESTS_MAX {
        state.flooded = true;
        return Some(Answer { bytes: bytes(200), arrival: None });
    }
    arrivals.push(Arrival {
        life,
        number,
        body: request.body.as_slice().into(),
        ids_agree: names_it("webhook-id")
            && names_it("x-message-webhook-id")
            && (target != Target::Handler || request.header(SIGNATURE).is_some()),
        at,
        answered_at: None,
    });
    drop(state);
    match target {
        Target::Slow if shared.wait(SLOWNESS, |state| state.over) => return None,
        Target::Fatal => {
            shared.lock().fatal += 1;
            shared.changed.notify_all();
            shared.wait(CLOSE_LIMIT, |state| state.over);
            return None;
        }
        Target::Ready | Target::Flaky | Target::Slow | Target::Refusing | Target::Handler => {}
    }
    let bytes = bytes(target.status(&event, number));
    Some(Answer { bytes, arrival: Some(((event, target), index)) })
}

fn event_id(body: &[u8]) -> Option<String> {
    let envelope: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(envelope["id"].as_str()?.to_owned())
}
