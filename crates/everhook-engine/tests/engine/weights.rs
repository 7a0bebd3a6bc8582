//! Large bodies: what is in memory is bounded, however many wait, and nobody waits for them.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_domain::endpoint::EndpointVerb;
use everhook_engine::EngineSettings;

use crate::world::{World, answers};

/// Stands for a mebibyte: what counts is what bodies and the budget are to each other, and signing
/// a gigabyte takes a test too long.
const MIB: usize = 1 << 16;

fn settings(in_flight_bytes_max: usize) -> EngineSettings {
    EngineSettings { in_flight_bytes_max, ..EngineSettings::default() }
}

fn data(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes))
}

/// Passes so much time, in which no more than the settings allow is ever in memory.
async fn pass(world: &World, millis: u64) {
    for _ in 0..millis {
        world.pass(Duration::from_millis(1)).await;
        let (held, sent) = (world.held_bytes(), world.network.bytes.load(SeqCst));
        assert!(held <= world.settings.in_flight_bytes_max, "{held} bytes are held");
        assert!(sent <= held, "{sent} bytes are under way, {held} are counted");
    }
}

/// The 99th percentile of the times from acceptance to arrival at `quick`.
async fn p99(world: &World) -> Duration {
    let before = world.network.count("quick");
    let mut accepted = Vec::new();
    for _ in 0..200 {
        accepted.push(world.clock_now());
        world.publish("quick").await;
        pass(world, 7).await;
    }
    pass(world, 200).await;
    let sent = world.network.to("quick").split_off(before);
    assert_eq!(sent.len(), 200, "each was sent");
    let mut times: Vec<_> = sent.iter().zip(&accepted).map(|(s, at)| s.at - *at).collect();
    times.sort_unstable();
    times[times.len() * 99 / 100].max(Duration::from_millis(1))
}

#[tokio::test(start_paused = true)]
async fn two_hundred_of_five_mebibytes_for_a_slow_one_cost_its_neighbour_nothing() {
    let world = World::new(settings(64 * MIB)).await;
    world.endpoint("quick").await;
    world.network.set("quick", answers(200, 5));
    let alone = p99(&world).await;
    world.endpoint("slow").await;
    world.network.set("slow", answers(200, 2_000));
    let large = data(5 * MIB);
    let mut events = Vec::new();
    for _ in 0..200 {
        events.extend(world.publish_data("slow", 1, &large).await);
        pass(&world, 1).await;
    }
    let beside = p99(&world).await;
    assert!(beside * 10 <= alone * 12, "{beside:?} beside large ones, {alone:?} alone");
    let claims = world.store.claims.load(SeqCst);
    pass(&world, 150_000).await;
    for event in events {
        assert_eq!(world.state(event).await, State::Delivered);
    }
    assert_eq!(world.held_bytes(), 0);
    let claims = world.store.claims.load(SeqCst) - claims;
    assert!(claims <= 400, "{claims} claims for 200 deliveries");
}

#[tokio::test(start_paused = true)]
async fn small_ones_that_wait_in_the_store_go_beside_large_ones() {
    let world = World::new(settings(4 * MIB)).await;
    let lanes = ["large", "small"];
    let mut endpoints = Vec::new();
    for host in lanes {
        endpoints.push(world.endpoint(host).await);
        world.network.set(host, answers(200, 1_000));
    }
    for endpoint in &endpoints {
        world.act_on(*endpoint, EndpointVerb::Pause).await;
    }
    world.publish_data("large", 40, &data(MIB / 2)).await;
    world.publish_all("small", 40).await;
    for endpoint in &endpoints {
        world.act_on(*endpoint, EndpointVerb::Resume).await;
    }
    pass(&world, 2_500).await;
    assert_eq!(world.network.count("small"), 40);
    assert!(world.network.count("large") < 10);
    pass(&world, 30_000).await;
    assert_eq!(world.network.count("large"), 40);
}

#[tokio::test(start_paused = true)]
async fn a_large_one_is_not_passed_over_by_smaller_ones_for_ever() {
    let world = World::new(settings(4 * MIB)).await;
    let large = world.endpoint("large").await;
    world.act_on(large, EndpointVerb::Pause).await;
    let event = world.publish_data("large", 1, &data(MIB * 3 / 2)).await[0];
    let mut others = Vec::new();
    for host in ["one", "two", "three"] {
        let endpoint = world.endpoint(host).await;
        world.network.set(host, answers(200, 1_000));
        world.act_on(endpoint, EndpointVerb::Pause).await;
        world.publish_data(host, 100, &data(MIB / 4)).await;
        others.push(endpoint);
    }
    for endpoint in others {
        world.act_on(endpoint, EndpointVerb::Resume).await;
    }
    pass(&world, 3_000).await;
    world.act_on(large, EndpointVerb::Resume).await;
    pass(&world, 3_000).await;
    assert_eq!(world.state(event).await, State::Delivered);
    pass(&world, 100_000).await;
    assert_eq!(world.network.log().len(), 301, "and all the others go on");
}

#[tokio::test(start_paused = true)]
async fn what_is_larger_than_the_budget_goes_nevertheless_one_at_a_time() {
    let world = World::new(settings(MIB)).await;
    world.endpoint("large").await;
    world.network.set("large", answers(200, 100));
    world.publish_data("large", 5, &data(2 * MIB)).await;
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.network.count("large"), 5);
    assert_eq!(world.network.most_in_flight("large"), 1);
    assert_eq!(world.held_bytes(), 0);
}
