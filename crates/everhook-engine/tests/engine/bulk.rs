//! Work on many deliveries goes on behind what is new, at its pace.

use std::time::Duration;

use everhook_domain::bulk::{BulkKind, BulkStatus};
use everhook_domain::delivery::{CancelReason, State};
use everhook_domain::endpoint::EndpointVerb;
use everhook_domain::id::{EndpointId, EventId, ReplayId};
use everhook_domain::tenant::TenantId;
use everhook_engine::EngineSettings;
use everhook_store::{Bulk, BulkRecord, BulkRequest, DeliveryQuery, StatusFilter};

use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);

/// So many events that failed once and were then cancelled with their endpoint, which is enabled
/// again and works.
async fn cancelled(world: &World, host: &str, count: usize) -> (EndpointId, Vec<EventId>) {
    let endpoint = world.endpoint(host).await;
    world.network.set(host, answers(500, 1));
    let mut events = Vec::new();
    for part in (0..count).step_by(500) {
        events.extend(world.publish_all(host, (count - part).min(500)).await);
    }
    world.pass(50 * SECOND).await;
    assert_eq!(world.network.to(host).len(), count);
    world.act_on(endpoint, EndpointVerb::Disable).await;
    world.pass(SECOND).await;
    let gone = State::Cancelled(CancelReason::EndpointDisabled);
    assert_eq!(world.state(events[count - 1]).await, gone);
    world.act_on(endpoint, EndpointVerb::Enable).await;
    world.network.set(host, answers(200, 1));
    world.publish(host).await;
    world.pass(SECOND).await;
    (endpoint, events)
}

async fn replay(world: &World, rate_per_second: u32) -> ReplayId {
    let request = BulkRequest {
        tenant: TenantId::default_tenant(),
        kind: BulkKind::Replay,
        filter: DeliveryQuery { status: Some(StatusFilter::Cancelled), ..DeliveryQuery::default() },
        rate_per_second,
        dry_run: false,
    };
    let started = world.store.start_bulk(request, None, world.now()).await.expect("begun");
    started.done().expect("no claim").id.expect("no dry run")
}

async fn progress(world: &World, id: ReplayId) -> BulkRecord {
    let found = world.store.bulk(TenantId::default_tenant(), id).await;
    found.expect("readable").expect("there")
}

#[tokio::test(start_paused = true)]
async fn case_103_a_bulk_replay_is_paced_and_new_events_keep_their_latency() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("other").await;
    let (_, events) = cancelled(&world, "old", 3_000).await;
    let before = world.network.log().len();
    let begun = world.clock_now();
    let id = replay(&world, 500).await;
    let (mut other, mut same) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        other.push((world.clock_now(), world.publish("other").await));
        same.push((world.clock_now(), world.publish("old").await));
        world.pass(Duration::from_millis(100)).await;
    }
    let middle = progress(&world, id).await;
    assert_eq!(middle.status, BulkStatus::Running);
    assert!((2_400..=2_501).contains(&middle.tally.done), "{middle:?}");
    world.pass(5 * SECOND).await;
    let end = progress(&world, id).await;
    assert_eq!((end.status, end.tally.done), (BulkStatus::Done, 3_000));
    let sent = world.network.log().split_off(before);
    assert_eq!(sent.len(), 3_100, "each of them once");
    for (asked, event) in other.iter().chain(&same) {
        let id = event.to_string();
        let at = sent.iter().find(|sent| sent.header("webhook-id") == id).map(|sent| sent.at);
        let late = at.expect("sent").saturating_sub(*asked);
        assert!(late < Duration::from_millis(20), "{event} took {late:?}");
    }
    // In no second more than what it may make up for and its pace.
    for second in 0..7 {
        let from = begun + second * SECOND;
        let replays = sent.iter().filter(|sent| sent.number() == 2);
        let count = replays.filter(|sent| sent.at >= from && sent.at < from + SECOND).count();
        assert!(count <= 600, "{count} in second {second}");
    }
    assert_eq!(world.attempts(events[0]).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn case_094_slow_work_starves_no_new_event() {
    let world = World::new(EngineSettings::default()).await;
    world.endpoint("new").await;
    cancelled(&world, "old", 1_000).await;
    world.network.set("old", answers(0, 0));
    replay(&world, 100_000).await;
    for _ in 0..20 {
        let asked = world.clock_now();
        let event = world.publish("new").await;
        world.pass(Duration::from_millis(20)).await;
        let sent = world.network.to("new").pop().expect("sent");
        assert_eq!(sent.header("webhook-id"), event.to_string());
        assert!(sent.at - asked < Duration::from_millis(20));
        assert_eq!(world.state(event).await, State::Delivered);
    }
}

#[tokio::test(start_paused = true)]
async fn paced_work_is_done_at_its_instants_and_the_engine_sleeps_between() {
    let mut world = World::new(EngineSettings::default()).await;
    cancelled(&world, "old", 4).await;
    let before = world.network.to("old").len();
    let begun = world.clock_now();
    let id = replay(&world, 1).await;
    world.pass(1_500 * SECOND / 1_000).await;
    world.crash().await;
    world.pass(10 * SECOND).await;
    let sent = world.network.to("old").split_off(before);
    let at: Vec<u128> = sent.iter().map(|sent| (sent.at - begun).as_millis()).collect();
    assert_eq!(at.len(), 4, "{at:?}");
    for (place, at) in at.iter().enumerate() {
        let due = 1_000 * place as u128;
        assert!((due..due + 110).contains(at), "{place} at {at} ms");
    }
    assert_eq!(progress(&world, id).await.tally.done, 4);
}
