//! One slow endpoint slows nobody else.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_domain::health::EndpointHealth;
use everhook_domain::tenant::TenantId;
use everhook_engine::EngineSettings;
use everhook_store::Reading;

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);

/// How long each of `count` events for this host took to be sent, one every 10 ms.
async fn latencies(world: &World, host: &str, count: usize) -> Vec<Duration> {
    let before = world.network.to(host).len();
    let mut accepted = Vec::new();
    for _ in 0..count {
        let asked = world.clock_now();
        world.publish(host).await;
        accepted.push(asked);
        world.pass(Duration::from_millis(10)).await;
    }
    world.pass(SECOND).await;
    let sent = world.network.to(host).split_off(before);
    assert_eq!(sent.len(), count, "all of them were sent");
    sent.iter().zip(accepted).map(|(sent, asked)| sent.at - asked).collect()
}

#[tokio::test(start_paused = true)]
async fn case_018_a_hanging_endpoint_delays_no_other() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("slow").await;
    world.endpoint("quick").await;
    world.network.set("slow", answers(0, 0));
    world.network.set("quick", answers(200, 5));
    world.publish_all("slow", 500).await;
    let worst = latencies(&world, "quick", 300).await.into_iter().max();
    assert!(worst < Some(Duration::from_millis(20)), "{worst:?}");
    assert_eq!(world.network.most_in_flight("slow"), 64);
}

#[tokio::test(start_paused = true)]
async fn case_018_forty_hanging_endpoints_leave_slots_for_others() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("quick").await;
    world.network.set("quick", answers(200, 5));
    for number in 0..40 {
        let host = format!("slow-{number}");
        world.endpoint(&host).await;
        world.network.set(&host, answers(0, 0));
        world.publish_all(&host, 100).await;
    }
    let worst = latencies(&world, "quick", 1_000).await.into_iter().max();
    assert!(worst < Some(Duration::from_millis(20)), "{worst:?}");
    assert!(world.network.most_in_flight("") <= 512);
}

#[tokio::test(start_paused = true)]
async fn failing_endpoints_share_a_quarter_of_the_slots() {
    let world = World::new(EngineSettings::default()).await;
    for number in 0..20 {
        let host = format!("down-{number}");
        world.endpoint(&host).await;
        world.network.set(&host, answers(0, 0));
        world.publish_all(&host, 5).await;
    }
    world.pass(11 * SECOND).await;
    let sent = world.network.log().len();
    assert_eq!(sent, 100);
    for number in 0..20 {
        world.publish_all(&format!("down-{number}"), 100).await;
    }
    world.pass(5 * SECOND).await;
    let under_way = world.network.log().len() - sent;
    assert!((100..=128).contains(&under_way), "{under_way} of 512");
}

#[tokio::test(start_paused = true)]
async fn a_publisher_waits_once_for_a_lane_that_does_not_move() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("slow").await;
    world.network.set("slow", answers(0, 0));
    let before = world.clock_now();
    for _ in 0..300 {
        world.publish("slow").await;
        world.settle().await;
    }
    let took = world.clock_now() - before;
    assert!(took <= Duration::from_millis(300 + 110), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_s_own_limit_of_requests_in_flight_holds() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint_with("one", |settings| settings.max_in_flight = Some(1)).await;
    world.endpoint_with("many", |settings| settings.max_in_flight = Some(1_000)).await;
    for host in ["one", "many"] {
        world.network.set(host, answers(200, 50));
        for _ in 0..5 {
            world.publish_all(host, 40).await;
        }
    }
    world.pass(20 * SECOND).await;
    assert_eq!(world.network.log().len(), 400);
    assert_eq!(world.network.most_in_flight("one"), 1);
    assert_eq!(world.network.most_in_flight("many"), 64);
}

#[tokio::test(start_paused = true)]
async fn the_global_limit_holds_and_lanes_get_equal_parts() {
    let settings = EngineSettings { in_flight_max: 12, ..EngineSettings::default() };
    let world = World::new(settings).await;
    for host in ["a", "b", "c"] {
        world.endpoint(host).await;
        world.network.set(host, answers(200, 100));
        world.publish_all(host, 60).await;
    }
    world.pass(SECOND).await;
    let sent: Vec<_> = ["a", "b", "c"].map(|host| world.network.to(host).len()).into();
    assert!(world.network.most_in_flight("") <= 12);
    let (least, most) = (sent.iter().min(), sent.iter().max());
    assert!(least >= Some(&20) && most <= Some(&40), "{sent:?}");
    world.pass(20 * SECOND).await;
    assert_eq!(world.network.log().len(), 180);
}

#[tokio::test(start_paused = true)]
async fn retries_and_new_events_take_turns() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint_with("a", |settings| settings.max_in_flight = Some(2)).await;
    world.network.set("a", answers(500, 1));
    let old = world.publish_all("a", 400).await;
    world.pass(50 * SECOND).await;
    let tried = world.network.log().len();
    assert_eq!(tried, 400);
    world.network.set("a", answers(200, 10));
    world.pass(20 * SECOND).await;
    // The retries are being worked off; new events come in at the same time.
    let mut new = Vec::new();
    for _ in 0..50 {
        new.push(world.publish("a").await);
        world.pass(Duration::from_millis(50)).await;
    }
    world.settle().await;
    for event in &new {
        assert_eq!(world.state(*event).await, State::Delivered, "new ones did not wait");
    }
    world.pass(120 * SECOND).await;
    for event in old {
        assert_eq!(world.state(event).await, State::Delivered, "nor did the retries starve");
    }
}

/// What each group writes, somebody's accept may have to wait for.
#[tokio::test(start_paused = true)]
async fn what_an_endpoint_that_fails_comes_to_is_written_ten_times_a_second_at_most() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("down").await;
    world.network.set("down", answers(503, 3));
    world.publish_all("down", 1_000).await;
    world.pass(SECOND).await;
    let before = (world.network.count("down"), world.store.settles.load(SeqCst));
    world.pass(8 * SECOND).await;
    let tried = world.network.count("down") - before.0;
    let groups = world.store.settles.load(SeqCst) - before.1;
    assert!(tried > 700, "{tried}");
    assert!((40..=81).contains(&groups), "{groups} groups of {tried} results");
}

/// The success that ends an outage is counted after the failures before it, though these wait.
#[tokio::test(start_paused = true)]
async fn results_are_recorded_in_the_order_of_their_attempts() {
    let world = World::new(EngineSettings::default()).await;
    let endpoint = world.endpoint("a").await;
    world.network.set("a", answers(503, 3));
    world.publish_all("a", 20).await;
    world.pass(Duration::from_millis(10)).await;
    world.network.set("a", answers(200, 3));
    world.publish("a").await;
    world.pass(5 * SECOND).await;
    let tenant = TenantId::default_tenant();
    let health = world.store.inner.endpoint_health(tenant, vec![endpoint]).await.expect("health");
    assert_eq!(world.network.count("a"), 21);
    assert_eq!(health.get(&endpoint).copied().unwrap_or_default(), EndpointHealth::default());
}
