//! Received is not processed: what came in is stored once, and its work goes on until it is done or
//! out of tries, whatever its sender does meanwhile.

use std::time::Duration;

use bytes::Bytes;
use everhook_domain::delivery::{DeadReason, State};
use everhook_domain::event::EventType;
use everhook_domain::id::{EventId, SourceId};
use everhook_domain::inbound::{DedupeKey, ForwardedHeaders, OnChange};
use everhook_domain::receipt::Verdict;
use everhook_domain::source::{SourceInput, SourceSettings};
use everhook_engine::EngineSettings;
use everhook_store::{Act, Change, Changed, DirectoryStore, NewReceipt, Receive, Receiving};

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn source(world: &World, name: &str) -> SourceId {
    let input =
        SourceInput { name: name.to_owned(), kind: "none".to_owned(), ..SourceInput::default() };
    let settings = Box::new(SourceSettings::parse(input).expect("legal"));
    let change = Change::CreateSource { tenant: world.tenant.clone(), settings };
    let changed = world.store.change(change, None, world.now()).await.expect("a change");
    changed.done().and_then(Changed::source).expect("a source").id
}

/// An endpoint at this host that takes what these sources receive.
async fn handler(world: &World, host: &str, sources: &[&str]) {
    let sources = sources.iter().map(|name| (*name).to_owned()).collect();
    let change = |settings: &mut everhook_domain::endpoint::EndpointSettings| {
        settings.subscription.sources = sources;
    };
    world.endpoint_with(host, change).await;
}

/// One webhook under this key.
async fn webhook(world: &World, source: SourceId, key: &str) -> (EventId, Verdict) {
    let body = Bytes::from(format!("{{\"key\": \"{key}\"}}\r\n"));
    let item = NewReceipt {
        key: DedupeKey::new(&[key]),
        on_change: OnChange::Mark,
        content: [0; 32],
        guard: None,
        event_type: EventType::any("shop.order").expect("a type"),
        body,
        unreadable: None,
    };
    let receive = Receive {
        tenant: world.tenant.clone(),
        source,
        items: vec![item],
        headers: ForwardedHeaders::default(),
    };
    let received = world.store.receive(receive, world.now()).await.expect("received");
    (received[0].receipt.event(), received[0].verdict)
}

#[tokio::test(start_paused = true)]
async fn case_036_a_failed_first_try_is_retried_by_us_while_duplicates_change_nothing() {
    let mut world = World::new(EngineSettings::default()).await;
    let shop = source(&world, "shop").await;
    handler(&world, "handler", &["shop"]).await;
    world.network.set("handler", answers(500, 5));
    let (event, verdict) = webhook(&world, shop, "evt_1").await;
    assert_eq!(verdict, Verdict::Accepted);
    world.pass(SECOND).await;
    assert_eq!(world.network.count("handler"), 1);
    // The sender comes again, and once more after a crash between storing and handling.
    assert_eq!(webhook(&world, shop, "evt_1").await, (event, Verdict::Duplicate));
    world.crash().await;
    assert_eq!(webhook(&world, shop, "evt_1").await, (event, Verdict::Duplicate));
    world.network.set("handler", answers(200, 5));
    world.pass(120 * SECOND).await;
    assert_eq!(world.state(event).await, State::Delivered);
    let sent = world.network.to("handler");
    assert_eq!(sent.len(), 2, "the work was done once, by our own retry");
    assert!(sent.iter().all(|sent| sent.header("webhook-id") == event.to_string()));
    assert_eq!(sent[0].body, sent[1].body);
    let receipt = world.store.receipt(world.tenant.clone(), event.receipt()).await;
    let receipt = receipt.expect("readable").expect("there");
    assert_eq!(receipt.duplicates, 2);
    assert!(receipt.processed_at.is_some(), "received and processed are separate facts");
}

/// A webhook that its handler never survives: no answer, ever.
#[tokio::test(start_paused = true)]
async fn a_forward_that_kills_its_handler_runs_out_of_tries_and_holds_up_nothing() {
    let world = World::new(EngineSettings::default()).await;
    let (shop, mail) = (source(&world, "shop").await, source(&world, "mail").await);
    handler(&world, "dies", &["shop"]).await;
    handler(&world, "lives", &["mail"]).await;
    world.network.set("dies", answers(0, 0));
    let (poison, _) = webhook(&world, shop, "poison").await;
    let mut behind = Vec::new();
    for number in 0..20 {
        behind.push(webhook(&world, shop, &format!("behind-{number}")).await.0);
        let asked = world.clock_now();
        let (event, _) = webhook(&world, mail, &format!("mail-{number}")).await;
        world.pass(20 * SECOND / 1_000).await;
        assert_eq!(world.state(event).await, State::Delivered);
        let sent = world.network.to("lives").pop().expect("sent");
        assert!(sent.at - asked < Duration::from_millis(20), "{number}");
    }
    world.pass(30 * SECOND).await;
    for event in &behind {
        assert!(!world.attempts(*event).await.is_empty(), "it waited behind the poison");
    }
    world.pass(2 * DAY).await;
    let State::Dead(dead) = world.state(poison).await else { panic!("not dead") };
    assert_eq!(dead.reason, DeadReason::Exhausted);
    assert_eq!(world.attempts(poison).await.len(), 7);
    world.network.set("dies", answers(200, 5));
    world.act(poison.delivery(1), Act::Replay).await;
    world.pass(SECOND).await;
    assert_eq!(world.state(poison).await, State::Delivered);
}

#[tokio::test(start_paused = true)]
async fn case_094_slow_work_and_a_flood_of_events_starve_no_webhook() {
    let world = World::new(EngineSettings::default()).await;
    let shop = source(&world, "shop").await;
    handler(&world, "handler", &["shop"]).await;
    world.endpoint("flood").await;
    world.network.set("flood", answers(200, 2_000));
    for _ in 0..10 {
        world.publish_all("flood", 500).await;
    }
    for number in 0..20 {
        world.publish_all("flood", 100).await;
        let asked = world.clock_now();
        let (event, _) = webhook(&world, shop, &format!("hook-{number}")).await;
        world.pass(Duration::from_millis(20)).await;
        assert_eq!(world.state(event).await, State::Delivered);
        let sent = world.network.to("handler").pop().expect("sent");
        assert!(sent.at - asked < Duration::from_millis(20), "{number}");
        assert_eq!(world.attempts(event).await.len(), 1, "waiting uses up no tries");
    }
}
