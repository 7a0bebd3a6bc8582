//! How many requests a second.

use std::collections::HashMap;
use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_engine::EngineSettings;

use crate::world::{Sent, World, answers};

const SECOND: Duration = Duration::from_secs(1);

/// The most requests to this host in any one second.
fn most_in_a_second(world: &World, host: &str) -> usize {
    let at: Vec<_> = world.network.to(host).iter().map(|sent| sent.at).collect();
    at.iter()
        .enumerate()
        .map(|(from, begin)| at.partition_point(|at| *at < *begin + SECOND) - from)
        .max()
        .unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn case_019_an_endpoint_s_own_rate_holds_and_is_used() {
    for rate in [1, 7, 50, 500] {
        let world = World::new(EngineSettings::default()).await;
        world.endpoint_with("a", |settings| settings.requests_per_second = Some(rate)).await;
        world.network.set("a", answers(200, 5));
        let count = 10 * rate as usize;
        for _ in 0..10 {
            world.publish_all("a", rate as usize).await;
        }
        world.pass(12 * SECOND).await;
        assert_eq!(world.network.log().len(), count, "{rate}/s");
        let most = most_in_a_second(&world, "a");
        assert!(most <= rate as usize, "{most} in a second at {rate}/s");
    }
}

#[tokio::test(start_paused = true)]
async fn case_019_a_burst_of_failures_drains_paced_oldest_first_and_starves_no_new_event() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint_with("a", |settings| settings.requests_per_second = Some(50)).await;
    world.network.set("a", answers(503, 1));
    let mut old = Vec::new();
    for _ in 0..5 {
        old.extend(world.publish_all("a", 1_000).await);
    }
    world.pass(110 * SECOND).await;
    world.network.set("a", answers(200, 1));
    let mut new = Vec::new();
    for _ in 0..20 {
        new.push(world.publish("a").await);
        world.pass(5 * SECOND).await;
    }
    for event in new {
        assert_eq!(world.state(event).await, State::Delivered);
    }
    world.pass(400 * SECOND).await;
    for event in &old {
        assert_eq!(world.state(*event).await, State::Delivered);
    }
    assert!(most_in_a_second(&world, "a") <= 50);
    let log = world.network.to("a");
    let of = |number| log.iter().filter(move |sent| sent.number() == number);
    let id = |sent: &Sent| sent.header("webhook-id").to_owned();
    let first: HashMap<_, _> = of(1).map(|sent| (id(sent), sent.at.as_millis())).collect();
    let due: Vec<_> = of(2).map(|sent| first[&id(sent)]).collect();
    assert!(due.len() > 1_000 && due.is_sorted(), "what was due first went first");
}

#[tokio::test(start_paused = true)]
async fn a_failing_endpoint_is_paced_and_a_success_ends_it() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish_all("a", 5).await;
    world.pass(SECOND).await;
    let before = world.network.log().len();
    for _ in 0..3 {
        world.publish_all("a", 1_000).await;
    }
    world.pass(10 * SECOND).await;
    let sent = world.network.log().len() - before;
    assert!((950..=1_001).contains(&sent), "{sent} in ten seconds");
    assert!(most_in_a_second(&world, "a") <= 105);
    world.network.set("a", answers(200, 1));
    world.pass(2 * SECOND).await;
    assert_eq!(world.network.to("a").iter().filter(|sent| sent.number() == 1).count(), 3_005);
}

#[tokio::test(start_paused = true)]
async fn the_installation_s_rate_holds_for_every_endpoint() {
    let rate = Some(10);
    let settings =
        EngineSettings { endpoint_requests_per_second: rate, ..EngineSettings::default() };
    let world = World::new(settings).await;
    world.endpoint("a").await;
    world.endpoint_with("b", |settings| settings.requests_per_second = Some(1_000)).await;
    for host in ["a", "b"] {
        world.publish_all(host, 100).await;
    }
    world.pass(5 * SECOND).await;
    for host in ["a", "b"] {
        let sent = world.network.to(host).len();
        assert!((48..=51).contains(&sent), "{host}: {sent}");
        assert!(most_in_a_second(&world, host) <= 10);
    }
}
