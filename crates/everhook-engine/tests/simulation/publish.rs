//! Publishing, and what a publisher may rely on: a 2xx is an event, and a source event ID or an
//! idempotency key makes one of several calls.

use everhook_domain::event::{Envelope, EventType, NewEvent, Origin, SourceEventId};
use everhook_domain::id::{EndpointId, EventId};
use everhook_domain::time::Timestamp;
use everhook_store::{
    AcceptedEvent, Claimed, DirectoryStore, Publish, Published, Sending, Targets,
};
use serde_json::value::RawValue;

use crate::book::{self, Accepted, Publication};
use crate::client::{Client, Told, ask, claim, tenant};
use crate::profile::Item;
use crate::world::World;

/// Publishes until it is told what came of it, or until trying again might do it twice.
pub(crate) async fn publish(
    client: &mut Client,
    number: usize,
    items: &[Item],
    key: Option<String>,
) {
    let nonces = register(client, number, items, key.as_deref()).await;
    let repeatable = key.is_some() || items.iter().all(|item| item.source.is_some());
    loop {
        let process = client.process().await;
        let now = process.now();
        let world = &client.world;
        let Some(publish) = compose(world, &nonces) else { return };
        let before = routes(world, &nonces);
        let claim = key.as_deref().map(|key| claim(key, &format!("{nonces:?}"), render));
        note_pending(world, &nonces, 1);
        let told = ask(&process, process.front.publish(publish, claim, now)).await;
        note_pending(world, &nonces, -1);
        match told {
            Told::Done(Claimed::Done(published)) => {
                let after = routes(world, &nonces);
                let same = before.filter(|before| Some(before) == after.as_ref());
                let targets = same.map(|(_version, targets)| targets);
                note_key(world, key.as_deref(), &render(&published), now);
                note_published(world, &nonces, &published, targets, now);
                return;
            }
            Told::Done(Claimed::Replayed(answer)) => {
                note_replayed(world, &nonces, key.as_deref(), &answer.body, now);
                return;
            }
            Told::Done(Claimed::Mismatch | Claimed::OverQuota) => {
                return world.violate(format!("key {key:?}: the same request is a mismatch"));
            }
            Told::Refused(refusal) => {
                return world.violate(format!("publishing was refused: {refusal}"));
            }
            Told::Lost => {
                for nonce in &nonces {
                    world.book().publications[*nonce].lost = true;
                }
                if !repeatable {
                    return;
                }
            }
            Told::Unavailable => {}
        }
        client.rest().await;
    }
}

/// Sends a test event to an endpoint, once.
pub(crate) async fn test(client: &mut Client, receiver: usize) {
    let process = client.process().await;
    let world = &client.world;
    let Some(endpoint) = world.book().endpoints[receiver].id else { return };
    let now = process.now();
    let nonce = world.book().publications.len();
    world.book().publications.push(Publication {
        event_type: everhook_domain::event::TEST_TYPE,
        timestamp: now,
        data: book::data(nonce, "test"),
        source: None,
        key: None,
        calls: 1,
        pending: 0,
        lost: false,
    });
    let Some(mut publish) = compose(world, &[nonce]) else { return };
    publish.targets = Targets::Test(endpoint);
    note_pending(world, &[nonce], 1);
    let told = ask(&process, process.front.publish(publish, None, now)).await;
    note_pending(world, &[nonce], -1);
    match told {
        Told::Done(Claimed::Done(published)) => {
            let targets = Some(vec![vec![endpoint]]);
            note_published(world, &[nonce], &published, targets, now);
        }
        Told::Done(Claimed::Replayed(_) | Claimed::Mismatch | Claimed::OverQuota) => {
            world.violate("an answer under a key that was not given".to_owned());
        }
        Told::Lost => world.book().publications[nonce].lost = true,
        // Disabled or deleted meanwhile, or the store takes nothing.
        Told::Refused(_) | Told::Unavailable => {}
    }
}

/// A call is on its way, or has come back.
fn note_pending(world: &World, nonces: &[usize], change: i32) {
    let mut book = world.book();
    for nonce in nonces {
        let pending = &mut book.publications[*nonce].pending;
        *pending = pending.saturating_add_signed(change);
    }
}

/// Writes down what is to be published; the same call made again publishes the same.
async fn register(
    client: &mut Client,
    number: usize,
    items: &[Item],
    key: Option<&str>,
) -> Vec<usize> {
    let timestamp = client.process().await.now();
    let mut book = client.world.book();
    let book = &mut *book;
    let nonces = book.calls.entry(number).or_insert_with(|| {
        let first = book.publications.len();
        for (nonce, item) in (first..).zip(items) {
            book.publications.push(Publication {
                event_type: item.event_type,
                timestamp,
                data: book::data(nonce, item.filler),
                source: item.source.clone(),
                key: key.map(str::to_owned),
                calls: 0,
                pending: 0,
                lost: false,
            });
        }
        (first..first + items.len()).collect()
    });
    for nonce in nonces.iter() {
        book.publications[*nonce].calls += 1;
    }
    nonces.clone()
}

fn compose(world: &World, nonces: &[usize]) -> Option<Publish> {
    let book = world.book();
    let mut events = Vec::with_capacity(nonces.len());
    for nonce in nonces {
        let publication = &book.publications[*nonce];
        let event_type = EventType::any(publication.event_type).ok()?;
        let data = RawValue::from_string(publication.data.clone()).ok()?;
        let source = publication.source.as_deref();
        events.push(NewEvent {
            envelope: Envelope::compose(&event_type, publication.timestamp, &data),
            event_type,
            origin: Origin::Published,
            source_event_id: source.and_then(|source| SourceEventId::parse(source).ok()),
            timestamp: publication.timestamp,
        });
    }
    Some(Publish { tenant: tenant(), events, targets: Targets::Subscribed })
}

/// The endpoints that these events go to as things stand, and the version of that.
fn routes(world: &World, nonces: &[usize]) -> Option<(u64, Vec<Vec<EndpointId>>)> {
    let directory = world.store()?.directory().ok()?;
    let book = world.book();
    let route = |nonce: &usize| {
        let event_type = book.publications[*nonce].event_type;
        let wanting = book.endpoints.iter().zip(&world.profile.receivers);
        let wanting = wanting.filter(|(_, receiver)| receiver.wants(event_type));
        let takes = |id: &EndpointId| {
            directory.endpoint(*id).is_some_and(|endpoint| endpoint.state.gone().is_none())
        };
        wanting.filter_map(|(endpoint, _)| endpoint.id).filter(takes).collect()
    };
    Some((directory.version(), nonces.iter().map(route).collect()))
}

fn render(published: &Published) -> String {
    let line =
        |event: &AcceptedEvent| format!("{} {} {}\n", event.id, event.duplicate, event.deliveries);
    published.iter().map(line).collect()
}

/// What a key's answer says: each event, whether it is a duplicate, and its deliveries.
fn parse(body: &[u8]) -> Option<Vec<(EventId, bool, u32)>> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines()
        .map(|line| {
            let mut words = line.split(' ');
            let id = words.next()?.parse().ok()?;
            Some((id, words.next()? == "true", words.next()?.parse().ok()?))
        })
        .collect()
}

/// A call under a key has run.
fn note_key(world: &World, key: Option<&str>, answer: &str, now: Timestamp) {
    let Some(key) = key else { return };
    let until = now + world.profile.policy.idempotency_ttl;
    let entry = (answer.as_bytes().to_vec(), Some(until));
    let before = world.book().keys.insert(key.to_owned(), entry);
    if let Some((_, Some(until))) = before
        && now < until
    {
        world.violate(format!("key {key} ran again before {until}, at {now}"));
    }
}

/// A call under a key was answered without running.
fn note_replayed(world: &World, nonces: &[usize], key: Option<&str>, body: &[u8], now: Timestamp) {
    let known = key.and_then(|key| world.book().keys.get(key).cloned());
    let may_be_lost = nonces.iter().all(|nonce| world.book().publications[*nonce].may_be());
    match known {
        Some((answer, _)) if answer != body && !may_be_lost => {
            return world.violate(format!("key {key:?} was answered differently"));
        }
        Some((_, Some(until))) if until <= now && !may_be_lost => {
            return world.violate(format!("key {key:?} was answered after {until}, at {now}"));
        }
        None if !may_be_lost => {
            return world.violate(format!("key {key:?} was answered, but has never run"));
        }
        Some(_) | None => {}
    }
    let Some(events) = parse(body) else {
        return world.violate(format!("key {key:?}: an answer that nobody made"));
    };
    let order = world.note(format_args!("answered under {key:?}"));
    let mut book = world.book();
    for (nonce, (id, duplicate, deliveries)) in nonces.iter().zip(events) {
        let nonce = (!duplicate).then_some(*nonce);
        let told = Accepted { order, nonce, deliveries, targets: None };
        book.accepted.entry(id).or_insert(told);
    }
}

/// A call has run, and its caller was told of each event.
fn note_published(
    world: &World,
    nonces: &[usize],
    published: &Published,
    targets: Option<Vec<Vec<EndpointId>>>,
    now: Timestamp,
) {
    if published.len() != nonces.len() {
        return world.violate("an answer of another length".to_owned());
    }
    for (place, (nonce, event)) in nonces.iter().zip(published).enumerate() {
        let targets = targets.as_ref().map(|targets| targets[place].clone());
        let noted = match event.duplicate {
            true => note_duplicate(world, *nonce, event, now),
            false => note_new(world, *nonce, event, targets, now),
        };
        if let Err(violation) = noted {
            world.violate(format!("{}: {violation}", event.id));
        }
    }
}

fn note_new(
    world: &World,
    nonce: usize,
    event: &AcceptedEvent,
    targets: Option<Vec<EndpointId>>,
    now: Timestamp,
) -> Result<(), String> {
    let order = world.note(format_args!("accepted {} for {nonce}", event.id));
    // An event's id may be ahead of the time at which it was accepted, which counts.
    let ahead = world.profile.ahead_max();
    let window = world.profile.policy.dedupe_window.saturating_sub(ahead);
    let mut book = world.book();
    let publication = &book.publications[nonce];
    if event.event_type.as_str() != publication.event_type
        || event.timestamp != publication.timestamp
    {
        return Err("type or timestamp are not the publisher's".to_owned());
    }
    if let Some(source) = publication.source.clone()
        && let Some(first) = book.source_event_ids.insert(source.clone(), event.id)
        && first != event.id
        && first.created_at() + window > now
    {
        return Err(format!("a second event for {source}, whose first is {first}"));
    }
    if let Some(targets) = &targets
        && targets.len() != event.deliveries as usize
    {
        return Err(format!("{} deliveries, expected {targets:?}", event.deliveries));
    }
    let accepted = Accepted { order, nonce: Some(nonce), deliveries: event.deliveries, targets };
    book.accepted.insert(event.id, accepted);
    Ok(())
}

fn note_duplicate(
    world: &World,
    nonce: usize,
    event: &AcceptedEvent,
    now: Timestamp,
) -> Result<(), String> {
    let order = world.note(format_args!("duplicate {} for {nonce}", event.id));
    let ahead = world.profile.ahead_max();
    let window = world.profile.policy.dedupe_window;
    let mut book = world.book();
    let source = book.publications[nonce].source.clone();
    let source = source.ok_or("a duplicate without a source event ID")?;
    if event.id.created_at() + window <= now {
        return Err(format!("a duplicate of {source} after its window"));
    }
    match book.source_event_ids.get(&source).copied() {
        Some(first) if first == event.id => {}
        Some(first) if first.created_at() + window.saturating_sub(ahead) > now => {
            return Err(format!("a duplicate of {source}, whose first event is {first}"));
        }
        Some(_) | None => {
            let mut same = book.publications.iter();
            if !same.any(|other| other.may_be() && other.source.as_ref() == Some(&source)) {
                return Err(format!("a duplicate of {source}, which nobody has published"));
            }
            book.source_event_ids.insert(source, event.id);
        }
    }
    let deliveries = event.deliveries;
    let unknown = Accepted { order, nonce: None, deliveries, targets: None };
    let first = book.accepted.entry(event.id).or_insert(unknown).nonce;
    if let Some(first) = first {
        let (first, this) = (&book.publications[first], &book.publications[nonce]);
        let differs = first.event_type != this.event_type || first.data != this.data;
        if differs != event.differs {
            return Err(format!("differs is {}, expected {differs}", event.differs));
        }
    }
    Ok(())
}
