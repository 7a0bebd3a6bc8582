//! Tenants come and go: what holds when the deletion is answered, and what is left in the end.

use std::collections::BTreeMap;

use everhook_domain::bulk::BulkKind;
use everhook_domain::conversation::{Command, NewConversation};
use everhook_domain::endpoint::EndpointVerb::Disable;
use everhook_domain::id::{ConversationId, EndpointId, EventId};
use everhook_domain::idempotency::claim::{Finished, Taken};
use everhook_domain::tenant::{Tenant, TenantId};
use everhook_store::{
    Act, BulkRequest, Change, Changed, Claim, Claimed, DeliveryQuery, EventQuery, HeldClaim,
    JobStep, LeasedDelivery, PageRequest, Published, Refusal, Settled, StoreError, Taking,
};

use crate::backend::Kind;
use crate::bulk::try_start;
use crate::conversations::message;
use crate::keys::{ROOM, TTL, held, remembered, taking};
use crate::sketch::{
    claim, create_tenant, event, events, everything, finished, keyed, publish_in, secret, secrets,
    secs, settings, tenant,
};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(tenants_have_names_that_survive_a_crash),
        case(the_default_tenant_cannot_be_deleted),
        case(nothing_of_a_deleted_tenant_is_accepted_read_or_changed),
        case(nothing_of_a_deleted_tenant_is_started),
        case(a_result_of_a_deleted_tenant_does_no_harm),
        case(nothing_is_left_of_an_erased_tenant),
        case(erasing_goes_in_steps_between_which_others_publish),
        case(an_id_is_free_when_its_tenant_is_erased),
        case(a_tenant_is_deleted_while_its_endpoint_is_swept),
    ]
}

/// The most rows of one step.
const STEP_ROWS: i64 = 500;
const PAGE: PageRequest = PageRequest { limit: 10, after: None, scan_limit: 1_000 };

fn refused<T>(refusal: Refusal) -> Result<T, StoreError> {
    Err(StoreError::Refused(refusal))
}

fn delete(world: &World, tenant: &TenantId) {
    assert!(matches!(world.change(Change::DeleteTenant(tenant.clone())), Ok(Changed::Nothing)));
}

fn claim_of<T: std::fmt::Debug>(tenant: &TenantId, key: &str) -> Claim<T> {
    Claim { tenant: tenant.clone(), ..claim(key, "{}") }
}

/// Publishes one event under an idempotency key.
fn publish_under(
    world: &World,
    tenant: &TenantId,
    key: &str,
) -> Result<Claimed<Published>, StoreError> {
    let publish = publish_in(tenant, events(1));
    world.wait(world.store.publish(publish, Some(claim_of(tenant, key)), world.now))
}

fn publish_in_all(world: &World, tenant: &TenantId, count: usize) -> Published {
    world.try_publish(publish_in(tenant, events(count))).unwrap()
}

/// A tenant with one of everything; a stranger with the same beside it.
struct Shop {
    world: World,
    shop: TenantId,
    endpoint: EndpointId,
    talk: ConversationId,
    /// Failed once, and due again.
    failed: EventId,
    /// Claimed.
    leased: LeasedDelivery,
    /// Leased at birth.
    born: LeasedDelivery,
}

fn shop(kind: Kind) -> Shop {
    let mut world = World::new(kind);
    let shop = world.add_tenant("shop");
    let endpoint = world.endpoint_for(&shop, &["*"]);
    world.endpoint();
    world.publish(vec![keyed("first", "1")]);
    world.try_publish(publish_in(&shop, vec![keyed("first", "1")])).unwrap();
    let failed = world.claim_all(endpoint).remove(0);
    // A crash is an interruption, and the next try fails.
    world.crash();
    assert_eq!(world.lapse(), 1);
    let again = world.claim_one(endpoint);
    assert_eq!(again.id, failed.id);
    world.finish(&again, 500);
    assert!(matches!(publish_under(&world, &shop, "k"), Ok(Claimed::Done(_))));
    for name in ["open", "done"] {
        let taking = Taking { tenant: shop.clone(), ..taking(name, 1) };
        assert_eq!(world.try_take(taking, ROOM), Ok(Taken::Yes));
    }
    let done = HeldClaim { tenant: shop.clone(), ..held("done", 1) };
    let finished = world.store.finish(done, remembered(b"x").encode(), TTL, world.now);
    assert_eq!(world.wait(finished), Ok(Finished::Now));
    let leased = world.claim_one(endpoint);
    let talk = world.create_in(&shop, NewConversation::default());
    world.try_converse_in(&shop, talk.id, message("Hello")).unwrap();
    world.lanes.give(endpoint, 1);
    publish_in_all(&world, &shop, 2);
    let born = world.lanes.handed().remove(0);
    // One that is not finished, and would send.
    let request = BulkRequest {
        tenant: shop.clone(),
        kind: BulkKind::Replay,
        filter: DeliveryQuery::default(),
        rate_per_second: 1,
        dry_run: false,
    };
    let matched = try_start(&world, request).unwrap().matched;
    assert!(matched > Some(1), "{matched:?}");
    Shop { world, shop, endpoint, talk: talk.id, failed: failed.id.event(), leased, born }
}

fn tenants_have_names_that_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let default = world.now;
    world.advance(secs(5));
    let change = Change::CreateTenant { id: tenant("shop"), name: "Käse & Co".parse().unwrap() };
    world.change(change).unwrap();
    let made =
        Tenant { id: tenant("shop"), name: "Käse & Co".parse().unwrap(), created_at: world.now };
    for _ in 0..2 {
        let directory = world.store.directory().unwrap();
        assert_eq!(directory.tenant(&made.id), Some(&made));
        let of_default = directory.tenant(&TenantId::default_tenant()).unwrap();
        assert_eq!(of_default.name.as_str(), "default");
        assert!(kind.name != "postgres" || of_default.created_at == default);
        assert_eq!(directory.tenant(&tenant("other")), None);
        world.crash();
    }
}

fn the_default_tenant_cannot_be_deleted(kind: Kind) {
    let world = World::new(kind);
    let change = Change::DeleteTenant(TenantId::default_tenant());
    assert_eq!(world.change(change).map(drop), refused(Refusal::DefaultTenant));
    assert_eq!(world.publish(events(1)).len(), 1);
    let change = Change::DeleteTenant(tenant("nobody"));
    assert_eq!(world.change(change).map(drop), refused(Refusal::NotFound));
    assert_eq!((world.lanes.job_hints(), world.job_step()), (0, JobStep::Idle));
}

/// At once, after each step of the erasing, and after a restart amid it.
fn nothing_of_a_deleted_tenant_is_accepted_read_or_changed(kind: Kind) {
    let Shop { mut world, shop, endpoint, talk, failed, .. } = shop(kind);
    delete(&world, &shop);
    assert!(world.lanes.job_hints() > 0);
    loop {
        let (store, now) = (&world.store, world.now);
        let not_found = refused::<()>(Refusal::NotFound);
        let directory = store.directory().unwrap();
        assert!(!directory.has_tenant(&shop) && directory.endpoints_of(&shop).is_empty());
        assert!(directory.endpoint(endpoint).is_none(), "nothing that signs is left");
        let published = world.try_publish(publish_in(&shop, events(1)));
        assert_eq!(published.map(drop), not_found);
        assert_eq!(publish_under(&world, &shop, "k").map(drop), not_found, "nor replayed");
        assert_eq!(world.wait(store.event(shop.clone(), failed)).map(drop), not_found);
        let delivery = store.delivery(shop.clone(), failed.delivery(1));
        assert_eq!(world.wait(delivery).map(drop), not_found);
        let list = store.events(shop.clone(), EventQuery::default(), PAGE);
        assert_eq!(world.wait(list).map(drop), not_found);
        let list = store.deliveries(shop.clone(), DeliveryQuery::default(), PAGE);
        assert_eq!(world.wait(list).map(drop), not_found);
        let act = store.act(shop.clone(), failed.delivery(1), Act::Replay, None, now);
        assert_eq!(world.wait(act).map(drop), not_found);
        let again = store.send_again(shop.clone(), failed, None, None, now);
        assert_eq!(world.wait(again).map(drop), not_found);
        assert_eq!(world.try_converse_in(&shop, talk, Command::Delete).map(drop), not_found);
        assert_eq!(world.wait(store.conversation(shop.clone(), talk)).map(drop), not_found);
        let list = store.changed_since(shop.clone(), None, PAGE);
        assert_eq!(world.wait(list).map(drop), not_found);
        let tenant = shop.clone();
        let create =
            Change::CreateEndpoint { tenant, settings: settings(&["*"]), secrets: secrets(1) };
        let tenant = shop.clone();
        let rotate = Change::RotateSecret { tenant, endpoint, secret: secret(2), overlap: secs(9) };
        let disable = Change::ActOnEndpoint { tenant: shop.clone(), endpoint, verb: Disable };
        for change in [create, rotate, disable, Change::DeleteTenant(shop.clone())] {
            assert_eq!(world.change(change).map(drop), not_found);
        }
        world.crash();
        if world.job_step() == JobStep::Idle {
            break;
        }
    }
    assert_eq!(world.events().len(), 1, "the stranger's is there");
}

/// Case 10, for a tenant: what waits is not claimed, whatever comes back.
fn nothing_of_a_deleted_tenant_is_started(kind: Kind) {
    let Shop { mut world, shop, endpoint, leased, born, .. } = shop(kind);
    delete(&world, &shop);
    world.advance(secs(1_000_000));
    assert_eq!(world.claim(everything(endpoint)).0, []);
    world.release_all(&[leased]);
    world.finish(&born, 500);
    assert_eq!(world.claim(everything(endpoint)).0, []);
    world.crash();
    world.lapse();
    assert_eq!(world.claim(everything(endpoint)).0, []);
    world.run_jobs();
    assert_eq!(world.claim(everything(endpoint)).0, []);
    assert!(world.due().iter().all(|lane| lane.endpoint != endpoint));
}

fn a_result_of_a_deleted_tenant_does_no_harm(kind: Kind) {
    let Shop { mut world, shop, leased, born, .. } = shop(kind);
    delete(&world, &shop);
    assert_eq!(world.finish(&leased, 200), Settled::Recorded, "it was on the wire");
    world.run_jobs();
    assert_eq!(world.finish(&born, 200), Settled::Stale);
    let now = world.now;
    assert_eq!(world.settle(vec![finished(&leased, now, 500)]), [Settled::Stale]);
    let left = world.rows();
    assert_eq!((left["attempts"], left["interruptions"]), (0, 0));
    world.crash();
    assert_eq!(world.lapse(), 0);
}

fn nothing_is_left_of_an_erased_tenant(kind: Kind) {
    let mut world = World::new(kind);
    let before = world.rows();
    drop(world);
    let Shop { mut world, shop, .. } = shop(kind);
    delete(&world, &shop);
    world.run_jobs();
    let mut expected = before;
    // The stranger's.
    for (table, rows) in [("endpoints", 1), ("events", 1), ("deliveries", 1)] {
        *expected.get_mut(table).unwrap() += rows;
    }
    let keys = if kind.name == "postgres" { "source_event_ids" } else { "key_log" };
    *expected.get_mut(keys).unwrap() += 1;
    assert_eq!(world.rows(), expected);
}

/// More rows than a step may touch, in every table; the process dies after each step.
fn erasing_goes_in_steps_between_which_others_publish(kind: Kind) {
    let mut world = World::new(kind);
    let shop = world.add_tenant("shop");
    let endpoints = [world.endpoint_for(&shop, &["*"]), world.endpoint_for(&shop, &["*"])];
    let own = world.endpoint();
    for batch in 0..2 {
        let keys = (0..300).map(|n| keyed(&format!("{batch}-{n}"), "1")).collect();
        world.try_publish(publish_in(&shop, keys)).unwrap();
    }
    for endpoint in endpoints {
        world.finish_all(&world.claim_all(endpoint), 500);
    }
    assert!(matches!(publish_under(&world, &shop, "k"), Ok(Claimed::Done(_))));
    for number in 0..510 {
        let taking = Taking { tenant: shop.clone(), ..taking(&number.to_string(), 1) };
        assert_eq!(world.try_take(taking, ROOM), Ok(Taken::Yes));
    }
    delete(&world, &shop);
    let total = |rows: &BTreeMap<String, i64>| rows.values().sum::<i64>();
    let (mut left, mut steps) = (world.rows(), 0);
    while world.job_step() == JobStep::More {
        let now = world.rows();
        let erased = total(&left) - total(&now);
        assert!((0..=STEP_ROWS).contains(&erased), "{left:?} to {now:?}");
        let published = world.publish_one(event("a", "1"));
        assert_eq!(published.deliveries, 1);
        world.send(own, 200);
        (left, steps) = (world.rows(), steps + 1);
        assert!(steps < 40, "it does not end: {left:?}");
        if left["tenants"] == 1 {
            break;
        }
        assert_eq!(create(&world, "shop"), refused(Refusal::StillErasing));
    }
    assert!(steps > 5, "{steps}");
    assert_eq!((left["events"], left["deliveries"]), (steps, steps));
    assert_eq!(world.deliveries().len() as i64, steps);
}

fn create(world: &World, id: &str) -> Result<(), StoreError> {
    world.change(create_tenant(id)).map(drop)
}

/// Then it is as if it had never been: no key, no answer, no number of the one before is met.
fn an_id_is_free_when_its_tenant_is_erased(kind: Kind) {
    let Shop { mut world, shop, endpoint, failed, born, .. } = shop(kind);
    let newest = born.id.event();
    delete(&world, &shop);
    assert_eq!(create(&world, "shop"), refused(Refusal::StillErasing));
    world.crash();
    assert_eq!(create(&world, "shop"), refused(Refusal::StillErasing));
    world.run_jobs();
    world.crash();
    create(&world, "shop").unwrap();
    let list = world.store.events(shop.clone(), EventQuery::default(), PAGE);
    assert_eq!(world.wait(list).unwrap().items, []);
    assert!(world.wait(world.store.event(shop.clone(), failed)).unwrap().is_none());
    let new = world.endpoint_for(&shop, &["*"]);
    assert!(new.bits() > endpoint.bits());
    let again = world.try_publish(publish_in(&shop, vec![keyed("first", "1")])).unwrap();
    assert!(!again[0].duplicate && again[0].id > newest, "{again:?} after {newest}");
    if kind.name != "postgres" {
        assert!(again[0].id.sequence() > newest.sequence(), "no sequence is given twice");
        assert!(new.sequence() > endpoint.sequence());
    }
    assert!(matches!(publish_under(&world, &shop, "k"), Ok(Claimed::Done(_))), "a free key");
    assert_eq!(world.claim_all(new).len(), 2);
    assert_eq!(world.claim(everything(endpoint)).0, []);
}

fn a_tenant_is_deleted_while_its_endpoint_is_swept(kind: Kind) {
    let mut world = World::new(kind);
    let shop = world.add_tenant("shop");
    let endpoint = world.endpoint_for(&shop, &["*"]);
    publish_in_all(&world, &shop, 900);
    world.change(Change::ActOnEndpoint { tenant: shop.clone(), endpoint, verb: Disable }).unwrap();
    assert_eq!(world.job_step(), JobStep::More);
    delete(&world, &shop);
    world.run_jobs();
    let left = world.rows();
    assert_eq!((left["sweeps"], left["deliveries"], left["tenants"]), (0, 0, 1));
}
