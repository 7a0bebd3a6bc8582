//! What was received, as it is found again: in the requests to endpoints and in the store.

use std::collections::{BTreeMap, BTreeSet};

use everhook_domain::delivery::State;
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::Origin;
use everhook_domain::id::EventId;
use everhook_engine::OutgoingRequest;
use everhook_store::sqlite::SqliteStore;
use everhook_store::{
    DeliveryDetail, DirectoryStore, EventDetail, PageRequest, ReceiptQuery, ReceiptRecord,
    ReceiptStatus, Receiving,
};

use crate::book::Book;
use crate::client::tenant;
use crate::decide::status_of;
use crate::provider::{Headers, name_of};
use crate::receipts::ReceiptBook;
use crate::world::World;

/// The headers of a request that are signed or numbered by us, besides those whose names begin as
/// the installation has it.
const OURS: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/// The receipt of an event, if it was received.
pub(crate) fn receipt_of(book: &Book, event: EventId) -> Option<&ReceiptBook> {
    book.ledger.receipts.get(&event.receipt())
}

/// A received event goes on byte for byte, with the headers that it came with, below what is set
/// for the endpoint and what is ours.
pub(crate) fn look_at_request(
    world: &World,
    request: &OutgoingRequest,
    endpoint: &Endpoint,
    receipt: &ReceiptBook,
) -> Result<(), String> {
    if request.body[..] != receipt.meant.body[..] {
        return Err("the body is not the one that came".to_owned());
    }
    let prefix = &world.profile.settings.header_prefix;
    let numbered = [prefix.webhook_id(), prefix.attempt()];
    let mut expected = Headers::clone(&receipt.headers);
    for (name, value) in endpoint.settings.headers.iter() {
        expected.insert(name.as_str().to_owned(), vec![value.as_bytes().to_vec()]);
    }
    let mut sent = Headers::new();
    for (name, value) in &request.headers {
        if !OURS.contains(&name.as_str()) && !numbered.contains(&name) {
            sent.entry(name.as_str().to_owned()).or_default().push(value.as_bytes().to_vec());
        }
    }
    match sent == expected {
        true => Ok(()),
        false => Err(format!("it goes on with {:?}, not {:?}", shown(&sent), shown(&expected))),
    }
}

fn shown(headers: &Headers) -> Vec<String> {
    let line = |(name, values): (&String, &Vec<Vec<u8>>)| {
        let values: Vec<_> = values.iter().map(|value| value.escape_ascii().to_string()).collect();
        format!("{name}: {}", values.join(", "))
    };
    headers.iter().map(line).collect()
}

/// All receipts of the store, newest first.
pub(crate) async fn read(store: &SqliteStore) -> Result<Vec<ReceiptRecord>, String> {
    let mut page = PageRequest { limit: 250, after: None, scan_limit: 100_000 };
    let mut receipts = Vec::new();
    loop {
        let list = store.receipts(tenant(), ReceiptQuery::default(), page).await;
        let list = list.map_err(|error| format!("receipts cannot be read: {error}"))?;
        receipts.extend(list.items);
        page.after = list.next;
        if page.after.is_none() {
            return Ok(receipts);
        }
    }
}

/// A received event is stored as it came.
pub(crate) fn check_event(event: &EventDetail, receipt: &ReceiptBook) -> Result<(), String> {
    let id = event.record.id;
    let mut headers = Headers::new();
    for (name, value) in event.headers.iter().flat_map(|headers| headers.iter()) {
        headers.entry(name.as_str().to_owned()).or_default().push(value.as_bytes().to_vec());
    }
    let fits = event.record.origin == Origin::Received
        && event.record.event_type.as_str() == receipt.meant.event_type
        && event.record.source_event_id.is_none()
        && event.body[..] == receipt.meant.body[..]
        && headers == *receipt.headers;
    if fits { Ok(()) } else { Err(format!("{id} is not stored as it came: {:?}", event.record)) }
}

/// There is a receipt for everything that was taken and for nothing else, each with its event, and
/// none whose deliveries are not what it says.
pub(crate) fn check(
    (book, store): (&Book, &SqliteStore),
    receipts: &[ReceiptRecord],
    events: &[EventDetail],
    deliveries: &[DeliveryDetail],
) -> Result<(), String> {
    let directory = store.directory().map_err(|error| error.to_string())?;
    let events: BTreeMap<EventId, &EventDetail> =
        events.iter().map(|event| (event.record.id, event)).collect();
    let mut states: BTreeMap<EventId, Vec<&State>> = BTreeMap::new();
    for delivery in deliveries {
        let record = &delivery.record;
        states.entry(record.id.event()).or_default().push(&record.state);
    }
    let mut found = BTreeSet::new();
    for record in receipts {
        let id = record.id;
        found.insert(id);
        let known = book.ledger.receipts.get(&id);
        let known = known.ok_or_else(|| format!("{id} is of something that was never taken"))?;
        let name = directory.source_name(record.source).map(|name| name.as_str().to_owned());
        let event = events.get(&record.event()).ok_or_else(|| format!("{id} has no event"))?;
        check_event(event, known)?;
        if event.record.source != Some(record.source) || name != Some(name_of(known.source)) {
            return Err(format!("{id} is of another source"));
        }
        check_receipt(record, known)?;
        let states = states.get(&record.event()).map_or(&[][..], |states| states);
        check_runs(record, states)?;
    }
    match book.ledger.receipts.keys().find(|id| !found.contains(id)) {
        Some(lost) => Err(format!("{lost} was taken, and is lost")),
        None => Ok(()),
    }
}

fn check_receipt(record: &ReceiptRecord, known: &ReceiptBook) -> Result<(), String> {
    let fits = record.event_type.as_str() == known.meant.event_type
        && record.first_seen_at == record.id.created_at()
        && record.last_seen_at == known.last_seen_at
        && record.duplicates == known.duplicates
        && record.body_changed == known.body_changed
        && record.status == status_of(known.standing)
        && record.released_at == known.released_at;
    if fits { Ok(()) } else { Err(format!("{record:?}, expected {known:?}")) }
}

/// What waits or is dead has no deliveries; what runs is processed when all of it was delivered.
fn check_runs(record: &ReceiptRecord, states: &[&State]) -> Result<(), String> {
    let runs = record.status == ReceiptStatus::Accepted;
    if !runs && !states.is_empty() {
        return Err(format!("{} is {:?}, and has deliveries", record.id, record.status));
    }
    let delivered = |state: &&State| matches!(state, State::Delivered);
    let all = !states.is_empty() && states.iter().all(delivered);
    if all != record.processed_at.is_some() {
        return Err(format!("{}: {states:?}, processed {:?}", record.id, record.processed_at));
    }
    Ok(())
}
