//! System events, from the attempt that causes one to the request that tells of it.

use std::time::Duration;

use everhook_domain::id::EventId;
use everhook_domain::subscription::EventPattern;
use everhook_engine::EngineSettings;
use serde_json::Value;

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);

/// What an endpoint was told: type and data.
fn told(world: &World, host: &str) -> Vec<(String, Value)> {
    let body = |body: &[u8]| serde_json::from_slice::<Value>(body).expect("JSON");
    let bodies = world.network.to(host).into_iter().map(|sent| body(&sent.body));
    bodies
        .map(|mut body| (body["type"].as_str().expect("a type").to_owned(), body["data"].take()))
        .collect()
}

fn types(world: &World, host: &str) -> Vec<String> {
    told(world, host).into_iter().map(|(event_type, _)| event_type).collect()
}

async fn listener(world: &World, pattern: &str) {
    let wanted: EventPattern = pattern.parse().expect("a pattern");
    world
        .endpoint_with("listener", |settings| settings.subscription.event_types = vec![wanted])
        .await;
}

/// Five failed attempts, the next success, and a delivery that is given up: each is told at once,
/// once, to the endpoint that named it.
#[tokio::test(start_paused = true)]
async fn an_outage_is_told_from_its_beginning_to_its_end() {
    let world = World::new(EngineSettings::default()).await;
    let endpoint = world.endpoint("a").await;
    listener(&world, "everhook.*").await;
    world.network.set("a", answers(500, 20));
    let event = world.publish("a").await;
    world.pass(SECOND * 7_199).await;
    assert_eq!((world.network.count("a"), world.network.count("listener")), (4, 0));
    let fifth = Duration::from_secs(7_200);
    world.pass(fifth - world.clock_now() + SECOND).await;
    assert_eq!(world.network.count("a"), 5);
    let (event_type, data) = told(&world, "listener").remove(0);
    assert_eq!(event_type, "everhook.endpoint.failing");
    assert_eq!(data["endpoint_id"], endpoint.to_string());
    assert_eq!(data["last_attempt"]["status_code"], 500);
    let sent = world.network.to("listener").remove(0);
    let delay = sent.at - world.network.to("a")[4].at;
    assert!(delay < SECOND / 4, "told after {delay:?}");
    assert_eq!(sent.number(), 1);

    world.network.set("a", answers(204, 20));
    world.publish("a").await;
    world.pass(SECOND).await;
    world.network.set("a", answers(410, 20));
    world.pass(SECOND * 90_000).await;
    let expected = ["failing", "recovered"].map(|what| format!("everhook.endpoint.{what}"));
    assert_eq!(types(&world, "listener")[..2], expected);
    assert_eq!(types(&world, "listener")[2..], ["everhook.delivery.dead"]);
    let (_, data) = told(&world, "listener").remove(2);
    assert_eq!(data["event_id"], event.to_string());
    assert_eq!((&data["reason"], &data["attempt_count"]), (&"exhausted".into(), &7.into()));
}

/// What is told of is what is told to: its own failures cause nothing more.
#[tokio::test(start_paused = true)]
async fn nothing_is_told_of_what_could_not_be_told() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    listener(&world, "everhook.*").await;
    world.network.set("a", answers(500, 20));
    world.network.set("listener", answers(503, 20));
    world.publish("a").await;
    world.pass(SECOND * 500_000).await;
    // Failing and dead, each seven times.
    assert_eq!(world.network.count("listener"), 14);
    let mut events: Vec<EventId> = world
        .network
        .to("listener")
        .iter()
        .map(|sent| sent.header("webhook-id").parse().expect("an id"))
        .collect();
    events.sort_unstable();
    events.dedup();
    assert_eq!(events.len(), 2);
}
