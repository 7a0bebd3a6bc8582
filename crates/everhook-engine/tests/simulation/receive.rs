//! The way of a request to a source, as the web server has it: judged, stored, answered. And what
//! owners do with sources: create them, and change their secrets.

use std::sync::Arc;

use everhook_domain::fault::{self, Plant};
use everhook_domain::inbound::{
    Context, ForwardedHeaders, InboundRequest, Judgement, ReceivedItem, Rejection, judge, look,
};
use everhook_domain::source::{Source, SourceInput, SourceSettings, TOLERANCE};
use everhook_domain::time::Timestamp;
use everhook_store::{
    Change, Changed, Claimed, DirectoryStore, NewReceipt, Receive, Receiving, Refusal,
};
use http::Method;
use serde_json::{Map, Value, json};

use crate::book::SourceBook;
use crate::client::{Client, Told, ask, claim, tenant};
use crate::process::Process;
use crate::provider::{Composed, compose, name_of, url_of};
use crate::sources::{Kind, Letter};
use crate::world::World;

/// How often a genuine request that is turned away is sent again, signed anew.
const TURNED_AWAY_MAX: u32 = 3;
/// More tries than a change needs.
const TRIES_MAX: u32 = 1_000;

/// What a sender is answered.
enum Answer {
    /// 2xx.
    Taken,
    /// 4xx.
    TurnedAway,
    /// 503, or nothing.
    Later,
    /// The world ends.
    Broken,
}

/// Sends a letter until it is answered for good.
pub(crate) async fn send(client: &mut Client, letter: &Letter) {
    let mut turned_away = 0;
    loop {
        let process = client.process().await;
        match attempt(&client.world, &process, letter).await {
            Answer::Taken | Answer::Broken => return,
            Answer::TurnedAway if letter.forged || turned_away == TURNED_AWAY_MAX => return,
            Answer::TurnedAway => {
                turned_away += 1;
                client.world.book().sources[letter.source].signed_at.remove(&letter.number);
            }
            Answer::Later => {}
        }
        client.rest().await;
    }
}

async fn attempt(world: &World, process: &Process, letter: &Letter) -> Answer {
    let (composed, secret, at) = sign(world, letter);
    let source = match find(process, letter.source) {
        Found::Source(source) => source,
        Found::Unavailable => return Answer::Later,
        Found::Gone => {
            world.violate(format!("source {} was created, and is gone", letter.source));
            return Answer::Broken;
        }
    };
    let wall = world.time.wall_now();
    let (judgement, request) = judged(&source, &composed, wall);
    if fault::planted(Plant::DedupeBeforeVerification) {
        let seen =
            look(&request, &Context { source: &source.settings, now: wall, certificate: None });
        let early = receive(world, &source, (&composed, &request), seen);
        let _whatever = process.front.receive(early, process.now()).await;
    }
    let expected = expect(world, letter, &secret, (at, wall));
    let items = match (judgement, expected) {
        (Ok(Judgement::Store(items)), None | Some(Expected::Genuine))
            if items.len() == composed.meaning.events.len() =>
        {
            items
        }
        (Err(Rejection::Signature(_)), None | Some(Expected::Forged))
        | (Err(Rejection::Stale { .. }), None | Some(Expected::Stale)) => {
            world.note(format_args!("letter {} is turned away", letter.number));
            return Answer::TurnedAway;
        }
        (judgement, expected) => {
            world.violate(format!("{letter:?} is {judgement:?}, expected {expected:?}"));
            return Answer::Broken;
        }
    };
    let receive = receive(world, &source, (&composed, &request), items);
    let taken = process.front.take_in(receive, process.now(), &composed.meaning);
    match ask(process, taken).await {
        Told::Done(_) => Answer::Taken,
        Told::Lost | Told::Unavailable => Answer::Later,
        // Looked at where it was seen.
        Told::Refused(_) => Answer::Broken,
    }
}

/// A source that was created.
enum Found {
    Source(Arc<Source>),
    Unavailable,
    Gone,
}

fn find(process: &Process, place: usize) -> Found {
    let Ok(directory) = process.front.directory() else { return Found::Unavailable };
    let named = name_of(place).parse().ok();
    match named.and_then(|name| directory.source_named(&tenant(), &name).cloned()) {
        Some(source) => Found::Source(source),
        None => Found::Gone,
    }
}

/// The letter as it is sent now, with the secret and the instant that it is signed with.
fn sign(world: &World, letter: &Letter) -> (Composed, String, Timestamp) {
    let plan = &world.profile.inbox.sources[letter.source];
    let now = world.time.world_now();
    let mut book = world.book();
    let source = &mut book.sources[letter.source];
    let at = match plan.kind {
        // What is captured is the bytes: they keep the instant of their first signature.
        Kind::Hmac => *source.signed_at.entry(letter.number).or_insert(now),
        Kind::Stripe | Kind::GitHub | Kind::Nobody | Kind::HubSpot => now,
    };
    let secret = match letter.forged {
        true => "guessed".to_owned(),
        false => source.signing.clone(),
    };
    (compose(plan, letter, &secret, at), secret, at)
}

fn judged<'a>(
    source: &Source,
    composed: &'a Composed,
    now: Timestamp,
) -> (Result<Judgement, Rejection>, InboundRequest<'a>) {
    let request = InboundRequest {
        method: &Method::POST,
        target: &composed.target,
        headers: &composed.headers,
        body: &composed.body,
    };
    let context = Context { source: &source.settings, now, certificate: None };
    (judge(&request, &context), request)
}

fn receive(
    world: &World,
    source: &Source,
    (composed, request): (&Composed, &InboundRequest<'_>),
    items: Vec<ReceivedItem>,
) -> Receive {
    let receipt = |item: ReceivedItem| NewReceipt {
        key: item.key,
        on_change: item.on_change,
        content: item.content,
        guard: item.guard,
        event_type: item.event_type,
        body: item.body.map_or_else(|| composed.body.clone(), Into::into),
        unreadable: item.unreadable,
    };
    let prefix = &world.profile.settings.header_prefix;
    let called = source.settings.called(request.target);
    Receive {
        tenant: tenant(),
        source: source.id,
        headers: ForwardedHeaders::of(request, &called, prefix).for_items(&items),
        items: items.into_iter().map(receipt).collect(),
    }
}

/// What a request must be taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Genuine,
    Forged,
    Stale,
}

/// By what the owner of its source knows; `None` while a change of the secrets is on its way.
fn expect(
    world: &World,
    letter: &Letter,
    secret: &String,
    (at, wall): (Timestamp, Timestamp),
) -> Option<Expected> {
    let kind = world.profile.inbox.sources[letter.source].kind;
    let book = world.book();
    let known = book.sources[letter.source].secrets.as_ref();
    if kind != Kind::Nobody && !known?.contains(secret) {
        return Some(Expected::Forged);
    }
    let apart = wall.as_secs().abs_diff(at.as_secs());
    match kind.signs_timestamp() && apart > TOLERANCE.as_secs() {
        true => Some(Expected::Stale),
        false => Some(Expected::Genuine),
    }
}

/// Creates a source.
pub(crate) async fn create(client: &mut Client, place: usize) {
    let first = secret(client, place);
    loop {
        let process = client.process().await;
        let world = &client.world;
        let settings = match settings(world, place, vec![first.clone()]) {
            Ok(settings) => Box::new(settings),
            Err(why) => return world.violate(why),
        };
        let change = Change::CreateSource { tenant: tenant(), settings };
        let key = claim(&format!("source-{place}"), "create", |_: &Changed| String::new());
        let now = process.now();
        match ask(&process, process.front.change(change, Some(key), now)).await {
            Told::Done(Claimed::Done(_) | Claimed::Replayed(_)) => {
                let book = SourceBook::new(first);
                return world.book().sources.push(book);
            }
            Told::Done(Claimed::Mismatch | Claimed::OverQuota) | Told::Refused(_) => {
                return world.violate(format!("source {place} could not be created"));
            }
            Told::Lost | Told::Unavailable => {}
        }
        client.rest().await;
    }
}

/// Gives a source a new secret, and then its provider; the old one goes on verifying, or does not.
pub(crate) async fn change_secret(client: &mut Client, place: usize, keep_old: bool) {
    let new = secret(client, place);
    for _ in 0..TRIES_MAX {
        let process = client.process().await;
        let world = &client.world;
        let old = match find(&process, place) {
            Found::Source(source) => source,
            Found::Unavailable => {
                client.rest().await;
                continue;
            }
            Found::Gone => {
                return world.violate(format!("source {place} was created, and is gone"));
            }
        };
        let mut secrets = vec![new.clone()];
        if keep_old {
            secrets.push(world.book().sources[place].signing.clone());
        }
        let settings = match settings(world, place, secrets.clone()) {
            Ok(settings) => Box::new(settings),
            Err(why) => return world.violate(why),
        };
        let (tenant, source, expected_version) = (tenant(), old.id, old.version);
        let change = Change::UpdateSource { tenant, source, expected_version, settings };
        let now = process.now();
        let (number, known) = world.book().sources[place].begin_change();
        let told = ask(&process, process.front.change(change, None, now)).await;
        let known = match told {
            Told::Done(_) => {
                let source = &mut world.book().sources[place];
                source.end_change(number, Some(secrets));
                source.signing = new;
                return;
            }
            Told::Refused(Refusal::VersionChanged) | Told::Unavailable => known,
            Told::Lost => None,
            Told::Refused(_) => {
                return world.violate(format!("source {place} could not be changed"));
            }
        };
        world.book().sources[place].end_change(number, known);
        client.rest().await;
    }
}

fn secret(client: &mut Client, place: usize) -> String {
    format!("secret-{place}-{:016x}", client.rng.next())
}

fn settings(world: &World, place: usize, secrets: Vec<String>) -> Result<SourceSettings, String> {
    let plan = &world.profile.inbox.sources[place];
    let mut options: Map<String, Value> = Map::new();
    if plan.strict {
        options.insert("replay_guard".to_owned(), json!("body"));
    }
    if plan.kind == Kind::Hmac {
        options.insert("signed".to_owned(), json!("timestamp_body"));
        options.insert("timestamp_header".to_owned(), json!("X-Timestamp"));
    }
    let input = SourceInput {
        name: name_of(place),
        kind: plan.kind.word().to_owned(),
        secrets: if plan.kind == Kind::Nobody { Vec::new() } else { secrets },
        window_s: Some(plan.window.as_secs()),
        public_url: (plan.kind == Kind::HubSpot).then(|| url_of(place)),
        options,
        ..SourceInput::default()
    };
    SourceSettings::parse(input).map_err(|faults| format!("source {place}: {faults:?}"))
}
