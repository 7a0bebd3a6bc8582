//! A payload that kills the process takes no other delivery with it.

use std::time::Duration;

use everhook_domain::delivery::{DeadReason, State};
use everhook_engine::EngineSettings;

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);

/// Runs until a request to `killer` has gone out since `seen`, then kills the process; false when
/// none goes out within ten seconds.
async fn die_of_it(world: &mut World, seen: usize) -> bool {
    for _ in 0..10_000 {
        if world.network.count("killer") > seen {
            world.crash().await;
            return true;
        }
        world.settle().await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn the_killer_dies_alone_and_the_others_are_delivered() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("killer").await;
    world.endpoint("good").await;
    world.network.set("killer", answers(0, 0));
    world.network.set("good", answers(200, 30));
    let good = world.publish_all("good", 64).await;
    let killer = world.publish("killer").await;
    let mut deaths = 0;
    let mut seen = 0;
    while die_of_it(&mut world, seen).await {
        seen = world.network.count("killer");
        deaths += 1;
        assert!(deaths <= 20, "twenty interruptions are the end");
        if deaths > 3 {
            // It was alone: nothing else was on the wire when the process died.
            world.publish_all("good", 10).await;
        }
    }
    assert_eq!(deaths, 20);
    let State::Dead(dead) = world.state(killer).await else { panic!("not dead") };
    assert_eq!(dead.reason, DeadReason::Interrupted);
    for event in good {
        let detail = world.delivery(event).await;
        assert_eq!(detail.record.state, State::Delivered);
        assert!(detail.record.progress.interruptions <= 3, "{:?}", detail.record.progress);
    }
}

#[tokio::test(start_paused = true)]
async fn innocent_suspects_are_sent_one_after_the_other() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(200, 30));
    let events = world.publish_all("a", 20).await;
    world.settle().await;
    for _ in 0..3 {
        world.crash().await;
        world.settle().await;
        world.settle().await;
    }
    let before = world.network.log().len();
    world.pass(20 * SECOND).await;
    for event in events {
        assert_eq!(world.state(event).await, State::Delivered);
    }
    let sent: Vec<_> = world.network.log()[before..].iter().map(|sent| sent.at).collect();
    assert_eq!(sent.len(), 20);
    // Each has ended before the next begins, and the others had as long as they were held.
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(60)), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_suspect_holds_nobody_up() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("slow").await;
    world.endpoint("quick").await;
    world.network.set("slow", answers(200, 9_000));
    world.publish("slow").await;
    world.settle().await;
    for _ in 0..3 {
        world.crash().await;
        world.settle().await;
        world.settle().await;
    }
    let mut worst = Duration::ZERO;
    for _ in 0..500 {
        let asked = world.clock_now();
        let seen = world.network.count("quick");
        world.publish("quick").await;
        while world.network.count("quick") == seen {
            world.settle().await;
        }
        worst = worst.max(world.clock_now() - asked);
        world.settle().await;
    }
    assert!(worst < Duration::from_millis(250), "{worst:?}");
    assert!(!world.network.to("slow").is_empty());
}

/// Only the death of the process is a reason to wait: an endpoint that fails is none.
#[tokio::test(start_paused = true)]
async fn suspects_that_fail_delay_no_other_suspect() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("failing").await;
    world.endpoint("good").await;
    world.network.set("failing", answers(500, 30));
    world.network.set("good", answers(200, 30));
    world.publish_all("failing", 20).await;
    let last = world.publish("good").await;
    world.settle().await;
    for _ in 0..3 {
        world.crash().await;
        world.settle().await;
        world.settle().await;
    }
    world.pass(6 * SECOND).await;
    assert_eq!(world.state(last).await, State::Delivered, "it waited for twenty failures");
    assert!(world.network.count("failing") >= 80, "three deaths, and each tried alone");
}

/// Promise 9: what hangs keeps only its own endpoint's suspects waiting.
#[tokio::test(start_paused = true)]
async fn suspects_that_hang_delay_no_other_endpoints_suspects() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("hanging").await;
    world.endpoint("good").await;
    world.network.set("hanging", answers(200, 9_000));
    world.network.set("good", answers(200, 9_000));
    world.publish_all("hanging", 60).await;
    let events = world.publish_all("good", 20).await;
    world.settle().await;
    for _ in 0..3 {
        world.crash().await;
        world.settle().await;
        world.settle().await;
    }
    world.network.set("good", answers(200, 30));
    world.pass(8 * SECOND).await;
    for event in events {
        assert_eq!(world.state(event).await, State::Delivered, "it waited for what hangs");
    }
}
