//! What people do with deliveries: replay, cancel, acknowledge, send again.

use everhook_domain::delivery::IllegalStep;
use everhook_domain::id::{EndpointId, EventId};
use everhook_domain::time::Timestamp;
use everhook_store::{
    Act, Claimed, DeliveryQuery, DeliveryRecord, PageRequest, Reading, Refusal, Sending, SentAgain,
};

use crate::book::{ActBook, Answered, Deed};
use crate::check::was_gone;
use crate::client::{Client, Told, ask, claim, tenant};
use crate::process::Process;
use crate::world::World;

/// Does something to some delivery.
pub(crate) async fn act(client: &mut Client, deed: Deed, key: Option<String>) {
    let process = client.process().await;
    let Some(event) = some_event(client) else { return };
    let Some(delivery) = some_delivery(client, &process, event).await else { return };
    let (id, endpoint) = (delivery.id, delivery.endpoint);
    let from = client.world.note(format_args!("{deed:?} {id}"));
    let mut answered = Answered::Done;
    loop {
        let process = client.process().await;
        let now = process.now();
        let claim = key.as_deref().map(|key| claim(key, "act", |_: &DeliveryRecord| String::new()));
        let act = match deed {
            Deed::Replay => Act::Replay,
            Deed::Cancel => Act::Cancel,
            Deed::Acknowledge => Act::Acknowledge,
        };
        match ask(&process, process.front.act(tenant(), id, act, claim, now)).await {
            Told::Done(Claimed::Done(_) | Claimed::Replayed(_)) => {
                answered = Answered::Done;
                break;
            }
            Told::Done(Claimed::Mismatch | Claimed::OverQuota) => {
                client.world.violate(format!("key {key:?}: the same request is a mismatch"));
                return;
            }
            Told::Refused(refusal) => {
                check_refusal(&client.world, deed, endpoint, refusal, from);
                // Under a key the lost call had no effect either; without one nobody knows.
                if answered == Answered::Done {
                    return;
                }
                break;
            }
            Told::Lost => {
                answered = Answered::Lost;
                if key.is_none() {
                    break;
                }
            }
            Told::Unavailable => {}
        }
        client.rest().await;
    }
    let entry = entry(&client.world, event, deed, from, answered, process.now());
    let entry = ActBook { endpoint: Some(endpoint), ..entry };
    client.world.book().acts.push(entry);
}

/// Sends some event again.
pub(crate) async fn send_again(client: &mut Client, receiver: Option<usize>) {
    let process = client.process().await;
    let Some(event) = some_event(client) else { return };
    let world = &client.world;
    let endpoint = receiver.and_then(|receiver| world.book().endpoints[receiver].id);
    let from = world.note(format_args!("send again {event} {endpoint:?}"));
    let now = process.now();
    let again = process.front.send_again(tenant(), event, endpoint, None, now);
    let (answered, named) = match ask(&process, again).await {
        Told::Done(Claimed::Done(sent)) => (Answered::Done, named(&sent)),
        Told::Done(Claimed::Replayed(_) | Claimed::Mismatch | Claimed::OverQuota) => {
            return world.violate("an answer under a key that was not given".to_owned());
        }
        Told::Refused(refusal) => {
            if let Some(endpoint) = endpoint {
                check_refusal(world, Deed::Replay, endpoint, refusal, from);
            } else {
                check_refusal_of_all(world, event, refusal, from);
            }
            return;
        }
        Told::Lost => (Answered::Lost, Vec::new()),
        Told::Unavailable => return,
    };
    let entry = entry(world, event, Deed::Replay, from, answered, now);
    world.book().acts.push(ActBook { endpoint, named, ..entry });
}

fn entry(
    world: &World,
    event: EventId,
    deed: Deed,
    from: u64,
    answered: Answered,
    to_steady: Timestamp,
) -> ActBook {
    let to = world.note(format_args!("{deed:?} {event}: {answered:?}"));
    let to_ms = world.time.now_ms();
    ActBook { event, endpoint: None, deed, from, to, to_ms, to_steady, answered, named: Vec::new() }
}

fn named(sent: &SentAgain) -> Vec<EndpointId> {
    sent.iter().map(|record| record.endpoint).collect()
}

/// Some event that a caller was told of.
fn some_event(client: &mut Client) -> Option<EventId> {
    let book = client.world.book();
    let place = client.rng.place(book.accepted.len());
    book.accepted.keys().nth(place).copied()
}

async fn some_delivery(
    client: &mut Client,
    process: &Process,
    event: EventId,
) -> Option<DeliveryRecord> {
    let query = DeliveryQuery { event: Some(event), ..DeliveryQuery::default() };
    let page = PageRequest { limit: 250, after: None, scan_limit: 10_000 };
    let list = process.front.deliveries(tenant(), query, page);
    match ask(process, list).await {
        Told::Done(page) => {
            let place = client.rng.place(page.items.len());
            page.items.into_iter().nth(place)
        }
        Told::Refused(_) | Told::Unavailable | Told::Lost => None,
    }
}

/// A refusal must have its reason, which may have come or gone while the answer was on its way.
fn check_refusal(world: &World, deed: Deed, endpoint: EndpointId, refusal: Refusal, from: u64) {
    let right = match (deed, &refusal) {
        (Deed::Replay, Refusal::Step(IllegalStep::EndpointGone(_))) => {
            was_gone(&world.book(), endpoint, from)
        }
        (Deed::Cancel, Refusal::Step(IllegalStep::Ended))
        | (Deed::Acknowledge, Refusal::Step(IllegalStep::NotDead)) => true,
        _ => false,
    };
    if !right {
        world.violate(format!("{deed:?} was refused: {refusal}"));
    }
}

/// Sending an event again everywhere is refused only if every endpoint that it went to is gone.
pub(crate) fn check_refusal_of_all(world: &World, event: EventId, refusal: Refusal, from: u64) {
    let book = world.book();
    let told = book.accepted.get(&event).and_then(|told| told.targets.as_ref());
    let all_gone = |targets: &Vec<EndpointId>| targets.iter().all(|to| was_gone(&book, *to, from));
    let right =
        matches!(refusal, Refusal::Step(IllegalStep::EndpointGone(_))) && told.is_none_or(all_gone);
    drop(book);
    if !right {
        world.violate(format!("sending {event} again was refused: {refusal}"));
    }
}
