//! Makes webhooks as the provider does, genuine and otherwise, and sends them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::inbound::{
    Context, Draft, Imitation, InboundRequest, SourceKind, imitate, judge,
};
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_domain::time::{Clock as _, SystemClock, Timestamp};
use http::{Method, Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};

use super::{Place, Trouble, fail};
use crate::client::{self, NoAnswer};
use crate::exit::Failure;

/// How long an answer is waited for, other than where that is what is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// What happened, in every webhook that is sent.
const EVENT_TYPE: &str = "everhook.check";
/// What a stale signature is behind, longer than any receiver should tolerate.
pub(super) const HOUR: Duration = Duration::from_secs(3_600);
/// A secret of every kind's form that nobody has.
const FORGED: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A receiver, and what its webhooks are signed with.
#[derive(Clone)]
pub(crate) struct Receiver {
    place: Place,
    source: Arc<SourceSettings>,
    forged: Arc<SourceSettings>,
    clock: Arc<SystemClock>,
    /// Part of every event's id, so that another run has other events.
    run: String,
}

/// An event to be told of, more than once.
pub(super) struct Event {
    pub(super) id: String,
    pub(super) data: Value,
}

/// How a webhook is signed.
#[derive(Clone, Copy)]
pub(super) enum Signed {
    /// As it should be.
    Now,
    /// That much too early.
    Before(Duration),
    /// As it should be at a time to come.
    After(Duration),
    /// With another secret.
    Forged,
    /// Not at all.
    Not,
}

/// The kinds whose webhooks can be made.
fn imitated_kinds() -> Vec<&'static str> {
    let can_be = |kind: &SourceKind| {
        let source = settings(*kind, FORGED, "https://hooks.example.com/");
        source.is_ok_and(|source| made(&source, Timestamp::default(), &blank()).is_some())
    };
    SourceKind::all().filter(can_be).map(SourceKind::as_str).collect()
}

fn blank() -> Draft<'static> {
    Draft { id: "1", event_type: EVENT_TYPE, data: "{}", target: "/", signed: true }
}

fn made(source: &SourceSettings, now: Timestamp, draft: &Draft<'_>) -> Option<Imitation> {
    imitate(draft, &Context { source, now, certificate: None })
}

fn settings(kind: SourceKind, secret: &str, url: &str) -> Result<SourceSettings, Failure> {
    let input = json!({
        "name": "check", "kind": kind.as_str(), "secrets": [secret], "public_url": url,
    });
    let input: SourceInput = serde_json::from_value(input).map_err(Failure::failed)?;
    SourceSettings::parse(input).map_err(|faults| {
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        Failure::usage(format!("--secret: of the kind {kind}: {}", faults.join("; ")))
    })
}

impl Receiver {
    /// A receiver of webhooks of this kind. `url` is the one that is signed, where the kind signs
    /// it.
    ///
    /// # Errors
    /// The kind's webhooks cannot be made, or the secret is none of the kind.
    pub(crate) fn new(
        place: Place,
        (kind, secret, url): (SourceKind, &str, &str),
        run: String,
    ) -> Result<Self, Failure> {
        if !imitated_kinds().contains(&kind.as_str()) {
            return Err(Failure::usage(format!(
                "--kind: webhooks of the kind {kind} cannot be made: they are signed with a \
                 private key that only the provider has, or not signed at all; kinds that can be \
                 tried are {}",
                imitated_kinds().join(", ")
            )));
        }
        let (source, forged) = (settings(kind, secret, url)?, settings(kind, FORGED, url)?);
        if made(&source, Timestamp::default(), &blank()).is_none() {
            let why = "--secret: a public key signs nothing: give the shared secret";
            return Err(Failure::usage(why));
        }
        let (source, forged) = (Arc::new(source), Arc::new(forged));
        Ok(Self { place, source, forged, clock: Arc::new(SystemClock::start()), run })
    }

    /// An event of this row: `which` tells it from others there.
    pub(super) fn event(&self, row: &str, which: u32) -> Event {
        let id = format!("check_{}_{row}_{which}", self.run);
        Event { data: json!({ "row": row, "run": self.run, "event": which }), id }
    }

    /// A webhook that tells of it.
    pub(super) fn make(&self, event: &Event, signed: Signed) -> Result<Imitation, Trouble> {
        self.make_of(&event.id, &event.data.to_string(), signed)
    }

    /// As `make`, with its data in any spelling.
    pub(super) fn make_of(
        &self,
        id: &str,
        data: &str,
        signed: Signed,
    ) -> Result<Imitation, Trouble> {
        let now = self.clock.wall();
        let (source, at) = match signed {
            Signed::Now | Signed::Not => (&self.source, now),
            Signed::Before(behind) => (&self.source, now.minus(behind)),
            Signed::After(ahead) => (&self.source, now + ahead),
            Signed::Forged => (&self.forged, now),
        };
        let is_signed = !matches!(signed, Signed::Not);
        let target = &self.place.target;
        let draft = Draft { id, event_type: EVENT_TYPE, data, target, signed: is_signed };
        match made(source, at, &draft) {
            Some(made) => Ok(made),
            None => fail("the webhook could not be made"),
        }
    }

    /// Whether the kind's own rule refuses it: what that accepts, no receiver can be blamed for.
    pub(super) fn should_refuse(&self, made: &Imitation) -> bool {
        let (method, target) = (Method::POST, &*self.place.target);
        let (headers, body) = (&made.headers, &*made.body);
        let request = InboundRequest { method: &method, target, headers, body };
        let (source, now) = (&*self.source, self.clock.wall());
        judge(&request, &Context { source, now, certificate: None }).is_err()
    }

    /// Sends it and says what it was answered.
    pub(super) async fn send(&self, made: &Imitation) -> Result<StatusCode, Trouble> {
        self.send_within(made, PATIENCE).await
    }

    /// As `send`, with another patience.
    pub(super) async fn send_within(
        &self,
        made: &Imitation,
        within: Duration,
    ) -> Result<StatusCode, Trouble> {
        match self.ask(made, within).await {
            Ok(status) => Ok(status),
            Err(NoAnswer::Unreachable(why) | NoAnswer::Lost(why)) => fail(why),
        }
    }

    /// Sends it and demands that it is accepted.
    pub(super) async fn must_accept(&self, made: &Imitation, what: &str) -> Result<(), Trouble> {
        let status = self.send(made).await?;
        if status.is_success() { Ok(()) } else { fail(format!("{what} was answered {status}")) }
    }

    /// Whether anybody is there.
    ///
    /// # Errors
    /// Nobody is, and why.
    pub(super) async fn reach(&self) -> Result<(), String> {
        let event = self.event("reach", 1);
        let Ok(made) = self.make(&event, Signed::Not) else { return Ok(()) };
        match self.ask(&made, PATIENCE).await {
            Err(NoAnswer::Unreachable(why)) => Err(why),
            Ok(_) | Err(NoAnswer::Lost(_)) => Ok(()),
        }
    }

    async fn ask(&self, made: &Imitation, within: Duration) -> Result<StatusCode, NoAnswer> {
        let request = Request::post(&self.place.target)
            .header(header::HOST, self.place.server.authority())
            .body(Full::new(Bytes::copy_from_slice(&made.body)));
        let mut request = request.map_err(|error| NoAnswer::Unreachable(error.to_string()))?;
        request.headers_mut().extend(made.headers.clone());
        Ok(client::ask(&self.place.server, request, within).await?.status)
    }
}
