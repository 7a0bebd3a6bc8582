//! Acknowledged changes hold at once, with deliveries due, waiting for a slot and in flight.

use std::time::Duration;

use everhook_domain::delivery::{CancelReason, State};
use everhook_domain::endpoint::EndpointVerb;
use everhook_domain::secret::Secret;
use everhook_domain::tenant::TenantId;
use everhook_engine::EngineSettings;
use everhook_store::{
    Act, Change, DirectoryStore, EventQuery, PageRequest, Reading, Refusal, Sending, StoreError,
};

use crate::delivery::verifies;
use crate::world::{World, answers};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

async fn world() -> World {
    World::new(EngineSettings::default()).await
}

async fn create(world: &World, tenant: &TenantId) -> Result<(), StoreError> {
    let name = "A shop".parse().expect("legal");
    let change = Change::CreateTenant { id: tenant.clone(), name };
    world.store.change(change, None, world.now()).await.map(drop)
}

/// Some are on the wire, some wait for a slot, some for their second attempt, and some in memory.
#[tokio::test(start_paused = true)]
async fn case_010_no_request_starts_after_a_tenant_is_deleted() {
    let mut world = world().await;
    let neighbour = world.endpoint("b").await;
    let shop: TenantId = "shop".parse().expect("legal");
    create(&world, &shop).await.expect("new");
    let default = std::mem::replace(&mut world.tenant, shop.clone());
    world.endpoint("a").await;
    world.network.set("a", answers(500, 5));
    let events = world.publish_all("a", 900).await;
    world.pass(Duration::from_millis(12)).await;
    let change = Change::DeleteTenant(shop.clone());
    world.store.change(change, None, world.now()).await.expect("deleted");
    let sent = world.network.count("a");
    assert!(sent > 64 && sent < 900, "{sent}");
    assert_eq!(create(&world, &shop).await, Err(StoreError::Refused(Refusal::StillErasing)));
    let gone = world.store.event(shop.clone(), events[0]).await.map(drop);
    assert_eq!(gone, Err(StoreError::Refused(Refusal::NotFound)));

    world.tenant = default;
    let beside = world.publish("b").await;
    world.pass(SECOND).await;
    assert_eq!(world.state(beside).await, State::Delivered, "nobody waits for the erasing");
    world.pass(2 * DAY).await;
    assert_eq!(world.network.count("a"), sent, "nothing was sent afterwards");

    create(&world, &shop).await.expect("its id is free when all is erased");
    let page = PageRequest { limit: 10, after: None, scan_limit: 1_000 };
    let left = world.store.events(shop, EventQuery::default(), page).await.expect("readable");
    assert!(left.items.is_empty());
    assert_eq!(world.held_bytes(), 0, "nor in memory");
    assert!(world.store.directory().expect("there").endpoint(neighbour).is_some());
}

/// The process dies amid the erasing, with leases that nobody will end.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_being_erased_stays_silent_after_a_crash() {
    let mut world = world().await;
    let shop: TenantId = "shop".parse().expect("legal");
    create(&world, &shop).await.expect("new");
    let default = std::mem::replace(&mut world.tenant, shop.clone());
    world.endpoint("a").await;
    world.network.set("a", answers(0, 0));
    world.publish_all("a", 900).await;
    world.settle().await;
    let sent = world.network.count("a");
    let change = Change::DeleteTenant(shop.clone());
    world.store.change(change, None, world.now()).await.expect("deleted");
    world.crash().await;
    assert_eq!(create(&world, &shop).await, Err(StoreError::Refused(Refusal::StillErasing)));
    world.pass(DAY).await;
    assert_eq!(world.network.count("a"), sent);
    create(&world, &shop).await.expect("its id is free");
    world.tenant = default;
    world.endpoint("b").await;
    let event = world.publish("b").await;
    world.pass(SECOND).await;
    assert_eq!(world.state(event).await, State::Delivered);
}

#[tokio::test(start_paused = true)]
async fn disabling_and_enabling_at_once_leaves_nothing_in_between() {
    let world = world().await;
    let endpoint = world.endpoint("a").await;
    world.network.set("a", answers(500, 2_000));
    let old = world.publish("a").await;
    world.settle().await;
    world.act_on(endpoint, EndpointVerb::Disable).await;
    let unseen = world.publish_all("a", 1).await[0];
    world.act_on(endpoint, EndpointVerb::Enable).await;
    world.network.set("a", answers(200, 1));
    let new = world.publish("a").await;
    world.pass(2 * DAY).await;
    assert_eq!(world.state(old).await, State::Cancelled(CancelReason::EndpointDisabled));
    assert_eq!(world.state(new).await, State::Delivered);
    assert_eq!(world.network.count("a"), 2, "the old one once, the new one once");
    let delivery = world.store.delivery(world.tenant.clone(), unseen.delivery(1)).await;
    assert_eq!(delivery, Ok(None), "accepted while it was disabled");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_backlog_is_cancelled_and_then_enabled() {
    let world = world().await;
    let endpoint = world.endpoint("a").await;
    world.act_on(endpoint, EndpointVerb::Pause).await;
    let mut backlog = Vec::new();
    for _ in 0..3 {
        backlog.extend(world.publish_all("a", 1_000).await);
    }
    world.act_on(endpoint, EndpointVerb::Disable).await;
    let enable = Change::ActOnEndpoint {
        tenant: world.tenant.clone(),
        endpoint,
        verb: EndpointVerb::Enable,
    };
    let refused = world.store.change(enable, None, world.now()).await.map(drop);
    assert_eq!(refused, Err(StoreError::Refused(Refusal::StillCancelling)));
    world.pass(SECOND).await;
    world.act_on(endpoint, EndpointVerb::Enable).await;
    let new = world.publish("a").await;
    world.pass(2 * DAY).await;
    for event in backlog {
        let state = world.state(event).await;
        assert_eq!(state, State::Cancelled(CancelReason::EndpointDisabled));
    }
    assert_eq!((world.state(new).await, world.network.log().len()), (State::Delivered, 1));
}

/// Each receiver knows one of the two secrets; both understand all that is sent in the overlap.
#[tokio::test(start_paused = true)]
async fn case_025_what_is_pending_is_signed_with_both_secrets_in_the_overlap_only() {
    let world = world().await;
    let endpoint = world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish_all("a", 3).await;
    world.pass(SECOND).await;
    world.rotate(endpoint, Secret::from_bytes([9; 32]), 3_600 * SECOND).await;
    world.pass(2 * DAY).await;
    let log = world.network.log();
    assert_eq!(log.len(), 3 * 7);
    for sent in log {
        let (old, new) = (verifies(&sent, [7; 32]), verifies(&sent, [9; 32]));
        let expected = match sent.at {
            at if at < SECOND => (true, false),
            at if at < 3_601 * SECOND => (true, true),
            _ => (false, true),
        };
        assert_eq!((old, new), expected, "attempt {} at {:?}", sent.number(), sent.at);
    }
}

/// A replay that is owed to one in flight goes with the endpoint, and leaves no lease behind.
#[tokio::test(start_paused = true)]
async fn case_104_a_replay_at_an_endpoint_that_is_disabled_ends() {
    let world = world().await;
    let endpoint = world.endpoint("a").await;
    world.network.set("a", answers(500, 1_000));
    let event = world.publish("a").await;
    world.settle().await;
    world.act(event.delivery(1), Act::Replay).await;
    world.act_on(endpoint, EndpointVerb::Disable).await;
    world.pass(2 * DAY).await;
    let cancelled = State::Cancelled(CancelReason::EndpointDisabled);
    assert_eq!((world.state(event).await, world.network.count("a")), (cancelled, 1));
    let (tenant, delivery) = (world.tenant.clone(), event.delivery(1));
    let replay = world.store.act(tenant, delivery, Act::Replay, None, world.now()).await;
    assert!(matches!(replay, Err(StoreError::Refused(Refusal::Step(_)))), "{replay:?}");
    assert_eq!(world.state(event).await, cancelled);
}
