//! What `/readyz` asks: whether sending moves, whatever single endpoints do.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_engine::EngineSettings;
use everhook_store::Reading;

use crate::world::{World, answers};

/// How long deliveries have waited although they could begin.
async fn stalled(world: &World) -> Option<Duration> {
    let health = world.store.health().await.expect("readable");
    assert!(health.writable);
    health.stalled_since.map(|since| world.now().since(since))
}

#[tokio::test(start_paused = true)]
async fn case_020_wedged_sending_is_told_and_so_is_its_end() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    let event = world.publish("a").await;
    world.pass(Duration::from_secs(1)).await;
    world.network.set("a", answers(200, 1));
    assert_eq!(stalled(&world).await, Some(Duration::ZERO), "it is due in a minute");
    world.store.away.store(true, SeqCst);
    world.pass(Duration::from_secs(400)).await;
    let waited = stalled(&world).await.expect("it waits");
    assert!(waited > Duration::from_secs(330), "{waited:?}");
    world.store.away.store(false, SeqCst);
    world.pass(Duration::from_secs(6)).await;
    assert_eq!(world.state(event).await, State::Delivered);
    assert_eq!(stalled(&world).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_hangs_or_has_a_limit_does_not_look_like_wedged_sending() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("hangs").await;
    world.endpoint_with("limited", |settings| settings.requests_per_second = Some(1)).await;
    world.endpoint_with("single", |settings| settings.max_in_flight = Some(1)).await;
    world.network.set("hangs", answers(0, 0));
    world.network.set("single", answers(200, 9_000));
    for host in ["hangs", "limited", "single"] {
        world.publish_all(host, 1_000).await;
    }
    for _ in 0..60 {
        world.pass(Duration::from_secs(10)).await;
        let waited = stalled(&world).await;
        assert!(waited.is_none_or(|waited| waited < Duration::from_secs(1)), "{waited:?}");
    }
    assert!(world.network.count("limited") < 1_000, "much is overdue all the time");
}

/// What was due in an outage of ours waits for this process only since that began.
#[tokio::test(start_paused = true)]
async fn a_start_after_an_outage_is_not_late_at_once() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish("a").await;
    world.settle().await;
    world.stop().await;
    world.pass(Duration::from_secs(3_600)).await;
    world.crash().await;
    world.store.away.store(true, SeqCst);
    world.settle().await;
    let waited = stalled(&world).await.expect("nobody sends yet");
    assert!(waited > Duration::from_secs(3_000), "the leases before have not ended: {waited:?}");
    world.store.away.store(false, SeqCst);
    world.pass(Duration::from_secs(6)).await;
    let waited = stalled(&world).await;
    assert!(waited.is_none_or(|waited| waited < Duration::from_secs(6)), "{waited:?}");
}
