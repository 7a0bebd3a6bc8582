//! The end of a process in good order.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_engine::EngineSettings;

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_is_on_the_wire_is_finished_and_every_other_lease_is_given_back() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(200, 4_000));
    let events = world.publish_all("a", 64).await;
    let more = world.publish_all("a", 100).await;
    world.pass(SECOND).await;
    let before = world.clock_now();
    world.stop().await;
    assert!(world.clock_now() - before < Duration::from_millis(3_100));
    assert_eq!(world.network.log().len(), 64);
    for event in events {
        assert_eq!(world.state(event).await, State::Delivered);
    }
    for event in more {
        let detail = world.delivery(event).await;
        assert!(matches!(detail.record.state, State::Due(_)), "{:?}", detail.record.state);
        assert_eq!(detail.record.progress.interruptions, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_engine_stops_at_once() {
    let mut world = World::new(EngineSettings::default()).await;
    let before = world.clock_now();
    world.stop().await;
    assert_eq!(world.clock_now(), before);
}

#[tokio::test(start_paused = true)]
async fn stopping_takes_no_longer_than_the_timeout_and_a_little() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(0, 0));
    let event = world.publish("a").await;
    world.settle().await;
    let before = world.clock_now();
    world.stop().await;
    assert!(world.clock_now() - before <= 10 * SECOND);
    assert_eq!(world.attempts(event).await.len(), 1, "its result is recorded");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_nothing_does_not_hold_up_the_end_for_ever() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.store.no_settle.store(true, SeqCst);
    let event = world.publish("a").await;
    world.pass(SECOND).await;
    let before = world.clock_now();
    world.stop().await;
    assert!(world.clock_now() - before <= 16 * SECOND);
    world.store.no_settle.store(false, SeqCst);
    world.crash().await;
    world.pass(SECOND).await;
    assert_eq!(world.state(event).await, State::Delivered);
    assert_eq!(world.network.log().len(), 2, "at least once");
}
