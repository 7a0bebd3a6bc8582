//! The demo's receiver: three endpoints of different temper on one loopback port. It checks every
//! request as a good receiver does: signature, age, and that an event never changes between tries.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::header::HeaderPrefix;
use everhook_domain::secret::Secret;
use everhook_domain::signature::{self, Signed};
use everhook_domain::time::Clock;
use everhook_lab::{Behaviour, Door, Lab, Reply, Request};
use http::StatusCode;
use tokio::sync::mpsc::UnboundedSender;

use crate::exit::Failure;

/// How far a signature's time may be from ours.
const TOLERANCE: Duration = Duration::from_secs(300);

/// An endpoint of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Temper {
    /// Always takes what comes.
    Steady,
    /// Fails the first attempt of every event.
    Flaky,
    /// Fails every attempt, until it is repaired.
    Broken,
}

impl Temper {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Steady, Self::Flaky, Self::Broken];

    /// Its name, which is its path too.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Flaky => "flaky",
            Self::Broken => "broken",
        }
    }
}

/// A request that came in, and what was answered.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Which endpoint it came to.
    pub(crate) temper: Temper,
    /// The event's id.
    pub(crate) event: String,
    /// The event's type.
    pub(crate) event_type: String,
    /// The attempt's number.
    pub(crate) attempt: u32,
    /// What was answered.
    pub(crate) status: StatusCode,
    /// What is wrong with the request, if anything is.
    pub(crate) fault: Option<String>,
}

/// What the receiver remembers.
struct Memory {
    secrets: HashMap<Temper, Secret>,
    bodies: HashMap<(Temper, String), Bytes>,
    repaired: bool,
}

/// A running receiver. Dropping it ends it.
pub(crate) struct Receiver {
    lab: Lab,
    state: Arc<State>,
}

struct State {
    memory: Mutex<Memory>,
    arrivals: UnboundedSender<Arrival>,
    clock: Arc<dyn Clock>,
    prefix: HeaderPrefix,
}

impl Receiver {
    /// Starts on a free loopback port; every request is told to `arrivals`.
    ///
    /// # Errors
    /// There is no free port.
    pub(crate) async fn start(
        clock: Arc<dyn Clock>,
        prefix: HeaderPrefix,
        arrivals: UnboundedSender<Arrival>,
    ) -> Result<Self, Failure> {
        let memory = Memory { secrets: HashMap::new(), bodies: HashMap::new(), repaired: false };
        let memory = Mutex::new(memory);
        let state = Arc::new(State { memory, arrivals, clock: Arc::clone(&clock), prefix });
        let asked = Arc::clone(&state);
        let behaviour = Behaviour::by(move |request| Reply::status(asked.answer(request).as_u16()));
        let lab = Lab::start(Door::Open, behaviour, clock).await.map_err(|error| {
            Failure::failed(format!("the demo's receiver does not start: {error}"))
        })?;
        Ok(Self { lab, state })
    }

    /// The URL of one of its endpoints.
    pub(crate) fn url(&self, temper: Temper) -> String {
        self.lab.url(&format!("/{}", temper.name()))
    }

    /// Tells it the secret that requests to an endpoint are signed with.
    pub(crate) fn trust(&self, temper: Temper, secret: Secret) {
        self.state.with(|memory| memory.secrets.insert(temper, secret));
    }

    /// From now on the broken endpoint takes what comes.
    pub(crate) fn repair(&self) {
        self.state.with(|memory| memory.repaired = true);
    }
}

impl State {
    fn with<T>(&self, f: impl FnOnce(&mut Memory) -> T) -> T {
        f(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, request: &Request) -> StatusCode {
        let wanted = |temper: &Temper| request.target().strip_prefix('/') == Some(temper.name());
        let temper = Temper::ALL.into_iter().find(wanted);
        temper.map_or(StatusCode::NOT_FOUND, |temper| self.receive(temper, request))
    }

    fn receive(&self, temper: Temper, request: &Request) -> StatusCode {
        let text = |name: &str| request.header(name).unwrap_or_default();
        let event = text("webhook-id").to_owned();
        let attempt = text(self.prefix.attempt().as_str()).parse().unwrap_or(0);
        let fault = self.fault(temper, request);
        let repaired = self.with(|memory| memory.repaired);
        let status = match temper {
            _ if fault.is_some() => StatusCode::BAD_REQUEST,
            Temper::Flaky if attempt == 1 => StatusCode::SERVICE_UNAVAILABLE,
            Temper::Broken if !repaired => StatusCode::INTERNAL_SERVER_ERROR,
            Temper::Steady | Temper::Flaky | Temper::Broken => StatusCode::OK,
        };
        // Nobody listens any more when the demo is ending.
        let event_type = event_type(&request.body);
        let arrival = Arrival { temper, event, event_type, attempt, status, fault };
        let _unheard = self.arrivals.send(arrival);
        status
    }

    /// What is wrong with a request.
    fn fault(&self, temper: Temper, request: &Request) -> Option<String> {
        let text = |name: &str| request.header(name).unwrap_or_default();
        let body = &request.body;
        let signed = Signed {
            id: text("webhook-id"),
            timestamp: text("webhook-timestamp"),
            signature: text("webhook-signature"),
        };
        if text(self.prefix.webhook_id().as_str()) != signed.id {
            return Some(format!("{} is not webhook-id", self.prefix.webhook_id()));
        }
        let now = self.clock.wall();
        self.with(|memory| {
            let secret = memory.secrets.get(&temper);
            let verified = signature::verify(secret.into_iter(), signed, body, now, TOLERANCE);
            if let Err(error) = verified {
                return Some(error.to_string());
            }
            let first = memory.bodies.entry((temper, signed.id.to_owned()));
            let first = first.or_insert_with(|| body.clone());
            (first != body).then(|| "the body is not the one of the first attempt".to_owned())
        })
    }
}

/// The type in an envelope; nothing if there is none.
fn event_type(body: &[u8]) -> String {
    let envelope: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    envelope["type"].as_str().unwrap_or_default().to_owned()
}
