//! The book of a world: what was asked, what was answered, and what the receivers saw. The checks
//! compare it with what the store says in the end. Everything has its place in one order.

use std::collections::{BTreeMap, BTreeSet};

use everhook_domain::attempt::AttemptOutcome;
use everhook_domain::endpoint::EndpointState;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::secret::Secret;
use everhook_domain::time::Timestamp;

use crate::receipts::Ledger;

/// An endpoint's secrets, newest first, with the instant from which on they sign no more.
pub(crate) type Secrets = Vec<(Secret, Option<Timestamp>)>;

/// Everything that happened.
#[derive(Default)]
pub(crate) struct Book {
    /// Requests in the order in which they started.
    pub(crate) requests: Vec<Request>,
    /// Those under way, by their place in `requests`.
    pub(crate) open: BTreeSet<usize>,
    /// What was published, by nonce.
    pub(crate) publications: Vec<Publication>,
    /// The events that a caller was told of.
    pub(crate) accepted: BTreeMap<EventId, Accepted>,
    /// The last event that a caller was told of for a source event ID.
    pub(crate) source_event_ids: BTreeMap<String, EventId>,
    /// The nonces of each call to publish, by its number.
    pub(crate) calls: BTreeMap<usize, Vec<usize>>,
    /// What was answered under an idempotency key, and until when that holds, if it is known.
    pub(crate) keys: BTreeMap<String, (Vec<u8>, Option<Timestamp>)>,
    /// By their number in the receivers' names.
    pub(crate) endpoints: Vec<EndpointBook>,
    /// By their place in the profile.
    pub(crate) sources: Vec<SourceBook>,
    /// What was received.
    pub(crate) ledger: Ledger,
    /// What was done to deliveries.
    pub(crate) acts: Vec<ActBook>,
    /// How each process ended, by generation less one.
    pub(crate) ends: Vec<Option<ProcessEnd>>,
    /// The running process has ended the leases of the one before.
    pub(crate) lapsed: bool,
    /// Deliveries that a claim leased to the running process and that were not settled since.
    pub(crate) leased: BTreeSet<DeliveryId>,
    /// When something kept the running process from being on time.
    pub(crate) disturbances: Vec<(i64, i64)>,
}

/// One request as its receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Its place in the order of things.
    pub(crate) order: u64,
    /// Virtual milliseconds.
    pub(crate) at_ms: i64,
    /// The steady time of the process that sent it.
    pub(crate) steady: Timestamp,
    /// The process that sent it.
    pub(crate) generation: u32,
    /// The process was a zombie by then.
    pub(crate) zombie: bool,
    /// The event's id in the headers.
    pub(crate) event: EventId,
    /// The endpoint whose receiver this is.
    pub(crate) endpoint: EndpointId,
    /// The attempt's number in the headers.
    pub(crate) number: u32,
    /// The URL.
    pub(crate) url: String,
    /// How it ended; `None` while it is under way.
    pub(crate) end: Option<RequestEnd>,
}

/// The end of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestEnd {
    /// Its place in the order of things.
    pub(crate) order: u64,
    /// Virtual milliseconds.
    pub(crate) at_ms: i64,
    /// The steady time of the process that sent it.
    pub(crate) steady: Timestamp,
    /// What the sender got; `None`: the sender had gone away.
    pub(crate) outcome: Option<AttemptOutcome>,
}

impl RequestEnd {
    /// Whether the sender got a success or a failure.
    pub(crate) fn success(&self) -> Option<bool> {
        self.outcome.as_ref().map(AttemptOutcome::is_success)
    }
}

/// One thing that a publisher wants to be known.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    /// The event's type.
    pub(crate) event_type: &'static str,
    /// The event's time.
    pub(crate) timestamp: Timestamp,
    /// The event's data.
    pub(crate) data: String,
    /// The source event ID.
    pub(crate) source: Option<String>,
    /// The idempotency key of its call.
    pub(crate) key: Option<String>,
    /// How many calls were made that may each have made an event of its own.
    pub(crate) calls: u32,
    /// How many calls are on their way.
    pub(crate) pending: u32,
    /// Whether a call's answer was lost.
    pub(crate) lost: bool,
}

impl Publication {
    /// Whether there may be an event of it that no caller was told of.
    pub(crate) fn may_be(&self) -> bool {
        self.lost || self.pending > 0
    }
}

/// What a caller was told of an event.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    /// When, in the order of things.
    pub(crate) order: u64,
    /// What was published; `None` where a duplicate named an event whose own answer was lost, and
    /// of an event that was received.
    pub(crate) nonce: Option<usize>,
    /// How many deliveries it was given.
    pub(crate) deliveries: u32,
    /// The endpoints that it should go to, where that is known.
    pub(crate) targets: Option<Vec<EndpointId>>,
}

/// One endpoint.
#[derive(Debug)]
pub(crate) struct EndpointBook {
    /// Its id, once it is known.
    pub(crate) id: Option<EndpointId>,
    /// The last version that a caller was told of.
    pub(crate) told_version: u64,
    /// Its states as they came into force, with order and time.
    pub(crate) states: Vec<(u64, i64, EndpointState)>,
    /// It has a limit on requests a second.
    pub(crate) paced: bool,
    /// Its secrets; `None` where an answer was lost.
    pub(crate) secrets: Option<Secrets>,
    /// How many rotations have begun.
    pub(crate) rotations: u32,
}

impl EndpointBook {
    /// A rotation begins: until its answer is there nobody knows which secrets sign. Gives what was
    /// known, and the number of the rotation.
    pub(crate) fn begin_rotation(&mut self) -> (u32, Option<Secrets>) {
        self.rotations += 1;
        (self.rotations, self.secrets.take())
    }

    /// What is known after a rotation; nothing if another one began meanwhile.
    pub(crate) fn end_rotation(&mut self, number: u32, secrets: Option<Secrets>) {
        self.secrets = secrets.filter(|_| self.rotations == number);
    }

    /// The state in force.
    pub(crate) fn state(&self) -> Option<EndpointState> {
        self.states.last().map(|(_, _, state)| *state)
    }
}

/// One source.
#[derive(Debug)]
pub(crate) struct SourceBook {
    /// The secrets that verify; `None` while a change of them is on its way, or was lost.
    pub(crate) secrets: Option<Vec<String>>,
    /// How many changes of them have begun.
    changes: u32,
    /// What its provider signs with.
    pub(crate) signing: String,
    /// When letters were signed whose bytes do not change, by their number.
    pub(crate) signed_at: BTreeMap<usize, Timestamp>,
}

impl SourceBook {
    /// With its first secret.
    pub(crate) fn new(secret: String) -> Self {
        let secrets = Some(vec![secret.clone()]);
        Self { secrets, changes: 0, signing: secret, signed_at: BTreeMap::new() }
    }

    /// A change of the secrets begins: until its answer is there nobody knows which of them verify.
    /// Gives the number of the change, and what was known.
    pub(crate) fn begin_change(&mut self) -> (u32, Option<Vec<String>>) {
        self.changes += 1;
        (self.changes, self.secrets.take())
    }

    /// What is known after a change; nothing if another one began meanwhile.
    pub(crate) fn end_change(&mut self, number: u32, secrets: Option<Vec<String>>) {
        self.secrets = secrets.filter(|_| self.changes == number);
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It was done.
    Done,
    /// It may have been done.
    Lost,
}

/// What was done to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Replay.
    Replay,
    /// Cancel.
    Cancel,
    /// Acknowledge.
    Acknowledge,
}

/// Something done to a delivery.
#[derive(Clone, Debug)]
pub(crate) struct ActBook {
    /// The delivery's event.
    pub(crate) event: EventId,
    /// The delivery's endpoint; `None`: all of the event's.
    pub(crate) endpoint: Option<EndpointId>,
    /// What was done.
    pub(crate) deed: Deed,
    /// When it was first asked for.
    pub(crate) from: u64,
    /// When the answer came, or was given up.
    pub(crate) to: u64,
    /// As `to`, in virtual milliseconds.
    pub(crate) to_ms: i64,
    /// The steady time when the answer came.
    pub(crate) to_steady: Timestamp,
    /// What is known of it.
    pub(crate) answered: Answered,
    /// For an act on all deliveries of an event: those that the answer names.
    pub(crate) named: Vec<EndpointId>,
}

impl ActBook {
    /// Whether it was, or may have been, done to this delivery.
    pub(crate) fn concerns(&self, event: EventId, endpoint: EndpointId) -> bool {
        self.event == event
            && match (self.endpoint, self.answered) {
                (Some(one), _) => one == endpoint,
                (None, Answered::Lost) => true,
                (None, Answered::Done) => self.named.contains(&endpoint),
            }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEnd {
    /// When it died or was asked to stop, in the order of things.
    pub(crate) order: u64,
    /// It stopped in good order, and the store took everything.
    pub(crate) clean: bool,
}

impl Book {
    /// The endpoint's place in the book.
    pub(crate) fn index_of(&self, endpoint: EndpointId) -> Option<usize> {
        self.endpoints.iter().position(|book| book.id == Some(endpoint))
    }

    /// The bytes that are to be sent for what was published under this nonce.
    pub(crate) fn body(&self, nonce: usize, id: EventId) -> Option<String> {
        let publication = self.publications.get(nonce)?;
        let Publication { event_type, timestamp, data, .. } = publication;
        Some(format!(
            r#"{{"id":"{id}","type":"{event_type}","timestamp":"{timestamp}","data":{data}}}"#
        ))
    }
}

/// The data of a publication: spelled as no serialiser would, with its nonce in it.
pub(crate) fn data(nonce: usize, filler: &str) -> String {
    format!(
        r#"{{"z":1.50, "a":1e2,"s":"\u00e4\/{filler}","nonce": {nonce} ,"b":[1, 2 ],"a":null}}"#
    )
}

/// The nonce in a body.
pub(crate) fn nonce_of(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, after) = text.split_once(r#""nonce":"#)?;
    let digits = after.trim_start().split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}
