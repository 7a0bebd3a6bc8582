//! The network, made up: receivers that behave as their world's profile says, and look closely at
//! every request.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::attempt::{AttemptOutcome, ErrorClass, KeptResponse};
use everhook_domain::endpoint::{Endpoint, EndpointState};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::id::EventId;
use everhook_domain::secret::Secret;
use everhook_domain::signature::{self, Signed};
use everhook_domain::time::Timestamp;
use everhook_engine::{OutgoingRequest, Sender};
use everhook_store::DirectoryStore;

use crate::book::{Request, RequestEnd, nonce_of};
use crate::process::{Life, Phase, Steady, now};
use crate::profile::{Manner, Receiver};
use crate::received::{self, receipt_of};
use crate::rng::Rng;
use crate::world::World;

/// More requests than any sound world makes: something runs in circles.
const REQUESTS_MAX: usize = 20_000;

/// The way of one process to the network.
pub(crate) struct Wire {
    world: Arc<World>,
    life: Arc<Life>,
    steady: Steady,
    generation: u32,
}

/// The receiver that a URL leads to.
pub(crate) fn receiver_of(url: &EndpointUrl) -> Option<usize> {
    let name = url.authority().strip_prefix('r')?.strip_suffix(".test")?;
    name.parse().ok()
}

/// The URL of a receiver; every revision is another one.
pub(crate) fn url_of(receiver: usize, revision: u64) -> String {
    format!("http://r{receiver}.test/hook/{revision}")
}

impl Wire {
    /// The way of this process.
    pub(crate) fn new(world: Arc<World>, life: Arc<Life>, steady: Steady, generation: u32) -> Self {
        Self { world, life, steady, generation }
    }

    /// Looks at a request and puts it on record.
    fn arrive(&self, request: &OutgoingRequest) -> Result<(usize, usize), String> {
        let index = receiver_of(&request.url).ok_or("a request to a receiver that is none")?;
        let directory = self.world.store().and_then(|store| store.directory().ok());
        let directory = directory.ok_or("a request while there is no store")?;
        let endpoint = self.world.book().endpoints[index].id;
        let endpoint = endpoint.and_then(|id| directory.endpoint(id)).ok_or("no such endpoint")?;
        if endpoint.state != EndpointState::Enabled {
            return Err(format!("a request to endpoint {index}, which is {:?}", endpoint.state));
        }
        let (event, number) = self.identify(request)?;
        self.look_at_headers(request, endpoint, event)?;
        self.look_at_content(request, endpoint, event)?;
        self.look_at_company(endpoint, event)?;
        let at_ms = self.world.time.now_ms();
        let generation = self.generation;
        let zombie = self.life.phase() == Phase::Zombie;
        let steady = now(&self.steady);
        let order =
            self.world.note(format_args!("g{generation} request {event} r{index} #{number}"));
        let mut book = self.world.book();
        let place = book.requests.len();
        book.open.insert(place);
        book.requests.push(Request {
            order,
            at_ms,
            steady,
            generation,
            zombie,
            event,
            endpoint: endpoint.id,
            number,
            url: request.url.to_string(),
            end: None,
        });
        if place > REQUESTS_MAX {
            return Err("requests without end".to_owned());
        }
        Ok((index, place))
    }

    fn identify(&self, request: &OutgoingRequest) -> Result<(EventId, u32), String> {
        let id = header(request, "webhook-id")?;
        let prefix = self.world.profile.settings.header_prefix.as_str();
        if header(request, &format!("{prefix}Webhook-Id"))? != id {
            return Err(format!("{id}: the two id headers differ"));
        }
        let number = header(request, &format!("{prefix}Webhook-Attempt"))?;
        let event = id.parse().map_err(|error| format!("{id}: {error}"))?;
        let number = number.parse().map_err(|error| format!("attempt {number}: {error}"))?;
        Ok((event, number))
    }

    fn look_at_headers(
        &self,
        request: &OutgoingRequest,
        endpoint: &Endpoint,
        event: EventId,
    ) -> Result<(), String> {
        let wall = self.world.time.wall_now();
        let timestamp = header(request, "webhook-timestamp")?;
        if timestamp != wall.as_secs().to_string() {
            return Err(format!("{event}: signed for {timestamp}, but it is {}", wall.as_secs()));
        }
        let (id, header_signature) = (event.to_string(), header(request, "webhook-signature")?);
        let headers = Signed { id: &id, timestamp, signature: header_signature };
        let entries = header_signature.split(' ').count();
        if entries != endpoint.secrets.live(wall).count() {
            return Err(format!("{event}: {entries} signatures, and not one for each live secret"));
        }
        let verify = |secret: &Secret| {
            let one = std::iter::once(secret);
            signature::verify(one, headers, &request.body, wall, Duration::ZERO)
                .map_err(|error| format!("{event}: the signature of a live secret: {error}"))
        };
        endpoint.secrets.live(wall).try_for_each(verify)?;
        // And by what its owner knows.
        let index = receiver_of(&request.url).unwrap_or_default();
        let known = self.world.book().endpoints[index].secrets.clone();
        for (secret, _) in
            known.iter().flatten().filter(|(_, until)| until.is_none_or(|at| wall < at))
        {
            verify(secret)?;
        }
        for (name, value) in endpoint.settings.headers.iter() {
            if request.headers.get(name) != Some(value) {
                return Err(format!("{event}: custom header {name} is not as it was set"));
            }
        }
        if *request.url != endpoint.settings.url {
            return Err(format!("{event}: the URL {} is not the one that is set", request.url));
        }
        Ok(())
    }

    /// Looks at the body and at what describes it.
    fn look_at_content(
        &self,
        request: &OutgoingRequest,
        endpoint: &Endpoint,
        event: EventId,
    ) -> Result<(), String> {
        let book = self.world.book();
        if let Some(receipt) = receipt_of(&book, event) {
            return received::look_at_request(&self.world, request, endpoint, receipt)
                .map_err(|violation| format!("{event}: {violation}"));
        }
        drop(book);
        if header(request, "content-type")? != "application/json"
            || !header(request, "user-agent")?.starts_with("Everhook/")
        {
            return Err(format!("{event}: content-type or user-agent is wrong"));
        }
        look_at_body(&self.world, request, event)
    }

    /// Looks at what else is under way.
    fn look_at_company(&self, endpoint: &Endpoint, event: EventId) -> Result<(), String> {
        let settings = &self.world.profile.settings;
        let book = self.world.book();
        let ours = book.open.iter().map(|place| &book.requests[*place]);
        let ours: Vec<_> = ours.filter(|open| open.generation == self.generation).collect();
        let there = ours.iter().filter(|open| open.endpoint == endpoint.id).count();
        if ours.iter().any(|open| open.endpoint == endpoint.id && open.event == event) {
            return Err(format!("{event}: two requests of one delivery under way"));
        }
        let limit = endpoint.settings.max_in_flight.unwrap_or(u32::MAX);
        let limit = limit.min(settings.endpoint_in_flight_max) as usize;
        if there >= limit {
            return Err(format!("{event}: more than {limit} requests to one endpoint under way"));
        }
        if ours.len() >= settings.in_flight_max {
            return Err(format!("more than {} requests under way", settings.in_flight_max));
        }
        let Some(per_second) = endpoint.settings.requests_per_second else { return Ok(()) };
        // By the process's own time: a wall clock that is set forward may let one more through.
        let second_ago = now(&self.steady).minus(Duration::from_secs(1));
        let ours = book.requests.iter().rev().filter(|sent| sent.generation == self.generation);
        let recent = ours.take_while(|sent| sent.steady > second_ago);
        let recent = recent.filter(|sent| sent.endpoint == endpoint.id).count();
        if recent >= per_second as usize {
            return Err(format!("{event}: more than {per_second} requests in a second"));
        }
        Ok(())
    }

    /// How often this delivery was requested, this time included.
    fn times(&self, place: usize) -> u32 {
        let book = self.world.book();
        let this = &book.requests[place];
        let same = |other: &&Request| other.event == this.event && other.endpoint == this.endpoint;
        u32::try_from(book.requests.iter().filter(same).count()).unwrap_or(u32::MAX)
    }

    fn leave(&self, place: usize, outcome: Option<&AttemptOutcome>) {
        let at_ms = self.world.time.now_ms();
        let outcome = outcome.cloned();
        let end = RequestEnd { order: 0, at_ms, steady: now(&self.steady), outcome };
        finish(&self.world, place, end);
    }
}

/// Ends a request on record, unless it has ended.
fn finish(world: &World, place: usize, end: RequestEnd) {
    let mut book = world.book();
    if !book.open.remove(&place) {
        return;
    }
    let request = &mut book.requests[place];
    let (event, number, generation) = (request.event, request.number, request.generation);
    let order = world.note(format_args!("g{generation} end {event} #{number} {:?}", end.success()));
    request.end = Some(RequestEnd { order, ..end });
}

/// Cuts what is under way from a process that has died.
pub(crate) fn cut(world: &World, generation: u32, steady: Timestamp) {
    let book = world.book();
    let ours = |place: &&usize| book.requests[**place].generation == generation;
    let open: Vec<usize> = book.open.iter().filter(ours).copied().collect();
    drop(book);
    let at_ms = world.time.now_ms();
    for place in open {
        finish(world, place, RequestEnd { order: 0, at_ms, steady, outcome: None });
    }
}

#[async_trait]
impl Sender for Wire {
    async fn send(&self, request: OutgoingRequest) -> AttemptOutcome {
        self.life.unless_dead().await;
        if self.world.violation().is_some() {
            // The world is about to end; whatever runs in circles stops here.
            return std::future::pending().await;
        }
        let (index, place) = match self.arrive(&request) {
            Ok(arrived) => arrived,
            Err(violation) => {
                self.world.violate(violation);
                return std::future::pending().await;
            }
        };
        let _hang_up = HangUp(self, place);
        let receiver = &self.world.profile.receivers[index];
        let healed = self.world.profile.heal_ms <= self.world.time.now_ms();
        let (after_ms, outcome) = {
            let times = self.times(place);
            let mut rng = self.world.network();
            let now_ms = self.world.time.now_ms();
            let quick_ms = match self.world.profile.instant || rng.percent(20) {
                true => 0,
                false => rng.between(1, 60),
            };
            let healed = healed && !receiver.stubborn;
            answer(receiver, healed, times, (now_ms, quick_ms), &mut rng)
        };
        let after = Duration::from_millis(u64::try_from(after_ms).unwrap_or(0));
        if !after.is_zero() {
            tokio::time::sleep(after.min(request.timeout)).await;
        }
        self.life.unless_dead().await;
        let outcome = if after < request.timeout {
            outcome
        } else {
            AttemptOutcome::failed(ErrorClass::Timeout, "no answer in time")
        };
        self.leave(place, Some(&outcome));
        outcome
    }
}

/// A request that is dropped has ended for its receiver too.
struct HangUp<'a>(&'a Wire, usize);

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1, None);
    }
}

/// What a receiver answers, and after how long.
fn answer(
    receiver: &Receiver,
    healed: bool,
    times: u32,
    (now_ms, quick): (i64, i64),
    rng: &mut Rng,
) -> (i64, AttemptOutcome) {
    let ok = |status: u16| AttemptOutcome::answered(response(status), None);
    if healed {
        return (quick, ok(200));
    }
    let failure = |rng: &mut Rng| {
        let wait = rng.percent(20).then(|| Duration::from_secs(rng.next() % 7_200));
        let status = rng.pick(&[500, 503, 404, 410, 301, 199]);
        (quick, AttemptOutcome::answered(response(status), wait))
    };
    match receiver.manner {
        Manner::Healthy => (quick, ok(rng.pick(&[200, 201, 204, 299]))),
        Manner::Fails { first } if times > first => (quick, ok(200)),
        Manner::Fails { .. } => failure(rng),
        Manner::DownUntil { ms } if now_ms >= ms => (quick, ok(200)),
        Manner::DownUntil { .. } => {
            (0, AttemptOutcome::failed(ErrorClass::Refused, "connection refused"))
        }
        Manner::Moody { percent } if rng.percent(percent) => failure(rng),
        Manner::Moody { .. } => (quick, ok(200)),
        Manner::Slow => (rng.between(300, 9_900), ok(200)),
        // Longer than any timeout: the sender has to give up.
        Manner::Hangs => (i64::MAX, ok(200)),
        Manner::Resets => (
            rng.between(0, 3_000),
            AttemptOutcome::failed(ErrorClass::Reset, "the connection was reset"),
        ),
    }
}

fn response(status: u16) -> KeptResponse {
    KeptResponse { status, headers: Vec::new(), body: String::new(), truncated: false }
}

fn header<'a>(request: &'a OutgoingRequest, name: &str) -> Result<&'a str, String> {
    let mut values = request.headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok());
    match (value, values.next()) {
        (Some(value), None) => Ok(value),
        _ => Err(format!("header {name} is missing, doubled or not text")),
    }
}

fn look_at_body(world: &World, request: &OutgoingRequest, event: EventId) -> Result<(), String> {
    let nonce = nonce_of(&request.body).ok_or_else(|| format!("{event}: a body of nobody's"))?;
    let expected = world.book().body(nonce, event);
    let expected = expected.ok_or_else(|| format!("{event}: nobody has published {nonce}"))?;
    if request.body[..] == *expected.as_bytes() {
        return Ok(());
    }
    let sent = String::from_utf8_lossy(&request.body);
    Err(format!("{event}: the body is not what was published\n  {expected}\n  {sent}"))
}
