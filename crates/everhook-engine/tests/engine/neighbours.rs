//! What endpoints in trouble cost their neighbours: next to nothing, whatever the trouble.
//!
//! The measure is the 99th percentile of the time from acceptance to arrival at endpoints that are
//! well, in virtual time: beside trouble it may be at most 1.2 times what it is without.

use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_domain::endpoint::EndpointVerb;
use everhook_engine::EngineSettings;

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// Between two events for a healthy endpoint.
const EVERY: Duration = Duration::from_millis(7);
/// What all bodies weigh in memory at most, here small enough to be reached.
const BYTES_MAX: usize = 2 << 20;

fn settings() -> EngineSettings {
    EngineSettings { in_flight_bytes_max: BYTES_MAX, ..EngineSettings::default() }
}

/// The 99th percentile of the times from acceptance to arrival of `count` events for each host.
async fn p99(world: &World, hosts: &[String], count: usize) -> Duration {
    let before: Vec<_> = hosts.iter().map(|host| world.network.count(host)).collect();
    let mut accepted = Vec::new();
    for _ in 0..count {
        accepted.push(world.clock_now());
        for host in hosts {
            world.publish(host).await;
        }
        world.pass(EVERY).await;
    }
    world.pass(SECOND).await;
    let mut times = Vec::new();
    for (host, before) in hosts.iter().zip(before) {
        let sent = world.network.to(host).split_off(before);
        assert_eq!(sent.len(), count, "every event for {host} was sent");
        times.extend(sent.iter().zip(&accepted).map(|(sent, accepted)| sent.at - *accepted));
    }
    times.sort_unstable();
    times[times.len() * 99 / 100]
}

/// A world in which these hosts are well, and what their 99th percentile is while they are alone.
async fn healthy(names: &[&str]) -> (World, Vec<String>, Duration) {
    let world = World::new(settings()).await;
    let hosts: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    for host in &hosts {
        world.endpoint(host).await;
        world.network.set(host, answers(200, 5));
    }
    // What a publisher and an arrival cost here is a matter of milliseconds: the unit of time.
    let alone = p99(&world, &hosts, 200).await.max(Duration::from_millis(1));
    (world, hosts, alone)
}

/// Checks that the healthy ones do as well as alone.
async fn check(world: &World, hosts: &[String], alone: Duration) {
    let beside = p99(world, hosts, 200).await;
    assert!(beside * 10 <= alone * 12, "{beside:?} beside trouble, {alone:?} alone");
}

#[tokio::test(start_paused = true)]
async fn case_018_one_that_hangs_costs_its_neighbour_nothing() {
    let (world, hosts, alone) = healthy(&["quick"]).await;
    world.endpoint("hangs").await;
    world.network.set("hangs", answers(0, 0));
    world.publish_all("hangs", 500).await;
    check(&world, &hosts, alone).await;
    // Also once it is known to fail, with all that came due meanwhile.
    world.pass(90 * SECOND).await;
    world.publish_all("hangs", 500).await;
    check(&world, &hosts, alone).await;
}

#[tokio::test(start_paused = true)]
async fn case_018_of_twenty_the_five_that_hang_cost_the_others_nothing() {
    let names: Vec<String> = (0..15).map(|number| format!("quick-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (world, hosts, alone) = healthy(&names).await;
    for number in 0..5 {
        let host = format!("hangs-{number}");
        world.endpoint(&host).await;
        world.network.set(&host, answers(0, 0));
        world.publish_all(&host, 500).await;
    }
    check(&world, &hosts, alone).await;
    world.pass(90 * SECOND).await;
    check(&world, &hosts, alone).await;
}

#[tokio::test(start_paused = true)]
async fn case_019_five_thousand_due_at_once_are_paced_beside_a_healthy_one() {
    let (world, hosts, alone) = healthy(&["quick"]).await;
    let slow =
        world.endpoint_with("fifty", |settings| settings.requests_per_second = Some(50)).await;
    world.network.set("fifty", answers(200, 5));
    world.act_on(slow, EndpointVerb::Pause).await;
    let mut events = Vec::new();
    for _ in 0..5 {
        events.extend(world.publish_all("fifty", 1_000).await);
    }
    // All of them are due at this instant.
    world.act_on(slow, EndpointVerb::Resume).await;
    check(&world, &hosts, alone).await;
    world.pass(103 * SECOND).await;
    let sent = world.network.to("fifty");
    assert_eq!(sent.len(), 5_000, "at the pace that it can take, and not slower");
    let ids = sent.iter().map(|sent| sent.header("webhook-id").to_owned());
    let accepted = events.iter().map(ToString::to_string);
    assert!(ids.eq(accepted), "oldest first");
    for (index, first) in sent.iter().enumerate() {
        let within = sent[index..].partition_point(|later| later.at < first.at + SECOND);
        assert!(within <= 50, "{within} in one second");
    }
}

#[tokio::test(start_paused = true)]
async fn case_018_one_that_is_down_for_a_day_costs_nothing_and_comes_back() {
    let (world, hosts, alone) = healthy(&["quick"]).await;
    world.endpoint("down").await;
    world.network.set("down", answers(503, 20));
    let mut old = Vec::new();
    for hour in 0..24 {
        old.extend(world.publish_all("down", 50).await);
        if hour % 8 == 0 {
            check(&world, &hosts, alone).await;
        }
        for _ in 0..10 {
            old.push(world.publish("down").await);
            world.pass(HOUR / 10).await;
        }
    }
    assert!(world.network.most_in_flight("down") <= 64);
    world.network.set("down", answers(200, 20));
    let up_again = world.now();
    // What waits is worked off while new events come in, which do not wait for it.
    for _ in 0..200 {
        let new = world.publish("down").await;
        world.pass(SECOND / 10).await;
        assert_eq!(world.state(new).await, State::Delivered);
    }
    check(&world, &hosts, alone).await;
    world.pass(26 * HOUR).await;
    for event in old {
        let attempts = world.attempts(event).await;
        let last = attempts.last().expect("it was tried").report.started_at;
        let delivered = world.state(event).await == State::Delivered;
        assert_eq!(delivered, last >= up_again, "dead only if its seventh attempt was too early");
        assert!(delivered || attempts.len() == 7);
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_a_second_for_one_that_is_down_stay_in_the_table() {
    let (world, hosts, alone) = healthy(&["quick"]).await;
    world.endpoint("down").await;
    world.network.set("down", answers(503, 20));
    let mut old = Vec::new();
    for _ in 0..200 {
        old.extend(world.publish_all("down", 50).await);
        world.pass(SECOND / 20).await;
        assert!(world.held_bytes() <= BYTES_MAX);
    }
    check(&world, &hosts, alone).await;
    // Most of them were never tried. Nevertheless a new event is not the last of ten thousand.
    let tried = world.network.count("down");
    assert!(tried < 3_000, "{tried} in ten seconds");
    world.network.set("down", answers(200, 20));
    world.pass(SECOND).await;
    let begun = world.network.count("down");
    let new = world.publish("down").await;
    world.pass(SECOND / 10).await;
    assert_eq!(world.state(new).await, State::Delivered);
    assert!(world.network.count("down") - begun < 1_000, "long before the others were done");
    world.pass(10 * SECOND).await;
    let first: Vec<_> =
        world.network.to("down").into_iter().filter(|sent| sent.number() == 1).collect();
    assert_eq!(first.len(), old.len() + 1);
    let ids: Vec<String> = first.iter().map(|sent| sent.header("webhook-id").to_owned()).collect();
    let waited: Vec<&String> = ids.iter().filter(|id| **id != new.to_string()).collect();
    assert!(waited.is_sorted(), "those that waited went oldest first");
}
