//! The end of a world: everything that was accepted is there, and has ended as it must.

use everhook_domain::endpoint::EndpointState;
use everhook_domain::event::Origin;
use everhook_domain::id::{EndpointId, EventId};
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    DeliveryDetail, DeliveryQuery, EventDetail, EventQuery, PageRequest, Reading, ReceiptRecord,
};
use std::collections::{BTreeMap, BTreeSet};

use crate::book::{Accepted, Book, Request, nonce_of};
use crate::client::tenant;
use crate::world::World;
use crate::{delivery, received, system, timing};

/// What the store holds in the end.
struct Stock {
    events: Vec<EventDetail>,
    deliveries: Vec<DeliveryDetail>,
    receipts: Vec<ReceiptRecord>,
}

/// Compares the store with the book.
pub(crate) async fn check(world: &World, store: &SqliteStore) -> Result<(), String> {
    world.look_at_endpoints();
    let mut stock = read(store).await?;
    let book = world.book();
    system::check(&system::take(&mut stock.events), &stock.deliveries)?;
    check_events(&book, &stock)?;
    check_source_event_ids(world, &book, &stock)?;
    check_targets(&book, &stock)?;
    received::check((&book, store), &stock.receipts, &stock.events, &stock.deliveries)?;
    let mut requests: BTreeMap<(EventId, EndpointId), Vec<&Request>> = BTreeMap::new();
    for request in &book.requests {
        requests.entry((request.event, request.endpoint)).or_default().push(request);
    }
    let disturbances = timing::Disturbances::of(world, &book);
    for detail in &stock.deliveries {
        let key = (detail.record.id.event(), detail.record.endpoint);
        let sent = requests.remove(&key).unwrap_or_default();
        let case = delivery::Case { world, book: &book, detail, sent: &sent };
        case.check().and_then(|matched| timing::check(&case, &matched, &disturbances)).map_err(
            |violation| format!("{} to {}: {violation}", detail.record.id, detail.record.endpoint),
        )?;
    }
    match requests.keys().next() {
        None => Ok(()),
        Some((event, endpoint)) => Err(format!("{event} was sent to {endpoint}, with no delivery")),
    }
}

async fn read(store: &SqliteStore) -> Result<Stock, String> {
    let failed = |error| format!("the store cannot be read: {error}");
    let mut page = PageRequest { limit: 250, after: None, scan_limit: 100_000 };
    let mut events = Vec::new();
    loop {
        let list = store.events(tenant(), EventQuery::default(), page).await.map_err(failed)?;
        for record in list.items {
            let event = store.event(tenant(), record.id).await.map_err(failed)?;
            events.push(event.ok_or_else(|| format!("{} is listed, and is not there", record.id))?);
        }
        page.after = list.next;
        if page.after.is_none() {
            break;
        }
    }
    let mut deliveries = Vec::new();
    loop {
        let query = DeliveryQuery::default();
        let list = store.deliveries(tenant(), query, page).await.map_err(failed)?;
        for record in list.items {
            let delivery = store.delivery(tenant(), record.id).await.map_err(failed)?;
            let lost = || format!("{} is listed, and is not there", record.id);
            deliveries.push(delivery.ok_or_else(lost)?);
        }
        page.after = list.next;
        if page.after.is_none() {
            break;
        }
    }
    let receipts = received::read(store).await?;
    Ok(Stock { events, deliveries, receipts })
}

/// Nothing that was accepted is lost, and what is there was published and has its bytes.
fn check_events(book: &Book, stock: &Stock) -> Result<(), String> {
    let mut found: BTreeSet<EventId> = BTreeSet::new();
    let mut copies: BTreeMap<usize, u32> = BTreeMap::new();
    for event in &stock.events {
        let id = event.record.id;
        found.insert(id);
        if event.record.origin == Origin::Received {
            // With their receipts.
            continue;
        }
        let nonce =
            nonce_of(&event.body).ok_or_else(|| format!("{id} holds a body of nobody's"))?;
        let expected = book.body(nonce, id).ok_or_else(|| format!("{id}: nonce {nonce}"))?;
        if event.body[..] != *expected.as_bytes() {
            return Err(format!("{id} is not stored as it was published"));
        }
        let told = book.accepted.get(&id);
        if told.and_then(|told| told.nonce).is_some_and(|told| told != nonce) {
            return Err(format!("{id} is another event than its publisher was told"));
        }
        if told.is_none() && !book.publications[nonce].lost {
            return Err(format!("{id} is stored, but its publisher was told that nothing was"));
        }
        *copies.entry(nonce).or_default() += 1;
    }
    if let Some(lost) = book.accepted.keys().find(|id| !found.contains(id)) {
        return Err(format!("{lost} was accepted, and is lost"));
    }
    for (nonce, copies) in copies {
        let publication = &book.publications[nonce];
        // What has a source event ID or a key is looked at more closely elsewhere.
        let free = publication.source.is_none() && publication.key.is_none();
        if free && copies > publication.calls {
            return Err(format!(
                "{nonce} was published {} times and stored {copies} times",
                publication.calls
            ));
        }
    }
    Ok(())
}

/// One event for each source event ID within its window, and one for each key within its life.
fn check_source_event_ids(world: &World, book: &Book, stock: &Stock) -> Result<(), String> {
    let mut last: BTreeMap<String, EventId> = BTreeMap::new();
    // Newest first.
    for event in stock.events.iter().rev() {
        let id = event.record.id;
        let publication = nonce_of(&event.body).and_then(|nonce| book.publications.get(nonce));
        let Some(publication) = publication else { continue };
        // An event's id may be ahead of the time at which it was accepted, which counts.
        let ahead = world.profile.ahead_max();
        let names = [
            publication.source.clone().map(|name| (name, world.profile.policy.dedupe_window)),
            publication.key.clone().map(|key| {
                let nonce = nonce_of(&event.body).unwrap_or_default();
                (format!("{key} {nonce}"), world.profile.policy.idempotency_ttl)
            }),
        ];
        for (name, window) in names.into_iter().flatten() {
            if let Some(first) = last.insert(name.clone(), id)
                && first.created_at() + window.saturating_sub(ahead) > id.created_at()
            {
                return Err(format!("{name} has made two events: {first} and {id}"));
            }
        }
    }
    Ok(())
}

/// Every event has the deliveries that it was accepted with, and besides only those that somebody
/// asked for.
fn check_targets(book: &Book, stock: &Stock) -> Result<(), String> {
    let mut by_event: BTreeMap<EventId, Vec<(u16, EndpointId)>> = BTreeMap::new();
    for delivery in &stock.deliveries {
        let record = &delivery.record;
        let entry = by_event.entry(record.id.event()).or_default();
        entry.push((record.id.ordinal(), record.endpoint));
    }
    for event in &stock.events {
        let id = event.record.id;
        let mut deliveries = by_event.remove(&id).unwrap_or_default();
        deliveries.sort_unstable();
        let ordinals = deliveries.iter().map(|(ordinal, _)| usize::from(*ordinal));
        if !ordinals.eq(1..=deliveries.len()) {
            return Err(format!("{id}: its deliveries are {deliveries:?}"));
        }
        let endpoints: BTreeSet<EndpointId> = deliveries.iter().map(|(_, to)| *to).collect();
        if endpoints.len() != deliveries.len() {
            return Err(format!("{id}: two deliveries to one endpoint"));
        }
        check_accepted(book, event, &deliveries, book.accepted.get(&id))?;
    }
    match by_event.keys().next() {
        Some(id) => Err(format!("{id} has deliveries, and is not there")),
        None => Ok(()),
    }
}

fn check_accepted(
    book: &Book,
    event: &EventDetail,
    deliveries: &[(u16, EndpointId)],
    told: Option<&Accepted>,
) -> Result<(), String> {
    let id = event.record.id;
    let count = event.record.deliveries as usize;
    if deliveries.len() < count || told.is_some_and(|told| told.deliveries as usize != count) {
        return Err(format!(
            "{id}: {} deliveries, stored {count}, told {told:?}",
            deliveries.len()
        ));
    }
    let at_birth: BTreeSet<EndpointId> = deliveries[..count].iter().map(|(_, to)| *to).collect();
    if let Some(targets) = told.and_then(|told| told.targets.as_ref())
        && at_birth != targets.iter().copied().collect()
    {
        return Err(format!("{id} goes to {at_birth:?}, expected {targets:?}"));
    }
    for (_, endpoint) in &deliveries[count..] {
        if !book.acts.iter().any(|act| act.concerns(id, *endpoint)) {
            return Err(format!("{id} goes to {endpoint}, which nobody has asked for"));
        }
    }
    Ok(())
}

/// Whether the endpoint was disabled or deleted at some time after `order`, or is so.
pub(crate) fn was_gone(book: &Book, endpoint: EndpointId, order: u64) -> bool {
    let Some(index) = book.index_of(endpoint) else { return false };
    let states = &book.endpoints[index].states;
    let gone = |state: &EndpointState| state.gone().is_some();
    let before = states.iter().rev().find(|(at, _, _)| *at <= order);
    before.is_some_and(|(_, _, state)| gone(state))
        || states.iter().any(|(at, _, state)| *at > order && gone(state))
}
